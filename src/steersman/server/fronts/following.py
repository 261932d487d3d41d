"""Follows one run of a live session for a front: its events as dicts, to the end of the run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from steersman.server.hub import Hub
from steersman.server.position import Position
from steersman.server.watch import Watch

Event: TypeAlias = dict[str, Any]

CUT: Final[Event] = {"type": "cut"}
"""Told instead of the end of a run that a crash has cut, and after which another one began."""
_FRESH = ("initial", "rerun", "branch")
_OF_A_RUN = ("agent_start", "message_end", "tool_execution_end")


class Followable(Protocol):
    """A session whose runs are followed, wherever it is open."""

    hub: Hub

    @property
    def is_busy(self) -> bool:
        """Whether a run goes on."""
        ...

    async def catch_up(self) -> None:
        """Return once the hub shows all records so far."""
        ...


class RunBounds:
    """Knows where the events of one run end in a log that goes on with others."""

    def __init__(self) -> None:
        self._begun = False

    def is_of_another(self, event: Event) -> bool:
        """Whether an event begins another run, although this one has no end. A run that is continued is the same."""
        begun, self._begun = self._begun, self._begun or event["type"] in _OF_A_RUN
        return begun and event["type"] == "agent_start" and event["continuation_kind"]["kind"] in _FRESH


async def follow_events(
    live: Followable, act: Callable[[], Awaitable[Any]] | None, after: Position | None = None
) -> AsyncGenerator[tuple[str, Event]]:
    """Act, and yield the positions and events that follow, up to the end of the run; none if it could not start.

    `act` starts a run or answers its question; without it, the run that goes on is followed from a position. Once it
    has acted there is one event of the type `started`. If the reader leaves, the run goes on: only `live.abort()` stops
    it. Ends early when the server stops.
    """
    await live.catch_up()
    bounds = RunBounds()
    with Watch(live.hub, live.hub.position if after is None else after) as watch:
        if act is not None:
            await act()
            yield str(watch.position), {"type": "started"}
        while not live.hub.closed:
            if not live.is_busy:
                await live.catch_up()
                if watch.position >= live.hub.position:
                    return  # there is no run, or it could not start
            for item in await watch.read():
                event = msgspec.json.decode(item.data)
                if bounds.is_of_another(event):
                    yield str(item.position), CUT
                    return
                yield str(item.position), event
                if event["type"] == "agent_end":
                    return
