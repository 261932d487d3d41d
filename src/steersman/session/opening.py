"""Finds the store of a session, and opens the session in it; several programs may do so at once."""

from __future__ import annotations

import os
import time
from typing import Protocol, TypeAlias
from weakref import WeakKeyDictionary

from steersman.session.records import HEADER, SERVED, Record, make_header
from steersman.session.stores.store import Handle, SessionBusy, SessionExists, SessionNotFound, SharedStore, Store
from steersman.types.ids import new_id

Where: TypeAlias = "str | os.PathLike[str] | Store"


class _Writer(Protocol):
    id: str


writers: WeakKeyDictionary[_Writer, Store] = WeakKeyDictionary()
"""The sessions that this process has open for writing."""


def open_store(where: Where) -> Store:
    """The store itself, or that of a file or of a PostgreSQL URL."""
    if isinstance(where, str) and where.startswith(("postgres://", "postgresql://")):
        from steersman.session.stores.postgres.store import PostgresStore

        return PostgresStore(where)
    if isinstance(where, str | os.PathLike):
        from steersman.session.stores.sqlite.store import SqliteStore

        return SqliteStore(where)
    return where


def create_handle(store: Store, session_id: str | None) -> Handle:
    """The handle of a new session."""
    return store.create(new_id("session") if session_id is None else session_id)


def create_empty(store: Store, session_id: str, *, agent_name: str | None = None) -> None:
    """Make a session for others to open, with the name of its agent; raises `SessionExists`."""
    handle = store.create(session_id)
    try:
        handle.append(make_first_records(session_id, agent_name))
    finally:
        handle.close()


def make_first_records(session_id: str, agent_name: str | None) -> list[Record]:
    """The records of a session that is made for others to open."""
    now = time.time()
    records = [Record(new_id("record"), None, 1, HEADER, now, make_header(session_id, now))]
    if agent_name is not None:
        records.append(Record(new_id("record"), None, 2, SERVED, now, {"agent": agent_name}))
    return records


def take_over_handle(store: Store, session_id: str | None) -> Handle:
    """The handle of an existing session, also if another one writes to it."""
    if session_id is None:
        raise ValueError("A session is taken over by its id: Session.open(where, id, take_over=True).")
    if not isinstance(store, SharedStore):
        raise TypeError(f"A session of this store cannot be taken over: {store!r} has no take_over().")
    return store.take_over(session_id)


def open_handle(store: Store, session_id: str, *, write: bool = True) -> Handle:
    """The handle of an existing session; if this process has it open already, `SessionBusy` says so."""
    try:
        return store.open(session_id, write=write)
    except SessionBusy as error:
        if any(other.id == session_id and _is_same_store(store, its) for other, its in list(writers.items())):
            text = f"{error} It is open in this very process: close it there with agent.close() or session.close()."
            raise SessionBusy(text) from error
        raise


def open_last(store: Store, *, write: bool = True) -> Handle:
    """The handle of the session used last."""
    found = store.list()
    if not found:
        place = str(getattr(store, "path", "")) or store
        raise SessionNotFound(f"There is no session in {place!r} yet. Make one with Session.create().")
    return open_handle(store, found[0].id, write=write)


def open_or_create(store: Store, session_id: str | None) -> Handle:
    """The handle of the session with this id, or of the one used last; of a new one if there is none.

    Another program may do the same at this moment: one creates the session, and the others open it.
    """
    while True:
        try:
            return open_last(store) if session_id is None else open_handle(store, session_id)
        except SessionNotFound:
            try:
                if session_id is not None:
                    return store.create(session_id)
                return store.create(new_id("session"), first=True)
            except SessionExists:
                continue  # made by another program meanwhile


def _is_same_store(left: Store, right: Store) -> bool:
    """Whether these are the same store, or two stores of the same file."""
    path = getattr(left, "path", None)
    return left is right or (path is not None and path == getattr(right, "path", None))
