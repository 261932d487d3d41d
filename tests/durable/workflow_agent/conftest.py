"""The stage, with the Temporal server that all tests share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.durable.workflow_agent.stage import Stage, connect

OpenStage = Callable[[], AbstractAsyncContextManager[Stage]]

LATE_CANCEL = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")
"""Temporal's worker warns about a cancel that comes when the activity has just ended."""


@pytest.fixture
def open_stage(temporal: str) -> Iterator[OpenStage]:
    """Opens a stage in the event loop of the test."""
    with TemporaryDirectory() as folder:  # the path of a socket must be short

        @asynccontextmanager
        async def open() -> AsyncGenerator[Stage]:
            async with Stage(await connect(temporal), Path(folder)).open() as stage:
                yield stage

        yield open
