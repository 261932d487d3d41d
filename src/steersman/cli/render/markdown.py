"""Renders Markdown as lines for a terminal. Fetches and hides nothing: HTML and link targets are shown as text.

The parser's output is sanitized once more, because entities such as `&#13;` become characters only there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.tree import SyntaxTreeNode

from steersman.cli.render.lines import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    ITALIC,
    RED,
    STRUCK,
    TAB,
    UNDERLINED,
    Span,
    fold,
    fold_spans,
    indent,
    join_text,
    measure_spans,
    paint,
    wrap_spans,
)
from steersman.cli.terminal.highlight import Highlighter, find_language
from steersman.cli.terminal.sanitize import sanitize, sanitize_line

Cell: TypeAlias = Sequence[Span]
Side: TypeAlias = Literal["left", "right", "center"]

_GAP = 2
_NARROWEST_COLUMN = 6


_INDENT = 2
_NARROWEST_TEXT = 10
_HEADINGS = {1: f"{BOLD};{UNDERLINED}", 2: BOLD, 3: f"{BOLD};{ITALIC}"}
_DIFF = {"+": GREEN, "-": RED, "@": DIM}
_DEEPEST = 20
_MAX_MISSING_CELLS = 1_000
_BLANK_LINE = re.compile(r"\n[ \t]*+\n")
_TEXT_UNTIL = "steersman_text_until"  # up to this place there is no table


def render_table(
    header: Sequence[Cell], rows: Sequence[Sequence[Cell]], sides: Sequence[Side], width: int, *, color: bool
) -> list[str]:
    """Renders a table: columns side by side if they fit, otherwise one cell per line."""
    head = [[(text, _add_bold(style)) for text, style in cell] for cell in header]
    widths = _fit_columns(
        [max(measure_spans(row[column]) for row in (head, *rows)) for column in range(len(head))], width
    )
    if widths is None:
        return _render_records(head, rows, width, color=color)
    lines = _render_row(head, widths, sides, color=color)
    lines.append(paint([("  ".join("\u2500" * size for size in widths), DIM)], color=color))
    for row in rows:
        lines += _render_row(row, widths, sides, color=color)
    return lines


def _add_bold(style: str) -> str:
    return f"{BOLD};{style}" if style else BOLD


def _fit_columns(natural: list[int], width: int) -> list[int] | None:
    """Returns a width for each column, shrinking the widest first; `None` if a column would be too narrow to read."""
    widths = [max(1, size) for size in natural]
    room = width - _GAP * (len(widths) - 1)
    while sum(widths) > room:
        widest = max(widths)
        if widest <= _NARROWEST_COLUMN:
            return None
        # Shrink to the next widest in one step, so that long cells do not cost a step per column.
        others = [size for size in widths if size < widest]
        least = max(_NARROWEST_COLUMN, max(others, default=0))
        count = widths.count(widest)
        step = max(1, min(widest - least, -(-(sum(widths) - room) // count)))
        widths = [size - step if size == widest else size for size in widths]
    return widths


def _render_row(row: Sequence[Cell], widths: Sequence[int], sides: Sequence[Side], *, color: bool) -> list[str]:
    columns = [wrap_spans(cell, size) for cell, size in zip(row, widths, strict=True)]
    lines: list[str] = []
    for index in range(max(map(len, columns))):
        spans: list[Span] = []
        for column, size, side in zip(columns, widths, sides, strict=True):
            part = column[index] if index < len(column) else []
            spans += [*_pad(part, size, side), (" " * _GAP, "")]
        lines.append(_paint_trimmed(spans, color=color))
    return lines


def _pad(part: list[Span], size: int, side: Side) -> list[Span]:
    room = max(0, size - measure_spans(part))
    left = {"left": 0, "right": room, "center": room // 2}[side]
    return [(" " * left, ""), *part, (" " * (room - left), "")]


def _paint_trimmed(spans: list[Span], *, color: bool) -> str:
    while spans and not spans[-1][0].strip(" "):
        spans.pop()
    return paint(spans, color=color)


def _render_records(header: Sequence[Cell], rows: Sequence[Sequence[Cell]], width: int, *, color: bool) -> list[str]:
    lines: list[str] = []
    for index, row in enumerate(rows):
        if index:
            lines.append("")
        for name, cell in zip(header, row, strict=True):
            lines += [paint(line, color=color) for line in wrap_spans([*name, (": ", DIM), *cell], width)]
    return lines or [paint(line, color=color) for cell in header for line in wrap_spans(cell, width)]


@lru_cache(maxsize=2)
def _build_parser(*, flat: bool) -> MarkdownIt:
    # Link definitions would vanish from the text, and an underlined heading would change lines already shown.
    without = ["reference", "lheading", *(("list", "blockquote") if flat else ())]
    settings = {"html": False, "maxNesting": _DEEPEST}
    parser = MarkdownIt("commonmark", settings).enable(["table", "strikethrough"]).disable(without)
    parser.block.ruler.at("table", _find_table, {"alt": ["paragraph", "reference"]})
    return parser


def _find_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Finds a table, as the rule of the parser does; rows that lack very many cells are text.

    The parser adds the missing cells, up to 65,000 for a few kilobytes, and to draw those takes many seconds.
    """
    if state.bMarks[start] < state.env.get(_TEXT_UNTIL, 0) or not table(state, start, end, True):
        return False
    if start + 2 < end and (until := _find_end_of_text(state, start, end)):
        # Each of its lines is asked about again, and must not be counted to the end again.
        state.env[_TEXT_UNTIL] = until
        return False
    return silent or table(state, start, end, False)


