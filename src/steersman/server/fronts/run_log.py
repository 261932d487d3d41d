"""Reads the events of a run from the records of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from steersman.server.fronts.following import CUT, Event, Followable, RunBounds
from steersman.server.log_events import read_line


async def list_events(live: Followable, after: int) -> Sequence[Event]:
    """The events of the records after a number, up to the end of a run, or `CUT` where another one began."""
    live.hub.join()
    try:
        return await asyncio.to_thread(_read_events, live, after)
    finally:
        live.hub.leave()


def _read_events(live: Followable, after: int) -> Sequence[Event]:
    found: list[Event] = []
    bounds = RunBounds()
    while lines := live.hub.read_lines(after):
        after = lines[-1][0]
        for _, line in lines:
            event = msgspec.json.decode(read_line(line, live.hub.spans))
            if bounds.is_of_another(event):
                return [*found, CUT]
            found.append(event)
            if event["type"] == "agent_end":
                return found
    return found
