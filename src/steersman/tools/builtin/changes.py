"""Finds the passages that edits replace, with hints for those not found, and formats changes as a unified diff.

The diff is built from the known changes, so its time grows with the length of the text and not with the square.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated, NamedTuple

from steersman.tools.builtin.encoding import TextFile, normalize_line_ends
from steersman.tools.text import find_similar, format_value
from steersman.types.content import replace_lone_surrogates

MAX_DIFF_LENGTH = 60_000
"""The most characters of a diff, which is for people to read."""

MAX_REPLACEMENTS = 100_000
"""The most passages that the edits of one call replace."""

MAX_EDITS = 1_000
"""The most edits of one call: each is searched in the whole file."""

_MAX_NUMBERS = 10
_MAX_LINES = 5_000
_MAX_HINT_LENGTH = 10_000
_MAX_SHOWN = 300
_MAX_HINTS = 3
_MAX_COMPARED_LINES = 4_000
_MAX_EQUAL_PAIRS = 200_000
_MAX_STEPS = 10_000_000
_CONTEXT = 3
# Characters that are taken for one another.
_LOOKALIKES = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u2212\u00a0\u202f", "''\"\"---  ")


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement requested by the model."""

    old: Annotated[str, "The text to replace, exactly as it is in the file, long enough to be there only once."]
    new: Annotated[str, "The text to put in its place."]
    all: Annotated[bool, "Replace every occurrence instead of exactly one."] = False


@dataclass(frozen=True, slots=True)
class Change:
    """A passage of a text, from `start` to `end`, and its replacement; `edit` is the index of the edit."""

    start: int
    end: int
    new: str
    edit: int


def find_changes(page: TextFile, edits: Sequence[Edit]) -> list[Change]:
    """Find the passages that the edits replace, in the order of the text. All are searched in the original text.

    Raises `ValueError` that explains the problems of all edits together.
    """
    if len(edits) > MAX_EDITS:
        raise ValueError(f"There are more than {MAX_EDITS:,} edits. Make them in several calls, or use a program.")
    found: list[Change] = []
    problems: list[str] = []
    for number, edit in enumerate(edits):
        old, new = normalize_line_ends(edit.old), normalize_line_ends(replace_lone_surrogates(edit.new))
        problem = _find_mistake(old, new)
        places = [] if problem else _find_all(page.text, old, every=edit.all)
        if not problem and not places:
            hint = _suggest(page, old, new) if len(problems) < _MAX_HINTS else ""
            problem = f"the text was not found. {hint}".rstrip()
        elif len(places) > 1 and not edit.all:
            problem = (
                f"the text was found {_describe_count(page, places)}. Give more of the lines around it, "
                "so that it is there only once, or set all to true."
            )
        if problem:
            problems.append(f"edits[{number}]: {problem}")
        else:
            if len(found) + len(places) > MAX_REPLACEMENTS:
                raise ValueError(f"They replace more than {MAX_REPLACEMENTS:,} passages. Use a program, such as sed.")
            found += [Change(place, place + len(old), new, number) for place in places]
    found.sort(key=lambda change: change.start)
    problems += _describe_overlaps(page, found)
    if problems:
        raise ValueError("\n".join(problems))
    return found


def describe_lines(page: TextFile, places: Sequence[int]) -> str:
    """Name the lines of some offsets."""
    numbers = list(dict.fromkeys(page.find_line(place) for place in places[:_MAX_NUMBERS]))
    words = ", ".join(map(str, numbers)) + (" and more" if len(places) > _MAX_NUMBERS else "")
    return f"line{'' if len(numbers) == 1 else 's'} {words}"


def _find_mistake(old: str, new: str) -> str | None:
    if not old:
        return "'old' is empty. Give a text that is in the file; to make a file or replace all of it, use write."
    return "'old' and 'new' are the same, so there is nothing to change." if old == new else None


