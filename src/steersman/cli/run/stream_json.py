"""The event stream on standard output: every event of every run, one JSON object a line, and nothing else.

Each run ends with its `agent_end`, whatever ended it. A run that could not even begin is told as an `agent_start` and
an `agent_end` that says why.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from steersman.cli.terminal.stdout import Outlet
from steersman.events.stream import EventStream
from steersman.types.continuation import Initial
from steersman.types.events import AgentEnd, AgentEvent, AgentStart
from steersman.types.ids import new_id
from steersman.types.messages import EndReason
from steersman.types.result import RunResult
from steersman.types.usage import Usage
from steersman.types.wire import encode


class StreamJson:
    """Shows runs as their events."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    async def show(self, stream: EventStream) -> RunResult:
        """Write a run to its end; while the reader is behind, the run waits."""
        outlet = self._outlet
        async for event in stream:
            outlet.write(line_of(event))
            if outlet.full:
                await outlet.room()
        return await stream

    def missed(self, reason: EndReason, detail: str) -> None:
        """Say that there was no run, and why."""
        loop_id, now = new_id("loop"), time.time()
        self._outlet.write(line_of(AgentStart(loop_id, 0, now, "", "", Initial())))
        self._outlet.write(line_of(AgentEnd(loop_id, 1, now, [], Usage(), reason, detail)))


def line_of(event: AgentEvent) -> bytes:
    """An event as a line; what an application put into one and JSON has no form for is shown as Python shows it."""
    try:
        return encode(event) + b"\n"
    except (TypeError, ValueError):
        return msgspec.json.encode(event, enc_hook=_shown) + b"\n"


def _shown(value: Any) -> str:
    return repr(value)
