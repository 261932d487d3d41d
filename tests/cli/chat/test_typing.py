"""Typing while it works: steering, follow-ups, interrupting, and nothing typed is lost. Failures.md I4, I5, F10."""

from __future__ import annotations

import pytest
from tests.cli.chat.kit import READY, WAITING, chatting, go, heard
from tests.cli.command import Place

from steersman.testing import answer, call, stall
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time


def test_what_is_typed_during_a_tool_is_heard_in_the_same_run_and_what_is_queued_after_it(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say(answer(call("bash", command=WAITING)), "I look at b.", "And then at c.")
    with chatting(place, server) as terminal:
        terminal.enter("Look at a.")
        terminal.wait_for("started")
        terminal.enter("Look at b instead.")
        terminal.wait_for("steering: Look at b instead.")
        terminal.type("Then look at c.")
        terminal.wait_for("Then look at c.")
        terminal.press("alt+enter")
        terminal.wait_for("then: Then look at c.")
        terminal.wait_for("2 queued")
        go(place)
        terminal.wait_for("And then at c.")
        terminal.wait_for(READY)
        shown = terminal.everything
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
    assert heard(server, 1)[-2:] == [("tool", "started\nover\n"), ("user", "Look at b instead.")]
    assert heard(server, 2)[-2:] == [("assistant", "I look at b."), ("user", "Then look at c.")]
    assert len(server.requests) == 3
    order = ["Look at a.", "bash", "Look at b instead.", "I look at b.", "Then look at c.", "And then at c."]
    places = [shown.index(words) for words in order]
    assert places == sorted(places), shown


def test_esc_interrupts_whatever_goes_on(place: Place, server: OpenAIChatServer) -> None:
    """Neither the command nor the answer ever ends by itself."""
    goings_on = [("started", answer(call("bash", command=WAITING))), ("I think", stall("I think"))]
    with chatting(place, server) as terminal:
        for number, (sign, turn) in enumerate(goings_on, 1):
            server.say(turn)
            terminal.enter(f"Go on, number {number}.")
            terminal.wait_for(lambda at, sign=sign: sign in at.everything.rpartition("number")[2])
            terminal.press("esc")
            terminal.wait_for(lambda at, number=number: at.everything.count("Interrupted") == number)
            # Until the run is over, what is typed steers it, and comes back into the input.
            terminal.wait_for(READY)
        server.say("Well then.")
        terminal.enter("Never mind.")
        terminal.wait_for("Well then.")
        assert "over" not in terminal.everything


def test_esc_is_told_from_arrows_and_from_alt_enter(place: Place, server: OpenAIChatServer) -> None:
    server.say(answer(call("bash", command=WAITING)), "Done.", "More.")
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("started")
        terminal.type("oen")
        terminal.press("left", "left")
        terminal.type("ne, tw")
        terminal.wait_for("one, twen")
        terminal.press("alt+enter")
        terminal.wait_for("then: one, twen")
        go(place)
        terminal.wait_for("More.")
        terminal.wait_for(READY)
        assert "Interrupted" not in terminal.everything
    assert heard(server, 2)[-1] == ("user", "one, twen")


def test_what_only_some_terminals_send_is_a_key_or_nothing(place: Place, server: OpenAIChatServer) -> None:
    """Shift+Enter in two forms; the focus of the window and unknown keys are no Esc, and nothing of them is typed."""
    server.say(answer(call("bash", command="touch made; sh wait.sh")), "Done.", "More.")
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for(lambda at: at.cursor_line == "?")
        terminal.send(b"\x1b[O\x1b[I\x1b[57358u\x1b[1;")
        terminal.send(b"9Q")
        terminal.type("y")
        terminal.wait_for(lambda at: at.cursor_line == "? y")
        terminal.press("enter")
        terminal.wait_for("started")
        terminal.send(b"\x1b[Oone\x1b[13;2utwo\x1b[I\x1b[27;2;13~\x1b[57358uthree")
        terminal.wait_for("\nthree")
        assert "\u276f one\ntwo\nthree\n" in terminal.shown
        terminal.send(b"\x1b[13;3u")
        terminal.wait_for("then: one")
        go(place)
        terminal.wait_for("More.")
        terminal.wait_for(READY)
        terminal.send(b"\x1b[100;5u")
        assert terminal.ended() == 0
    assert (place.project / "made").exists()
    assert heard(server, 2)[-1] == ("user", "one\ntwo\nthree")


def test_what_was_not_heard_when_a_run_is_interrupted_is_back_in_the_input(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say(answer(call("bash", command=WAITING)), "Both.")
    with chatting(place, server) as terminal:
        terminal.enter("Begin.")
        terminal.wait_for("started")
        terminal.enter("First thing.")
        terminal.wait_for("steering: First thing.")
        terminal.type("Second")
        terminal.wait_for("Second")
        terminal.press("esc")
        terminal.wait_for("Interrupted")
        terminal.wait_for(READY)
        assert "steering" not in terminal.shown
        terminal.type(" thing.")
        terminal.wait_for("Second thing.")
        terminal.press("enter")
        terminal.wait_for("Both.")
    assert heard(server, 1)[-1] == ("user", "First thing.\nSecond thing.")


def test_a_prompt_may_have_lines_by_ctrl_j_backslash_alt_enter_and_paste(
    place: Place, server: OpenAIChatServer
) -> None:
    server.say("Five lines.", "A slash.")
    with chatting(place, server) as terminal:
        terminal.type("one")
        terminal.press("ctrl+j")
        terminal.type("two\\")
        terminal.wait_for("two\\")
        terminal.press("enter")
        terminal.type("three")
        terminal.press("alt+enter")
        terminal.paste("four 四\nfive 五")
        terminal.wait_for("five 五")
        terminal.press("enter")
        terminal.wait_for("Five lines.")
        terminal.wait_for(READY)
        terminal.enter("//etc is a folder")
        terminal.wait_for("A slash.")
    assert heard(server, 0) == [("user", "one\ntwo\nthree\nfour 四\nfive 五")]
    assert heard(server, 1)[-1] == ("user", "/etc is a folder")


def test_what_was_typed_before_is_found_again_in_a_later_chat(place: Place, server: OpenAIChatServer) -> None:
    server.say("Yes.", "Again yes.")
    with chatting(place, server) as terminal:
        terminal.enter("Is the sky blue?")
        terminal.wait_for("Yes.")
        terminal.wait_for(READY)
        terminal.press("ctrl+d")
        terminal.ended()
    kept = place.home / "state" / "steersman" / "history"
    assert kept.stat().st_mode & 0o777 == 0o600
    with chatting(place, server) as terminal:
        terminal.press("ctrl+r")
        terminal.wait_for("search")
        terminal.type("sky")
        terminal.wait_for("Is the sky blue?")
        terminal.press("enter")
        terminal.wait_for(lambda at: "search" not in at.shown)
        terminal.press("enter")
        terminal.wait_for("Again yes.")
        terminal.wait_for(READY)
        terminal.press("up")
        terminal.wait_for(lambda at: at.shown.count("Is the sky blue?") == 2)
    assert heard(server, 1) == [("user", "Is the sky blue?")]
