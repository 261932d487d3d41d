"""Whose a session is: its id says so, and a session of another user does not exist."""

from __future__ import annotations

import hashlib
import re
import secrets

from steersman.session.stores.store import is_session_id

_OWNER = re.compile(r"u[0-9a-f]{16}\.")


def make_prefix(user: str | None) -> str:
    """The beginning of the ids of a user's sessions, so that owners are known without opening them."""
    return "" if user is None else f"u{hashlib.sha256(user.encode()).hexdigest()[:16]}."


def make_id(user: str | None, key: str | None) -> str:
    """The id of a new session of a user; the same one for the same key."""
    suffix = secrets.token_hex(10) if key is None else hashlib.sha256(f"session {key}".encode()).hexdigest()[:20]
    return f"{make_prefix(user)}{suffix}"


def find_id(name: str, user: str | None) -> str:
    """The id of the session that a user calls by a name: the name itself, if it can be one."""
    if is_session_id(name) and belongs_to(name, user):
        return name
    id = f"{make_prefix(user)}{name}"
    if is_session_id(id) and _OWNER.match(name) is None:
        return id
    return f"{make_prefix(user)}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def belongs_to(id: str, user: str | None) -> bool:
    """Whether a session with this id is one of a user."""
    if user is None:
        return _OWNER.match(id) is None
    return id.startswith(make_prefix(user))
