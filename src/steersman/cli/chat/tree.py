"""The branches of a session as lines, with short ids that lead back to entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steersman.cli.chat.drafts import get_typed_text
from steersman.cli.sessions.entry_names import list_entry_ids, shorten_ids
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.context.entries import Entry, MessageEntry
from steersman.types.messages import UserMessage

if TYPE_CHECKING:
    from steersman.session.session import Session

_MAX_WORDS = 60


def render_tree(session: Session, *, cleared: bool = False) -> list[str]:
    """Renders every branch, the current one last. Each line is an exchange: the id where it ended and how it began.

    After /clear no branch is current, and the next prompt starts another one.
    """
    short = shorten_ids(list_entry_ids(session))
    lines: list[str] = []
    seen: set[str] = set()
    branches = sorted(session.tree(), key=lambda branch: (branch.current, branch.updated))
    for number, branch in enumerate(branches):
        current = branch.current and not cleared
        if len(branches) > 1:
            label = f" “{sanitize_line(branch.label)}”" if branch.label else ""
            forked = "" if branch.fork is None else f" from {short.get(branch.fork, branch.fork)}"
            here = ", you are here" if current else ""
            lines += [""] * (number > 0) + [f"branch{label}{forked}{here}"]
        exchanges = _list_exchanges(session.entries(branch.leaf))
        for id, words in exchanges:
            mark = "●" if current and id == exchanges[-1][0] else "·" if id in seen else "○"
            if id not in seen or current:
                lines.append(f"{mark} {short.get(id, id)}  {words}")
            seen.add(id)
    return [*lines, "", "● the beginning, after /clear"] if lines and cleared else lines


def _list_exchanges(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Lists the user's messages, each with the last entry that belongs to it.

    What the chat tells the model, such as an undo, belongs to the next message, unless there was an answer to it.
    """
    found: list[tuple[str, str]] = []
    for entry in entries:
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, UserMessage) and not message.synthetic:
            found.append((entry.id, _abbreviate(get_typed_text(message))))
        elif found and not isinstance(message, UserMessage):
            found[-1] = entry.id, found[-1][1]
    return found


def _abbreviate(text: str) -> str:
    line = sanitize_line(" ".join(text[: 4 * _MAX_WORDS].split()))
    return line if len(line) <= _MAX_WORDS else line[: _MAX_WORDS - 1] + "…"
