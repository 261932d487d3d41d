"""Follows one run of a live session for a front: its events as dicts, from its start to its end or its questions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from steersman.server.live import LiveSession, Receipt
from steersman.server.watch import Watch

Event: TypeAlias = dict[str, Any]


async def follow_run(live: LiveSession, act: Callable[[], Awaitable[Receipt]]) -> AsyncGenerator[tuple[str, Event]]:
    """Act, and yield the positions and events that follow, up to the end of the run.

    `act` starts a run or answers its question. If the reader leaves, the run goes on: only `live.abort()` stops it.
    """
    await live.session.save()
    with Watch(live.hub, live.hub.position) as watch:
        await act()
        while not live.hub.closed:
            for item in await watch.read():
                event = msgspec.json.decode(item.data)
                yield str(item.position), event
                if event["type"] == "agent_end":
                    return
