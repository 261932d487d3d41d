"""The tool calls of a Chat Completions answer while they arrive: which call a piece belongs to, and what it adds."""

from __future__ import annotations

from collections.abc import Set

import msgspec

from steersman.provider.wires.openai_chat.chunks import CallPiece, Frame, is_json
from steersman.provider.wires.protocol import encode_arguments, parse_call
from steersman.types.content import ToolCall
from steersman.types.errors import ProtocolError

_CLOSING = {"{": "}", "[": "]", '"': '"'}
_LONGEST_SCALAR = 100
# A name this long is no tool's; what follows is not added.
_LONGEST_NAME = 4_000
# In characters that are read. A server that repeats the name with each piece of 100 kB of arguments is far below it.
_MOST_WORK = 500_000_000
_PART = 10  # to join a part takes as long as to read so many characters


class OpenCall(msgspec.Struct, eq=False):
    """A call while its arguments arrive; `number` is the server's, `index` its place in the message once emitted.

    `shown` counts the emitted parts; `held` is a high surrogate that waits for its low one; `frame` is around parts.
    """

    id: str
    number: int | None = None
    name: str = ""
    parts: list[str] = []
    shown: int = 0
    held: str = ""
    index: int | None = None
    frame: Frame | None = None
    is_framed: bool = False  # whether it was looked for
    fields: dict[str, msgspec.Raw] | None = None  # those that are not decoded, once they were looked for
    # Of the parts that were looked at: how many, their size, the first and last character that is no white space.
    _looked: int = 0
    _size: int = 0
    _first: str = ""
    _last: str = ""

    @property
    def is_blank(self) -> bool:
        """Whether its arguments are empty so far."""
        self._look()
        return not self._last

    @property
    def is_object(self) -> bool:
        """Whether its arguments could be a whole object, by their last character."""
        self._look()
        return self._last == "}"

    @property
    def cost(self) -> int:
        """What it takes to join its arguments and read them; 0 if their ends show that they are not whole."""
        self._look()
        may_end = self._last == _CLOSING[self._first] if self._first in _CLOSING else self._size < _LONGEST_SCALAR
        return self._size + _PART * len(self.parts) if may_end else 0

    def _look(self) -> None:
        """Look at the parts that were added since; this may be asked for with every one of them."""
        for part in self.parts[self._looked :] if self._looked < len(self.parts) else ():
            self._size += len(part)
            if part and not part.isspace():
                words = part.strip()
                self._first = self._first or words[0]
                self._last = words[-1]
        self._looked = len(self.parts)

    def build_call(self, name: str, *, cut: bool) -> ToolCall:
        """Build the tool call; if it was cut before its arguments began, it is marked as cut."""
        arguments = "".join(self.parts)
        signature = msgspec.json.encode(self.fields).decode() if self.fields else None
        if cut and not arguments.strip():
            return ToolCall(self.id, name, {}, raw_arguments=arguments, signature=signature)
        return parse_call(self.id, name, arguments, signature=signature)


class Calls(msgspec.Struct, eq=False):
    """Finds the call of a piece: by its index, else its id, else its position in the chunk, else the last call."""

    _known: Set[str]
    all: list[OpenCall] = []
    # What it took so far to find out whether arguments are whole.
    _work: int = 0
    # A whole call whose name came once more: if arguments follow, they are those of another call.
    _again: OpenCall | None = None
    _by_index: dict[int, OpenCall] = {}
    _by_id: dict[str, OpenCall] = {}
    _last: OpenCall | None = None

    def add(self, piece: CallPiece, place: int, of: int) -> OpenCall:
        """Add a piece, entry `place` of `of` in its chunk, and return its call."""
        function = piece.function
        name = (function.name or "") if function is not None else ""
        call = self._find_owner(piece, name, place, of)
        if name:
            call.name = self._join_name(call, name) if call.name else name
        if function is not None and (arguments := function.arguments) is not None:
            call.parts.append(arguments if isinstance(arguments, str) else encode_arguments(arguments))
        self._last = call
        return call

    @property
    def growing(self) -> OpenCall | None:
        """The last call, if all of it was emitted and the server numbers its calls."""
        call = self._last
        if call is None or call is self._again:
            return None
        if call.number is None or call.index is None or call.shown != len(call.parts):
            return None
        return call

    def _find_owner(self, piece: CallPiece, name: str, place: int, of: int) -> OpenCall:
        index, id = piece.index, piece.id
        if index is not None:
            call = self._by_index.get(index)
            if call is None:
                call = self._by_index[index] = self._add_call(id, index)
            elif self._is_another(call, piece, name):
                first, call = call, self._add_call(id, index)
                call.name = "" if name else first.name
                self._by_index[index] = call
        elif id:
            call = self._by_id.get(id) or self._add_call(id)
        else:
            call = self._find_unmarked(name, place, of)
        if id and not call.id:
            call.id = id
            self._by_id[id] = call
        return call

    def _is_another(self, call: OpenCall, piece: CallPiece, name: str) -> bool:
        """Whether this is a new call with the same index: some servers number every call 0."""
        if piece.id:
            return bool(name and call.id) and piece.id != call.id and self._is_whole(call)
        if not call.name or not (name or call is self._again):
            return False
        # Without ids a second name tells: after whole arguments, or of another tool.
        arguments = piece.function and piece.function.arguments
        if arguments and not (isinstance(arguments, str) and arguments.isspace()):
            self._again = None if call is self._again else self._again
            if call.is_object and self._is_whole(call):
                return True
        elif name == call.name and call.is_object and self._is_whole(call):
            self._again = call
        known = self._known
        return name != call.name and name in known and call.name in known and call.name + name not in known

    def _is_whole(self, call: OpenCall) -> bool:
        """Whether the arguments could end here: they are empty or valid JSON."""
        if call.is_blank:
            return True
        cost = call.cost
        self._work += cost
        if self._work > _MOST_WORK:
            raise ProtocolError("The server sent the arguments of a tool call in too many pieces to tell them apart.")
        return bool(cost) and is_json("".join(call.parts))

    def _find_unmarked(self, name: str, place: int, of: int) -> OpenCall:
        call = self._last
        if of > 1:
            call = self.all[place] if place < len(self.all) else None
        if call is None or (name and call.name and not call.is_blank and self._is_whole(call)):
            return self._add_call(None)
        return call

    def _add_call(self, id: str | None, number: int | None = None) -> OpenCall:
        call = OpenCall(id or "", number)
        self.all.append(call)
        if id:
            self._by_id[id] = call
        return call

    def _join_name(self, call: OpenCall, piece: str) -> str:
        """Add a piece of the name, which may come whole, in pieces, or again with every piece of the arguments."""
        name = call.name
        if len(name) > _LONGEST_NAME:
            return name
        if piece.startswith(name) and name not in self._known:
            return piece
        if name + piece in self._known:
            return name + piece
        if name in self._known or piece == name or not call.is_blank:
            return name
        return name + piece
