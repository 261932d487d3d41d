"""The model of the measurements: prepared turns, played by the same code for both sides.

A turn is written once, in plain dicts. The floor is given those, Steersman the same events as its own types, and
neither pays for making them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from steersman.types.stream import StreamEvent

Plain: TypeAlias = dict[str, Any]
EventT = TypeVar("EventT")

USAGE = {"input": 100, "output": 10}
PROVIDER, MODEL = "bench", "script"


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of one run, in both forms."""

    plain: Sequence[Sequence[Plain]]
    typed: Sequence[Sequence[StreamEvent]]


class Script(Generic[EventT]):
    """A model that plays one turn per request, whatever it is asked.

    As with any server, the event loop turns once before the answer begins; `paced` lets it turn before every event.
    """

    __slots__ = ("_paced", "_turns", "asked", "on_request")

    def __init__(
        self,
        turns: Sequence[Sequence[EventT]],
        *,
        paced: bool = False,
        on_request: Callable[[], object] | None = None,
    ) -> None:
        self._turns = turns
        self._paced = paced
        self.asked = 0
        self.on_request = on_request

    def __call__(self, *_request: object) -> AsyncGenerator[EventT, None]:
        """Answer the next request."""
        if self.on_request is not None:
            self.on_request()
        turn = self._turns[self.asked]
        self.asked += 1
        return self._play(turn)

    async def _play(self, turn: Sequence[EventT]) -> AsyncGenerator[EventT, None]:
        await asyncio.sleep(0)
        if not self._paced:
            for event in turn:
                yield event
        else:
            for event in turn:
                await asyncio.sleep(0)
                yield event


def turns_of(*turns: Sequence[Plain]) -> Turns:
    """Turns in both forms."""
    return Turns(turns, [msgspec.convert(turn, list[StreamEvent]) for turn in turns])


def text_turn(text: str, deltas: int = 4) -> list[Plain]:
    """An answer of one text, in so many pieces."""
    pieces = [text[len(text) * at // deltas : len(text) * (at + 1) // deltas] for at in range(deltas)]
    return [
        {"type": "start"},
        {"type": "text_start", "content_index": 0},
        *({"type": "text_delta", "delta": piece, "content_index": 0} for piece in pieces),
        {"type": "text_end", "content_index": 0},
        _done([{"type": "text", "text": text}], "stop"),
    ]


def tool_turn(number: int, calls: int = 1) -> list[Plain]:
    """An answer that asks for so many additions, different ones in every turn."""
    content: list[Plain] = []
    events: list[Plain] = [{"type": "start"}]
    for index in range(calls):
        arguments = {"a": number, "b": index}
        call: Plain = {"type": "tool_call", "id": f"call_{number}_{index}", "name": "add", "arguments": arguments}
        written = f'{{"a": {number}, "b": {index}}}'
        content.append(call)
        events += [
            {"type": "tool_call_start", "content_index": index, "id": call["id"], "name": "add"},
            {"type": "tool_call_delta", "delta": written[:6], "content_index": index},
            {"type": "tool_call_delta", "delta": written[6:], "content_index": index},
            {"type": "tool_call_end", "content_index": index, "tool_call": call},
        ]
    return [*events, _done(content, "tool_use")]


def long_call_turn(deltas: int) -> list[Plain]:
    """An answer that calls a tool with a text of twenty characters for each delta; the tool refuses it."""
    arguments = {"a": "def f(x):\n\treturn x\n" * deltas, "b": 1}
    call: Plain = {"type": "tool_call", "id": "call_0", "name": "add", "arguments": arguments}
    written = msgspec.json.encode(arguments).decode()
    pieces = [written[len(written) * at // deltas : len(written) * (at + 1) // deltas] for at in range(deltas)]
    return [
        {"type": "start"},
        {"type": "tool_call_start", "content_index": 0, "id": call["id"], "name": "add"},
        *({"type": "tool_call_delta", "delta": piece, "content_index": 0} for piece in pieces),
        {"type": "tool_call_end", "content_index": 0, "tool_call": call},
        _done([call], "tool_use"),
    ]


def _done(content: list[Plain], stop_reason: str) -> Plain:
    message = {
        "role": "assistant",
        "content": content,
        "stop_reason": stop_reason,
        "usage": USAGE,
        "model": MODEL,
        "provider": PROVIDER,
    }
    return {"type": "done", "message": message}


async def add(a: int, b: int) -> str:
    """The tool of both sides."""
    return str(a + b)
