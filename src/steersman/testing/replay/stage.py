"""The stage of a replayed run: the loop's own run, with everything it asks and tells going to a rehearsal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from steersman.context.compaction.compact import ContextConfig
from steersman.context.log import Log
from steersman.events.dispatch import Dispatcher
from steersman.events.stream import EventStream
from steersman.loop.conduct import conduct, open_inbox
from steersman.loop.config import AgentLoopConfig
from steersman.loop.inbox import Inbox
from steersman.loop.run import Run
from steersman.policy.limits import ExecutionTracker
from steersman.provider.streaming.normalize import Normal
from steersman.testing.replay.rehearsal import Rehearsal
from steersman.types.cancel import CancelToken
from steersman.types.events import AgentEvent, LoopConfigSnapshot, MessageStart
from steersman.types.messages import AgentMessage, UserMessage
from steersman.types.model import ToolSpec
from steersman.types.usage import Usage


async def perform(rehearsal: Rehearsal, config: AgentLoopConfig, tools: dict[str, ToolSpec]) -> None:
    """Let the loop do the run, until it ends or the records do."""
    context, part = rehearsal.context, rehearsal.part
    dispatcher = Dispatcher()
    dispatcher.subscribe(rehearsal.hear)
    stream = EventStream()
    stream.channel.detach()
    run = rehearsal.run = _ReplayedRun(
        context,
        config,
        stream_fn=Normal(rehearsal.answer),
        tools=cast(Any, tools),
        inbox=Inbox(),
        dispatcher=dispatcher,
        token=CancelToken(),
        channel=stream.channel,
        secrets=set(),
        parent_tool_call_id=(part.start or {}).get("parent_tool_call_id"),
        whole=False,  # a judge of runs has heard this one already, under the same id
    )
    run.rehearsal = rehearsal
    run.usage = msgspec.convert((part.end or {}).get("usage", {}), Usage)
    run.tracker = _Tracker(rehearsal)
    run.answer_calls = rehearsal.answer_calls
    context.running = True
    context.recovery = rehearsal.recovery
    log = context.log
    log.listener, log.mint = rehearsal.added, rehearsal.mint
    open_inbox(run)
    stopped = asyncio.ensure_future(rehearsal.stopped.wait())
    run.task = asyncio.get_running_loop().create_task(conduct(run, []))
    try:
        await asyncio.wait((run.task, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (stopped, run.task):
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        log.listener, log.mint = None, Log().mint
    if not run.task.cancelled():
        run.task.result()


class _ReplayedRun(Run):
    """A run whose messages get their recorded times, and whose usage is the recorded one."""

    __slots__ = ("rehearsal",)
    rehearsal: Rehearsal

    def emit(self, kind: Callable[..., AgentEvent], **fields: Any) -> None:
        """Tell it with the message as it is recorded; what the loop says by itself has the time of now."""
        if type(fields.get("message")) is UserMessage:
            said = self.rehearsal.same(fields["message"]) if kind is MessageStart else self.new_messages[-1]
            fields["message"] = said
        super().emit(kind, **fields)

    def append(self, message: AgentMessage) -> str:
        return "" if self.rehearsal.over() else super().append(self.rehearsal.same(message))

    def add_usage(self, usage: Usage, *, estimated_tokens: int = 0) -> None:
        """It is known from the beginning."""


class _Tracker(ExecutionTracker):
    """Reaches a limit when the records say so."""

    __slots__ = ("_rehearsal",)

    def __init__(self, rehearsal: Rehearsal) -> None:
        super().__init__(None, clock=asyncio.get_running_loop().time)
        self._rehearsal = rehearsal

    def check_limits(self) -> str | None:
        return self._rehearsal.limit_reached()


class RecordedConfig(AgentLoopConfig):
    """A configuration that tells what the recorded one told."""

    __slots__ = ("recorded",)
    recorded: LoopConfigSnapshot

    def snapshot(self, tools: Sequence[str]) -> LoopConfigSnapshot:
        """The one of that time."""
        return self.recorded


class WatchedContext(ContextConfig):
    """Compacts when the records say so."""

    __slots__ = ()

    @property
    def limit(self) -> int:
        """As the rehearsal has it."""
        return cast(Rehearsal, self.compaction.in_memory_strategy).limit
