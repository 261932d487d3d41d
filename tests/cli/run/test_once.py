"""One answer without a chat, from real processes: what goes to standard output, what to standard error."""

from __future__ import annotations

import shlex
import sys

import pytest
from tests.cli.command import Done, Place, assert_calm, run_command, shell, spawn

from steersman.provider.scripted.script import answer, call, cut, error, text, thinking
from steersman.testing.servers import OpenAIChatServer

CANARY = "canary-0123456789"
LOOK = answer(text("Let me look."), call("read", path="a.txt"))


@pytest.fixture
def note(place: Place) -> str:
    """A file in the project."""
    (place.project / "a.txt").write_text("the word is heron\n")
    return "a.txt"


def test_the_answer_is_all_there_is_on_standard_output(place: Place, server: OpenAIChatServer) -> None:
    server.say("Grüße, 世界.")
    done = run_command(["-p", "Hello"], place=place, server=server)
    assert (done.code, done.text) == (0, "Grüße, 世界.\n")
    assert server.requests[0]["messages"][-1] == {"role": "user", "content": "Hello"}
    # Standard error names the model and says nothing else.
    (line,) = done.errors.splitlines()
    assert line.startswith("steersman: ")
    assert "openai-chat:gpt-x" in line


@pytest.mark.usefixtures("note")
def test_what_is_said_between_tools_is_not_part_of_the_answer(place: Place, server: OpenAIChatServer) -> None:
    # Nor is an answer that broke off, where tools are at hand: the one that is asked for instead is not shown twice.
    server.say(LOOK, cut("It is heron.", after=1), "It is heron.")
    done = run_command(["-p", "Which word?"], place=place, server=server)
    assert (done.code, done.text) == (0, "It is heron.\n")
    assert "Let me look." not in done.errors
    assert_calm(done)


@pytest.mark.usefixtures("note")
def test_on_request_the_work_is_shown_on_standard_error(place: Place, server: OpenAIChatServer) -> None:
    server.say(LOOK, "It is heron.")
    done = run_command(["-p", "Which word?", "--verbose"], place=place, server=server)
    lines = done.errors.splitlines()
    assert (done.text, lines[1:3]) == ("It is heron.\n", ["Let me look.", "  read a.txt"])
    assert lines[-1].startswith("steersman: ")


def test_an_answer_is_streamed_where_no_tool_can_follow_it(place: Place, server: OpenAIChatServer) -> None:
    server.say(error("overloaded", "One two three four", after=2), answer("Five", pace=0))
    with spawn(["-p", "Count", "--no-tools"], place=place, server=server) as started:
        started.wait_for("One two")
        done = started.wait()
    # failures.md B: what was shown cannot be taken back, so it is said, and the answer starts on a line of its own.
    assert (done.code, done.text) == (0, "One two t\nFive\n")
    assert "steersman: the answer broke off and starts over\n" in done.errors


def test_output_is_harmless_utf8_whatever_the_model_and_the_locale_say(place: Place, server: OpenAIChatServer) -> None:
    """failures.md L15: also in a pipe, which may well end at a terminal."""
    locale = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    said = answer(text("\x1b[2Ja\x1b]0;title\x07b\x9bc\u202ed"), call("bash", command="\x1b[31m ls"))
    server.say(said, "Œuvre 世界 🦩\x1b[1m")
    done = run_command(["-p", "Grüße", "--verbose"], place=place, server=server, env=locale)
    assert done.code == 4  # the model stopped at a call that was denied
    assert done.text.startswith("Œuvre 世界 🦩")
    for forbidden in ("\x1b", "\x07", "\x9b", "\u202e"):
        assert forbidden not in done.text + done.errors
    assert_calm(done)


