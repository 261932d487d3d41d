"""The command as a whole: what goes wrong is one line and an exit code, and never shows a key or a traceback."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys

import pytest
from tests.cli.command import Done, Place, assert_calm, environment, run_command, shell, spawn

from steersman.cli.exits import UserError, describe_error
from steersman.cli.main import main
from steersman.cli.terminal.stderr import capture_logs
from steersman.testing.servers import OpenAIChatServer
from steersman.types.errors import NetworkError

pytestmark = pytest.mark.real_time


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The environment of the command, for a call of it in this very process."""
    for name, value in environment(place, more={"OPENAI_API_KEY": "k"}).items():
        monkeypatch.setenv(name, value)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(place.project)
    return place


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--model", "antropic:x", "hi"], 2, "steersman: No provider is named 'antropic'. Did you mean 'anthropic'?"),
        (["--model", "anthropic:x", "hi"], 1, "steersman: No key for anthropic:x: set the environment variable"),
        (["-c", "--model", "openai-chat:x", "hi"], 1, "steersman: This folder has no saved session to continue."),
        (
            ["--session-dir", "/dev/null/x", "-c", "--model", "openai-chat:x", "hi"],
            1,
            "steersman: This folder has no saved session",
        ),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    words: list[str], code: int, says: str, here: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith(says)
    assert said.err.count("\n") == 1


def test_broken_settings_are_told_with_the_file_and_the_line(here: Place, capfd: pytest.CaptureFixture[str]) -> None:
    file = here.home / "config/steersman/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('model = "x\n')
    assert main(["hi"]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"steersman: The settings '{file}' are not valid TOML: ")
    assert "line 1" in said.err


def test_a_traceback_is_shown_on_request_and_keys_are_in_neither(place: Place) -> None:
    """failures.md L13: the key is quoted by what goes wrong, here as the name of a file."""
    key = "canary-0123456789"
    env = {"ANTHROPIC_API_KEY": key}
    plain = run_command(["--model", f"nope:{key}", "--mcp-config", f"/{key}", "hi"], place=place, env=env)
    assert_calm(plain)
    verbose = run_command(["--verbose", "--json-schema", f"/{key}", "hi"], place=place, env=env)
    assert "Traceback (most recent call last)" in verbose.errors
    assert "[redacted]" in verbose.errors
    for done in (plain, verbose):
        assert done.code == 2
        assert key.encode() not in done.stdout + done.stderr


