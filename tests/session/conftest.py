"""Every store holds to the same promises, so every test of sessions runs on each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.session.database import Database
from tests.session.snapshots import Snapshot, quick_folder, taken
from tests.session.stores.postgres.server import NoServer, shared_server

from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import Store

MakeStore = Callable[[Path], Store]

STORES: dict[str, MakeStore] = {
    "sqlite": lambda folder: SqliteStore(folder / "sessions.db"),
    "memory": lambda _: MemoryStore(),
}


@pytest.fixture(params=[*sorted(STORES), "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "postgres":
        postgres: Database = request.getfixturevalue("postgres")
        return postgres.store()
    return STORES[request.param](tmp_path)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a PostgreSQL server that all tests share, in whichever process they run."""
    folder = tmp_path_factory.getbasetemp()
    try:
        with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as dsn:
            yield dsn
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture
def postgres(postgres_server: str) -> Database:
    """A part of that server for this test alone."""
    return Database.made(postgres_server)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A place for files that are laid out again and again."""
    with quick_folder(tmp_path) as quick:
        yield quick


@pytest.fixture
def ended(folder: Path) -> Snapshot:
    """What a program leaves that ends in good order: everything is in the one file."""
    (folder / "ended").mkdir()
    return taken(folder / "ended", killed=False, groups=24)
