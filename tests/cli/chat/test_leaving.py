"""However a chat ends, the terminal is as it was, the session kept, and a line says how to go on: failures.md F10."""

from __future__ import annotations

import re
import signal
import sys

import pytest
from tests.cli.chat.kit import READY, SIZES, WAITING, chatting, heard
from tests.cli.command import Place, command_line, ends_of, environment, wait_until, wait_until_gone
from tests.cli.fork_server import COMMAND
from tests.cli.pty_terminal import Terminal

from steersman.testing import answer, call, error
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time


def assert_sane(terminal: Terminal) -> None:
    assert terminal.as_before
    assert terminal.cursor_shown
    assert 2004 not in terminal.modes
    assert "Traceback" not in terminal.everything
    assert not terminal.screen.cursor.attrs.bold


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_chat_is_left_and_gone_on_with(place: Place, server: OpenAIChatServer, columns: int, rows: int) -> None:
    """The ids of the session and of its entries are the same wherever they are told."""
    server.say("Remembered.", "Seven.")
    with chatting(place, server, columns=columns, rows=rows) as terminal:
        terminal.enter("Remember @wait.sh")
        terminal.wait_for("Remembered.")
        terminal.wait_for(READY)
        terminal.enter("/tree")
        terminal.wait_for("● ")
        (point,) = re.findall(r"● (\S+)  Remember @wait.sh", terminal.shown)
        terminal.enter("/quit")
        assert terminal.ended() == 0
        told = " ".join(terminal.everything.split())
        (short,) = re.findall(r"To continue: steersman -c, or steersman -r (\w+)", told)
        assert_sane(terminal)
    env = environment(place, server)
    with Terminal([*COMMAND, "-c"], columns=columns, rows=rows, env=env, cwd=place.project) as terminal:
        terminal.wait_for(READY)
        using = "Using openai-chat:gpt-x (used in this session)."
        assert (using if columns >= 80 else using.replace(" session", "\nsession")) in terminal.everything
        assert "Continuing a session of 2 messages" in terminal.everything
        # What was typed is shown again, and not the file.
        assert "\n\n\u276f Remember @wait.sh\n\nRemembered.\n\n\u276f" in terminal.everything
        terminal.enter("/tree")
        terminal.wait_for(f"● {point}  Remember @wait.sh")
        assert "Remembered.\n\n\u276f /tree\n" in terminal.everything
        terminal.enter("Which number?")
        terminal.wait_for("Seven.")
        terminal.wait_for(READY)
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
        assert f"steersman -r {short}" in " ".join(terminal.everything.split())
    for words, says in (["list"], f"{short} "), (["show", short], f"#1 {point} assistant (gpt-x)\n  Remembered.\n"):
        line = [*COMMAND, "sessions", *words]
        with Terminal(line, columns=columns, rows=rows, env=env, cwd=place.project) as terminal:
            assert terminal.ended() == 0
            assert says in terminal.everything
    assert [text.partition("\n")[0] for _, text in heard(server, 1)] == [
        "Remember @wait.sh",
        "Remembered.",
        "Which number?",
    ]


def test_ctrl_c_clears_the_line_then_interrupts_then_leaves(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("bash", command=WAITING)), answer(call("bash", command=WAITING)))
    with chatting(place, server) as terminal:
        terminal.type("never mind")
        terminal.wait_for("never mind")
        terminal.press("ctrl+c")
        terminal.wait_for(lambda at: "never mind" not in at.shown)
        terminal.press("ctrl+c")
        terminal.wait_for("Press Ctrl-C again")
        # What is sent in between makes the next one a first one again, however soon it comes.
        terminal.enter("Begin.")
        terminal.wait_for("started")
        # At once: the second one belongs to the first for a moment only, and when a test gets its turn is not known.
        terminal.press("ctrl+c", "ctrl+c")
        assert terminal.ended() == 130
        assert_sane(terminal)


def test_what_was_cleared_is_not_sent_to_the_model_and_can_be_gone_back_to(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say("One.", "Two.", "Three.")
    with chatting(place, server) as terminal:
        terminal.enter("Say one.")
        terminal.wait_for("One.")
        terminal.wait_for(READY)
        terminal.enter("/clear")
        terminal.wait_for("no longer sees the conversation so far")
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
        assert "To continue: steersman -c" in terminal.shown
    with chatting(place, server, "-c") as terminal:
        terminal.wait_for("from its beginning, after /clear")
        terminal.enter("/tree")
        terminal.wait_for("● the beginning")
        (point,) = re.findall(r"○ ([\w-]+)  Say one", terminal.shown)
        terminal.enter("Say two.")
        terminal.wait_for("Two.")
        terminal.wait_for(READY)
        terminal.enter(f"/branch {point} Say three.")
        terminal.wait_for("Three.")
    assert heard(server, 1) == [("user", "Say two.")]
    assert heard(server, 2) == [("user", "Say one."), ("assistant", "One."), ("user", "Say three.")]


def test_what_is_typed_after_a_ctrl_c_is_cleared_by_the_next_one_and_not_lost_with_the_chat(
    place: Place, server: OpenAIChatServer
) -> None:
    with chatting(place, server) as terminal:
        terminal.press("ctrl+c")
        terminal.wait_for("Press Ctrl-C again")
        terminal.type("On second thought")
        terminal.wait_for("On second thought")
        terminal.press("ctrl+c")
        terminal.wait_for(lambda at: "On second thought" not in at.shown)
        terminal.wait_for(READY)
        terminal.press("ctrl+c", "ctrl+c")
        assert terminal.ended() == 0


def test_ctrl_c_ends_a_search_and_not_the_chat(place: Place, server: OpenAIChatServer) -> None:
    server.say("One.")
    with chatting(place, server) as terminal:
        terminal.enter("Say one.")
        terminal.wait_for("One.")
        terminal.wait_for(READY)
        terminal.press("ctrl+r")
        terminal.type("one")
        terminal.wait_for("I-search backward: one")
        terminal.press("ctrl+c")
        terminal.wait_for(lambda at: "I-search" not in at.shown)
        terminal.press("ctrl+c")
        terminal.wait_for("Press Ctrl-C again")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
    ids=lambda value: str(value),
)
def test_a_signal_ends_the_run_keeps_the_session_and_leaves_the_terminal_as_it_was(
    place: Place, server: OpenAIChatServer, number: signal.Signals, code: int
) -> None:
    server.say(answer(call("bash", command=WAITING)))
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("started")
        assert not terminal.as_before
        terminal.signal(number)
        assert terminal.ended() == code
        assert "To continue: steersman -c" in terminal.everything
        assert_sane(terminal)


