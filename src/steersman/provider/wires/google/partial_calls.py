"""Collects a function call that arrives in pieces: Vertex AI sends its arguments one by one if it is asked to.

The first piece has the name. Each of the others has values with their JSON paths, such as `$.places[0].name`; a text
may come in several pieces. A piece without `willContinue` is the last one. The call is passed on when it is complete.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from steersman.provider.wires.google.chunks import Call, PartialArgument

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_MAX_MISSING = 100_000  # items of lists that a call may leave out: a path of a few bytes may name a far one
_MAX_DEPTH = 128
_MAX_DIGITS = 1_000


class PartialCall:
    """A call whose arguments still arrive."""

    __slots__ = ("_arguments", "_broken", "_missing", "_open", "has_lone_surrogates", "id", "name", "signature")

    def __init__(self, call: Call, signature: str | None) -> None:
        self.name = call.name
        self.id = call.id
        self.signature = signature
        self.has_lone_surrogates = False
        self._arguments: dict[str, Any] = {}
        # The path of a text that goes on with the next piece.
        self._open: str | None = None
        self._broken = False
        self._missing = 0

    def add(self, call: Call, signature: str | None) -> None:
        """Add a piece."""
        self.id = self.id if call.id is None else call.id
        self.signature = self.signature or signature
        if bytes(call.args):
            whole: object = msgspec.json.decode(call.args)
            if isinstance(whole, dict):
                self._arguments.update(cast(dict[str, Any], whole))
        for argument in call.partial_args or ():
            self._add_argument(argument)

    def encode(self, *, complete: bool) -> str:
        """The arguments as JSON; those of a call that was cut lack the closing brace, so they are never run."""
        text = msgspec.json.encode(self._arguments).decode()
        return text if complete and not self._broken else text[:-1]

    def _add_argument(self, argument: PartialArgument) -> None:
        path = argument.json_path or ""
        steps = [_read_step(found) for found in _STEP.finditer(path)]
        value = argument.read_value()
        if not path.startswith("$") or not 0 < len(steps) <= _MAX_DEPTH or not isinstance(steps[0], str):
            self._broken = True
            return
        goes_on = self._open == path
        self._open = path if argument.will_continue else None
        if not self._store(steps, value, append=goes_on):
            self._broken = True

    def _store(self, steps: list[str | int], value: Any, *, append: bool) -> bool:
        """Store a value at its path, with all containers on the way; whether the path fits what is there."""
        place: Any = self._arguments
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            if not self._make_room(place, step, following):
                return False
            if following is not None:
                place = place[step]
            elif append and isinstance(place[step], str) and isinstance(value, str):
                place[step] += value
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
