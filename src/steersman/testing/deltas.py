"""The deltas of one answer, read block by block."""

from __future__ import annotations

from collections.abc import Iterable

from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall, parse_tool_call
from steersman.types.messages import AssistantMessage
from steersman.types.stream import (
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

_STARTS = (TextStart, ThinkingStart, ToolCallStart)
_PIECES = (TextDelta, ThinkingDelta, ToolCallDelta)
_ENDS = (TextEnd, ThinkingEnd, ToolCallEnd)


class DeltaReader:
    """Fails when a block's start, deltas and end are not in order; then knows what each block said."""

    def __init__(self) -> None:
        self._kinds: dict[int, str] = {}
        self._words: dict[int, list[str]] = {}
        self._ended: dict[int, ToolCall | None] = {}
        self._starts: dict[int, ToolCallStart] = {}

    @classmethod
    def read(cls, events: Iterable[StreamEvent]) -> DeltaReader:
        """Read all deltas of an answer."""
        reader = cls()
        for event in events:
            reader.feed(event)
        return reader

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join("".join(words) for index, words in self._words.items() if self._kinds[index] == "text")

    def feed(self, event: StreamEvent) -> None:
        """Read the next event; what is not a delta is passed over."""
        if isinstance(event, _STARTS):
            index = event.content_index
            assert index not in self._kinds, f"Expected one start of block {index}, got {event!r} as well."
            self._kinds[index] = _kind(event.type)
            self._words[index] = []
            if isinstance(event, ToolCallStart):
                self._starts[index] = event
        elif isinstance(event, _PIECES):
            self._must_be_open(event, event.content_index)
            self._words[event.content_index].append(event.delta)
        elif isinstance(event, _ENDS):
            self._must_be_open(event, event.content_index)
            self._ended[event.content_index] = event.tool_call if isinstance(event, ToolCallEnd) else None

    def check(self, message: AssistantMessage) -> None:
        """Fail unless the message is what the deltas said, block for block."""
        unended = sorted(set(self._kinds) - set(self._ended))
        assert not unended, f"Expected every block to end, but {unended} did not."
        said = [self._block(index) for index in sorted(self._kinds)]
        got = [_words(block) for block in message.content]
        assert said == got, f"Expected the message to be what its deltas said, {said!r}, got {got!r}."

    def _block(self, index: int) -> tuple[str, object]:
        kind, words = self._kinds[index], "".join(self._words[index])
        if kind != "tool_call":
            return kind, words
        start, call = self._starts[index], self._ended[index]
        parsed = parse_tool_call(start.id, start.name, words)
        ended = parsed if call is None else call
        assert (ended.name, ended.arguments) == (parsed.name, parsed.arguments), (
            f"Expected the call its deltas spelled, {parsed!r}, got {ended!r}."
        )
        return kind, (ended.id, ended.name, ended.arguments)

    def _must_be_open(self, event: StreamEvent, index: int) -> None:
        kind = _kind(event.type)
        fits = self._kinds.get(index) == kind and index not in self._ended
        assert fits, f"Expected {event!r} between the start and the end of its {kind} block."


def _kind(event_type: str) -> str:
    return event_type.rpartition("_")[0]


def _words(block: Content) -> tuple[str, object]:
    match block:
        case TextContent():
            return "text", block.text
        case ThinkingContent():
            return "thinking", block.thinking
        case ToolCall():
            return "tool_call", (block.id, block.name, block.arguments)
        case _:
            return block.type, block
