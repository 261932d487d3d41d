"""`/compact`: the model summarizes the conversation when the user asks for it."""

from __future__ import annotations

import re

import pytest
from tests.cli.chat.kit import READY, SIZES, chatting, heard
from tests.cli.command import Place, run_command
from tests.cli.pty_terminal import Terminal

from steersman.testing.servers import Delivery, OpenAIChatServer, Reply

pytestmark = pytest.mark.real_time

LONG = "It is a long story about rivers. " * 40


def unwrap(terminal: Terminal) -> str:
    return " ".join(terminal.everything.split())


def ask(terminal: Terminal, words: str) -> None:
    """Ask, and wait for the end of the answer and of the run."""
    terminal.enter(words)
    terminal.wait_for(lambda at: f"end of {words}" in unwrap(at))
    terminal.wait_for(lambda at: "· Esc interrupts" not in at.shown)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_model_summarizes_with_a_focus_and_a_failure_or_esc_changes_nothing(
    place: Place, server: OpenAIChatServer, columns: int, rows: int
) -> None:
    """`/compact [focus]` can be forced, says what it saved, and the transcript stays valid."""
    server.say(
        *[f"{LONG} This is the end of {word}" for word in ("One", "Two", "Three")],
        Delivery("Never.", ending="stall", at=0),
        Reply(400, {"error": {"message": "No \x1b[31msummaries\x1b[0m here.", "type": "invalid_request_error"}}),
        "Rivers were \x1b[2Jdiscussed.",
        "After it.",
    )
    with chatting(place, server, columns=columns, rows=rows) as terminal:
        terminal.enter("/compact")
        terminal.wait_for("There is nothing to compact yet.")
        for word in ("One", "Two", "Three"):
            ask(terminal, word)
        terminal.enter("/compact")
        terminal.wait_for("compacting the conversation")
        terminal.wait_for("· Esc")
        terminal.press("esc")
        terminal.wait_for("The conversation stays as it is.")
        terminal.wait_for(lambda at: "· Esc" not in at.shown)
        terminal.enter("/compact")
        terminal.wait_for("summaries")
        terminal.wait_for(lambda at: at.everything.count("The conversation stays as it is.") == 2)
        terminal.enter("/compact the names of rivers")
        terminal.wait_for(
            lambda at: re.search(r"The model summarized 3 messages: about [\d,]+ to \d+ tokens", unwrap(at))
        )
        # The line of the summary names the model as the lines of runs do.
        assert re.search(r"12 in · 7 out · [\d.]+ s · gpt-x The model", unwrap(terminal))
        # What the provider counted was before it.
        terminal.enter("/context")
        terminal.wait_for("estimated.")
        assert "provider counted" not in unwrap(terminal)
        terminal.enter("Four")
        terminal.wait_for("After it.")
        terminal.wait_for(READY)
        terminal.enter("/cost")
        terminal.wait_for(lambda at: "This chat: at least 60 tokens in" in unwrap(at))
        terminal.press("ctrl+d")
        assert terminal.ended() == 0
        assert b"\x1b[2J" not in terminal.raw
        assert b"\x1b[31msummaries" not in terminal.raw
    system, asked = (message["content"] for message in server.requests[5]["messages"])
    assert system.endswith("The user asks to keep above all: the names of rivers")
    assert asked.startswith("[assistant] It is a long story")
    assert "[user] Two" in asked
    assert heard(server, 6) == [
        ("user", "One"),
        ("user", "[Summary of earlier messages]\nRivers were \x1b[2Jdiscussed."),
        ("user", "Three"),
        ("assistant", f"{LONG} This is the end of Three"),
        ("user", "Four"),
    ]
    listed = run_command(["sessions", "list", "--json"], place=place)
    assert listed.json[0]["usage"]["input"] == 60


def test_what_is_typed_during_a_compaction_is_sent_after_it(place: Place, server: OpenAIChatServer) -> None:
    """A steering text is never lost: it waits for the summary, which is no prompt that a hook of the user judges."""
    config = place.home / "config" / "steersman" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[[hooks]]\nat = 'prompt'\ncommand = 'if grep -q rivers; then exit 2; fi'\n")
    server.say(
        *[f"{LONG} This is the end of {word}" for word in ("One", "Two", "Three")],
        Delivery("A summary.", pace=0.2),
        "Heard you.",
    )
    with chatting(place, server) as terminal:
        for word in ("One", "Two", "Three"):
            ask(terminal, word)
        # What is typed as its focus is judged, as all that is typed for the model.
        terminal.enter("/compact the rivers")
        terminal.wait_for(lambda at: "The conversation stays as it is: the hook" in unwrap(at))
        terminal.wait_for(lambda at: "· Esc" not in at.shown)
        terminal.enter("/compact")
        terminal.wait_for("compacting the conversation")
        terminal.enter("And now?")
        terminal.wait_for("Heard you.")
    assert heard(server, 4)[1:] == [
        ("user", "[Summary of earlier messages]\nA summary."),
        ("user", "Three"),
        ("assistant", f"{LONG} This is the end of Three"),
        ("user", "And now?"),
    ]
