"""Streams of Chat Completions written by hand, and what the decoder makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.provider.wires.reading import Reading

from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.testing.conformance import DeltaReader
from steersman.testing.servers.exchange import sse
from steersman.types.content import ToolCall
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request
from steersman.types.stream import StreamEvent

FIXTURES = Path(__file__).parents[3] / "fixtures"
RECORDED = sorted(path for path in FIXTURES.glob("*/openai_*.sse") if "midstream_error" not in path.name)
MODEL = Model("openai-chat", "m")
_READING = Reading(WIRE, MODEL)
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Spec:
    """A tool as a model sees it."""

    name: str
    description: str = "A tool."
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


def tools(*names: str) -> list[Spec]:
    return [Spec(name, parameters={"type": "object", "properties": {}}) for name in names]


def asked(*names: str) -> Request:
    return Request("", [user_message("Hello?")], tools(*names))


def chunk(delta: Any = None, finish: Any = None, **fields: Any) -> bytes:
    choice: dict[str, Any] = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **fields})


def said(*words: str, field: str = "content") -> bytes:
    return b"".join(chunk({field: word}) for word in words)


def calls(*entries: dict[str, Any], finish: Any = None) -> bytes:
    return chunk({"tool_calls": list(entries)}, finish)


def piece(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    """An entry of tool_calls with only what is given."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    entry = {"index": index, "id": id, "function": function or None}
    return {key: value for key, value in entry.items() if value is not None}


def counted(**usage: Any) -> bytes:
    return sse({"id": "chatcmpl-1", "choices": [], "usage": usage})


def read(
    stream: bytes | Iterable[bytes], *names: str, model: Model = MODEL
) -> tuple[list[StreamEvent], AssistantMessage]:
    """The events and the message of a stream; raises what the decoder raises."""
    return _READING.read(stream, model=model, request=asked(*names))


def answer_of(stream: bytes, *names: str, model: Model = MODEL) -> AssistantMessage:
    """The message of a stream, which its deltas spell as well."""
    events, message = read(stream, *names, model=model)
    DeltaReader.read(events).check(message)
    return message


def calls_of(*stream: bytes, known: Sequence[str] = ("search", "read", "time")) -> list[tuple[str, str, Any]]:
    """Id, name and arguments of the calls of a stream that ends with them."""
    message = answer_of(b"".join((*stream, chunk(None, "tool_calls"), DONE)), *known)
    return [(call.id, call.name, told(call)) for call in message.tool_calls]


def told(call: ToolCall) -> Any:
    return call.arguments if call.raw_arguments is None else call.raw_arguments


def settings(**flags: Any) -> Model:
    return Model("openai-chat", "m", settings=flags)