@pytest.mark.parametrize("env", [{}, {"TERM": "dumb"}], ids=["drawn", "by lines"])
def test_a_closed_window_ends_the_chat_and_what_it_started(
    place: Place, server: OpenAIChatServer, env: dict[str, str]
) -> None:
    """failures.md F10."""
    server.say(answer(call("bash", command=WAITING)))
    with chatting(place, server, env=env, ready="lists the rest.") as terminal:
        terminal.send(b"Begin.\r")
        wait_until((place.project / "begun").exists, "the command of the tool")
        assert terminal.close_window() == 129
    wait_until_gone(str(place.project))
    assert ends_of(place) == ["aborted"]


def test_what_is_told_after_the_last_picture_is_seen(place: Place, server: OpenAIChatServer) -> None:
    server.say("One.", "Two.")
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("One.")
        terminal.wait_for(READY)
        for file in place.sessions[0].parent.iterdir():
            file.write_bytes(b"no longer a database" * 2000)
        terminal.enter("Go on.")
        terminal.wait_for("Two.")
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
        assert "steersman: The session was not saved completely: " in terminal.everything
        assert_sane(terminal)


def test_where_nothing_can_be_kept_the_chat_goes_on(place: Place, server: OpenAIChatServer) -> None:
    server.say("All the same.")
    with chatting(place, server, env={"XDG_STATE_HOME": "/dev/null/x"}) as terminal:
        assert "This session is not saved: '/dev/null/x" in terminal.shown
        terminal.enter("Begin.")
        terminal.wait_for("All the same.")
        terminal.press("ctrl+d")
        assert terminal.ended() == 0


def test_two_ctrl_c_while_it_works_leave_with_130(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("bash", command=WAITING)))
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("started")
        terminal.send(b"\x03\x03")
        assert terminal.ended() == 130
        assert_sane(terminal)


def test_ctrl_z_gives_the_shell_back_until_the_chat_is_called_again(place: Place, server: OpenAIChatServer) -> None:
    server.say("Awake.")
    # The command stands in a variable: written out, it would wrap where the checkout has a long path.
    env = environment(place, server, {"PS1": "shell: ", "CHAT": " ".join(command_line([], server))})
    with Terminal(["bash", "--norc", "-i"], env=env, cwd=place.project) as terminal:
        terminal.wait_for("shell:")
        terminal.enter("$CHAT")
        terminal.wait_for(READY)
        terminal.type("half a")
        terminal.wait_for("\u276f half a")
        terminal.press("ctrl+z")
        terminal.wait_for("Stopped")
        terminal.wait_for(lambda at: at.cursor_line == "shell:")
        assert READY not in terminal.shown
        until_stopped = bytes(terminal.raw).partition(b"Stopped")[0]
        assert until_stopped.rfind(b"\x1b[?2004l") > until_stopped.rfind(b"\x1b[?2004h")
        terminal.type("fg\r")
        terminal.wait_for(lambda at: at.cursor_line == "\u276f half a")
        terminal.enter(" word")
        terminal.wait_for("Awake.")
        terminal.wait_for(READY)
        terminal.press("ctrl+d")
        terminal.wait_for("To continue")
    assert heard(server, 0) == [("user", "half a word")]


@pytest.mark.parametrize("way", ["1 / 0", "restore(); os._exit(1)"])
def test_a_terminal_that_was_not_restored_before_is_restored_all_the_same(place: Place, way: str) -> None:
    work = f"""
import os, sys, tty
from steersman.cli.chat.start import restore_on_exit
with restore_on_exit() as restore:
    tty.setraw(0)
    sys.stdout.write("\x1b[?2004h\x1b[?25l\x1b[1mraw")
    sys.stdout.flush()
    {way}
"""
    with Terminal([sys.executable, "-c", work], env=environment(place)) as terminal:
        assert terminal.ended() == 1
        assert b"raw" in terminal.raw
        assert terminal.as_before
        assert terminal.cursor_shown
        assert 2004 not in terminal.modes


def test_a_model_that_fails_is_told_and_the_chat_goes_on(place: Place, server: OpenAIChatServer) -> None:
    server.say(error("authentication"), "Better.")
    with chatting(place, server) as terminal:
        terminal.enter("Hello.")
        terminal.wait_for("Failed")
        terminal.wait_for(READY)
        terminal.enter("/continue")
        terminal.wait_for("Better.")
