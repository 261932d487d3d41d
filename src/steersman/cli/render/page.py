"""What is to be printed, in order: complete pieces, texts that still arrive, and the blank lines between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from steersman.cli.render.lines import DIM, flowed, indented, painted
from steersman.cli.render.streamed import Streamed
from steersman.cli.terminal.sanitize import safe

Kind: TypeAlias = Literal["text", "thinking", "tool", "note", "user", "end"]
Draw: TypeAlias = Callable[[int], list[str]]


class Piece(NamedTuple):
    """Something to be printed: what it is, and how to draw it in a width."""

    kind: Kind
    draw: Draw


class Page:
    """A queue of what is to be printed; it is drawn only when it is taken."""

    def __init__(self, *, color: bool) -> None:
        self.color = color
        self.last: Kind | None = None
        self._queue: deque[Piece | Streamed] = deque()

    @property
    def waiting(self) -> bool:
        """Whether something has come to its end and was not taken yet."""
        return any(isinstance(piece, Piece) or piece.closed for piece in self._queue)

    def put(self, kind: Kind, draw: Draw) -> Piece:
        """Something complete."""
        # What is said in the middle of an answer is shown between its blocks, not held back until its end.
        place = len(self._queue)
        if self._queue and isinstance(self._queue[-1], Streamed) and not self._queue[-1].closed:
            place -= 1
        piece = Piece(kind, draw)
        self._queue.insert(place, piece)
        return piece

    def withdraw(self, piece: Piece | Streamed) -> bool:
        """Do not print something after all; whether nothing of it is printed."""
        if isinstance(piece, Streamed):
            piece.drop()
        # By identity: two pieces may well be equal.
        for index, other in enumerate(self._queue):
            if other is piece:
                del self._queue[index]
                return not (isinstance(piece, Streamed) and piece.given)
        return False

    def note(self, text: str, style: str = DIM, sign: str = "") -> None:
        """A remark, untrusted."""
        self.put("note", lambda width: self.prefixed(sign, style, text, style, width))

    def stream(self) -> Streamed:
        """A text that begins here and arrives in pieces."""
        text = Streamed(color=self.color)
        self._queue.append(text)
        return text

    def take(self, width: int) -> list[str]:
        """The lines that will not change any more, each given once."""
        lines: list[str] = []
        while self._queue:
            piece = self._queue[0]
            if isinstance(piece, Piece):
                self._append(lines, piece.kind, piece.draw(width))
            else:
                self._append(lines, "text", piece.take(width))
                if not piece.closed:
                    break
            self._queue.popleft()
        return lines

    def prefixed(self, sign: str, sign_style: str, text: str, style: str, width: int) -> list[str]:
        """A text, untrusted, behind a sign."""
        shown = safe(text.replace("\r\n", "\n")).strip("\n")
        drawn = [painted(line, color=self.color) for line in flowed([(shown, style)], width - len(sign))]
        return indented(drawn, (sign, sign_style), (" " * len(sign), ""), color=self.color)

    def _append(self, lines: list[str], kind: Kind, drawn: list[str]) -> None:
        """Put a blank line between things of different kinds; a text has its own between its blocks."""
        if not drawn:
            return
        if self.last is not None and self.last != kind and drawn[0]:
            lines.append("")
        lines += drawn
        self.last = kind
