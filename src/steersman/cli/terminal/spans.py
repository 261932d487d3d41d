"""Styled text: the only module that writes colours into what is rendered. The text must be sanitized already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from steersman.cli.terminal.theme import translate_style

Span: TypeAlias = tuple[str, str]
"""A text and its style."""


def paint(spans: Iterable[Span], *, color: bool) -> str:
    """Returns the spans as text for a terminal; without `color`, no escape sequence."""
    if not color:
        return "".join([text for text, _ in spans])
    return "".join(
        [f"\x1b[{code}m{text}\x1b[0m" if text and style and (code := translate_style(style)) else text
         for text, style in spans]
    )  # fmt: skip


def slice_spans(spans: Sequence[Span], cuts: Sequence[tuple[int, int]]) -> Iterator[list[Span]]:
    """Yields the parts of the spans between each pair of positions, in one pass."""
    index = offset = 0
    for start, end in cuts:
        line: list[Span] = []
        while index < len(spans) and offset + len(spans[index][0]) <= start:
            offset += len(spans[index][0])
            index += 1
        here, place = index, offset
        while here < len(spans) and place < end:
            text, style = spans[here]
            part = text[max(0, start - place) : end - place]
            if part:
                line.append((part, style))
            place += len(text)
            here += 1
        yield line
