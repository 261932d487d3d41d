"""Some lines of a text that may be of any length: fed in pieces, it keeps what is asked for and counts the rest."""

from __future__ import annotations

from steersman.types.content import well_formed


class Window:
    """The lines from `first` on, at most `lines` of them and `room` bytes, where every line end is one `\\n`.

    `kept` are the lines without their ends. `cut` is the length of the only one, where just its beginning had room.
    """

    def __init__(self, first: int, lines: int, room: int) -> None:
        self.first = first
        self.kept: list[str] = []
        self.cut: int | None = None
        self.full = False
        self._lines = lines
        self._room = room
        self._line = 1  # which line the next character belongs to
        self._open = ""  # what is kept of that line
        self._length = 0  # how long it is

    @property
    def next_line(self) -> int:
        """The first line after those that are kept."""
        return self.first + len(self.kept)

    @property
    def total(self) -> int:
        """How many lines there are; right once the text has ended."""
        return self._line - 1

    def feed(self, text: str) -> None:
        """Take the next piece."""
        if not text:
            return
        place = self._skip(text)
        while place < len(text):
            end = text.find("\n", place)
            if end < 0:
                self._extend(text[place:])
                return
            self._extend(text[place:end])
            self._finish()
            place = end + 1
            if self.full:
                place = self._count(text, place)

    def end(self) -> None:
        """The text is over; a last line without an end is a line too."""
        if self._length:
            self._finish()

    def _skip(self, text: str) -> int:
        """Where in the piece the window begins."""
        if self.full:
            return self._count(text, 0)
        missing = self.first - self._line
        if missing <= 0:
            return 0
        if text.count("\n") < missing:
            return self._count(text, 0)
        place = 0
        for _ in range(missing):
            place = text.index("\n", place) + 1
        self._line = self.first
        self._length = 0
        return place

    def _count(self, text: str, place: int) -> int:
        """Pass over the rest of a piece."""
        self._line += text.count("\n", place)
        self._length = len(text) - max(place, text.rfind("\n") + 1)
        return len(text)

    def _extend(self, piece: str) -> None:
        self._length += len(piece)
        # No character has less than a byte: more than this cannot be shown.
        self._open += piece[: max(0, self._room + 1 - len(self._open))]

    def _finish(self) -> None:
        if not self.full and self._line >= self.first:
            self._keep()
        self._line += 1
        self._open = ""
        self._length = 0

    def _keep(self) -> None:
        line = well_formed(self._open)
        data = line.encode()
        if len(data) >= self._room:
            self.full = True
            if self.kept:
                return
            line = data[: self._room].decode("utf-8", "ignore")
            self.cut = self._length
        self.kept.append(line)
        self._room -= len(data) + 1
        self.full = self.full or len(self.kept) == self._lines
