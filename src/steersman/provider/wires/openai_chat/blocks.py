"""The blocks of a Chat Completions answer while they arrive: text, thinking and tool calls, as stream events."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from steersman.provider.wires.openai_chat.calls import Calls, OpenCall
from steersman.provider.wires.openai_chat.chunks import CallPiece, Delta
from steersman.provider.wires.openai_chat.thinking import Details, TagSplitter, is_signature, split_parts
from steersman.provider.wires.protocol import MAX_TOOL_CALLS, check_call_count
from steersman.types.content import (
    Content,
    TextContent,
    ThinkingContent,
    escape_lone_surrogates,
    replace_lone_surrogates,
    split_trailing_surrogate,
)
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

_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
_TAGS, _PARTS, _DETAILS = "<think>", "content", "reasoning_details"
NOT_REPLAYED = frozenset((_TAGS, _PARTS))
"""Origins of thinking that came inside the content; no field exists to send it back in."""


class KnownNames(Protocol):
    """Maps tool names on the wire to our own."""

    @property
    def known(self) -> frozenset[str]: ...
    @property
    def complete(self) -> frozenset[str]: ...
    def from_wire(self, name: str, /) -> str: ...


class Blocks(msgspec.Struct, eq=False):
    """The blocks of one answer. At most one text or thinking block is open; it stops where another block starts."""

    _names: KnownNames
    # Only for a server that sends thinking between tags.
    _tags: TagSplitter | None = None
    # The open block: its kind ("" for none), its index, and its text so far.
    _open: str = ""
    index: int = 0
    parts: list[str] = []
    # Whether the open block is a text to which plain text can be appended; or the call for further arguments.
    has_open_text: bool = False
    growing: OpenCall | None = None
    # Whether text may hold lone surrogates, and the high surrogate that waits for its other half.
    _has_lone_surrogates: bool = False
    _held: str = ""
    _calls: Calls | None = None
    # How many calls were emitted.
    _begun: int = 0
    # A call that is not emitted yet, because another tool's name begins with its name.
    _waiting: OpenCall | None = None
    # Whether every block has stopped, so that the end of the answer has nothing left to do.
    _has_stopped: bool = False
    _content: list[Content | OpenCall | None] = []
    _field: str | None = None
    _details: Details | None = None
    # The index of the last thinking block that has stopped, and its details.
    _closed: tuple[int, Details] | None = None

    def expect_lone_surrogates(self) -> None:
        """From here on the text may hold lone surrogates, so that nothing is plain."""
        self._has_lone_surrogates = True
        self.has_open_text, self.growing = False, None

    def list_content(self) -> list[Content]:
        """Return the blocks that have stopped."""
        return [block for block in self._content if block is not None and not isinstance(block, OpenCall)]

    def add_thinking(self, delta: Delta, out: list[StreamEvent]) -> None:
        """Add thinking; servers send the same text in several fields, and the first that is not empty counts."""
        fields = _FIELDS if self._field not in _FIELDS else (self._field, *_FIELDS)
        words = ""
        for field in fields:
            if words := getattr(delta, field):
                self._field = self._field or field
                break
        if delta.reasoning_details and not words and self._sign_closed(delta.reasoning_details):
            return
        if delta.reasoning_details:
            self._details = self._details or Details()
            text = self._details.add(delta.reasoning_details)
            self._field = _DETAILS
            words = words or text
            if self._open != "thinking":
                self._start_block("thinking", out)
        if words:
            self.add_text("thinking", words, out)

    def _sign_closed(self, pieces: list[dict[str, Any]]) -> bool:
        """Add a signature that comes after its thinking block has stopped; returns whether the pieces are one."""
        if self._open == "thinking" or self._closed is None or not all(map(is_signature, pieces)):
            return False
        index, details = self._closed
        thought = self._content[index]
        if not details.is_unsigned or not isinstance(thought, ThinkingContent):
            return False
        details.add(pieces)
        self._content[index] = msgspec.structs.replace(thought, signature=details.encode(thought.thinking))
        return True

    def add_content(self, words: str | list[Any], out: list[StreamEvent]) -> None:
        """Add content, which may contain thinking: as parts, or between tags."""
        if not isinstance(words, str):
            pieces = split_parts(words)
        elif self._tags is not None:
            pieces = self._tags.split(words)
        else:
            self.add_text("text", words, out)
            return
        for piece, thought in pieces:
            if piece:
                if thought:
                    self._field = self._field or (_PARTS if self._tags is None else _TAGS)
                self.add_text("thinking" if thought else "text", piece, out)

    def add_text(self, kind: str, words: str, out: list[StreamEvent]) -> None:
        """Add text or thinking to the open block, or to a new one."""
        if self._open != kind:
            self._start_block(kind, out)
        if self._has_lone_surrogates:
            words = self._join_surrogates(words)
            if not words:
                return
        self.parts.append(words)
        out.append(TextDelta(words, self.index) if kind == "text" else ThinkingDelta(words, self.index))

    def _join_surrogates(self, words: str) -> str:
        """Join split surrogate pairs; a high surrogate at the end waits for the next delta."""
        words, self._held = split_trailing_surrogate(self._held + words)
        return replace_lone_surrogates(words)

    def _start_block(self, kind: str, out: list[StreamEvent]) -> None:
        self._has_stopped = False
        if self._open:
            self._stop_block(out)
        if self._waiting is not None:
            self._start_call(self._waiting, out)
        self._open = kind
        self.has_open_text = kind == "text" and not self._has_lone_surrogates and self._tags is None
        self.growing = None
        self.index = len(self._content)
        self._content.append(None)
        self.parts = []
        out.append(TextStart(self.index) if kind == "text" else ThinkingStart(self.index))

    def _stop_block(self, out: list[StreamEvent]) -> None:
        """Stop the open text or thinking block."""
        if self._held:
            self._held = ""
            self.parts.append("\ufffd")
            out.append(TextDelta("\ufffd", self.index) if self._open == "text" else ThinkingDelta("\ufffd", self.index))
        words = "".join(self.parts)
        if self._open == "text":
            self._content[self.index] = TextContent(words)
            out.append(TextEnd(self.index))
        else:
            signature = None
            if self._details is not None:
                signature = self._details.encode(words)
                self._closed, self._details = (self.index, self._details), None
            self._content[self.index] = ThinkingContent(words, signature, not words, self._field)
            out.append(ThinkingEnd(self.index))
        self._open, self.has_open_text = "", False

    def add_call(self, piece: CallPiece, place: int, of: int, out: list[StreamEvent]) -> OpenCall:
        """Add a piece of a call, entry `place` of `of` in its chunk, and return the call."""
        self._has_stopped = False
        self.growing = None
        if self._open:
            self._stop_block(out)
        if self._calls is None:
            self._calls = Calls(self._names.known)
        calls = self._calls
        call = calls.add(piece, place, of)
        if self._waiting is not None and self._waiting is not call:
            self._start_call(self._waiting, out)  # its name is complete, because another call begins
        index = call.index
        if index is None:
            if call.name not in self._names.complete and (not call.name or call.is_blank):
                # The name may not be complete yet.
                self._waiting = call if call.name in self._names.known else None
                return call
            index = self._start_call(call, out)
        if not isinstance(self._content[index], OpenCall):
            return call  # the call has stopped
        shown, call.shown = call.shown, len(call.parts)
        self._emit_arguments(call, index, "".join(call.parts[shown:]), out)
        self.growing = None if self._has_lone_surrogates else calls.growing
        return call

    def _start_call(self, call: OpenCall, out: list[StreamEvent]) -> int:
        self._waiting = None
        index = call.index = len(self._content)
        self._content.append(call)
        self._begun += 1
        if self._begun > MAX_TOOL_CALLS:
            check_call_count(self._begun)
        out.append(ToolCallStart(index, call.id, self._names.from_wire(call.name)))
        return index

    def _emit_arguments(self, call: OpenCall, index: int, words: str, out: list[StreamEvent]) -> None:
        """Emit more of the arguments; lone surrogates are escaped."""
        if self._has_lone_surrogates:
            words, call.held = split_trailing_surrogate(call.held + words)
            words = escape_lone_surrogates(words)
        if words:
            out.append(ToolCallDelta(words, index))

    def stop_all(self, out: list[StreamEvent], *, cut: bool) -> None:
        """Stop every open block; `cut` says that the answer reached its token limit."""
        if self._has_stopped:
            return
        if self._tags is not None:
            words, thought = self._tags.flush()
            if words:
                self.add_text("thinking" if thought else "text", words, out)
        if self._open:
            self._stop_block(out)
        self._waiting = self.growing = None
        calls = () if self._calls is None else self._calls.all
        for number, call in enumerate(calls):
            self._stop_call(call, out, cut=cut and number == len(calls) - 1)
        self._has_stopped = True

    def _stop_call(self, call: OpenCall, out: list[StreamEvent], *, cut: bool) -> None:
        index = call.index
        if index is None:
            if not call.name and call.is_blank:
                return  # some servers send an empty last entry
            index = self._start_call(call, out)
            self._emit_arguments(call, index, "".join(call.parts), out)
        if isinstance(self._content[index], OpenCall):
            if call.held:
                out.append(ToolCallDelta(escape_lone_surrogates(call.held), index))
            closed = self._content[index] = call.build_call(self._names.from_wire(call.name), cut=cut)
            out.append(ToolCallEnd(index, closed))