def _find_end_of_text(state: StateBlock, start: int, end: int) -> int:
    """Finds where the rows of a table end that lack too many cells; 0 for other tables."""
    columns = state.src[state.bMarks[start + 1] : state.eMarks[start + 1]].strip(" \t|").count("|") + 1
    first, last = state.bMarks[start + 2], state.eMarks[end - 1]
    stop = found.start() if (found := _BLANK_LINE.search(state.src, first, last)) is not None else last
    rows = state.src.count("\n", first, stop) + 1
    missing = columns * rows - (state.src.count("|", first, stop) + rows)
    return stop if missing > _MAX_MISSING_CELLS else 0


def parse_blocks(text: str) -> list[SyntaxTreeNode]:
    """Parses a text into its blocks, in order."""
    tokens = _build_parser(flat=False).parse(text)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        # The parser drops what is nested deeper, and text could be hidden there.
        tokens = _build_parser(flat=True).parse(text)
    return SyntaxTreeNode(tokens).children


def render_block(node: SyntaxTreeNode, width: int, *, color: bool) -> list[str]:
    """Renders one block."""
    return _BLOCKS.get(node.type, _render_other)(node, width, color)


def render_code(text: str, info: str, width: int, *, color: bool, block: Highlighter | None = None) -> list[str]:
    """Renders a code block, or the next lines of the one that `block` colours."""
    marks = _DIFF if info.split(" ")[0] in ("diff", "patch") else {}
    shift = " " * (_INDENT if width > _NARROWEST_TEXT + _INDENT else 0)
    lines = [sanitize(line).expandtabs(TAB) for line in text.split("\n")]
    block = Highlighter(find_language(info) if color else None) if block is None else block
    if block.active and color:
        return [paint([(shift, ""), *piece], color=True)
                for spans in block.color(lines) for piece in fold_spans(spans, width - len(shift))]  # fmt: skip
    return [
        paint([(shift, ""), (piece, marks.get(line[:1], CYAN if not marks else ""))], color=color)
        for line in lines
        for piece in fold(line, width - len(shift))
    ]


def render_item(node: SyntaxTreeNode, width: int, *, color: bool) -> list[str]:
    """Renders one item of a list, with its mark."""
    ordered = node.parent is not None and node.parent.type == "ordered_list"
    mark = f"{sanitize_line(node.info)}{node.markup} " if ordered else "\u2022 "
    shift = len(mark) if width - len(mark) >= _NARROWEST_TEXT else 0
    loose = any(child.type == "paragraph" and not child.hidden for child in node.children)
    lines = _render_stack(node.children, width - len(mark) if shift else width, gap=loose, color=color)
    if not shift:
        return [paint([(mark.rstrip(), DIM)], color=color), *lines]
    return indent(lines or [""], (mark, DIM), (" " * shift, ""), color=color)


def _render_stack(nodes: Sequence[SyntaxTreeNode], width: int, *, gap: bool, color: bool) -> list[str]:
    lines: list[str] = []
    end: int | None = None
    for node in nodes:
        # A list directly below a paragraph belongs to it.
        close = not gap or (node.map is not None and node.map[0] == end)
        lines += [*([] if close or not lines else [""]), *render_block(node, width, color=color)]
        end = None if node.map is None else node.map[1]
    return lines