def _find_all(text: str, old: str, *, every: bool) -> list[int]:
    """Find the offsets of a text. Overlapping matches count when one is wanted; with `every`, they do not overlap."""
    places: list[int] = []
    place = text.find(old)
    while place >= 0:
        places.append(place)
        if len(places) > (MAX_REPLACEMENTS if every else _MAX_NUMBERS):
            break
        place = text.find(old, place + (len(old) if every else 1))
    return places


def _describe_count(page: TextFile, places: Sequence[int]) -> str:
    times = f"{len(places)} times" if len(places) <= _MAX_NUMBERS else f"more than {_MAX_NUMBERS} times"
    return f"{times}, at {describe_lines(page, places)}"


def _describe_overlaps(page: TextFile, found: Sequence[Change]) -> list[str]:
    pairs = [(first, second) for first, second in pairwise(found) if second.start < first.end]
    return [
        f"edits[{first.edit}] and edits[{second.edit}] overlap at line {page.find_line(second.start)}. "
        "Make them one edit."
        for first, second in pairs[:_MAX_NUMBERS]
    ]


def _suggest(page: TextFile, old: str, new: str) -> str:
    """Suggest what may have been meant."""
    if "\ufffd" in old:
        return "It has the character \ufffd, which stands for bytes that are not text. Choose a passage without them."
    if len(new) > _MAX_NUMBERS and (place := page.text.find(new)) >= 0:
        return f"The new text is already there, at line {page.find_line(place)}: the edit may have been made before."
    return (
        _suggest_similar_passage(page, old)
        or _suggest_nearest_line(page, old)
        or "Read the file and copy the text exactly."
    )


def _suggest_similar_passage(page: TextFile, old: str) -> str | None:
    """Suggest a passage that differs only in white space, case or quotes."""
    wanted = _simplify(old)
    if not wanted or len(old) > _MAX_HINT_LENGTH:
        return None
    # Line by line and then as one text: a regular expression could try every line with every word of a long passage.
    simple = [(number, words) for number, line in enumerate(page.text.split("\n")) if (words := _simplify(line))]
    place = " ".join([words for _, words in simple]).find(wanted)
    if place < 0:
        return None
    ends = [*accumulate([len(words) + 1 for _, words in simple])]
    first, last = [simple[bisect_right(ends, at)][0] for at in (place, place + len(wanted) - 1)]
    passage = "\n".join(page.text.split("\n")[first : last + 1])
    return (
        f"At line {first + 1} is a text that differs only in white space, case or quotes: "
        f"{format_value(passage, _MAX_SHOWN)}. Copy it exactly."
    )


def _simplify(text: str) -> str:
    return " ".join(text.translate(_LOOKALIKES).casefold().split())


def _suggest_nearest_line(page: TextFile, old: str) -> str | None:
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:_MAX_SHOWN]
    numbers: dict[str, int] = {}
    for number, line in enumerate(page.text.split("\n", _MAX_LINES)[:_MAX_LINES], 1):
        numbers.setdefault(line.strip()[:_MAX_SHOWN], number)
    near = find_similar(wanted, numbers)
    if not near:
        return None
    shown = format_value(near[0], _MAX_SHOWN)
    return f"The nearest line is {numbers[near[0]]}: {shown}. Read it again and copy the text exactly."


class Swap(NamedTuple):
    """Lines `start` to `end` of a text (from 0, without the end), and the lines that replace them."""

    start: int
    end: int
    lines: list[str]


