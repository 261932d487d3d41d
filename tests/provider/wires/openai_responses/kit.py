"""Streams of the OpenAI Responses API for tests: as bytes, and what they are read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from tests.provider.wires.reading import Reading

from steersman.provider.wires.openai_responses.wire import WIRE
from steersman.types.messages import UserMessage
from steersman.types.model import Model

FIXTURES = Path(__file__).parents[3] / "fixtures"
RECORDED = sorted(FIXTURES.glob("*/responses_*.sse"))
MODEL = Model("openai", "gpt-5")
_READING = Reading(WIRE, MODEL)
read, message_of, body_of = _READING.read, _READING.message_of, _READING.body_of
USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


def event(name: str, **fields: Any) -> bytes:
    """One event, as the API writes it."""
    return f"event: {name}\n".encode() + b"data: " + msgspec.json.encode({"type": name, **fields}) + b"\n\n"


def begun() -> bytes:
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    return event("response.created", response=response) + event("response.in_progress", response=response)


def added(index: int, kind: str, **fields: Any) -> bytes:
    return event("response.output_item.added", output_index=index, item={"type": kind, **fields})


def done(index: int, kind: str, **fields: Any) -> bytes:
    return event("response.output_item.done", output_index=index, item={"type": kind, **fields})


def words(index: int, delta: str, part: int = 0) -> bytes:
    return event(
        "response.output_text.delta", item_id=f"msg_{index}", output_index=index, content_index=part, delta=delta
    )


def summary(index: int, delta: str, part: int = 0) -> bytes:
    return event(
        "response.reasoning_summary_text.delta",
        item_id=f"rs_{index}",
        output_index=index,
        summary_index=part,
        delta=delta,
    )


def arguments(index: int, delta: str) -> bytes:
    return event("response.function_call_arguments.delta", item_id=f"fc_{index}", output_index=index, delta=delta)


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def said(index: int, *pieces: str, **fields: Any) -> bytes:
    """A whole message of one text."""
    id = f"msg_{index}"
    whole: dict[str, Any] = {"id": id, "role": "assistant", "content": [text_part("".join(pieces))], **fields}
    return (
        added(index, "message", id=id, role="assistant", content=[], status="in_progress")
        + b"".join(words(index, piece) for piece in pieces)
        + done(index, "message", **{"status": "completed", **whole})
    )


def thought(index: int, *pieces: str, encrypted: str | None = "gAAAA") -> bytes:
    """A whole reasoning item of one summary."""
    id = f"rs_{index}"
    parts = [{"type": "summary_text", "text": "".join(pieces)}] if pieces else []
    return (
        added(index, "reasoning", id=id, summary=[])
        + b"".join(summary(index, piece) for piece in pieces)
        + done(index, "reasoning", id=id, summary=parts, encrypted_content=encrypted)
    )


def called(index: int, id: str, name: str, *pieces: str, **fields: Any) -> bytes:
    """A whole function call."""
    item = {"id": f"fc_{index}", "call_id": id, "name": name}
    return (
        added(index, "function_call", **item, arguments="", status="in_progress")
        + b"".join(arguments(index, piece) for piece in pieces)
        + done(index, "function_call", **{**item, "arguments": "".join(pieces), "status": "completed", **fields})
    )


def ended(status: str = "completed", *, reason: Any = None, usage: Any = USAGE, **fields: Any) -> bytes:
    """The terminal event."""
    details = None if reason is None else {"reason": reason}
    response = {"id": "resp_1", "object": "response", "status": status, "incomplete_details": details, "usage": usage}
    return event(f"response.{status}", response={**response, **fields})


def input_of(*messages: Any, **more: Any) -> list[dict[str, Any]]:
    """The input items that these messages, between two of the user's, are sent as."""
    items = body_of(UserMessage("Hi"), *messages, "Go on", **more)["input"]
    return items[1:-1]
