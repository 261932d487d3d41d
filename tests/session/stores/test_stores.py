"""Every store does what a store has to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import Store
from steersman.testing.store_checks import StoreCheck, Stores, store_checks


@pytest.fixture(params=["sqlite", "memory"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """A place for sessions for each name."""
    if request.param == "sqlite":
        return lambda name: SqliteStore(tmp_path / name / "sessions.db")
    made: dict[str, Store] = {}
    return lambda name: made.setdefault(name, MemoryStore())


@pytest.mark.parametrize("check", store_checks(), ids=lambda check: check.__name__)
def test_a_store_conforms(check: StoreCheck, stores: Stores) -> None:
    """failures.md H4, H5, H12, H15, L27: the public checks, against the stores that need no server."""
    check(stores)
