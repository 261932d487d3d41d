"""Renders the answer of a model while it arrives: thinking, text, and the tool calls it is about to make.

`Page` is the queue of output: complete pieces, streaming Markdown, and the blank lines between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

from steersman.cli.render.calls import render_call
from steersman.cli.render.lines import CYAN, DIM, FAINT_ITALIC, crop, indent, join_text, paint, wrap_rows, wrap_spans
from steersman.cli.render.streaming_markdown import STEP, StreamingMarkdown
from steersman.cli.terminal.numbers import format_count
from steersman.cli.terminal.sanitize import sanitize, sanitize_line
from steersman.types.stream import (
    Delta,
    Reset,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolCallDelta,
    ToolCallStart,
)

Kind: TypeAlias = Literal["text", "thinking", "tool", "note", "user", "end", "whole"]
Draw: TypeAlias = Callable[[int], Iterable[str]]


class Piece(NamedTuple):
    """A complete piece of output: its kind, and how to render it for a width."""

    kind: Kind
    draw: Draw


_MANY_LINES = 1_000
"""After so many lines, the rest of the queue is for the next step."""

_MOST_LINES = 10_000
"""The most lines of a piece that a step takes."""


class Page:
    """A queue of output; rendered only when taken, in steps."""

    def __init__(self, *, color: bool) -> None:
        self.color = color
        self.last: Kind | None = None
        self._queue: deque[Piece | StreamingMarkdown] = deque()
        self._rest: Iterator[str] | None = None  # of the first piece, where a step has taken some of it

    @property
    def waiting(self) -> bool:
        """Whether something can be taken: a complete piece, or more of a text than one step takes."""
        return bool(self._queue) and (isinstance(self._queue[0], Piece) or self._queue[0].waiting)

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
                if isinstance(piece, StreamingMarkdown):
                    return not piece.given
                begun = index == 0 and self._rest is not None
                self._rest = None if begun else self._rest
                return not begun
        return False

    def add_note(self, text: str, style: str = DIM, sign: str = "") -> None:
        """Adds a note; the text is sanitized here."""
        self.put("note", lambda width: self._render_note(sign, style, text, width))

    def add_markdown(self, text: str) -> None:
        """Adds a complete Markdown text."""
        stream = self.open_stream()
        stream.add(text)
        stream.close()

    def open_stream(self) -> StreamingMarkdown:
        """Adds a Markdown text that arrives in pieces."""
        text = StreamingMarkdown(color=self.color)
        self._queue.append(text)
        return text

    def take_finished(self, width: int) -> list[str]:
        """Returns the next lines that no longer change, each once; a step takes some, and the rest is `waiting`."""
        lines: list[str] = []
        while self._queue and len(lines) < _MANY_LINES:
            piece = self._queue[0]
            if isinstance(piece, Piece):
                self._rest = iter(piece.draw(width)) if self._rest is None else self._rest
                part = list(islice(self._rest, _MOST_LINES))
                self._append(lines, piece.kind, part)
                if len(part) == _MOST_LINES:
                    break
                self._rest = None
            else:
                self._append(lines, "text", piece.take_finished(width))
                if not piece.done:
                    break
            self._queue.popleft()
        return lines

    def _render_note(self, sign: str, style: str, text: str, width: int) -> list[str]:
        shown = sanitize(text.replace("\r\n", "\n")).strip("\n")
        drawn = [paint(line, color=self.color) for line in wrap_rows(shown, style, width - len(sign))]
        return indent(drawn, (sign, style), (" " * len(sign), ""), color=self.color)

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


_THINKING_LINES = 2
_MARGIN = 2
_LONG_CALL = 200
_LONGEST_NAME = 400
_MORE = "\u2026"


class Answer:
    """The answer so far; complete parts go to the page."""

    def __init__(self, page: Page, *, verbose: bool) -> None:
        self.has_text = False
        self._page = page
        self._verbose = verbose
        self._text: StreamingMarkdown | None = None
        self._thinking: list[str] = []
        self._calls: dict[int, list[Any]] = {}
        self._parts: list[Piece | StreamingMarkdown] = []
        self._adders: Mapping[type[Any], Callable[[Any], None]] = {
            TextDelta: self._add_text,
            TextEnd: self._end_text,
            ThinkingDelta: self._add_thinking,
            ThinkingEnd: self._end_thinking,
            ToolCallStart: self._add_call,
            ToolCallDelta: self._add_arguments,
            Reset: self.withdraw,
        }

    def add(self, delta: Delta) -> None:
        """Adds a delta."""
        if (hear := self._adders.get(type(delta))) is not None:
            hear(delta)

    def begin(self) -> None:
        """Starts a new answer."""
        self.close()
        self.has_text = False
        self._parts = []

    def end(self, text: str) -> None:
        """Ends the answer; `text` is shown if no deltas arrived."""
        if not self.has_text and text.strip():
            self._add_text(TextDelta(text))
        self.close()
        self._parts = []

    def close(self) -> None:
        """Ends all parts of this answer."""
        self._end_thinking()
        self._end_text()
        self.clear_calls()

    def withdraw(self, _delta: Reset | None = None) -> None:
        """Withdraws the answer because it starts over; what is printed already stays, with a note."""
        self._thinking = []
        self.close()
        withdrawn = [self._page.withdraw(part) for part in self._parts]
        self._parts = []
        if not all(withdrawn):
            self._page.add_note("(the answer starts over)")

    def clear_calls(self) -> None:
        """Forgets the announced calls; they are running now and shown elsewhere."""
        self._calls = {}

    @property
    def activity(self) -> str:
        """What the model is doing, in a word or two."""
        if self._thinking:
            return "thinking"
        return "answering" if self._text is not None else "waiting for the model"

    def render_thinking(self, width: int) -> list[str]:
        """Renders the end of the current thinking."""
        text = "".join(self._thinking[-400:])[-2_000:]
        return self._render_thought(text, width)[-_THINKING_LINES:] if text.strip() else []

    def render_text(self, width: int) -> list[str]:
        """Renders the unfinished block of the answer."""
        return [] if self._text is None else self._text.render_live(width)

    def render_calls(self, sign: str, width: int) -> list[str]:
        """Renders the calls whose arguments are arriving."""
        return [
            render_call(
                (sign, CYAN),
                name,
                f"({format_count(size, 'character')} so far)" if size >= _LONG_CALL else "",
                [],
                width,
                color=self._page.color,
            )
            for name, size in self._calls.values()
        ]

    def _add_text(self, delta: TextDelta) -> None:
        if self._text is None:
            self._end_thinking()
            self._text = self._page.open_stream()
            self._parts.append(self._text)
        self.has_text = True
        self._text.add(delta.delta)

    def _end_text(self, _delta: TextEnd | None = None) -> None:
        if self._text is not None:
            self._text.close()
            self._text = None

    def _add_thinking(self, delta: ThinkingDelta) -> None:
        self._thinking.append(delta.delta)

    def _end_thinking(self, _delta: ThinkingEnd | None = None) -> None:
        text = "".join(self._thinking)
        self._thinking = []
        if text.strip():
            for part in _split_thought(text) if self._verbose else (text,):
                self._parts.append(self._page.put("thinking", partial(self._render_finished_thought, part)))

    def _add_call(self, delta: ToolCallStart) -> None:
        self._end_thinking()
        self._end_text()
        self._calls[delta.content_index] = [sanitize_line(delta.name[:_LONGEST_NAME]), 0]

    def _add_arguments(self, delta: ToolCallDelta) -> None:
        if delta.content_index in self._calls:
            self._calls[delta.content_index][1] += len(delta.delta)

    def _render_thought(self, text: str, width: int) -> list[str]:
        room = max(2, width - _MARGIN)
        return self._paint_faint(_lay_out(text, room))

    def _render_finished_thought(self, text: str, width: int) -> list[str]:
        if self._verbose:
            return self._render_thought(text, width)
        room = max(2, width - _MARGIN)
        # Only the first lines are shown, so wrap only as much as they need.
        lines = _lay_out(text.strip()[: 8 * room], room)
        if len(lines) > _THINKING_LINES:
            *first, last = lines[:_THINKING_LINES]
            lines = [*first, f"{crop(last, room - 1).removesuffix(_MORE)}{_MORE}"]
        return self._paint_faint(lines)

    def _paint_faint(self, lines: list[str]) -> list[str]:
        return [" " * _MARGIN + paint([(line, FAINT_ITALIC)], color=self._page.color) for line in lines]


def _split_thought(text: str) -> Iterator[str]:
    """Splits a text into parts of some lines, each for a step of its own."""
    start = 0
    while start < len(text):
        end = start + STEP
        line = text.rfind("\n", start, end) + 1 if end < len(text) else 0
        end = line or end
        yield text[start:end]
        start = end


def _lay_out(text: str, room: int) -> list[str]:
    lines = wrap_spans([(sanitize(text.replace("\r\n", "\n")).strip(), "")], room)
    return [line for line in map(join_text, lines) if line.strip()]
