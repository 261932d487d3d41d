"""The blocks of a Chat Completions answer while they grow: words, thoughts and calls, each shown as it comes."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol

import msgspec

from steersman.provider.wires.openai_chat.chunks import CallPiece, Delta
from steersman.provider.wires.openai_chat.thinking import Details, TagSplitter, split_parts
from steersman.types.content import (
    Content,
    TextContent,
    ThinkingContent,
    ToolCall,
    escape_lone_surrogates,
    parse_tool_call,
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


class OpenCall:
    """A call while it grows; `number` is the server's, `index` its place in the message once it was shown.

    `half` is the first half of a character, which waits to be shown with the other.
    """

    __slots__ = ("held", "id", "index", "name", "number", "parts", "shown")

    def __init__(self, id: str, number: int | None = None) -> None:
        self.id = id
        self.number = number
        self.name = ""
        self.parts: list[str] = []
        self.shown = 0
        self.held = ""
        self.index: int | None = None

    @property
    def is_blank(self) -> bool:
        """Whether nothing of its arguments has come."""
        return not any(part and not part.isspace() for part in self.parts)

    @property
    def is_whole(self) -> bool:
        """Whether its arguments could end here."""
        return self.is_blank or _is_json("".join(self.parts))

    def build_call(self, name: str, *, cut: bool) -> ToolCall:
        """The call as it is now; one that was cut before its arguments began is not one without arguments."""
        written = "".join(self.parts)
        if cut and not written.strip():
            return ToolCall(self.id, name, {}, raw_arguments=written)
        return parse_tool_call(self.id, name, written)


class Calls:
    """Which call a piece belongs to: by its index, else by its id, else by its place, else to the last one."""

    __slots__ = ("_by_id", "_by_index", "_known", "_last", "all")

    def __init__(self, known: Set[str]) -> None:
        self._known = known
        self._by_index: dict[int, OpenCall] = {}
        self._by_id: dict[str, OpenCall] = {}
        self._last: OpenCall | None = None
        self.all: list[OpenCall] = []

    def add(self, piece: CallPiece, place: int, of: int) -> OpenCall:
        """The call after this piece, entry `place` of `of` in its chunk."""
        function = piece.function
        name = (function.name or "") if function is not None else ""
        call = self._find_owner(piece, name, place, of)
        if name:
            call.name = self._join_name(call, name)
        if function is not None and (arguments := function.arguments) is not None:
            call.parts.append(arguments if isinstance(arguments, str) else _encode_arguments(arguments))
        self._last = call
        return call

    @property
    def growing(self) -> OpenCall | None:
        """The last call, if it is shown so far and the server counts its calls."""
        call = self._last
        if call is None or call.number is None or call.index is None or call.shown != len(call.parts):
            return None
        return call

    def is_named(self, call: OpenCall) -> bool:
        """Whether its name is that of a tool and cannot become another's."""
        name = call.name
        return name in self._known and not any(other.startswith(name) and other != name for other in self._known)

    def _find_owner(self, piece: CallPiece, name: str, place: int, of: int) -> OpenCall:
        index, id = piece.index, piece.id
        if index is not None:
            call = self._by_index.get(index)
            if call is None or self._is_another(call, id, name):
                call = self._by_index[index] = self._add_call(id, index)
        elif id:
            call = self._by_id.get(id) or self._add_call(id)
        else:
            call = self._find_unmarked(name, place, of)
        if id and not call.id:
            call.id = id
            self._by_id[id] = call
        return call

    def _is_another(self, call: OpenCall, id: str | None, name: str) -> bool:
        """Servers that number every call 0 still give each an id and a name, and finish one before the next."""
        return bool(id and name and call.id) and id != call.id and call.is_whole

    def _find_unmarked(self, name: str, place: int, of: int) -> OpenCall:
        call = self._last
        if of > 1:
            call = self.all[place] if place < len(self.all) else None
        if call is None or (name and call.name and not call.is_blank and call.is_whole):
            return self._add_call(None)
        return call

    def _add_call(self, id: str | None, number: int | None = None) -> OpenCall:
        call = OpenCall(id or "", number)
        self.all.append(call)
        if id:
            self._by_id[id] = call
        return call

    def _join_name(self, call: OpenCall, piece: str) -> str:
        """A name comes whole, or in pieces, or again with every piece of the arguments."""
        name = call.name
        if not name or (piece.startswith(name) and name not in self._known):
            return piece
        if name + piece in self._known:
            return name + piece
        if name in self._known or piece == name or not call.is_blank:
            return name
        return name + piece


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _encode_arguments(arguments: Any) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError:  # half a character alone is spelled out, so that nobody runs the call with another
        from json import dumps

        return dumps(arguments)


