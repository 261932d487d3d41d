"""Which passages of a text an edit means: exactly one unless all are asked for. What does not fit is explained."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from steersman.tools.builtin.line_ends import Page, unified
from steersman.tools.text import show
from steersman.types.content import well_formed

_MOST_NUMBERS = 10
_MOST_LINES = 5_000
_LONGEST_HINT = 10_000
_SHOWN = 300
# Each to one character, so that places stay the same.
_LOOKALIKES = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u2212\u00a0\u202f", "''\"\"---  ")


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement, as the model asks for it."""

    old: Annotated[str, "The text to replace, exactly as it is in the file, long enough to be there only once."]
    new: Annotated[str, "The text to put in its place."]
    all: Annotated[bool, "Replace every occurrence instead of exactly one."] = False


@dataclass(frozen=True, slots=True)
class Change:
    """A passage of a text, from `start` to `end`, and what takes its place; `edit` is the number of the edit."""

    start: int
    end: int
    new: str
    edit: int


def changes(page: Page, edits: Sequence[Edit]) -> list[Change]:
    """The passages that the edits mean, in the order of the text. All are looked for in the text as it is.

    `ValueError` says what is wrong, of all edits at once.
    """
    found: list[Change] = []
    problems: list[str] = []
    for number, edit in enumerate(edits):
        old, new = unified(edit.old), unified(well_formed(edit.new))
        problem = _pointless(old, new)
        places = [] if problem else _places(page.text, old, every=edit.all)
        if not problem and not places:
            problem = f"the text was not found. {_hint(page, old, new)}"
        elif len(places) > 1 and not edit.all:
            problem = (
                f"the text was found {_times(page, places)}. Give more of the lines around it, "
                "so that it is there only once, or set all to true."
            )
        if problem:
            problems.append(f"edits[{number}]: {problem}")
        else:
            found += [Change(place, place + len(old), new, number) for place in places]
    found.sort(key=lambda change: change.start)
    problems += _overlaps(page, found)
    if problems:
        raise ValueError("\n".join(problems))
    return found


def lines_of(page: Page, places: Sequence[int]) -> str:
    """The lines of some places, in words."""
    numbers = list(dict.fromkeys(page.line(place) for place in places[:_MOST_NUMBERS]))
    words = ", ".join(map(str, numbers)) + (" and more" if len(places) > _MOST_NUMBERS else "")
    return f"line{'' if len(numbers) == 1 else 's'} {words}"


def _pointless(old: str, new: str) -> str | None:
    if not old:
        return "'old' is empty. Give a text that is in the file; to make a file or replace all of it, use write."
    return "'old' and 'new' are the same, so there is nothing to change." if old == new else None


def _places(text: str, old: str, *, every: bool) -> list[int]:
    """Where the text is. Overlapping ones are all counted when one is wanted, and the first taken when all are."""
    places: list[int] = []
    place = text.find(old)
    while place >= 0:
        places.append(place)
        if not every and len(places) > _MOST_NUMBERS:
            break
        place = text.find(old, place + (len(old) if every else 1))
    return places


def _times(page: Page, places: Sequence[int]) -> str:
    times = f"{len(places)} times" if len(places) <= _MOST_NUMBERS else f"more than {_MOST_NUMBERS} times"
    return f"{times}, at {lines_of(page, places)}"


def _overlaps(page: Page, found: Sequence[Change]) -> list[str]:
    pairs = [(first, second) for first, second in pairwise(found) if second.start < first.end]
    return [
        f"edits[{first.edit}] and edits[{second.edit}] overlap at line {page.line(second.start)}. Make them one edit."
        for first, second in pairs[:_MOST_NUMBERS]
    ]


def _hint(page: Page, old: str, new: str) -> str:
    """What may have been meant."""
    if "\ufffd" in old:
        return "It has the character \ufffd, which stands for bytes that are no text. Choose a passage without them."
    if len(new) > _MOST_NUMBERS and (place := page.text.find(new)) >= 0:
        return f"The new text is there already, at line {page.line(place)}: the edit may have been made before."
    return _nearly(page, old) or _nearest_line(page, old) or "Read the file and copy the text exactly."


def _nearly(page: Page, old: str) -> str | None:
    """A passage that differs in what the eye passes over."""
    words = old.translate(_LOOKALIKES).split()
    if not words or len(old) > _LONGEST_HINT:
        return None
    pattern = r"\s+".join(map(re.escape, words))
    match = re.search(pattern, page.text.translate(_LOOKALIKES), re.IGNORECASE)
    if match is None:
        return None
    start = page.text.rfind("\n", 0, match.start()) + 1
    end = page.text.find("\n", match.end())
    passage = page.text[start : len(page.text) if end < 0 else end]
    return (
        f"At line {page.line(match.start())} is a text that differs only in white space, case or quotes: "
        f"{show(passage, _SHOWN)}. Copy it exactly."
    )


def _nearest_line(page: Page, old: str) -> str | None:
    # Only a mistake pays for this import.
    from difflib import get_close_matches

    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:_SHOWN]
    numbers: dict[str, int] = {}
    for number, line in enumerate(page.text.split("\n", _MOST_LINES)[:_MOST_LINES], 1):
        numbers.setdefault(line.strip()[:_SHOWN], number)
    near = get_close_matches(wanted, numbers, 1)
    if not near:
        return None
    return f"The nearest line is {numbers[near[0]]}: {show(near[0], _SHOWN)}. Read it again and copy the text exactly."
