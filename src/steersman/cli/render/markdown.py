"""Markdown as lines for a terminal. Nothing is fetched and nothing hidden: HTML and targets of links are shown as text.

What the parser makes of the text goes through `safe` once more, since `&#13;` and its like are characters only then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from steersman.cli.render.lines import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    ITALIC,
    RED,
    STRUCK,
    UNDERLINED,
    Span,
    cells,
    flowed,
    folded,
    indented,
    painted,
    text_of,
)
from steersman.cli.terminal.sanitize import one_line, safe

Cell: TypeAlias = Sequence[Span]
Side: TypeAlias = Literal["left", "right", "center"]

_GAP = 2
_NARROWEST = 6


def table(
    header: Sequence[Cell], rows: Sequence[Sequence[Cell]], sides: Sequence[Side], width: int, *, color: bool
) -> list[str]:
    """The lines of a table."""
    head = [[(text, _bold(style)) for text, style in cell] for cell in header]
    widths = _fitted([max(cells(row[column]) for row in (head, *rows)) for column in range(len(head))], width)
    if widths is None:
        return _records(head, rows, width, color=color)
    lines = _row(head, widths, sides, color=color)
    lines.append(painted([("  ".join("\u2500" * size for size in widths), DIM)], color=color))
    for row in rows:
        lines += _row(row, widths, sides, color=color)
    return lines


def _bold(style: str) -> str:
    return f"{BOLD};{style}" if style else BOLD


def _fitted(natural: list[int], width: int) -> list[int] | None:
    """A width for each column, the widest giving way first; `None` where some would be too narrow to read."""
    widths = [max(1, size) for size in natural]
    room = width - _GAP * (len(widths) - 1)
    while sum(widths) > room:
        widest = max(widths)
        if widest <= _NARROWEST:
            return None
        # As far as the next widest at once, so that long cells do not cost a step per column.
        others = [size for size in widths if size < widest]
        least = max(_NARROWEST, max(others, default=0))
        count = widths.count(widest)
        step = max(1, min(widest - least, -(-(sum(widths) - room) // count)))
        widths = [size - step if size == widest else size for size in widths]
    return widths


def _row(row: Sequence[Cell], widths: Sequence[int], sides: Sequence[Side], *, color: bool) -> list[str]:
    columns = [flowed(cell, size) for cell, size in zip(row, widths, strict=True)]
    lines: list[str] = []
    for index in range(max(map(len, columns))):
        spans: list[Span] = []
        for column, size, side in zip(columns, widths, sides, strict=True):
            part = column[index] if index < len(column) else []
            spans += [*_padded(part, size, side), (" " * _GAP, "")]
        lines.append(_trimmed(spans, color=color))
    return lines


def _padded(part: list[Span], size: int, side: Side) -> list[Span]:
    room = max(0, size - cells(part))
    left = {"left": 0, "right": room, "center": room // 2}[side]
    return [(" " * left, ""), *part, (" " * (room - left), "")]


def _trimmed(spans: list[Span], *, color: bool) -> str:
    while spans and not spans[-1][0].strip(" "):
        spans.pop()
    return painted(spans, color=color)


def _records(header: Sequence[Cell], rows: Sequence[Sequence[Cell]], width: int, *, color: bool) -> list[str]:
    lines: list[str] = []
    for index, row in enumerate(rows):
        if index:
            lines.append("")
        for name, cell in zip(header, row, strict=True):
            lines += [painted(line, color=color) for line in flowed([*name, (": ", DIM), *cell], width)]
    return lines or [painted(line, color=color) for cell in header for line in flowed(cell, width)]


_INDENT = 2
_NARROWEST_markdown = 10
_HEADINGS = {1: f"{BOLD};{UNDERLINED}", 2: BOLD, 3: f"{BOLD};{ITALIC}"}
_DIFF = {"+": GREEN, "-": RED, "@": DIM}


_DEEPEST = 20


@lru_cache(maxsize=2)
def _parser(*, flat: bool) -> MarkdownIt:
    # Definitions of links would vanish from the text, and an underlined heading would change lines already shown.
    without = ["reference", "lheading", *(("list", "blockquote") if flat else ())]
    settings = {"html": False, "maxNesting": _DEEPEST}
    return MarkdownIt("commonmark", settings).enable(["table", "strikethrough"]).disable(without)


def parsed(text: str) -> list[SyntaxTreeNode]:
    """The blocks of a text, in order."""
    tokens = _parser(flat=False).parse(text)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        # What is nested deeper than this the parser leaves out; somebody could hide words there.
        tokens = _parser(flat=True).parse(text)
    return SyntaxTreeNode(tokens).children


def block(node: SyntaxTreeNode, width: int, *, color: bool) -> list[str]:
    """The lines of one block."""
    return _BLOCKS.get(node.type, _other)(node, width, color)


def code(text: str, info: str, width: int, *, color: bool) -> list[str]:
    """The lines of a code block."""
    marks = _DIFF if info.split(" ")[0] in ("diff", "patch") else {}
    shift = " " * (_INDENT if width > _NARROWEST_markdown + _INDENT else 0)
    return [
        painted([(shift, ""), (piece, marks.get(line[:1], CYAN if not marks else ""))], color=color)
        for line in text.split("\n")
        for piece in folded(safe(line), width - len(shift))
    ]


def item(node: SyntaxTreeNode, width: int, *, color: bool) -> list[str]:
    """The lines of one item of a list, its mark before them."""
    ordered = node.parent is not None and node.parent.type == "ordered_list"
    mark = f"{one_line(node.info)}{node.markup} " if ordered else "\u2022 "
    shift = len(mark) if width - len(mark) >= _NARROWEST_markdown else 0
    loose = any(child.type == "paragraph" and not child.hidden for child in node.children)
    lines = _stacked(node.children, width - len(mark) if shift else width, gap=loose, color=color)
    if not shift:
        return [painted([(mark.rstrip(), DIM)], color=color), *lines]
    return indented(lines or [""], (mark, DIM), (" " * shift, ""), color=color)


def _stacked(nodes: Sequence[SyntaxTreeNode], width: int, *, gap: bool, color: bool) -> list[str]:
    lines: list[str] = []
    end: int | None = None
    for node in nodes:
        # A list right under its paragraph belongs to it.
        close = not gap or (node.map is not None and node.map[0] == end)
        lines += [*([] if close or not lines else [""]), *block(node, width, color=color)]
        end = None if node.map is None else node.map[1]
    return lines


def _flow(spans: Sequence[Span], width: int, color: bool) -> list[str]:
    return [painted(line, color=color) for line in flowed(spans, width)]


def _paragraph(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    return _flow(_inline(node, "", color), width, color)


def _heading(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    level = int(node.tag[1:])
    # Without colours the signs say that it is one.
    sign: list[Span] = [] if color else [("#" * level + " ", "")]
    return _flow([*sign, *_inline(node, _HEADINGS.get(level, ITALIC), color)], width, color)


def _code(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    return code(node.content.removesuffix("\n"), node.info, width, color=color)


def _list(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    lines: list[str] = []
    for child in node.children:
        loose = any(part.type == "paragraph" and not part.hidden for part in child.children)
        lines += [*([""] if lines and loose else []), *item(child, width, color=color)]
    return lines


def _quote(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    bar = ("\u2502 ", DIM)
    shift = 2 if width - 2 >= _NARROWEST_markdown else 0
    lines = _stacked(node.children, width - shift, gap=True, color=color)
    return indented(lines or [""], bar, bar, color=color) if shift else lines


def _rule(_node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    return [painted([("\u2500" * min(width, 40), DIM)], color=color)]


def _table(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    rows = [row for part in node.children for row in part.children]
    cells: list[list[Cell]] = [[_inline(cell, "", color) for cell in row.children] for row in rows]
    sides: list[Side] = [_side(cell) for cell in rows[0].children]
    return table(cells[0], cells[1:], sides, width, color=color)


def _side(cell: SyntaxTreeNode) -> Side:
    style = str(cell.attrs.get("style", "")).removeprefix("text-align:")
    return cast(Side, style) if style in ("right", "center") else "left"


def _other(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    """Whatever else a parser may find is shown as it was written."""
    return _flow([(safe("" if node.token is None else node.token.content), "")], width, color)


def _inline(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    spans: list[Span] = []
    for child in node.children:
        spans += _INLINE.get(child.type, _text)(child, style, color)
    return spans


def _with(style: str, more: str) -> str:
    return f"{style};{more}" if style else more


def _text(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    if node.children:
        return _inline(node, style, color)
    return [(safe(node.content), style)]


def _code_inline(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    text = safe(node.content)
    return [(text if color else f"`{text}`", _with(style, CYAN))]


def _link(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    target = one_line(str(node.attrs.get("href", "")))
    spans = _inline(node, _with(style, UNDERLINED), color)
    shown = text_of(spans)
    if target in (shown, f"mailto:{shown}"):
        return spans
    return [*spans, (f" ({target})", _with(style, DIM))]


def _image(node: SyntaxTreeNode, style: str, _color: bool) -> list[Span]:
    words = safe(node.content) or "picture"
    return [(words, _with(style, ITALIC)), (f" ({one_line(str(node.attrs.get('src', '')))})", _with(style, DIM))]


def _styled(more: str) -> Callable[[SyntaxTreeNode, str, bool], list[Span]]:
    return lambda node, style, color: _inline(node, _with(style, more), color)


def _break(_node: SyntaxTreeNode, _style: str, _color: bool) -> list[Span]:
    # Where a model breaks a line it means to, more often than not.
    return [("\n", "")]


_BLOCKS: dict[str, Callable[[SyntaxTreeNode, int, bool], list[str]]] = {
    "paragraph": _paragraph,
    "heading": _heading,
    "fence": _code,
    "code_block": _code,
    "bullet_list": _list,
    "ordered_list": _list,
    "blockquote": _quote,
    "hr": _rule,
    "table": _table,
}
_INLINE: dict[str, Callable[[SyntaxTreeNode, str, bool], list[Span]]] = {
    "code_inline": _code_inline,
    "strong": _styled(BOLD),
    "em": _styled(ITALIC),
    "s": _styled(STRUCK),
    "link": _link,
    "image": _image,
    "softbreak": _break,
    "hardbreak": _break,
}
