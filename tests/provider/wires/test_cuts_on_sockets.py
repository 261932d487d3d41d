"""A stream that is cut at any byte, in every protocol: never a success, always retried, and nothing is shown twice.

`make test` cuts at a sample of the bytes, `make soak` at every byte. The decoders are cut at every byte in
test_decode.py, without sockets.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import SOAK
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, Retry, tool
from steersman.provider.http.client import aclose_http, http_stream
from steersman.provider.scripted.script import to_turn
from steersman.provider.streaming.normalize import stream_events
from steersman.provider.wires.anthropic.wire import WIRE as ANTHROPIC
from steersman.provider.wires.bedrock.wire import WIRE as BEDROCK
from steersman.provider.wires.google.wire import WIRE as GOOGLE
from steersman.provider.wires.openai_chat.wire import WIRE as CHAT
from steersman.provider.wires.openai_responses.wire import WIRE as RESPONSES
from steersman.provider.wires.protocol import Wire
from steersman.testing import answer, call, thinking
from steersman.testing.servers import Delivery, Received
from steersman.types.events import AgentEvent, MessageUpdate
from steersman.types.messages import user_message
from steersman.types.model import Request, StreamOptions
from steersman.types.stream import Done, Failed

pytestmark = [pytest.mark.real_time, *([pytest.mark.soak] if SOAK else [])]

WIRES: dict[str, Wire] = {
    "anthropic": ANTHROPIC,
    "bedrock": BEDROCK,
    "google": GOOGLE,
    "openai": CHAT,
    "responses": RESPONSES,
}
STEP = 1 if SOAK else 31
LAST = 12
ASKED = Request("", [user_message("Hi")])
TURN = to_turn(answer(thinking("Grüße"), "Größe 🙂", call("add", a=1, b=2, id="call_1"), deltas=2))
# How many bytes before the end a stream is complete already: the blank line of its last event may be missing.
SPARE = {"anthropic": 2, "google": 4, "responses": 2}
# An answer of Chat Completions or Bedrock is complete with its stop reason, which is tested with the decoder.
ENDINGS = ("end", "close", "reset")
CASES = [(name, ending) for name in WIRES for ending in ENDINGS if name not in ("bedrock", "openai") or ending != "end"]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def stream_of(name: str) -> bytes:
    """The bytes of an answer with thinking, text and a call."""
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    received = Received("POST", "/", {"model": "m"}, {"alt": "sse"}, {}, b"{}", body, 1)
    server = SERVERS[name]()
    server.raw.append(received)
    return b"".join(server.render_stream(TURN, received))


def cuts_of(length: int) -> list[int]:
    """A sample of the bytes, and all of the last ones."""
    return sorted({*range(0, length, STEP), *range(max(0, length - LAST), length)})


@pytest.mark.parametrize(("name", "ending"), CASES)
async def test_a_stream_cut_at_any_byte_is_never_a_success(name: str, ending: Any) -> None:
    """failures.md B9, B17: an error that may be retried, and that keeps what had arrived."""
    whole = stream_of(name)
    cuts = cuts_of(len(whole))
    spare = SPARE[name] if ending == "end" else 0
    ask = http_stream(WIRES[name])
    async with SERVERS[name](*(Delivery(whole, at=at, ending=ending) for at in cuts)) as server:
        for at in cuts:
            events = [event async for event in stream_events(ask, server.model(), ASKED, StreamOptions())]
            last = events[-1]
            if at >= len(whole) - spare:
                assert isinstance(last, Done), at
                continue
            assert isinstance(last, Failed), at
            assert last.error is not None
            assert last.error.kind in ("incomplete", "network", "protocol"), (at, last)
            assert last.error.should_retry, at
            assert last.message.text == "".join(event.delta for event in events if event.type == "text_delta")
        await aclose_http()


def _kind(event: AgentEvent) -> str:
    return event.delta.type if isinstance(event, MessageUpdate) else event.type


@pytest.mark.parametrize("name", WIRES)
async def test_a_cut_stream_is_asked_again_and_nothing_is_shown_twice(name: str) -> None:
    """loop.md T7; failures.md B18: what was shown is taken back before the answer comes again."""
    whole = stream_of(name)
    cuts = [(at, "close") for at in cuts_of(len(whole))] + [(at, "reset") for at in cuts_of(len(whole))[::9]]
    async with SERVERS[name]() as server:
        for at, ending in cuts:
            agent = Agent(server.model(), tools=[add], retry=Retry(base_delay=0, jitter=0))
            events: list[str] = []
            agent.subscribe(lambda event, events=events: events.append(_kind(event)))
            server.say(Delivery(whole, at=at, ending=ending), "Fine.")  # pyright: ignore[reportArgumentType]  # a literal
            result = await agent.run("Go.")
            assert (result.text, result.end_reason) == ("Fine.", "done"), at
            assert [message.role for message in result.messages] == ["user", "assistant"], at
            assert events.count("retry_scheduled") == 1, at
            shown = events[: events.index("retry_scheduled")]
            seen = any(kind.startswith(("text_", "thinking_", "tool_call_")) for kind in shown)
            assert events.count("reset") == (1 if seen else 0), at
        await aclose_http()
