"""What is remembered between runs: a tree of records that is only ever added to, kept by a store.

A session listens to an agent and writes; it never decides what the agent does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.session.jsonl import export_jsonl, import_jsonl
    from steersman.session.memory import MemoryStore
    from steersman.session.postgres import PostgresStore
    from steersman.session.records import FORMAT, Record
    from steersman.session.session import Session
    from steersman.session.sqlite import SqliteStore
    from steersman.session.store import (
        Handle,
        NewerFormat,
        Problem,
        SessionBusy,
        SessionDamaged,
        SessionError,
        SessionExists,
        SessionNotFound,
        Store,
        StoreFailed,
        Summary,
    )
    from steersman.session.tree import Branch, Difference

# Loaded when they are first used: databases are heavy, and most programs use one or none.
_HOMES = {
    "jsonl": "export_jsonl import_jsonl",
    "memory": "MemoryStore",
    "postgres": "PostgresStore",
    "records": "FORMAT Record",
    "session": "Session",
    "sqlite": "SqliteStore",
    "store": (
        "Handle NewerFormat Problem SessionBusy SessionDamaged SessionError SessionExists SessionNotFound Store "
        "StoreFailed Summary"
    ),
    "tree": "Branch Difference",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'steersman.session' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"steersman.session.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]


__all__ = [
    "FORMAT",
    "Branch",
    "Difference",
    "Handle",
    "MemoryStore",
    "NewerFormat",
    "PostgresStore",
    "Problem",
    "Record",
    "Session",
    "SessionBusy",
    "SessionDamaged",
    "SessionError",
    "SessionExists",
    "SessionNotFound",
    "SqliteStore",
    "Store",
    "StoreFailed",
    "Summary",
    "export_jsonl",
    "import_jsonl",
]
