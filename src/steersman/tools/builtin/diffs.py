"""A unified diff from changes that are known, in time that grows with the text and not with its square."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from steersman.tools.builtin.passages import Change
from steersman.types.content import well_formed

LONGEST = 60_000
"""The most characters of a diff: it is for somebody to look at."""
_CONTEXT = 3
_COMPARED = 4_000


class Swap(NamedTuple):
    """Lines `start` to `end` (counted from 0, the end not included) of a text, and the lines that take their place."""

    start: int
    end: int
    lines: list[str]


def split_lines(text: str) -> list[str]:
    """The lines with their line feeds."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def compared(before: Sequence[str], after: Sequence[str]) -> list[Swap]:
    """What is different between two texts: the least where they are short, one swap where they are long."""
    first = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        first += 1
    last = 0
    for old, new in zip(reversed(before[first:]), reversed(after[first:]), strict=False):
        if old != new:
            break
        last += 1
    old_middle, new_middle = before[first : len(before) - last], after[first : len(after) - last]
    if not old_middle and not new_middle:
        return []
    if len(old_middle) + len(new_middle) > _COMPARED:
        return [Swap(first, len(before) - last, list(new_middle))]
    # Only short texts pay for this import.
    from difflib import SequenceMatcher

    codes = SequenceMatcher(None, old_middle, new_middle, autojunk=False).get_opcodes()
    return [
        Swap(first + start, first + end, list(new_middle[low:high]))
        for kind, start, end, low, high in codes
        if kind != "equal"
    ]


def swaps_of(text: str, lines: Sequence[str], changes: Sequence[Change]) -> Iterator[Swap]:
    """Changes of passages, in order, as swaps of whole lines."""
    starts = [0, *accumulate(map(len, lines))][:-1]
    index = 0
    while index < len(changes):
        first, end = index, 0
        # Changes that share a line are one swap.
        while index < len(changes) and (index == first or bisect_right(starts, changes[index].start) - 1 < end):
            end = bisect_right(starts, changes[index].end)
            index += 1
        start = bisect_right(starts, changes[first].start) - 1
        low, high = starts[start], len(text) if end == len(lines) else starts[end]
        new = split_lines(replaced(text[low:high], changes[first:index], low))
        for swap in compared(lines[start:end], new):
            yield Swap(start + swap.start, start + swap.end, swap.lines)


def replaced(text: str, changes: Sequence[Change], shift: int = 0) -> str:
    """The text with the changes made; their places count from `shift` characters before it."""
    pieces: list[str] = []
    done = 0
    for change in changes:
        pieces += (text[done : change.start - shift], change.new)
        done = change.end - shift
    return "".join((*pieces, text[done:]))


def diff(path: str, before: Sequence[str], swaps: Iterable[Swap], *, created: bool = False) -> str:
    """The swaps as a unified diff, cut where it is too long; nothing where nothing changed."""
    # A name with a line feed in it could forge lines of the diff.
    path = path if path.isprintable() else repr(path)
    pieces = [f"--- {'/dev/null' if created else f'a/{path}'}\n+++ b/{path}\n"]
    size = 0
    for piece in _hunks(before, swaps):
        size += len(piece)
        if size > LONGEST:
            pieces.append("[... the rest of the diff is left out ...]\n")
            break
        pieces.append(piece)
    return well_formed("".join(pieces)) if size else ""


def _hunks(before: Sequence[str], swaps: Iterable[Swap]) -> Iterator[str]:
    shift = 0
    for group in _grouped(swaps):
        start = max(0, group[0].start - _CONTEXT)
        end = min(len(before), group[-1].end + _CONTEXT)
        added = sum(len(swap.lines) - (swap.end - swap.start) for swap in group)
        yield f"@@ -{_range(start, end - start)} +{_range(start + shift, end - start + added)} @@\n"
        shift += added
        place = start
        for swap in group:
            yield from _marked(" ", before[place : swap.start])
            yield from _marked("-", before[swap.start : swap.end])
            yield from _marked("+", swap.lines)
            place = swap.end
        yield from _marked(" ", before[place:end])


def _grouped(swaps: Iterable[Swap]) -> Iterator[list[Swap]]:
    """Swaps whose context would touch are one hunk; no more of them than there is room for."""
    group: list[Swap] = []
    for swap in swaps:
        if group and (swap.start - group[-1].end > 2 * _CONTEXT or len(group) > LONGEST // 4):
            yield group
            group = []
        group.append(swap)
    if group:
        yield group


def _range(start: int, count: int) -> str:
    # By convention an empty range names the line before it, and one line has no count.
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
