"""Styled text laid out in columns: the only place that writes an escape sequence into what is shown of a run.

Text that comes in here has been through `safe` already; a style is the parameters of one SGR sequence, such as `1;36`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from rich.cells import cell_len, chop_cells, get_character_cell_size

from steersman.cli.terminal.sanitize import one_line
from steersman.types.usage import Usage

Span: TypeAlias = tuple[str, str]
"""Some text and its style."""

BOLD = "1"
DIM = "2"
ITALIC = "3"
UNDERLINED = "4"
STRUCK = "9"
RED = "31"
GREEN = "32"
YELLOW = "33"
CYAN = "36"
FAINT_ITALIC = "2;3"

_WIDE = "\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff60"
_CLOSING = "\u3001\u3002\u300d\u300f\uff01\uff09\uff0c\uff1a\uff1b\uff1f"
# A line may break at spaces and after an ideograph with what closes behind it.
_WORD = re.compile(rf" *(?:[{_WIDE}][{_CLOSING}]*|[^ {_WIDE}]+)")
_TAB = 4

# What joins characters into one picture, on terminals that know of it; the others show them one by one.
_JOINER = "\u200d"
_TONES = "\U0001f3fb-\U0001f3ff"
_JOINED = re.compile(f"[{_JOINER}\ufe0f{_TONES}]")
_PICTURE = re.compile(rf".(?:{_JOINER}.|[{_JOINER}\ufe0f{_TONES}\u0300-\u036f\u20e3])*", re.DOTALL)
_TONE = re.compile(f"[{_TONES}]")


def painted(spans: Iterable[Span], *, color: bool) -> str:
    """The spans as text for a terminal; without colour, no sequence at all."""
    if not color:
        return text_of(spans)
    return "".join([f"\x1b[{style}m{text}\x1b[0m" if style and text else text for text, style in spans])


def text_of(spans: Iterable[Span]) -> str:
    """The text of the spans."""
    return "".join([text for text, _ in spans])


def width_of(text: str) -> int:
    """How many columns a text takes, on the terminals that need the most for it."""
    if not _JOINED.search(text):
        return cell_len(text)
    return sum(_picture_width(match[0]) for match in _PICTURE.finditer(text))


def _picture_width(text: str) -> int:
    apart = sum(2 if _TONE.match(character) else get_character_cell_size(character) for character in text)
    return max(cell_len(text), apart)


def chopped(text: str, room: int) -> list[str]:
    """A text in pieces of at most `room` columns, every character kept."""
    if not _JOINED.search(text):
        return [piece for piece in chop_cells(text, max(2, room)) if piece] or [""]
    pieces, used = [""], 0
    for match in _PICTURE.finditer(text):
        size = _picture_width(match[0])
        if used + size > room and pieces[-1]:
            pieces.append("")
            used = 0
        pieces[-1] += match[0]
        used += size
    return pieces


def cells(spans: Iterable[Span]) -> int:
    """How many columns the spans take."""
    return sum(width_of(text) for text, _ in spans)


def flowed(spans: Sequence[Span], room: int) -> list[list[Span]]:
    """The spans in lines of at most `room` columns, broken between words where that is possible."""
    plain = text_of(spans)
    if "\t" in plain:
        spans = [(text.expandtabs(_TAB), style) for text, style in spans]
        plain = text_of(spans)
    if "\n" not in plain and width_of(plain) <= room:
        return [list(spans)]
    cuts: list[tuple[int, int]] = []
    start = 0
    for line in plain.split("\n"):
        cuts += [(start + low, start + high) for low, high in _breaks(line, max(1, room))]
        start += len(line) + 1
    return list(_sliced(spans, cuts))


def folded(text: str, room: int) -> list[str]:
    """One line of code or output in pieces of at most `room` columns, every character kept."""
    text = text.expandtabs(_TAB)
    return [text] if width_of(text) <= room else chopped(text, room)


def cropped(text: str, room: int) -> str:
    """Text cut to `room` columns, with a sign where some was left out."""
    if width_of(text) <= room:
        return text
    if room <= 1:
        return "\u2026" if room == 1 else ""
    kept = chopped(text, room - 1)[0]
    # Pieces have two columns at least, so that a wide character finds room in one.
    return f"{kept.rstrip() if width_of(kept) < room else ''}\u2026"


def indented(lines: Iterable[str], first: Span, rest: Span, *, color: bool) -> list[str]:
    """Lines behind a prefix: one for the first, one for all others."""
    shown = painted((first,), color=color), painted((rest,), color=color)
    bare = painted(((rest[0].rstrip(" "), rest[1]),), color=color)
    return [
        f"{shown[0]}{line}" if index == 0 else f"{shown[1] if line else bare}{line}" for index, line in enumerate(lines)
    ]


def _breaks(line: str, room: int) -> Iterator[tuple[int, int]]:
    """Where each piece of a line begins and ends; spaces at a break belong to no piece."""
    if width_of(line) <= room:
        yield 0, len(line.rstrip(" "))
        return
    start = end = used = 0
    for match in _WORD.finditer(line):
        size = width_of(match[0])
        if used + size <= room:
            end, used = match.end(), used + size
            continue
        if used:
            yield start, end
        word = match[0].lstrip(" ")
        start = match.end() - len(word)
        *whole, last = chopped(word, room)
        for piece in whole:
            yield start, start + len(piece)
            start += len(piece)
        end, used = match.end(), width_of(last)
    yield start, end


def _sliced(spans: Sequence[Span], cuts: Sequence[tuple[int, int]]) -> Iterator[list[Span]]:
    """The parts of the spans between each two places, in one walk over both."""
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


SEPARATOR = " \u00b7 "


def duration(seconds: float) -> str:
    """A time span in the unit that fits it."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def elapsed(seconds: float) -> str:
    """A time that goes on, in whole seconds: tenths would only flicker."""
    return f"{int(seconds)} s" if seconds < 60 else duration(int(seconds))


def count(number: int, noun: str) -> str:
    """A number of things."""
    if number == 1:
        return f"1 {noun}"
    return (
        f"{number:,} {noun[:-1]}ies"
        if noun.endswith("y")
        else f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"
    )


def money(cost: float) -> str:
    """US dollars, with as many places as say something."""
    if cost >= 0.995 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.3f}" if cost >= 0.0095 else f"${cost:.5f}".rstrip("0")


def usage_words(usage: Usage) -> list[str]:
    """What is known of a usage, in words."""
    words: list[str] = []
    read = usage.cache_read or 0
    if usage.input is not None:
        cached = f" ({read:,} cached)" if read else ""
        words.append(f"{usage.input + read + (usage.cache_write or 0):,} in{cached}")
    if usage.output is not None:
        words.append(f"{usage.output:,} out")
    if usage.cost is not None:
        words.append(f"{'at least ' if usage.partial else ''}{money(usage.cost)}")
    return words


def cost_line(usage: Usage, *, seconds: float | None = None, model: str | None = None) -> str:
    """What a run took, in one line: tokens, money where it is known, time, model."""
    words = usage_words(usage)
    if seconds is not None:
        words.append(duration(seconds))
    if model:
        words.append(one_line(model))
    return SEPARATOR.join(words)
