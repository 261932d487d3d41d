"""Streams of the Converse API for tests: as frames, and what they are read as."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from botocore.eventstream import EventStreamBuffer  # pyright: ignore[reportMissingTypeStubs]
from tests.provider.wires.reading import Reading

from steersman.provider.wires.bedrock.frames import FrameDecoder
from steersman.provider.wires.bedrock.wire import WIRE
from steersman.testing.servers.bedrock.server import encode_event, encode_exception
from steersman.types.model import Model

CLAUDE = Model("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0")
NOVA = Model("bedrock", "us.amazon.nova-pro-v1:0")
LLAMA = Model("bedrock", "meta.llama3-3-70b-instruct-v1:0")
READING = Reading(WIRE, CLAUDE, FrameDecoder)
read, message_of, body_of, error_of = READING.read, READING.message_of, READING.body_of, READING.error_of


def framed(name: str, payload: Any) -> bytes:
    """One event; anything but bytes as JSON."""
    return encode_event(name, payload)


def unframed(stream: bytes) -> Iterator[tuple[str, bytes]]:
    """The names and payloads of the events of a stream, as botocore reads them."""
    buffer: Any = EventStreamBuffer()
    buffer.add_data(stream)
    for message in buffer:
        yield message.headers.get(":event-type", ""), message.payload


def begun() -> bytes:
    return framed("messageStart", {"role": "assistant"})


def delta(index: int, **fields: Any) -> bytes:
    return framed("contentBlockDelta", {"contentBlockIndex": index, "delta": fields})


def stop(index: int) -> bytes:
    return framed("contentBlockStop", {"contentBlockIndex": index})


def said(index: int, *pieces: str) -> bytes:
    """A whole text block."""
    return b"".join(delta(index, text=piece) for piece in pieces) + stop(index)


def thought(index: int, words: str, signature: str | None = None) -> bytes:
    """A whole block of reasoning."""
    signed = b"" if signature is None else delta(index, reasoningContent={"signature": signature})
    return delta(index, reasoningContent={"text": words}) + signed + stop(index)


def start(index: int, **fields: Any) -> bytes:
    return framed("contentBlockStart", {"contentBlockIndex": index, "start": fields})


def called(index: int, id: Any, name: str, *pieces: str) -> bytes:
    """A whole tool call."""
    middle = b"".join(delta(index, toolUse={"input": piece}) for piece in pieces)
    return start(index, toolUse={"toolUseId": id, "name": name}) + middle + stop(index)


def ended(reason: Any = "end_turn", **usage: Any) -> bytes:
    """The stop reason and the usage."""
    counts = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, **usage}
    return framed("messageStop", {"stopReason": reason}) + framed("metadata", {"usage": counts})


def thrown(name: str, message: str = "Oh no.", **more: Any) -> bytes:
    """An exception inside the stream."""
    return encode_exception(name, {"message": message, **more})


def parsed(body: bytes) -> Any:
    return msgspec.json.decode(body)
