"""Short names for the entries of a session: the same in the chat and in `steersman sessions`, never a number."""

from __future__ import annotations

from collections.abc import Iterable

from steersman.cli.exits import UserError
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.session.session import Session

_SHORTEST = 2
_ENTRIES = ("message", "compaction", "prun", "undo")


def list_entry_ids(session: Session) -> list[str]:
    """The ids of all entries, of all branches."""
    return [record.id for record in session.records() if record.type in _ENTRIES]


def shorten_ids(ids: Iterable[str]) -> dict[str, str]:
    """Returns a short, unique name for each id: `5f-1a` for `msg_5f0c2a9b1e44_1a`.

    The dash keeps it from being read as the number of a message. An id of another form is its own name.
    """
    split = {id: _split(id) for id in ids}
    # One process counts its entries under one prefix, and a session may have entries of several.
    prefixes = sorted({parts[0] for parts in split.values() if parts is not None})
    size = _SHORTEST
    while len({prefix[:size] for prefix in prefixes}) < len(prefixes):
        size += 1
    return {id: id if parts is None else f"{parts[0][:size]}-{parts[1]}" for id, parts in split.items()}


def _split(id: str) -> tuple[str, str] | None:
    kind, _, rest = id.partition("_")
    prefix, _, number = rest.partition("_")
    return (prefix, number) if kind and len(prefix) >= _SHORTEST and number and "_" not in number else None


def find_entry(session: Session, name: str) -> str:
    """Finds an entry by label, id, short name or the beginning of an id, or a message by `#` and its number."""
    ids = list_entry_ids(session)
    named = session.resolve_entry(name)
    if named in ids:
        return named
    number = name.removeprefix("#")
    if number.isdecimal() and len(number) < 10:
        if int(number) < len(session.messages):
            return session.log.entry_id_of(int(number))
        raise UserError(f"No message {number} in this session; the last one is {len(session.messages) - 1}.")
    found = [id for id in ids if _is_name_of(name, id)] or [id for id in ids if id.startswith(name)]
    if len(found) == 1:
        return found[0]
    what = "could mean several entries" if found else "is not an entry"
    raise UserError(
        f"{sanitize_line(name)!r} {what} of this session. /tree, and `steersman sessions show`, show the entries."
    )


def _is_name_of(name: str, id: str) -> bool:
    """Whether a name is the short one of an id, with any length of its prefix."""
    parts, (prefix, dash, number) = _split(id), name.partition("-")
    return bool(parts and dash and prefix and parts[0].startswith(prefix) and parts[1] == number)