def test_control_characters_of_a_file_name_do_not_reach_the_terminal(
    here: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """failures.md L15 and L23."""
    assert main(["--json-schema", "a\x1b[2J\nb\u202e.json", "hi"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert not {"\x1b", "\u202e"} & set(said)


@pytest.mark.parametrize("words", ["sessions", "models zz", "doctor --json", "hi"])
def test_a_closed_or_full_standard_output_is_one_line(words: str, place: Place) -> None:
    env = {"OPENAI_API_KEY": "k"}
    closed = shell(f"$STEERSMAN {words} >&-", place=place, env=env)
    assert closed.code == 1
    assert closed.errors == "steersman: Standard output is closed, so the answer cannot be written.\n"


def test_a_full_disk_under_standard_output_is_one_line(place: Place) -> None:
    full = shell("$STEERSMAN sessions > /dev/full", place=place)
    assert full == Done(1, b"", b"steersman: No space left on device.\n")


@pytest.mark.parametrize(("verbose", "shown"), [(False, ""), (True, "steersman: loud \u241b[2J [redacted]\n")])
def test_the_log_is_shown_on_request_and_cannot_steer_the_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, verbose: bool, shown: str
) -> None:
    logger = logging.getLogger("steersman.tests")
    monkeypatch.setenv("OPENAI_API_KEY", "canary-0123456789")
    with capture_logs(verbose=verbose):
        logger.error("loud %s", "\x1b[2J canary-0123456789")
    assert capfd.readouterr().err == shown


@pytest.mark.parametrize("words", ["sessions", "doctor"])
def test_a_folder_that_is_gone_is_told_by_every_command(words: str, place: Place) -> None:
    gone = shell(f"mkdir x && cd x && rmdir ../x && $STEERSMAN {words}", place=place, env={"PYTHONSAFEPATH": "1"})
    assert gone == Done(1, b"", b"steersman: The current folder no longer exists; change to another one.\n")


def test_a_password_in_an_address_and_an_address_that_is_none_are_not_shown(place: Place) -> None:
    """failures.md L13."""
    env = {"OLLAMA_BASE_URL": "http://user:canary@127.0.0.1:1/v1"}
    asked = run_command(["--model", "ollama", "hi"], place=place, env=env)
    assert asked.errors == (
        "steersman: Ollama does not answer at 'http://127.0.0.1:1/v1'. Start it, or name another model.\n"
    )
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://user:canary@x:99999999"}
    looked = run_command(["doctor", "--online", "--model", "openai:x"], place=place, env=env)
    assert "The configured URL is not valid." in looked.text
    assert b"canary" not in looked.stdout + looked.stderr


def test_file_names_that_are_no_text_are_no_error(place: Place, server: OpenAIChatServer) -> None:
    server.say("Fine.")
    folder = ["--session-dir", os.fsdecode(b"s\xff")]
    assert run_command([*folder, "hi"], place=place, server=server).text == "Fine.\n"
    listed = run_command([*folder, "sessions", "list", "--json"], place=place)
    assert listed.json[0]["file"] == f"{place.project}/s?/sessions.db"
    assert listed.code == 0


def test_interrupting_it_before_a_run_is_quiet(place: Place) -> None:
    """failures.md F10: no prompt has come yet, so it reads standard input."""
    ready = (
        "import sys; from steersman.cli.main import main; "
        "sys.stderr.write('up\\n'); sys.stderr.flush(); sys.exit(main(['-p']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", ready], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stderr.readline() == b"up\n"
        process.stdin.write(b"x")
        process.stdin.flush()
        _wait_until_read(process.pid)
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_is_left_quietly(place: Place) -> None:
    """failures.md F11."""
    done = shell("$STEERSMAN --help | true; echo ${PIPESTATUS[0]}", place=place)
    assert done.text in ("0\n", "141\n")
    assert done.errors == ""


def test_a_terminal_of_another_encoding_is_no_error(place: Place, server: OpenAIChatServer) -> None:
    server.say("Grüße, 世界.")
    assert run_command(["-p", "Grüße, 世界!"], place=place, server=server).code == 0
    listed = run_command(["sessions", "list"], place=place, env={"PYTHONIOENCODING": "ascii"})
    assert_calm(listed)
    assert (listed.code, b"Gr??e, ??!" in listed.stdout) == (0, True)


def test_it_can_be_called_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("steersman ")
    assert main(["--max-turns", "x"]) == 2


def test_errors_are_told_in_their_own_words() -> None:
    assert describe_error(UserError("No.\nReally.")) == "No. Really."
    assert (
        describe_error(FileNotFoundError(2, "No such file or directory", "a b")) == "'a b': No such file or directory."
    )
    assert describe_error(NetworkError("The server is gone: Bearer abcdefgh")) == "The server is gone: [redacted]"
    assert describe_error(KeyError("x")) == "KeyError: 'x'"
    assert "\x1b" not in describe_error(UserError("\x1b[2J"))
    assert describe_error(ZeroDivisionError()) == "ZeroDivisionError"


def test_one_run_from_the_first_word_to_the_exit_code(place: Place, server: OpenAIChatServer) -> None:
    server.say("Four.", "Sure.")
    done = run_command(["2", "+", "2?"], place=place, server=server)
    assert (done.code, done.text.strip()) == (0, "Four.")
    assert "steersman: Using openai-chat:gpt-x (--model)." in done.errors
    done = run_command(["-c", "-p", "Sure?"], place=place, server=server, stdin=b"I am not.")
    assert (done.code, done.text.strip()) == (0, "Sure.")
    said = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "user"]
    assert said == ["2 + 2?", "Sure?\n\nI am not."]
    assert environment(place, server)["OPENAI_API_KEY"] not in done.errors


def test_a_session_in_use_can_be_copied(place: Place, server: OpenAIChatServer) -> None:
    server.say("One.", "Two.")
    assert run_command(["-p", "Hi."], place=place, server=server).code == 0
    driving = ["-c", "--input-format", "stream-json", "--output-format", "stream-json"]
    with spawn(driving, place=place, server=server, stdin=subprocess.PIPE) as first:
        first.send_line(type="prompt", content="Again.")
        first.wait_for('"agent_end"')
        refused = run_command(["-c", "-p", "Me too."], place=place, server=server)
        assert refused.code == 1
        assert "is in use by another program. Wait for it, or continue in a copy: --fork-session." in refused.errors
        server.say("Three.")
        forked = run_command(["-c", "--fork-session", "-p", "Me too."], place=place, server=server)
        assert (forked.code, forked.text.strip()) == (0, "Three.")
        first.hang_up()
        assert first.wait().code == 0


def _wait_until_read(pid: int) -> None:
    """Wait until a process sleeps in a read of its standard input."""
    import os
    import time

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/syscall") as file:
            if file.read().split()[1:2] == ["0x0"]:
                return
        os.sched_yield()
    raise AssertionError("it never read its standard input")
