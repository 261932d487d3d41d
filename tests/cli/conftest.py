"""What the tests of the command share: a place to run it in, and a strict server for its model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import Place, make_place
from tests.cli.fork_server import stop_server

from steersman.testing.servers import OpenAIChatServer
from steersman.types.usage import Usage


@pytest.fixture(scope="session", autouse=True)
def forking() -> Iterator[None]:
    """The process that commands are forked from is started when it is needed, and ends with the tests."""
    yield
    stop_server()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty home and an empty project."""
    return make_place(tmp_path)


@pytest.fixture
def server() -> Iterator[OpenAIChatServer]:
    """A strict server without a script yet: `server.say(...)` gives it one."""
    with OpenAIChatServer(usage=Usage(input=12, output=7)) as serving:
        yield serving