def test_json_is_one_object_that_says_everything(place: Place, server: OpenAIChatServer) -> None:
    server.key = None
    server.say(answer(thinking("hm"), text(f"Hello {CANARY}.")))
    options = ["-p", "Hi", "--output-format", "json"]
    done = run_command(options, place=place, server=server, env={"OPENAI_API_KEY": CANARY})
    assert CANARY.encode() not in done.stdout
    found = done.json
    assert [message["role"] for message in found.pop("messages")] == ["user", "assistant"]
    assert found.pop("duration") >= 0
    assert found.pop("session_id")
    assert found == {
        "text": "Hello [redacted].",
        "output": None,
        "end_reason": "done",
        "detail": "",
        "model": "openai-chat:gpt-x",
        "usage": {
            **{"input": 12, "output": 7, "cache_read": 0, "cache_write": None, "reasoning": 0, "total": 19},
            **{"cost": None, "partial": False},
        },
        "cost": None,
    }
    assert (done.code, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


def test_a_key_that_is_quoted_is_left_out(place: Place, server: OpenAIChatServer) -> None:
    """failures.md L13: a tool found it, and the model repeats it; a short one is a word and may be said."""
    (place.project / ".env").write_text(f"KEY={CANARY}\n")
    server.key = None
    server.say(call("read", path=".env"), f"The key is {CANARY}, I say, not ollama.")
    env = {"OPENAI_API_KEY": CANARY, "GROQ_API_KEY": "ollama"}
    done = run_command(["-p", "Which?", "--verbose"], place=place, server=server, env=env)
    assert (done.code, done.text) == (0, "The key is [redacted], I say, not ollama.\n")
    assert CANARY.encode() not in done.stdout + done.stderr + b"".join(file.read_bytes() for file in place.sessions)


def test_a_key_is_left_out_of_what_is_streamed_wherever_it_was_cut(place: Place, server: OpenAIChatServer) -> None:
    """failures.md L13: models send a few characters at a time, so that no piece has the whole key."""
    server.key = None
    said = f"It is {CANARY}, so {CANARY[:5]}. Or {CANARY}{CANARY}"
    server.say(
        answer(text(f"I try {CANARY}"), call("bash", command=f"echo {CANARY}"), deltas=40), answer(said, deltas=30)
    )
    args = ["Which?", "--allowed-tools", "bash"]
    done = run_command(args, place=place, server=server, env={"OPENAI_API_KEY": CANARY})
    hidden = "[redacted]"
    assert (done.code, done.text) == (0, f"I try {hidden}\n\nIt is {hidden}, so canar. Or {hidden}{hidden}\n")
    assert done.errors.splitlines()[1] == f"  bash echo {hidden}"


def test_what_is_allowed_runs_and_what_would_have_to_be_asked_is_denied_with_advice(
    place: Place, server: OpenAIChatServer
) -> None:
    commands = [call("bash", command=f"touch {name}") for name in ("made", "more", "most")]
    server.say(answer(*commands, call("write", path="a", content="b")), "Made.")
    done = run_command(["-p", "Make it", "--allowed-tools", "bash(touch made)"], place=place, server=server)
    assert (done.code, done.text) == (4, "Made.\n")
    assert [path.name for path in place.project.iterdir()] == ["made"]
    denied = "was denied because it needs approval. To allow it: --allowed-tools"
    assert done.errors.splitlines()[1:] == [
        f"steersman: bash {denied} 'bash(touch more)'",
        f"steersman: bash {denied} 'bash(touch most)'",
        f"steersman: write {denied} 'write(a)'",
    ]


def test_the_rule_that_is_named_lets_that_very_command_through(place: Place, server: OpenAIChatServer) -> None:
    """And where a rule or the mode denies it anyway, no rule is named."""
    odd = "touch \"a 'b', (c)\" && touch more"
    server.say(answer(call("bash", command=odd), call("bash", command="cat <<E > x\nE")), "No.")
    done = run_command(["-p", "Make it"], place=place, server=server)
    first, second = done.errors.splitlines()[1:]
    (rule,) = shlex.split(first.partition("--allowed-tools ")[2])
    assert "and no rule is offered for it: the command is not understood" in second
    server.say(answer(call("bash", command=odd)), "Made.")
    done = run_command(["-p", "Make it", "--allowed-tools", rule], place=place, server=server)
    assert (place.project / "a 'b', (c)").exists()
    for options in (["--permission-mode", "plan"], ["--session-dir", str(place.home)]):
        denies = place.home / "config" / "steersman" / "config.toml"
        denies.parent.mkdir(parents=True, exist_ok=True)
        denies.write_text("[approval]\ndeny = ['bash']\n")
        server.say(answer(call("bash", command=odd)), "No.")
        done = run_command(["-p", "Make it", *options], place=place, server=server)
        assert "--allowed-tools" not in done.errors


def test_no_advice_allows_another_tool_because_of_the_name_of_a_file(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("write", path="a),bash,write(b", content="")), "No.")
    done = run_command(["-p", "Make it"], place=place, server=server)
    (line,) = done.errors.splitlines()[1:]
    assert line.endswith("no rule can allow just this call. To allow every call of it: --allowed-tools write")


def test_a_closed_standard_output_is_told_before_anything_is_spent(place: Place, server: OpenAIChatServer) -> None:
    done = shell("$STEERSMAN -p Hello >&-", place=place, server=server)
    assert done == Done(1, b"", b"steersman: Standard output is closed, so the answer cannot be written.\n")
    assert server.requests == []


@pytest.mark.parametrize("options", ["", "--output-format stream-json"])
def test_a_full_disk_is_told_and_is_an_error(place: Place, server: OpenAIChatServer, options: str) -> None:
    server.say("Hello.")
    done = shell(f"$STEERSMAN -p Hello {options} >/dev/full", place=place, server=server)
    assert (done.code, done.stdout) == (1, b"")
    assert "steersman: cannot write to standard output: No space left on device.\n" in done.errors
    assert_calm(done)


def test_no_file_gets_the_number_of_a_closed_descriptor(place: Place) -> None:
    """What is meant for standard error must not end up in a session."""
    program = (
        "from steersman.cli.terminal.descriptors import open_missing_descriptors; open_missing_descriptors();"
        "file = open('number', 'w');"
        "file.write(str(file.fileno() > 2))"
    )
    done = shell(f'{sys.executable} -c "{program}" <&- >&- 2>&-', place=place)
    assert (done.code, (place.project / "number").read_text()) == (0, "True")


def test_a_closed_standard_error_is_no_error(place: Place, server: OpenAIChatServer) -> None:
    server.say("Hello.")
    done = shell("$STEERSMAN -p Hello 2>&-", place=place, server=server)
    assert done == Done(0, b"Hello.\n", b"")


def test_a_full_standard_error_is_no_error(place: Place, server: OpenAIChatServer) -> None:
    server.say("Hello.")
    done = shell("$STEERSMAN -p Hello 2>/dev/full", place=place, server=server)
    assert done == Done(0, b"Hello.\n", b"")


def test_without_p_a_pipe_gets_all_that_is_said_and_standard_error_the_work(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say(answer(text("I look."), call("list", path=".")), "Nothing there.")
    done = run_command(["What is here?"], place=place, server=server)
    assert (done.code, done.stdout) == (0, b"I look.\n\nNothing there.\n")
    model, tool, cost = done.errors.splitlines()
    assert model == "steersman: Using openai-chat:gpt-x (--model)."
    assert tool == "  list ."
    assert cost.startswith("steersman: ")
