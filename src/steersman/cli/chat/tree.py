"""The ways a conversation went, as lines with short ids that lead back to their entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from steersman.cli.terminal.sanitize import one_line
from steersman.cli.troubles import UserError
from steersman.context.entries import Entry, MessageEntry
from steersman.types.messages import UserMessage

if TYPE_CHECKING:
    from steersman.session.session import Session

_WORDS = 60


def tree_lines(session: Session, *, cleared: bool = False) -> list[str]:
    """Every branch, the current one last: an ID stands for where an exchange ended, the words are what began it.

    Where the conversation was `cleared` none of them is current, and what is said next begins another.
    """
    short = _short_names(session)
    lines: list[str] = []
    seen: set[str] = set()
    branches = sorted(session.tree(), key=lambda branch: (branch.current, branch.updated))
    for number, branch in enumerate(branches):
        current = branch.current and not cleared
        if len(branches) > 1:
            label = f" “{one_line(branch.label)}”" if branch.label else ""
            forked = "" if branch.fork is None else f" from {short.get(branch.fork, branch.fork)}"
            here = ", you are here" if current else ""
            lines += [""] * (number > 0) + [f"branch{label}{forked}{here}"]
        for id, words in _exchanges(session.entries(branch.leaf)):
            mark = "●" if current and id == branch.leaf else "·" if id in seen else "○"
            if id not in seen or current:
                lines.append(f"{mark} {short.get(id, id)}  {words}")
            seen.add(id)
    return [*lines, "", "● the beginning, where /clear took you"] if lines and cleared else lines


def _exchanges(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """What users said, each with the last entry before the next of it."""
    found: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, MessageEntry) and type(entry.message) is UserMessage and not entry.message.synthetic:
            found.append((entry.id, _words(entry.message.text)))
        elif found:
            found[-1] = entry.id, found[-1][1]
    return found


def _words(text: str) -> str:
    line = one_line(" ".join(text[: 4 * _WORDS].split()))
    return line if len(line) <= _WORDS else line[: _WORDS - 1] + "…"


def _short_names(session: Session) -> dict[str, str]:
    """The shortest name of each entry that only it has: the number at the end of its id, or all behind the kind."""
    ids = _ids(session)
    ends = [id.rpartition("_")[2] for id in ids]
    times = Counter(ends)
    return {
        id: end if times[end] == 1 and end else id.partition("_")[2] or id for id, end in zip(ids, ends, strict=True)
    }


def _ids(session: Session) -> list[str]:
    return list(dict.fromkeys(entry.id for branch in session.tree() for entry in session.entries(branch.leaf)))


def entry_named(session: Session, name: str) -> str:
    """The entry that a short name, an id or a label means."""
    ids = _ids(session)
    named = session.named(name)
    if named in ids:
        return named
    found = [id for id, short in _short_names(session).items() if short == name]
    found = found or [id for id in ids if id.endswith(f"_{name}")]
    if len(found) == 1:
        return found[0]
    what = "Several entries are" if found else "No entry is"
    raise UserError(f"{what} called {name!r} here. /tree shows the IDs there are.")
