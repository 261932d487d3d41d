"""Streams of the Anthropic Messages API for tests: as bytes, and what they are read as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from steersman.provider.anthropic import WIRE
from steersman.provider.sse import SseDecoder
from steersman.testing import check_stream
from steersman.types.messages import AssistantMessage, UserMessage, user_message
from steersman.types.model import Model, Request, StreamOptions, ToolSpec
from steersman.types.stream import Done, StreamEvent

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
RECORDED = sorted(path for path in FIXTURES.glob("*/anthropic_*.sse") if b"message_start" in path.read_bytes())
MODEL = Model("anthropic", "claude-sonnet-4-5")
REQUEST = Request("", [user_message("Hi")])


def event(name: str, **fields: Any) -> bytes:
    """One event, as the API writes it."""
    data = msgspec.json.encode({"type": name, **fields})
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def begun(**usage: Any) -> bytes:
    counts = usage or {"input_tokens": 10, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "usage": counts,
    }
    return event("message_start", message={**message, "stop_reason": None, "stop_sequence": None})


def start(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def said(index: int, *pieces: str) -> bytes:
    """A whole text block."""
    middle = b"".join(delta(index, "text_delta", text=piece) for piece in pieces)
    return start(index, "text", text="") + middle + stop(index)


def called(index: int, id: str, name: str, *pieces: str) -> bytes:
    """A whole tool call."""
    middle = b"".join(delta(index, "input_json_delta", partial_json=piece) for piece in pieces)
    return start(index, "tool_use", id=id, name=name, input={}) + middle + stop(index)


def ended(reason: Any = "end_turn", *, output: int = 5, usage: dict[str, Any] | None = None, **more: Any) -> bytes:
    fields = {"stop_reason": reason, "stop_sequence": None, **more}
    return event("message_delta", delta=fields, usage={"output_tokens": output, **(usage or {})}) + event(
        "message_stop"
    )


def chunks(stream: bytes, size: int) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def read(
    pieces: bytes | Iterable[bytes], *, model: Model = MODEL, request: Request = REQUEST
) -> tuple[list[StreamEvent], AssistantMessage]:
    """The events and the message of a stream that came in these pieces; raises as the decoder does."""
    sse, decoder = SseDecoder(), WIRE.decoder(model, request)
    events: list[StreamEvent] = []
    for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
        for name, data in sse.feed(piece):
            events.extend(decoder.feed(name, data))
    for name, data in sse.finish():
        events.extend(decoder.feed(name, data))
    return events, decoder.finish()


def message_of(stream: bytes, **more: Any) -> AssistantMessage:
    """The message of a well-formed stream, which is what its deltas said."""
    events, message = read(stream, **more)
    if not message.failed:
        assert check_stream([*events, Done(message)]) is message
    return message


def body_of(
    *messages: Any,
    model: Model = MODEL,
    system: str = "",
    tools: Sequence[ToolSpec] = (),
    options: StreamOptions | None = None,
) -> Any:
    """The request body for these messages, parsed."""
    said = [UserMessage(message) if isinstance(message, str) else message for message in messages]  # pyright: ignore[reportArgumentType]  # a string is taken too
    request = Request(system, said, tools)
    return msgspec.json.decode(WIRE.request(model, request, options or StreamOptions(), "k").body)
