"""What the chat tells about a run besides its answer, at three sizes: how long it waits, why, and what it cost."""

from __future__ import annotations

import re

import pytest
from tests.cli.chat.kit import chatting
from tests.cli.command import Place, run_command
from tests.cli.pty_terminal import Terminal

from steersman.testing.servers import OpenAIChatServer, Reply
from steersman.testing.servers.exchange import sse
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

SIZES = [(120, 40), (80, 24), (40, 15)]
PRICED = ("--model", "openai-chat:gpt-4o")
COUNTED = re.compile(r"[\u2801-\u28ff] retrying in (\d+) s: rate limit")


def wait_for_less(terminal: Terminal, before: int) -> int:
    """Wait until fewer seconds are left than before; how many."""

    def count(at: Terminal) -> list[int]:
        return [int(left) for left in COUNTED.findall(at.shown) if int(left) < before]

    terminal.wait_for(count)
    return count(terminal)[0]


def unwrap(terminal: Terminal) -> str:
    return " ".join(terminal.everything.split())


def test_a_wait_is_counted_down_with_its_reason(place: Place, server: OpenAIChatServer) -> None:
    """A server that failed is not called overloaded, also where it says so inside a stream, without a status."""
    limited = Reply(429, {"error": {"message": "Too fast.", "type": "requests"}}, {"retry-after": "5"})
    server.say(limited, sse({"error": {"message": "The model crashed.", "type": "server_error"}}), "Back.")
    with chatting(place, server, columns=120, rows=40) as terminal:
        terminal.enter("Go.")
        left = 6
        for columns, rows in SIZES:
            terminal.resize(columns, rows)
            left = wait_for_less(terminal, left)
        terminal.wait_for("Back.")
        assert "s: server error" in unwrap(terminal)
        assert "overloaded" not in terminal.everything


def test_the_cost_is_one_number_wherever_it_is_told(place: Place) -> None:
    with OpenAIChatServer(usage=Usage(input=1000, output=500)) as server:
        server.say("One.", "Two.", "Three.", "Four.")
        told = [
            ("One.", "0.0075", "1.0k in 500 out"),
            ("Two.", "0.015", "2.0k in 1.0k out"),
            ("Three.", "0.022", "ask · gpt-4o"),
        ]
        with chatting(place, server, *PRICED, columns=120, rows=40) as terminal:
            for number, (said, total, footer) in enumerate(told, 1):
                terminal.resize(*SIZES[number - 1])
                terminal.enter(f"Go {number}.")
                run = f"Go {number}. {said} 1,000 in · 500 out · $0.0075 · "
                terminal.wait_for(lambda at, run=run: run in unwrap(at))
                terminal.enter("/cost")
                sums = f"This chat: {number},000 tokens in, {500 * number:,} out; ${total}."
                terminal.wait_for(lambda at, sums=sums: sums in unwrap(at))
                # The gauge is that of the last request in 128,000 tokens, assumed for a server that names no window.
                terminal.wait_for(f"{footer} · ${total} · 1% full · /help")
            terminal.press("ctrl+d")
            terminal.ended()
        done = run_command([*PRICED, "-c", "-p", "Go on.", "--output-format", "json"], place=place, server=server).json
    assert (done["cost"], done["usage"]["cost"]) == (0.0075, 0.0075)
    (listed,) = run_command(["sessions", "list", "--json"], place=place).json
    assert listed["usage"]["cost"] == pytest.approx(0.03)
