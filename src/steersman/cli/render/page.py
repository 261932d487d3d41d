"""What is to be printed, in order: complete pieces, texts that still arrive, and the blank lines between them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from markdown_it.tree import SyntaxTreeNode

from steersman.cli.render.lines import DIM, flowed, indented, painted
from steersman.cli.render.markdown import block, code, item, parsed
from steersman.cli.terminal.sanitize import safe

_LONGEST = 4_000
_LONGEST_TABLE = 12_000
_SHOWN = 2_500
_LISTS = ("bullet_list", "ordered_list")
_ENDS_WITH_ITS_LINE = ("heading", "hr")
_HALF = re.compile("[\ud800-\udbff]\\Z")
_DELIMITER = re.compile(r"^ {0,3}\|?[ :|-]+\|?[ \t]*$")


class _Fence(NamedTuple):
    """A code block that is open: its mark and what it says about its language."""

    mark: str
    info: str

    def closed_by(self, line: str) -> bool:
        """Whether a line ends the block."""
        text = line.strip(" \t")
        indent = len(line) - len(line.lstrip(" "))
        return indent < 4 and len(text) >= len(self.mark) and not text.strip(self.mark[0])


class _Piece(NamedTuple):
    """A block, or one item of a list, with its lines in the source; `close` to the piece before it or a line apart."""

    node: SyntaxTreeNode
    start: int
    end: int
    close: bool


class Streamed:
    """Markdown in pieces, in; lines for a terminal, out."""

    def __init__(self, *, color: bool) -> None:
        self.closed = False
        self._color = color
        self._new: list[str] = []
        self._tail = ""
        self._fence: _Fence | None = None
        self._last_list = ""
        self._blank_before = False
        self._grown = False
        self.given = False

    def add(self, text: str) -> None:
        """More text."""
        self._new.append(text)

    def close(self) -> None:
        """There will be no more text."""
        self.closed = True

    def drop(self) -> None:
        """Forget what has not been given out."""
        self._new, self._tail, self._fence = [], "", None

    def take(self, width: int) -> list[str]:
        """The lines that will not change any more, each given once."""
        self._absorb()
        if not self._grown and not self.closed:
            return []
        self._grown = False
        lines: list[str] = []
        while self._step(width, lines):
            pass
        return lines

    def live(self, width: int) -> list[str]:
        """The lines of what has not been given out, as they would look now."""
        self._absorb()
        if self._fence is not None:
            return code(self._tail, self._fence.info, width, color=self._color) if self._tail else []
        lines: list[str] = []
        given = self.given
        for piece in self._pieces(self._end()):
            lines += self._drawn(piece, width)
            self.given = True
        self.given = given
        return lines

    def _end(self) -> str:
        """What of the unfinished text is worth laying out while it changes."""
        if len(self._tail) <= _SHOWN:
            return self._tail
        cut = len(self._tail) - _SHOWN
        line = self._tail.find("\n", cut)
        return _header(self._tail) + self._tail[line + 1 if line >= 0 else cut :]

    def _absorb(self) -> None:
        if not self._new:
            return
        new = "".join(self._new)
        # The other half of a character that came in two is still to come.
        held = "" if self.closed else new[-1:] if _HALF.search(new) else ""
        self._new = [held] if held else []
        new = new.removesuffix(held) if held else new
        if not new.isascii():
            new = new.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        self._grown = self._grown or "\n" in new or len(self._tail) + len(new) > _LONGEST
        self._tail = (self._tail + safe(new)).replace("\u240d\n", "\n")

    def _step(self, width: int, lines: list[str]) -> bool:
        """Give out what is complete, up to where code begins or ends; whether there may be more."""
        if self._fence is not None:
            return self._take_code(self._fence, width, lines)
        return self._take_blocks(width, lines)

    def _take_code(self, fence: _Fence, width: int, lines: list[str]) -> bool:
        *whole, partial = self._tail.split("\n")
        for index, line in enumerate(whole):
            if fence.closed_by(line):
                self._fence = None
                self._tail = self._tail[sum(map(len, whole[: index + 1])) + index + 1 :]
                return True
            lines += code(line, fence.info, width, color=self._color)
        self._tail = partial
        if len(partial) > _LONGEST or (self.closed and partial):
            if not fence.closed_by(partial):
                lines += code(partial, fence.info, width, color=self._color)
            self._tail = ""
        return False

    def _take_blocks(self, width: int, lines: list[str]) -> bool:
        if not self.closed and _only_a_table(self._tail):
            self._take_part(width, lines)
            return False
        # A line that is not complete may still turn into something else.
        complete = self._tail if self.closed else self._tail[: self._tail.rfind("\n") + 1]
        source = complete.split("\n")
        taken = 0
        pieces = self._pieces(complete)
        for index, piece in enumerate(pieces):
            following = pieces[index + 1] if index + 1 < len(pieces) else None
            if piece.node.type == "fence" and (opened := _opened(piece, source, closed=self.closed)) is not None:
                lines += self._gap(piece)
                self.given, self._last_list, self._fence = True, "", opened
                self._tail = self._tail[_offset(source, piece.start + 1) :]
                return True
            if following is None and not self.closed and not _complete(piece, source):
                taken = piece.start
                break
            lines += self._drawn(piece, width)
            self._went(piece, source, following)
            taken = piece.end if following is None else following.start
        self._tail = self._tail[_offset(source, taken) :]
        self._take_part(width, lines)
        return False

    def _take_part(self, width: int, lines: list[str]) -> None:
        """Give out the first part of a block that grows and grows."""
        # The rest of a table is a table only under its header.
        repeated = _header(self._tail)
        longest = _LONGEST_TABLE if repeated else _LONGEST
        if len(self._tail) <= longest:
            return
        cut = max(self._tail.rfind("\n", 0, longest), 0) or max(self._tail.rfind(" ", 0, longest), 0) or longest
        first, rest = self._tail[:cut], repeated + self._tail[cut:].removeprefix("\n")
        for piece in self._pieces(first):
            lines += self._drawn(piece, width)
            self.given = True
        self._tail = rest
        self._grown = len(rest) > _LONGEST

    def _pieces(self, text: str) -> list[_Piece]:
        pieces: list[_Piece] = []
        source = text.split("\n")
        for node in parsed(text):
            start, end = node.map or (0, len(source))
            if node.type not in _LISTS:
                pieces.append(_Piece(node, start, end, close=False))
                continue
            for index, child in enumerate(node.children):
                begin, stop = child.map or (start, end)
                goes_on = index > 0 or (not pieces and self._last_list == node.type)
                blank = not source[begin - 1].strip() if index else self._blank_before
                pieces.append(_Piece(child, begin, stop, close=goes_on and not blank))
        return pieces

    def _drawn(self, piece: _Piece, width: int) -> list[str]:
        draw = item if piece.node.type == "list_item" else block
        return [*self._gap(piece), *draw(piece.node, width, color=self._color)]

    def _gap(self, piece: _Piece) -> list[str]:
        return [""] if self.given and not piece.close else []

    def _went(self, piece: _Piece, source: list[str], following: _Piece | None) -> None:
        """Remember what the next piece needs to know about this one."""
        self.given = True
        parent = piece.node.parent
        self._last_list = parent.type if piece.node.type == "list_item" and parent is not None else ""
        if following is not None:
            self._blank_before = not source[following.start - 1].strip()


def _header(text: str) -> str:
    """The first two lines of a text that begins as a table."""
    head = text[:_LONGEST].split("\n", 2)
    return f"{head[0]}\n{head[1]}\n" if len(head) == 3 and "|" in head[0] and _DELIMITER.match(head[1]) else ""


def _only_a_table(text: str) -> bool:
    """Whether a text is a table that goes on, for sure: this is asked so often that it must not take a parser."""
    return bool(_header(text)) and all(line.startswith("|") for line in text[: text.rfind("\n")].split("\n"))


def _complete(piece: _Piece, source: list[str]) -> bool:
    """Whether the last piece of the text so far cannot grow any more."""
    kind = piece.node.type
    if kind in _ENDS_WITH_ITS_LINE or kind == "fence":
        return True
    if kind in ("list_item", "code_block"):
        return False
    # The last of the source is the empty string after its last line break.
    return any(not line.strip() for line in source[piece.end : -1])


def _opened(piece: _Piece, source: list[str], *, closed: bool) -> _Fence | None:
    """The code block that a piece opens, where its end has not come."""
    fence = _Fence(piece.node.markup, piece.node.info)
    last = source[piece.end - 1] if piece.end - 1 > piece.start else ""
    return None if closed or fence.closed_by(last) else fence


def _offset(source: list[str], line: int) -> int:
    return sum(map(len, source[:line])) + line


def markdown(text: str, width: int, color: bool) -> str:
    """A whole text, untrusted, as lines for a terminal."""
    streamed = Streamed(color=color)
    streamed.add(text)
    streamed.close()
    return "\n".join(streamed.take(width))


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
