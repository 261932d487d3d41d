"""Streams of the Anthropic Messages API for tests: as bytes, and what they are read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from tests.provider.wires.reading import Reading

from steersman.provider.wires.anthropic.wire import WIRE
from steersman.types.model import Model

FIXTURES = Path(__file__).parents[3] / "fixtures"
RECORDED = sorted(path for path in FIXTURES.glob("*/anthropic_*.sse") if b"message_start" in path.read_bytes())
MODEL = Model("anthropic", "claude-sonnet-4-5")
_READING = Reading(WIRE, MODEL)
read, message_of, body_of = _READING.read, _READING.message_of, _READING.body_of


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
