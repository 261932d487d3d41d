"""Following a run for a front: it never waits for a run that is not there."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.kit import make_agent

from steersman.server.fronts.following import follow_events
from steersman.server.sessions import Sessions
from steersman.session.stores.memory import MemoryStore

pytestmark = pytest.mark.real_time


async def test_without_a_run_there_is_nothing_to_follow() -> None:
    """S8: never a silent wait, also where what was to start a run has started none."""
    sessions = Sessions(make_agent("Hello."), MemoryStore())
    live = await sessions.create(None)

    async def do_nothing() -> None:
        pass

    async with asyncio.timeout(10):
        events = [event["type"] async for _, event in follow_events(live, do_nothing)]
        more = [event["type"] async for _, event in follow_events(live, None)]
    await sessions.close()
    assert events == ["started"]
    assert more == []
