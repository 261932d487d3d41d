"""Sessions: an append-only tree of records of what agents did, from which a run can go on after a crash.

A session records what an agent does and never decides it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.session.orders import Order
    from steersman.session.records import FORMAT, Record
    from steersman.session.session import Session
    from steersman.session.session_queue import Queued, SessionQueue
    from steersman.session.stores.jsonl import export_jsonl, import_jsonl
    from steersman.session.stores.memory import MemoryStore
    from steersman.session.stores.postgres.store import PostgresStore
    from steersman.session.stores.sqlite.store import SqliteStore
    from steersman.session.stores.store import (
        FollowedHandle,
        FollowedStore,
        Following,
        Handle,
        NewerFormat,
        Problem,
        Queue,
        SessionBusy,
        SessionDamaged,
        SessionError,
        SessionExists,
        SessionNotFound,
        SessionTaken,
        SharedHandle,
        SharedStore,
        Store,
        StoreFailed,
        Summary,
    )
    from steersman.session.tree import Branch, Difference

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "orders": "Order",
        "records": "FORMAT Record",
        "session": "Session",
        "session_queue": "Queued SessionQueue",
        "stores.jsonl": "export_jsonl import_jsonl",
        "stores.memory": "MemoryStore",
        "stores.postgres.store": "PostgresStore",
        "stores.sqlite.store": "SqliteStore",
        "stores.store": (
            "FollowedHandle FollowedStore Following "
            "Handle NewerFormat Problem Queue SessionBusy SessionDamaged SessionError SessionExists "
            "SessionNotFound SessionTaken SharedHandle SharedStore Store StoreFailed Summary"
        ),
        "tree": "Branch Difference",
    },
)

__all__ = [
    "Branch",
    "Difference",
    "FORMAT",
    "FollowedHandle",
    "FollowedStore",
    "Following",
    "Handle",
    "MemoryStore",
    "NewerFormat",
    "Order",
    "PostgresStore",
    "Problem",
    "Queue",
    "Queued",
    "Record",
    "Session",
    "SessionBusy",
    "SessionDamaged",
    "SessionError",
    "SessionExists",
    "SessionNotFound",
    "SessionQueue",
    "SessionTaken",
    "SharedHandle",
    "SharedStore",
    "SqliteStore",
    "Store",
    "StoreFailed",
    "Summary",
    "export_jsonl",
    "import_jsonl",
]
