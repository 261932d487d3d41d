"""The queue of output to print, in order: complete pieces, streaming Markdown, and the blank lines between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from steersman.cli.render.lines import DIM, indent, paint, wrap_spans
from steersman.cli.render.streaming_markdown import StreamingMarkdown
from steersman.cli.terminal.sanitize import sanitize

Kind: TypeAlias = Literal["text", "thinking", "tool", "note", "user", "end"]
Draw: TypeAlias = Callable[[int], list[str]]


class Piece(NamedTuple):
    """A complete piece of output: its kind, and how to render it for a width."""

    kind: Kind
    draw: Draw


class Page:
    """A queue of output; rendered only when taken."""

    def __init__(self, *, color: bool) -> None:
        self.color = color
        self.last: Kind | None = None
        self._queue: deque[Piece | StreamingMarkdown] = deque()

    @property
    def waiting(self) -> bool:
        """Whether something is complete and not taken yet."""
        return any(isinstance(piece, Piece) or piece.closed for piece in self._queue)

    def put(self, kind: Kind, draw: Draw) -> Piece:
        """Adds a complete piece."""
        # A note during an answer appears between its blocks, and does not wait for its end.
        place = len(self._queue)
        if self._queue and isinstance(self._queue[-1], StreamingMarkdown) and not self._queue[-1].closed:
            place -= 1
        piece = Piece(kind, draw)
        self._queue.insert(place, piece)
        return piece

    def withdraw(self, piece: Piece | StreamingMarkdown) -> bool:
        """Removes a piece; returns whether nothing of it was printed."""
        if isinstance(piece, StreamingMarkdown):
            piece.drop()
        # By identity: two pieces may be equal.
        for index, other in enumerate(self._queue):
            if other is piece:
                del self._queue[index]
                return not (isinstance(piece, StreamingMarkdown) and piece.given)
        return False

    def add_note(self, text: str, style: str = DIM, sign: str = "") -> None:
        """Adds a note; the text is sanitized here."""
        self.put("note", lambda width: self.render_prefixed(sign, style, text, style, width))

    def open_stream(self) -> StreamingMarkdown:
        """Adds a Markdown text that arrives in pieces."""
        text = StreamingMarkdown(color=self.color)
        self._queue.append(text)
        return text

    def take_finished(self, width: int) -> list[str]:
        """Returns the lines that no longer change, each once."""
        lines: list[str] = []
        while self._queue:
            piece = self._queue[0]
            if isinstance(piece, Piece):
                self._append(lines, piece.kind, piece.draw(width))
            else:
                self._append(lines, "text", piece.take_finished(width))
                if not piece.closed:
                    break
            self._queue.popleft()
        return lines

    def render_prefixed(self, sign: str, sign_style: str, text: str, style: str, width: int) -> list[str]:
        """Renders a text behind a sign; sanitizes it."""
        shown = sanitize(text.replace("\r\n", "\n")).strip("\n")
        drawn = [paint(line, color=self.color) for line in wrap_spans([(shown, style)], width - len(sign))]
        return indent(drawn, (sign, sign_style), (" " * len(sign), ""), color=self.color)

    def _append(self, lines: list[str], kind: Kind, drawn: list[str]) -> None:
        """Adds lines, with a blank line between different kinds; Markdown has its own between blocks."""
        if not drawn:
            return
        if self.last is not None and self.last != kind and drawn[0]:
            lines.append("")
        lines += drawn
        self.last = kind