_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
_TAGS, _PARTS, _DETAILS = "<think>", "content", "reasoning_details"
NOT_REPLAYED = frozenset((_TAGS, _PARTS))
"""Thinking that came inside the content; there is no field to send it back in."""


class KnownNames(Protocol):
    """Tool names as the server knows them, and as we do."""

    @property
    def known(self) -> frozenset[str]: ...
    def from_wire(self, name: str, /) -> str: ...


class Blocks:
    """What has come of an answer. At most one block of words is open, and it ends where another block begins."""

    __slots__ = (
        "_calls", "_content", "_details", "_field", "_held", "_names", "_open", "_tags", "_waiting",
        "has_lone_surrogates", "index", "parts",
    )  # fmt: skip

    def __init__(self, names: KnownNames, *, think_tags: bool) -> None:
        # The block that grows: its kind ("" for none), its place, and its words so far.
        self._open = ""
        self.index = 0
        self.parts: list[str] = []
        # Whether words may hold half a surrogate pair, and the half that waits for the other.
        self.has_lone_surrogates = False
        self._held = ""
        self._names = names
        self._calls: Calls | None = None
        # A call that is not shown yet, for its name is also the beginning of another's.
        self._waiting: OpenCall | None = None
        self._content: list[Content | OpenCall | None] = []
        self._field: str | None = None
        self._details: Details | None = None
        self._tags = TagSplitter() if think_tags else None

    @property
    def has_open_text(self) -> bool:
        """Whether a text is open that further words are simply added to."""
        return self._open == "text" and not self.has_lone_surrogates and self._tags is None

    @property
    def growing(self) -> OpenCall | None:
        """The call that further arguments are simply added to."""
        return None if self._open or self.has_lone_surrogates or self._calls is None else self._calls.growing

    def list_content(self) -> list[Content]:
        """The blocks that are whole."""
        return [block for block in self._content if block is not None and not isinstance(block, OpenCall)]

    def add_thinking(self, delta: Delta, out: list[StreamEvent]) -> None:
        """Servers give the same thought under several names: the first that says something counts."""
        fields = _FIELDS if self._field not in _FIELDS else (self._field, *_FIELDS)
        words = ""
        for field in fields:
            if words := getattr(delta, field):
                self._field = self._field or field
                break
        if delta.reasoning_details:
            self._details = self._details or Details()
            told = self._details.add(delta.reasoning_details)
            self._field = _DETAILS
            words = words or told
            if self._open != "thinking":
                self._start_block("thinking", out)
        if words:
            self.add_text("thinking", words, out)

    def add_content(self, words: str | list[Any], out: list[StreamEvent]) -> None:
        """Words of the answer, which may have thoughts among them: as parts, or between tags."""
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
        """More words of a kind, in the block that is open or in a new one."""
        if self._open != kind:
            self._start_block(kind, out)
        if self.has_lone_surrogates:
            words = self._join_surrogates(words)
            if not words:
                return
        self.parts.append(words)
        out.append(TextDelta(words, self.index) if kind == "text" else ThinkingDelta(words, self.index))

    def _join_surrogates(self, words: str) -> str:
        """Half a surrogate pair at the end waits for the other half."""
        words, self._held = split_trailing_surrogate(self._held + words)
        return replace_lone_surrogates(words)

    def _start_block(self, kind: str, out: list[StreamEvent]) -> None:
        self._stop_block(out)
        if self._waiting is not None:
            self._start_call(self._waiting, out)
        self._open = kind
        self.index = len(self._content)
        self._content.append(None)
        self.parts = []
        out.append(TextStart(self.index) if kind == "text" else ThinkingStart(self.index))

    def _stop_block(self, out: list[StreamEvent]) -> None:
        """End the block of words that is open."""
        if not self._open:
            return
        if self._held:
            self._held = ""
            self.parts.append("\ufffd")
            out.append(TextDelta("\ufffd", self.index) if self._open == "text" else ThinkingDelta("\ufffd", self.index))
        words = "".join(self.parts)
        if self._open == "text":
            self._content[self.index] = TextContent(words)
            out.append(TextEnd(self.index))
        else:
            signature = None if self._details is None else self._details.encoded
            self._details = None
            self._content[self.index] = ThinkingContent(words, signature, not words, self._field)
            out.append(ThinkingEnd(self.index))
        self._open = ""

    def add_call(self, piece: CallPiece, place: int, of: int, out: list[StreamEvent]) -> None:
        """A piece of a call, entry `place` of `of` in its chunk."""
        self._stop_block(out)
        if self._calls is None:
            self._calls = Calls(self._names.known)
        calls = self._calls
        call = calls.add(piece, place, of)
        if self._waiting is not None and self._waiting is not call:
            self._start_call(self._waiting, out)  # where another begins, its name is whole
        index = call.index
        if index is None:
            if not call.name or (call.is_blank and not calls.is_named(call)):
                # The name may still be growing.
                self._waiting = call if call.name in self._names.known else None
                return
            index = self._start_call(call, out)
        if not isinstance(self._content[index], OpenCall):
            return  # more of a call that has ended
        shown, call.shown = call.shown, len(call.parts)
        self._emit_arguments(call, index, "".join(call.parts[shown:]), out)

    def _start_call(self, call: OpenCall, out: list[StreamEvent]) -> int:
        self._waiting = None
        index = call.index = len(self._content)
        self._content.append(call)
        out.append(ToolCallStart(index, call.id, self._names.from_wire(call.name)))
        return index

    def _emit_arguments(self, call: OpenCall, index: int, words: str, out: list[StreamEvent]) -> None:
        """More of the arguments, as they will be read: half a character alone is spelled out."""
        if self.has_lone_surrogates:
            words, call.held = split_trailing_surrogate(call.held + words)
            words = escape_lone_surrogates(words)
        if words:
            out.append(ToolCallDelta(words, index))

    def stop_all(self, out: list[StreamEvent], *, cut: bool) -> None:
        """Close every block that is open; `cut` when the answer ended for want of room."""
        if self._tags is not None:
            words, thought = self._tags.flush()
            if words:
                self.add_text("thinking" if thought else "text", words, out)
        self._stop_block(out)
        self._waiting = None
        calls = [] if self._calls is None else self._calls.all
        for number, call in enumerate(calls):
            self._stop_call(call, out, cut=cut and number == len(calls) - 1)

    def _stop_call(self, call: OpenCall, out: list[StreamEvent], *, cut: bool) -> None:
        index = call.index
        if index is None:
            if not call.name and call.is_blank:
                return  # an empty entry at the end of the list, as some servers send
            index = self._start_call(call, out)
            self._emit_arguments(call, index, "".join(call.parts), out)
        if isinstance(self._content[index], OpenCall):
            if call.held:
                out.append(ToolCallDelta(escape_lone_surrogates(call.held), index))
            closed = self._content[index] = call.build_call(self._names.from_wire(call.name), cut=cut)
            out.append(ToolCallEnd(index, closed))