def _render_spans(spans: Sequence[Span], width: int, color: bool) -> list[str]:
    return [paint(line, color=color) for line in wrap_spans(spans, width)]


def _render_paragraph(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    return _render_spans(_style_inline(node, "", color), width, color)


def _render_heading(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    level = int(node.tag[1:])
    # Without colours, the # signs mark a heading.
    sign: list[Span] = [] if color else [("#" * level + " ", "")]
    return _render_spans([*sign, *_style_inline(node, _HEADINGS.get(level, ITALIC), color)], width, color)


def _render_code_node(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    return render_code(node.content.removesuffix("\n"), node.info, width, color=color)


def _render_list(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    lines: list[str] = []
    for child in node.children:
        loose = any(part.type == "paragraph" and not part.hidden for part in child.children)
        lines += [*([""] if lines and loose else []), *render_item(child, width, color=color)]
    return lines


def _render_quote(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    bar = ("\u2502 ", DIM)
    shift = 2 if width - 2 >= _NARROWEST_TEXT else 0
    lines = _render_stack(node.children, width - shift, gap=True, color=color)
    return indent(lines or [""], bar, bar, color=color) if shift else lines


def _render_rule(_node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    return [paint([("\u2500" * min(width, 40), DIM)], color=color)]


def _render_table_node(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    rows = [row for part in node.children for row in part.children]
    cells: list[list[Cell]] = [[_style_inline(cell, "", color) for cell in row.children] for row in rows]
    sides: list[Side] = [_read_alignment(cell) for cell in rows[0].children]
    return render_table(cells[0], cells[1:], sides, width, color=color)


def _read_alignment(cell: SyntaxTreeNode) -> Side:
    style = str(cell.attrs.get("style", "")).removeprefix("text-align:")
    return cast(Side, style) if style in ("right", "center") else "left"


def _render_other(node: SyntaxTreeNode, width: int, color: bool) -> list[str]:
    """Renders any other node as it was written."""
    return _render_spans([(sanitize("" if node.token is None else node.token.content), "")], width, color)


def _style_inline(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    spans: list[Span] = []
    for child in node.children:
        spans += _INLINE.get(child.type, _style_text)(child, style, color)
    return spans


def _combine(style: str, more: str) -> str:
    return f"{style};{more}" if style else more


def _style_text(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    if node.children:
        return _style_inline(node, style, color)
    return [(sanitize(node.content), style)]


def _style_code(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    text = sanitize(node.content)
    return [(text if color else f"`{text}`", _combine(style, CYAN))]


def _style_link(node: SyntaxTreeNode, style: str, color: bool) -> list[Span]:
    target = sanitize_line(str(node.attrs.get("href", "")))
    spans = _style_inline(node, _combine(style, UNDERLINED), color)
    shown = join_text(spans)
    if target in (shown, f"mailto:{shown}"):
        return spans
    return [*spans, (f" ({target})", _combine(style, DIM))]


def _style_image(node: SyntaxTreeNode, style: str, _color: bool) -> list[Span]:
    words = sanitize(node.content) or "image"
    return [
        (words, _combine(style, ITALIC)),
        (f" ({sanitize_line(str(node.attrs.get('src', '')))})", _combine(style, DIM)),
    ]


def _make_styler(more: str) -> Callable[[SyntaxTreeNode, str, bool], list[Span]]:
    return lambda node, style, color: _style_inline(node, _combine(style, more), color)


def _style_break(_node: SyntaxTreeNode, _style: str, _color: bool) -> list[Span]:
    # Models usually mean their line breaks.
    return [("\n", "")]


_BLOCKS: dict[str, Callable[[SyntaxTreeNode, int, bool], list[str]]] = {
    "paragraph": _render_paragraph,
    "heading": _render_heading,
    "fence": _render_code_node,
    "code_block": _render_code_node,
    "bullet_list": _render_list,
    "ordered_list": _render_list,
    "blockquote": _render_quote,
    "hr": _render_rule,
    "table": _render_table_node,
}
_INLINE: dict[str, Callable[[SyntaxTreeNode, str, bool], list[Span]]] = {
    "code_inline": _style_code,
    "strong": _make_styler(BOLD),
    "em": _make_styler(ITALIC),
    "s": _make_styler(STRUCK),
    "link": _style_link,
    "image": _style_image,
    "softbreak": _style_break,
    "hardbreak": _style_break,
}
