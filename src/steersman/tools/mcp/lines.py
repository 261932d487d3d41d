"""Lines out of bytes, however they were cut, and never more held than one line may have. Pure: no I/O, no clock."""

from __future__ import annotations


class LineTooLong(Exception):
    """A line went on past what one may have."""


class Lines:
    """Collects bytes into lines; a piece without an end is kept in parts, so that a long line costs its length once."""

    __slots__ = ("_held", "_limit", "_parts")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends; `LineTooLong` once one has more bytes than the limit."""
        pieces = data.split(b"\n")
        rest = pieces.pop()
        lines: list[bytes] = []
        for piece in pieces:
            self._hold(piece)
            lines.append(b"".join(self._parts))
            self._parts.clear()
            self._held = 0
        self._hold(rest)
        return lines

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._limit:
            self._parts.clear()
            raise LineTooLong
        if piece:
            self._parts.append(piece)
