"""Sessions: an append-only tree of records of what agents did, from which a run can go on after a crash.

A session records what an agent does and never decides it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.session.records import FORMAT, Record
    from steersman.session.session import Session
    from steersman.session.stores.jsonl import export_jsonl, import_jsonl
    from steersman.session.stores.memory import MemoryStore
    from steersman.session.stores.postgres.store import PostgresStore
    from steersman.session.stores.sqlite.store import SqliteStore
    from steersman.session.stores.store import (
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

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "records": "FORMAT Record",
        "session": "Session",
        "stores.jsonl": "export_jsonl import_jsonl",
        "stores.memory": "MemoryStore",
        "stores.postgres.store": "PostgresStore",
        "stores.sqlite.store": "SqliteStore",
        "stores.store": (
            "Handle NewerFormat Problem SessionBusy SessionDamaged SessionError SessionExists "
            "SessionNotFound Store StoreFailed Summary"
        ),
        "tree": "Branch Difference",
    },
)

__all__ = [
    "Branch",
    "Difference",
    "FORMAT",
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
