"""A Temporal server and a PostgreSQL server that all tests share, in whichever process they run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.durable.server import NoServer, shared_server
from tests.session.conftest import postgres, postgres_server

__all__ = ["postgres", "postgres_server", "temporal"]


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Temporal server."""
    folder = tmp_path_factory.getbasetemp()
    try:
        with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as address:
            yield address
    except NoServer as reason:
        pytest.skip(str(reason))
