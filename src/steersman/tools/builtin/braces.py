"""Expands the braces of glob patterns: `*.{js,ts}` is `*.js` and `*.ts`."""

from __future__ import annotations

import re
from itertools import pairwise

from steersman.tools.builtin.gitignore import BadGlob

_MAX_ALTERNATIVES = 64
_SIGN = re.compile(r"\\.|[{},]", re.DOTALL)


def expand_braces(pattern: str) -> list[str]:
    """Expand `{a,b}` into patterns; braces without a comma or a closing brace stay as they are."""
    found = [pattern]
    done: list[str] = []
    while found:
        candidate = found.pop(0)
        choice = _find_first_choice(candidate)
        if choice is None:
            done.append(candidate)
        else:
            start, end, options = choice
            found[:0] = [candidate[:start] + option + candidate[end:] for option in options]
        if len(found) + len(done) > _MAX_ALTERNATIVES:
            raise BadGlob(f"its braces expand to more than {_MAX_ALTERNATIVES} patterns")
    return list(dict.fromkeys(done))


def _find_first_choice(pattern: str) -> tuple[int, int, list[str]] | None:
    """Find the first `{a,b}`: its start, its end, and its options. In one pass: many braces may stay open."""
    # For each brace that is open, its place and those of its commas.
    opened: list[list[int]] = []
    first: list[int] = []
    for match in _SIGN.finditer(pattern):
        if match[0] == "{":
            opened.append([match.start()])
        elif match[0] == "," and opened:
            opened[-1].append(match.start())
        elif match[0] == "}" and opened:
            places = [*opened.pop(), match.start()]
            if len(places) > 2 and (not first or places[0] < first[0]):
                first = places
    if not first:
        return None
    return first[0], first[-1] + 1, [pattern[place + 1 : end] for place, end in pairwise(first)]
