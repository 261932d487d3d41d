"""Collects a function call that arrives in pieces: Vertex AI sends its arguments one by one if it is asked to.

The first piece has the name. Each of the others has values with their JSON paths, such as `$.places[0].name`; a text
may come in several pieces. A piece without `willContinue` is the last one. The call is passed on when it is complete.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, cast

import msgspec

from steersman.provider.wires.google.chunks import Call, PartialArgument
from steersman.types.errors import ProtocolError

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_MAX_MISSING = 100_000  # items of lists that a call may leave out: a path of a few bytes may name a far one
_MAX_DEPTH = 128
_MAX_DIGITS = 1_000
# Of the paths of all calls of an answer: so many take half a second.
_MAX_STEPS = 500_000


class PartialCall:
    """A call whose arguments still arrive; `steps` counts those of all paths of the answer so far."""

    __slots__ = (
        "_arguments",
        "_broken",
        "_missing",
        "_open",
        "_pieces",
        "_place",
        "has_lone_surrogates",
        "id",
        "name",
        "signature",
        "steps",
    )  # fmt: skip

    def __init__(self, call: Call, signature: str | None, steps: int = 0) -> None:
        self.steps = steps
        self.name = call.name
        self.id = call.id
        self.signature = signature
        self.has_lone_surrogates = False
        self._arguments: dict[str, Any] = {}
        # The path of a text that goes on with the next piece.
        self._open: str | None = None
        # Its place, and its pieces so far, which are joined once.
        self._place: list[str | int] = []
        self._pieces: list[str] = []
        self._broken = False
        self._missing = 0

    def add(self, call: Call, signature: str | None) -> None:
        """Add a piece."""
        self.id = self.id if call.id is None else call.id
        self.signature = self.signature or signature
        if bytes(call.args):
            self._close_text()
            whole: object = msgspec.json.decode(call.args)
            if isinstance(whole, dict):
                self._arguments.update(cast(dict[str, Any], whole))
        for argument in call.partial_args or ():
            self._add_argument(argument)

    def encode(self, *, complete: bool) -> str:
        """The arguments as JSON; those of a call that was cut lack the closing brace, so they are never run."""
        self._close_text()
        text = msgspec.json.encode(self._arguments).decode()
        return text if complete and not self._broken else text[:-1]

    def _add_argument(self, argument: PartialArgument) -> None:
        path = argument.json_path or ""
        value = argument.read_value()
        if self._pieces and path == self._open and isinstance(value, str):
            self._pieces.append(value)
            if not argument.will_continue:
                self._close_text()
            return
        self._close_text()
        steps = [_read_step(found) for found in islice(_STEP.finditer(path), _MAX_DEPTH + 1)]
        self.steps += len(steps)
        if self.steps > _MAX_STEPS:
            raise ProtocolError(
                f"The paths of the arguments in the model's answer have more than {_MAX_STEPS:,} steps."
            )
        fits = path.startswith("$") and 0 < len(steps) <= _MAX_DEPTH and isinstance(steps[0], str)
        if not fits or not self._store(steps, value):
            self._broken = True
        elif argument.will_continue and isinstance(value, str):
            self._open, self._place, self._pieces = path, steps, [value]

    def _close_text(self) -> None:
        """Store the text that came in pieces, if one is open."""
        if len(self._pieces) > 1:
            self._store(self._place, "".join(self._pieces))
        self._open, self._pieces = None, []

    def _store(self, steps: list[str | int], value: Any) -> bool:
        """Store a value at its path, with all containers on the way; whether the path fits what is there."""
        place: Any = self._arguments
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            if not self._make_room(place, step, following):
                return False
            if following is not None:
                place = place[step]
            else:
                place[step] = value
        return True

    def _make_room(self, place: Any, step: str | int, following: str | int | None) -> bool:
        """Make sure that a container has an element for a step; whether it is a container for such steps."""
        empty: Any = None if following is None else [] if isinstance(following, int) else {}
        if isinstance(place, dict) and isinstance(step, str):
            fields = cast(dict[str, Any], place)
            if fields.get(step) is None:
                fields[step] = empty
            return True
        if not isinstance(place, list) or not isinstance(step, int):
            return False
        items = cast(list[Any], place)
        added = max(0, step + 1 - len(items))
        self._missing += max(0, added - 1)
        if self._missing >= _MAX_MISSING:
            return False
        items += [None] * added
        if items[step] is None:
            items[step] = empty
        return True


def _read_step(found: re.Match[str]) -> str | int:
    if found[2] is not None:
        # Python reads no number of thousands of digits; of one so long, the beginning is too far as well.
        return int(found[2][:_MAX_DIGITS])
    name = found[1] or found[3] or found[4] or ""
    return re.sub(r"\\(.)", r"\1", name)
