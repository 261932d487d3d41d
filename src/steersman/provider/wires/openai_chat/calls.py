"""Tool calls put together from their pieces, however a server numbers, names and cuts them."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec

from steersman.provider.wires.openai_chat.chunks import CallPiece
from steersman.types.content import ToolCall, parse_tool_call


class OpenCall:
    """A call while it grows; `number` is the server's, `index` its place in the message once it was shown.

    `half` is the first half of a character, which waits to be shown with the other.
    """

    __slots__ = ("half", "id", "index", "name", "number", "parts", "shown")

    def __init__(self, id: str, number: int | None = None) -> None:
        self.id = id
        self.number = number
        self.name = ""
        self.parts: list[str] = []
        self.shown = 0
        self.half = ""
        self.index: int | None = None

    @property
    def blank(self) -> bool:
        """Whether nothing of its arguments has come."""
        return not any(part and not part.isspace() for part in self.parts)

    @property
    def whole(self) -> bool:
        """Whether its arguments could end here."""
        return self.blank or _parses("".join(self.parts))

    def closed(self, name: str, *, cut: bool) -> ToolCall:
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
        call = self._owner(piece, name, place, of)
        if name:
            call.name = self._named(call, name)
        if function is not None and (arguments := function.arguments) is not None:
            call.parts.append(arguments if isinstance(arguments, str) else _written(arguments))
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

    def _owner(self, piece: CallPiece, name: str, place: int, of: int) -> OpenCall:
        index, id = piece.index, piece.id
        if index is not None:
            call = self._by_index.get(index)
            if call is None or self._is_another(call, id, name):
                call = self._by_index[index] = self._new(id, index)
        elif id:
            call = self._by_id.get(id) or self._new(id)
        else:
            call = self._unmarked(name, place, of)
        if id and not call.id:
            call.id = id
            self._by_id[id] = call
        return call

    def _is_another(self, call: OpenCall, id: str | None, name: str) -> bool:
        """Servers that number every call 0 still give each an id and a name, and finish one before the next."""
        return bool(id and name and call.id) and id != call.id and call.whole

    def _unmarked(self, name: str, place: int, of: int) -> OpenCall:
        call = self._last
        if of > 1:
            call = self.all[place] if place < len(self.all) else None
        if call is None or (name and call.name and not call.blank and call.whole):
            return self._new(None)
        return call

    def _new(self, id: str | None, number: int | None = None) -> OpenCall:
        call = OpenCall(id or "", number)
        self.all.append(call)
        if id:
            self._by_id[id] = call
        return call

    def _named(self, call: OpenCall, piece: str) -> str:
        """A name comes whole, or in pieces, or again with every piece of the arguments."""
        name = call.name
        if not name or (piece.startswith(name) and name not in self._known):
            return piece
        if name + piece in self._known:
            return name + piece
        if name in self._known or piece == name or not call.blank:
            return name
        return name + piece


def _parses(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _written(arguments: Any) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError:  # half a character alone is spelled out, so that nobody runs the call with another
        from json import dumps

        return dumps(arguments)
