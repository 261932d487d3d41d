"""Renders Markdown that is still arriving: finished blocks once, and only the unfinished one again and again.

A step takes up to 16,000 characters, so that keys are read between the steps of a text that arrives at once.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from markdown_it.tree import SyntaxTreeNode

from steersman.cli.render.markdown import parse_blocks, render_block, render_code, render_item
from steersman.cli.terminal.highlight import Highlighter, find_language
from steersman.cli.terminal.sanitize import sanitize

_LONGEST = 4_000


_LONGEST_TABLE = 12_000


STEP = 16_000
"""The most characters that a step renders; more than the longest unfinished block, so that each step gets on."""


_SHOWN = 2_500


_LISTS = ("bullet_list", "ordered_list")


_ENDS_WITH_ITS_LINE = ("heading", "hr")


_HIGH_SURROGATE = re.compile("[\ud800-\udbff]\\Z")


_DELIMITER = re.compile(r"^ {0,3}\|?[ :|-]+\|?[ \t]*$")


class _Fence(NamedTuple):
    """An open code block: its fence and its info string."""

    mark: str
    info: str

    def is_closed_by(self, line: str) -> bool:
        """Whether a line ends the block."""
        text = line.strip(" \t")
        indent = len(line) - len(line.lstrip(" "))
        return indent < 4 and len(text) >= len(self.mark) and not text.strip(self.mark[0])


class _Block(NamedTuple):
    """A block, or one item of a list, with its lines in the source; `close` means no blank line before it."""

    node: SyntaxTreeNode
    start: int
    end: int
    close: bool


class StreamingMarkdown:
    """Takes Markdown in pieces, and returns lines for a terminal."""

    def __init__(self, *, color: bool) -> None:
        self.closed = False
        self._color = color
        self._new: deque[str] = deque()
        self._tail = ""
        self._fence: _Fence | None = None
        self._code: Highlighter | None = None
        self._last_list = ""
        self._blank_before = False
        self._grown = False
        self.given = False

    def add(self, text: str) -> None:
        """Adds text."""
        if len(text) <= STEP:
            self._new.append(text)
        else:
            # In parts, so that a step does not copy all the rest of a very long text.
            self._new.extend(text[place : place + STEP] for place in range(0, len(text), STEP))

    def close(self) -> None:
        """Ends the text."""
        self.closed = True

    def drop(self) -> None:
        """Forgets what was not returned yet."""
        self._new, self._tail, self._fence, self._code = deque(), "", None, None

    @property
    def waiting(self) -> bool:
        """Whether the next step has something to do, also if nothing more arrives."""
        # One character may be a high surrogate that waits for its other half.
        return self.closed or self._grown or any(len(part) > 1 for part in self._new)

    @property
    def done(self) -> bool:
        """Whether the text has ended and all of it was returned."""
        return self._ended and not self._tail

    @property
    def _ended(self) -> bool:
        return self.closed and not self._new

    def take_finished(self, width: int) -> list[str]:
        """Returns the next lines that no longer change, each once; a step that ends, however much text there is."""
        self._absorb()
        if not self._grown and not self._ended:
            return []
        self._grown = False
        lines: list[str] = []
        while self._step(width, lines):
            pass
        if self._ended:
            self._tail = ""
        return lines

    def render_live(self, width: int) -> list[str]:
        """Renders the unfinished rest as it would look now."""
        self._absorb()
        if self._fence is not None:
            # The line that still grows is not coloured by its syntax: that would be done again for each piece.
            plain = Highlighter(None)
            return (
                render_code(self._tail, self._fence.info, width, color=self._color, block=plain) if self._tail else []
            )
        lines: list[str] = []
        given = self.given
        for piece in self._split_blocks(self._take_visible_end()):
            lines += self._render_block(piece, width)
            self.given = True
        self.given = given
        return lines

    def _take_visible_end(self) -> str:
        """Returns the end of the unfinished text, as much as is worth rendering while it changes."""
        if len(self._tail) <= _SHOWN:
            return self._tail
        cut = len(self._tail) - _SHOWN
        line = self._tail.find("\n", cut)
        return _find_table_header(self._tail) + self._tail[line + 1 if line >= 0 else cut :]

    def _absorb(self) -> None:
        """Takes new text, until there is enough for a step."""
        room, parts = STEP - len(self._tail), list[str]()
        while self._new and room > 0:
            part = self._new.popleft()
            if len(part) > room:
                self._new.appendleft(part[room:])
            parts.append(part[:room])
            room -= len(parts[-1])
        new = "".join(parts)
        # A high surrogate waits for its other half; a lone surrogate is replaced.
        if not self._ended and _HIGH_SURROGATE.search(new):
            self._new.appendleft(new[-1])
            new = new[:-1]
        if not new:
            return
        if not new.isascii():
            new = new.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        self._grown = self._grown or "\n" in new or len(self._tail) + len(new) > _LONGEST
        self._tail = (self._tail + sanitize(new)).replace("\u240d\n", "\n")

    def _step(self, width: int, lines: list[str]) -> bool:
        """Adds finished lines, up to where code starts or ends; returns whether there may be more."""
        if self._fence is not None:
            return self._take_code(self._fence, width, lines)
        return self._take_blocks(width, lines)

    def _take_code(self, fence: _Fence, width: int, lines: list[str]) -> bool:
        *whole, partial = self._tail.split("\n")
        end = next((index for index, line in enumerate(whole) if fence.is_closed_by(line)), None)
        code = whole[:end]
        if code:
            # Several lines at once, so that each is coloured once and the context of all of them is read once.
            lines += render_code("\n".join(code), fence.info, width, color=self._color, block=self._code)
        if end is not None:
            self._fence, self._code = None, None
            self._tail = self._tail[_find_offset(whole, end + 1) :]
            return True
        self._tail = partial
        if len(partial) > _LONGEST or (self._ended and partial):
            if not fence.is_closed_by(partial):
                lines += render_code(partial, fence.info, width, color=self._color, block=self._code)
            self._tail = ""
        return False

    def _take_blocks(self, width: int, lines: list[str]) -> bool:
        if not self._ended and _is_only_table(self._tail):
            self._take_part(width, lines)
            return False
        # An incomplete line may still become something else.
        complete = self._tail if self._ended else self._tail[: self._tail.rfind("\n") + 1]
        source = complete.split("\n")
        taken = 0
        pieces = self._split_blocks(complete)
        for index, piece in enumerate(pieces):
            following = pieces[index + 1] if index + 1 < len(pieces) else None
            if (
                piece.node.type == "fence"
                and (opened := _find_open_fence(piece, source, closed=self._ended)) is not None
            ):
                lines += self._render_gap(piece)
                self.given, self._last_list, self._fence = True, "", opened
                self._code = Highlighter(find_language(opened.info) if self._color else None)
                self._tail = self._tail[_find_offset(source, piece.start + 1) :]
                return True
            if following is None and not self._ended and not _is_complete(piece, source):
                taken = piece.start
                break
            lines += self._render_block(piece, width)
            self._remember(piece, source, following)
            taken = piece.end if following is None else following.start
        self._tail = self._tail[_find_offset(source, taken) :]
        self._take_part(width, lines)
        return False

    def _take_part(self, width: int, lines: list[str]) -> None:
        """Adds the first part of a block that grows too long."""
        # The rest of a table needs its header to be a table.
        repeated = _find_table_header(self._tail)
        longest = _LONGEST_TABLE if repeated else _LONGEST
        if len(self._tail) <= longest:
            return
        start = len(repeated) + 1
        places = (self._tail.rfind(sign, start, longest) for sign in "\n ")
        cut = next((place for place in places if place > 0), longest)
        first, rest = self._tail[:cut], repeated + self._tail[cut:].removeprefix("\n")
        for piece in self._split_blocks(first):
            lines += self._render_block(piece, width)
            self.given = True
        self._tail = rest
        self._grown = len(rest) > longest

    def _split_blocks(self, text: str) -> list[_Block]:
        pieces: list[_Block] = []
        source = text.split("\n")
        for node in parse_blocks(text):
            start, end = node.map or (0, len(source))
            if node.type not in _LISTS:
                pieces.append(_Block(node, start, end, close=False))
                continue
            for index, child in enumerate(node.children):
                begin, stop = child.map or (start, end)
                goes_on = index > 0 or (not pieces and self._last_list == node.type)
                blank = not source[begin - 1].strip() if index else self._blank_before
                pieces.append(_Block(child, begin, stop, close=goes_on and not blank))
        return pieces

    def _render_block(self, piece: _Block, width: int) -> list[str]:
        draw = render_item if piece.node.type == "list_item" else render_block
        return [*self._render_gap(piece), *draw(piece.node, width, color=self._color)]

    def _render_gap(self, piece: _Block) -> list[str]:
        return [""] if self.given and not piece.close else []

    def _remember(self, piece: _Block, source: list[str], following: _Block | None) -> None:
        """Remembers what the next block needs to know about this one."""
        self.given = True
        parent = piece.node.parent
        self._last_list = parent.type if piece.node.type == "list_item" and parent is not None else ""
        if following is not None:
            self._blank_before = not source[following.start - 1].strip()


def _find_table_header(text: str) -> str:
    """Returns the first two lines if a text starts with a table."""
    head = text[:_LONGEST].split("\n", 2)
    return f"{head[0]}\n{head[1]}\n" if len(head) == 3 and "|" in head[0] and _DELIMITER.match(head[1]) else ""


def _is_only_table(text: str) -> bool:
    """Whether a text is surely an unfinished table; called too often to use the parser."""
    return bool(_find_table_header(text)) and all(line.startswith("|") for line in text[: text.rfind("\n")].split("\n"))


def _is_complete(piece: _Block, source: list[str]) -> bool:
    """Whether the last block so far can no longer grow."""
    kind = piece.node.type
    if kind in _ENDS_WITH_ITS_LINE or kind == "fence":
        return True
    if kind in ("list_item", "code_block"):
        return False
    # The last item of the source is the empty string after the last line break.
    return any(not line.strip() for line in source[piece.end : -1])


def _find_open_fence(piece: _Block, source: list[str], *, closed: bool) -> _Fence | None:
    """Returns the fence of a code block that is not closed yet, or `None`."""
    fence = _Fence(piece.node.markup, piece.node.info)
    last = source[piece.end - 1] if piece.end - 1 > piece.start else ""
    return None if closed or fence.is_closed_by(last) else fence


def _find_offset(source: list[str], line: int) -> int:
    return sum(map(len, source[:line])) + line


def render_markdown(text: str, width: int, color: bool) -> str:
    """Renders a whole untrusted text."""
    streamed = StreamingMarkdown(color=color)
    streamed.add(text)
    streamed.close()
    lines: list[str] = []
    while not streamed.done:
        lines += streamed.take_finished(width)
    return "\n".join(lines)