def split_lines(text: str) -> list[str]:
    """Split a text into lines that keep their line feeds."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def compare_lines(before: Sequence[str], after: Sequence[str]) -> list[Swap]:
    """Compare two texts: the smallest differences where they are short, one swap where they are long."""
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
    found = None
    if len(old_middle) + len(new_middle) <= _MAX_COMPARED_LINES:
        found = _compare_short(old_middle, new_middle)
    if found is None:
        return [Swap(first, len(before) - last, list(new_middle))]
    return [Swap(first + start, first + end, list(new_middle[low:high])) for start, end, low, high in found]


def _compare_short(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]] | None:
    """Find which lines differ; `None` where that takes too long."""
    counts = Counter(after)
    # How many pairs of equal lines there are up to each line.
    pairs = [0, *accumulate([counts[line] for line in before])]
    if pairs[-1] > _MAX_EQUAL_PAIRS:
        return None
    # Imported late: difflib is only needed for short texts.
    from difflib import Match, SequenceMatcher

    class TooLong(Exception):
        pass

    class Matcher(SequenceMatcher[str]):
        steps = 0

        def find_longest_match(
            self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
        ) -> Match:
            # It is called for every passage between two that match, and looks at all pairs there.
            ahi = len(before) if ahi is None else ahi
            self.steps += pairs[ahi] - pairs[alo]
            if self.steps > _MAX_STEPS:
                raise TooLong
            return super().find_longest_match(alo, ahi, blo, bhi)

    try:
        codes = Matcher(None, before, after, autojunk=False).get_opcodes()
    except TooLong:
        return None
    return [(start, end, low, high) for kind, start, end, low, high in codes if kind != "equal"]


def build_swaps(text: str, lines: Sequence[str], changes: Sequence[Change]) -> Iterator[Swap]:
    """Turn changes of passages, in order, into swaps of whole lines."""
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
        new = split_lines(apply_changes(text[low:high], changes[first:index], low))
        for swap in compare_lines(lines[start:end], new):
            yield Swap(start + swap.start, start + swap.end, swap.lines)


def apply_changes(text: str, changes: Sequence[Change], shift: int = 0) -> str:
    """Apply the changes to a text; their offsets count from `shift` characters before it."""
    pieces: list[str] = []
    done = 0
    for change in changes:
        pieces += (text[done : change.start - shift], change.new)
        done = change.end - shift
    return "".join((*pieces, text[done:]))


def format_diff(
    path: str,
    before: Sequence[str],
    swaps: Iterable[Swap],
    *,
    created: bool = False,
    max_length: float = MAX_DIFF_LENGTH,
) -> str:
    """Format the swaps as a unified diff, truncated where it is too long; empty where nothing changed."""
    # A path with a line feed could forge lines of the diff.
    path = path if path.isprintable() else repr(path)
    pieces = [f"--- {'/dev/null' if created else f'a/{path}'}\n+++ b/{path}\n"]
    size = 0
    for piece in _format_hunks(before, swaps):
        size += len(piece)
        if size > max_length:
            pieces.append("[... the rest of the diff is left out ...]\n")
            break
        pieces.append(piece)
    return replace_lone_surrogates("".join(pieces)) if size else ""


def _format_hunks(before: Sequence[str], swaps: Iterable[Swap]) -> Iterator[str]:
    shift = 0
    for group in _group_swaps(swaps):
        start = max(0, group[0].start - _CONTEXT)
        end = min(len(before), group[-1].end + _CONTEXT)
        added = sum(len(swap.lines) - (swap.end - swap.start) for swap in group)
        yield f"@@ -{_format_range(start, end - start)} +{_format_range(start + shift, end - start + added)} @@\n"
        shift += added
        place = start
        for swap in group:
            yield from _mark_lines(" ", before[place : swap.start])
            yield from _mark_lines("-", before[swap.start : swap.end])
            yield from _mark_lines("+", swap.lines)
            place = swap.end
        yield from _mark_lines(" ", before[place:end])


def _group_swaps(swaps: Iterable[Swap]) -> Iterator[list[Swap]]:
    """Group swaps whose context would touch into one hunk, at most as many as the diff can hold."""
    group: list[Swap] = []
    for swap in swaps:
        if group and (swap.start - group[-1].end > 2 * _CONTEXT or len(group) > MAX_DIFF_LENGTH // 4):
            yield group
            group = []
        group.append(swap)
    if group:
        yield group


def _format_range(start: int, count: int) -> str:
    # By convention, an empty range names the line before it, and a range of one line has no count.
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _mark_lines(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
