"""One answer on a real terminal: drawn for a person, who is asked before anything is changed and can always leave."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping

import pytest
from tests.cli.command import Place, command_line, ends_of, environment, new_marker, processes_with, wait_until_gone
from tests.cli.fork_server import COMMAND
from tests.cli.pty_terminal import Terminal

from steersman.provider.scripted.script import answer, call, stall, text
from steersman.testing.servers import OpenAIChatServer, Reply

SIZES = [(120, 40), (80, 24), (40, 15)]
QUESTION = "type what to do instead"
TOUCH = answer(text("I make it."), call("bash", command="touch made"))


def on_terminal(
    args: list[str], place: Place, server: OpenAIChatServer, more: Mapping[str, str] | None = None
) -> Terminal:
    return Terminal(
        command_line(args, server), columns=100, env=environment(place, server, more), cwd=place.project, patience=60
    )


def answer_with(terminal: Terminal, key: str) -> None:
    """Answer a question once that counts: what is typed before it can have been read does not."""
    terminal.wait_for(lambda at: at.cursor_line == "?")
    terminal.type(key)
    terminal.press("enter")


def test_an_answer_is_drawn_for_people(place: Place, server: OpenAIChatServer) -> None:
    server.say("Some **bold** words and\n\n- a point\n- another \x1b[2Jpoint")
    with on_terminal(["Hello"], place, server) as terminal:
        code = terminal.ended()
        shown = terminal.everything
    assert code == 0
    assert "Some bold words and" in shown
    assert "**" not in shown
    assert b"\x1b[2J" not in terminal.raw
    assert (terminal.cursor_shown, "Traceback" in shown) == (True, False)


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_json_on_a_terminal_has_nothing_that_the_terminal_acts_on(
    place: Place, server: OpenAIChatServer, form: str
) -> None:
    """C1 controls, which begin sequences without ESC, bidirectional controls and invisible tags; it stays JSON."""
    said = "a\x9b2Jb\x85c\u202ed\u2066e\u2028f\x7fg\U000e0041h é 漢"
    server.say(said)
    with on_terminal(["-p", "Hello", "--output-format", form], place, server) as terminal:
        assert terminal.ended() == 0
        raw = terminal.raw.decode()
    assert not re.search("[\x7f-\x9f\u202e\u2066\u2028\U000e0041]", raw)
    lines = [json.loads(line) for line in raw.splitlines() if line.startswith("{")]
    assert said in str(lines[-1]["messages"][-1]["content"][0]["text"])


@pytest.mark.parametrize("way", ["dumb", "without the extra"])
def test_plain_text_is_streamed_where_nothing_can_be_drawn(place: Place, server: OpenAIChatServer, way: str) -> None:
    server.say(answer(text("I **look**."), call("list", path=".")), "Nothing there.")
    more = {"TERM": "dumb"}
    if way != "dumb":
        package = place.home / "shadow" / "rich"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')\n")
        more = {"PYTHONPATH": str(package.parent)}
    with on_terminal(["Look"], place, server, more) as terminal:
        assert terminal.ended() == 0
        assert b"\x1b" not in terminal.raw
        shown = [line for line in terminal.everything.splitlines() if line]
    assert [line for line in shown if not line.startswith("steersman: ")] == [
        "I **look**.",
        "  list .",
        "Nothing there.",
    ]


def test_a_person_is_asked_with_the_command_before_their_eyes(place: Place, server: OpenAIChatServer) -> None:
    server.say(TOUCH, call("bash", command="touch more"), "So be it.")
    with on_terminal(["Make it"], place, server) as terminal:
        terminal.wait_for(QUESTION)
        assert "touch made" in terminal.shown
        answer_with(terminal, "y")
        terminal.wait_for("touch more")
        answer_with(terminal, "n")
        assert terminal.ended() == 0
        assert "So be it." in terminal.everything
        assert terminal.as_before
    assert [path.name for path in place.project.iterdir()] == ["made"]


@pytest.mark.parametrize("way", ["$STEERSMAN Go", "$STEERSMAN Go <&-"])
def test_what_the_model_says_stands_above_the_question_and_never_under_it(
    place: Place, server: OpenAIChatServer, way: str
) -> None:
    server.say(answer(text("Shall I?\n\n  │ ls\n\nSay y."), call("bash", command="touch made"), deltas=20), "Made.")
    more = {"TERM": "dumb", "STEERSMAN": " ".join(command_line([], server))}
    env = environment(place, server, more)
    with Terminal(["bash", "-c", way], columns=40, env=env, cwd=place.project) as terminal:
        terminal.wait_for(lambda at: at.cursor_line == "?")
        lines = terminal.everything.split("\n")
        said, asked = lines.index("Say y."), lines.index("May the agent run this command?")
        assert said < asked
        assert "steersman: Using openai-chat:gpt-x (--model)." in " ".join(lines[:asked])
        assert lines[asked + 1] == "  │ touch made"
        assert lines[lines.index("?") - 2 : lines.index("?")] == [
            "y yes, once · n no · or type what to do",
            "instead",
        ]
        terminal.type("y")
        terminal.press("enter")
        assert terminal.ended() == 0
    assert (place.project / "made").exists()


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_user_is_not_asked_with_print(place: Place, server: OpenAIChatServer, columns: int, rows: int) -> None:
    failure = Reply(500, {"error": {"message": "It broke.", "type": "server_error"}}, {"retry-after": "0.1"})
    server.say(TOUCH, failure, "I **may** not.")
    with Terminal(
        command_line(["-p", "Make it"], server),
        columns=columns,
        rows=rows,
        env=environment(place, server),
        cwd=place.project,
        patience=60,
    ) as terminal:
        assert terminal.ended() == 4
        shown = terminal.everything
        assert "--allowed-tools'bash(touchmade)'" in "".join(shown.split())
        assert "overloaded" not in shown
        assert "server error (HTTP 500)" in " ".join(shown.split())
        # What is drawn is the same as without it.
        assert "I may not." in shown
    assert list(place.project.iterdir()) == []


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_rule_that_denies_is_named(place: Place, server: OpenAIChatServer, columns: int, rows: int) -> None:
    config = place.home / "config" / "steersman" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[approval]\ndeny = ["bash(touch:*)"]\n')
    server.say(TOUCH, "I may not.")
    line, env = command_line(["-p", "Make it"], server), environment(place, server)
    with Terminal(line, columns=columns, rows=rows, env=env, cwd=place.project) as terminal:
        assert terminal.ended() == 4
        assert "Denied by the rule 'bash(touch:*)'." in " ".join(terminal.everything.split())
        # No rule that allows it would help.
        assert "--allowed-tools" not in terminal.everything
    assert list(place.project.iterdir()) == []


def test_ctrl_c_leaves_while_a_question_waits(place: Place, server: OpenAIChatServer) -> None:
    """failures.md F10."""
    server.say(TOUCH)
    with on_terminal(["Make it"], place, server) as terminal:
        terminal.wait_for(QUESTION)
        terminal.press("ctrl+c")
        code = terminal.ended()
        assert (code, terminal.as_before, terminal.cursor_shown) == (130, True, True)
        assert "Traceback" not in terminal.everything
    assert ends_of(place) == ["aborted"]
    assert list(place.project.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(place: Place, server: OpenAIChatServer, number: signal.Signals) -> None:
    """failures.md F10."""
    server.say(stall("One two three", after=3))
    with on_terminal(["Count"], place, server) as terminal:
        terminal.wait_for("One two")
        terminal.signal(number)
        code = terminal.ended()
        assert (code, terminal.as_before, terminal.cursor_shown) == (128 + number, True, True)
        assert "Traceback" not in terminal.everything
    assert ends_of(place) == ["aborted"]


def test_ctrl_c_ends_a_command_that_runs(place: Place, server: OpenAIChatServer) -> None:
    """failures.md F8, F10: it is in a session of its own, so the terminal's signal does not reach it."""
    marker = new_marker()
    server.say(call("bash", command=f"sleep {marker} & sleep {marker}"))
    with on_terminal(["Wait", "--allowed-tools", "bash"], place, server) as terminal:
        terminal.wait_for(lambda _: len(processes_with(f"sleep\x00{marker}")) > 1)
        terminal.press("ctrl+c")
        code = terminal.ended()
        assert (code, terminal.as_before, terminal.cursor_shown) == (130, True, True)
        assert "Traceback" not in terminal.everything
    wait_until_gone(marker)
    assert ends_of(place) == ["aborted"]


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_slip_in_a_command_is_no_prompt(place: Place, server: OpenAIChatServer, columns: int, rows: int) -> None:
    line, env = command_line(["docter"], server), environment(place, server)
    with Terminal(line, columns=columns, rows=rows, env=env, cwd=place.project) as terminal:
        assert terminal.ended() == 2
        assert "Did you mean 'steersman doctor'?" in " ".join(terminal.everything.split())
        assert "       steersman COMMAND ...\nsteersman: error:" in terminal.everything
        error = "steersman: error: 'docter' is not a command."
        assert (error if columns >= 80 else error.replace(" command", "\ncommand")) in terminal.everything
    for words, code, said in (
        ("sessions lst", 2, "Did you mean 'list'?"),
        ("serve --prot 1", 2, "Did you mean '--port'?"),
        ("serve -h", 0, "Put the agent of this folder behind HTTP, with a web page."),
        ("--help", 0, "130 interrupted"),
    ):
        line = [*COMMAND, *words.split()]
        with Terminal(line, columns=columns, rows=rows, env=env, cwd=place.project) as terminal:
            assert terminal.ended() == code
            assert said in " ".join(terminal.everything.split())
            # The window breaks no word in two.
            assert terminal.everything.split() == terminal.raw.decode().split()
            if words == "--help":
                assert ("  steersman\n        a chat; type" in terminal.everything) is (columns < 100)
    line = command_line(["--model", "antropic:x", "Hi."], server)
    with Terminal(line, columns=columns, rows=rows, env=env, cwd=place.project) as terminal:
        assert terminal.ended() == 2
        error = "steersman: No provider is named 'antropic'."
        assert (error if columns >= 80 else error.replace(" 'antropic", "\n'antropic")) in terminal.everything
    assert server.requests == []
