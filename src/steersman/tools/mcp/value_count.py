"""Counts the values of a server's message before it is parsed: each list, object and string takes a while to make.

A message of 8 MiB with nothing but empty lists would hold up the event loop for many seconds, and so would numbers
where the SDK expects something else: each is an error of its own. The text is looked at in
pieces, as it arrives; what is inside a string is no list.
"""

from __future__ import annotations

import re

MAX_CONTAINERS = 150_000
MAX_STRINGS = 1_000_000
MAX_COMMAS = 1_000_000  # there is one between any two values
TOO_MANY = f"more than {MAX_CONTAINERS:,} lists and objects, or {MAX_STRINGS:,} strings or other values"

# A line break ends a string, because JSON allows none inside. So a quotation mark in a line of an event stream that is
# no JSON hides nothing in the lines after it.
_STRING = re.compile(rb'"[^"\r\n]*"?')
_BLANK_LINE = re.compile(rb"\n\r|\n\n|\r\r")
_PIECE = 256 * 1024


def has_too_many_values(message: bytes) -> bool:
    """Whether a whole message has too many values."""
    containers = message.count(b"[") + message.count(b"{")
    if containers <= MAX_CONTAINERS and message.count(b'"') <= 2 * MAX_STRINGS and message.count(b",") <= MAX_COMMAS:
        return False
    counted = ValueCount()
    for start in range(0, len(message), _PIECE):
        counted.add(message[start : start + _PIECE])
        if counted.is_over:
            return True
    return False


class ValueCount:
    """Counts in a message that arrives in pieces; with `events`, in each event of a stream of them."""

    __slots__ = ("_commas", "_containers", "_events", "_last", "_rest", "_strings", "is_over")

    def __init__(self, *, events: bool = False) -> None:
        self.is_over = False
        self._events = events
        self._last = b""
        self._begin()

    def add(self, data: bytes) -> None:
        """Count in the next piece."""
        ends = [*_BLANK_LINE.finditer(self._last + data)] if self._events else []
        if ends:
            first, last = (max(0, end.end() - len(self._last)) for end in (ends[0], ends[-1]))
            # Several events in the middle count as one: a piece has fewer bytes than an event may have values.
            for part in (data[:first], data[first:last]):
                self._add_part(part)
                self._begin()
            data = data[last:]
        self._add_part(data)
        self._last = data[-1:] or self._last

    def _begin(self) -> None:
        self._containers = self._strings = self._commas = 0
        self._rest = b""

    def _add_part(self, data: bytes) -> None:
        data = self._rest + data
        # A backslash at the end escapes what comes next.
        held = b"\\" if (len(data) - len(data.rstrip(b"\\"))) % 2 else b""
        plain = data.removesuffix(held).replace(b"\\\\", b"").replace(b'\\"', b"")
        outside, strings = _STRING.subn(b"", plain)
        self._strings += strings
        self._containers += outside.count(b"[") + outside.count(b"{")
        self._commas += outside.count(b",")
        self.is_over = (
            self.is_over
            or self._containers > MAX_CONTAINERS
            or self._strings > MAX_STRINGS
            or self._commas > MAX_COMMAS
        )
        line = plain[max(plain.rfind(b"\n"), plain.rfind(b"\r")) + 1 :]
        self._rest = (b'"' if line.count(b'"') % 2 else b"") + held
