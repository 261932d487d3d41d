"""The activities of an agent in a workflow: one asks the model, one runs a tool call, one records the end of a run.

Each may be tried again, on any machine: what an earlier attempt has recorded is found by its id and not done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError

from steersman.agent.agent import Agent
from steersman.context.context import AgentContext
from steersman.context.entries import Entry, MessageEntry, PrunEntry
from steersman.durable.workflow_agent.session_access import (
    CallRecords,
    add_entries,
    find_answer,
    find_record,
    open_session,
    queue_messages,
)
from steersman.durable.workflow_agent.values import (
    AddInput,
    AskInput,
    AskOutput,
    CallInput,
    CallOutput,
    EndInput,
    Json,
    Place,
)
from steersman.loop.config import AgentLoopConfig
from steersman.loop.steps import AnswerStep, take_answer_step, take_call_step
from steersman.session.records import to_json_value
from steersman.session.session import Session
from steersman.session.stores.store import Store
from steersman.tools.threads import call_in_thread
from steersman.types.artifacts import Artifacts
from steersman.types.content import TextContent, ToolCall
from steersman.types.continuation import Initial
from steersman.types.events import AgentEnd, AgentStart
from steersman.types.messages import AssistantMessage
from steersman.types.state import State
from steersman.types.usage import Usage

ADD = "steersman_add_messages"
ASK = "steersman_ask_model"
CALL = "steersman_run_tool"
END = "steersman_end_run"

UNKNOWN = "OutcomeUnknown"
"""The type of the failure of a call that was begun and whose outcome is not known."""

_NOTHING_KEPT = (
    "The tools of an agent in a workflow keep no state and no artifacts: each call is an activity of its own. "
    "Keep it in a database, or let Temporal supervise whole sessions (steersman.durable.Worker)."
)

Agents = Mapping[str, Agent[Any]]
_BEATS = 3


class AgentActivities:
    """The activities, for agents by name and the store of their sessions. `clock` gives records their times."""

    def __init__(self, agents: Agents, store: Store, clock: Callable[[], float]) -> None:
        self._agents = agents
        self._store = store
        self._clock = clock

    def list(self) -> list[Callable[..., Any]]:
        """What a Temporal worker takes as `activities`."""
        return [self.add_messages, self.ask_model, self.run_tool, self.end_run]

    @activity.defn(name=ADD)
    async def add_messages(self, add: AddInput) -> None:
        """Add new entries to the session, and messages to its queue."""
        agent, attempt = self._find(add.place), activity.info().attempt
        async with _heartbeat(), self._open(add.place, take_over=attempt > 1) as session:
            _start_run(session, agent, add.place, self._clock())
            add_entries(session, add.entries, self._clock())
            queue_messages(session, add.queued)
            await session.save()
            _check_saved(session)

    @activity.defn(name=ASK)
    async def ask_model(self, ask: AskInput) -> AskOutput:
        """Add new entries to the session, ask the model, and add its answer."""
        agent, attempt = self._find(ask.place), activity.info().attempt
        async with _heartbeat(), self._open(ask.place, take_over=attempt > 1) as session:
            _start_run(session, agent, ask.place, self._clock())
            add_entries(session, ask.entries, self._clock())
            known = find_answer(session, ask.entry_id)
            if known is not None:
                return _describe_answer(session, ask, AnswerStep(known, known.usage, None))
            _apply_pruns(session, ask.pruns)
            step = await self._take_answer(session, agent, ask)
            await session.save()
            _check_saved(session)
            return _describe_answer(session, ask, step)

    @activity.defn(name=CALL)
    async def run_tool(self, work: CallInput) -> CallOutput:
        """Run one tool call, and record that it begins and how it ends. One that is not idempotent begins once."""
        place = work.place
        agent = self._find(place)
        records = CallRecords(self._store, place.session_id, place.record, work.call_id)
        async with _heartbeat():
            call = await records.read_call()
            if work.arguments is not None:
                call = msgspec.structs.replace(call, arguments=work.arguments)
            found = agent.tool_table.read(agent.context.tools).get(call.name)
            begun = await records.begin(call, work.entry_id, self._clock())
            if begun.result is not None:
                return CallOutput(begun.result.is_error)
            if begun.was_begun and (found is None or not found.idempotent):
                raise ApplicationError(f"The call {call.id!r} was begun before.", type=UNKNOWN, non_retryable=True)
            try:
                return await self._call(agent, call, work, records)
            except Exception as error:
                raise _lose(call, str(error), again=found is not None and found.idempotent) from error
            except asyncio.CancelledError:
                if activity.is_worker_shutdown():  # else the workflow has asked for it
                    raise _lose(call, "the worker ended", again=found is not None and found.idempotent) from None
                raise

    @activity.defn(name=END)
    async def end_run(self, end: EndInput) -> int:
        """Record the last entries and the end of a run; the number of its last record."""
        agent, place = self._find(end.place), end.place
        async with _heartbeat(), self._open(place, take_over=end.take_over) as session:
            _start_run(session, agent, place, self._clock())
            add_entries(session, end.entries, self._clock())
            queue_messages(session, end.queued)
            if not _has_record(session, "run_end", place):
                usage = msgspec.convert(end.usage, Usage)
                reason: Any = end.end_reason
                event = AgentEnd(place.loop_id, 0, self._clock(), [], usage, reason, end.detail)
                session.recorder.record_event(event)
            await session.save()
            _check_saved(session)
            return next((record.seq for record in reversed(list(session.records(place.record)))), place.record)

    async def _take_answer(self, session: Session, agent: Agent[Any], ask: AskInput) -> AnswerStep:
        """Ask the model; what it adds to the log is recorded once it is known that no other attempt follows."""
        log, made = session.log, list[Entry]()
        recorded, log.listener = log.listener, made.append
        try:
            context = _make_context(agent, ask.place, session)
            choice: Any = ask.tool_choice
            step = await take_answer_step(context, _configure(agent, self._clock), choice)
        finally:
            log.listener = recorded
        _raise_to_retry(step)
        *earlier, answer = made
        for entry in (*earlier, msgspec.structs.replace(answer, id=ask.entry_id)):
            session.recorder.record_entry(entry)
        return step

    async def _call(self, agent: Agent[Any], call: ToolCall, work: CallInput, records: CallRecords) -> CallOutput:
        loop = asyncio.get_running_loop()
        context, began = _make_context(agent, work.place, None), loop.time()
        step = await take_call_step(context, _configure(agent, self._clock), call, work.entry_id)
        cancelled = asyncio.current_task()
        if cancelled is not None and cancelled.cancelling():
            raise asyncio.CancelledError
        await records.end(step.result, loop.time() - began, work.entry_id, self._clock())
        pruns = [{"tokens": effect.tokens, "memo": effect.memo} for effect in step.effects]
        return CallOutput(step.result.is_error, step.terminate, pruns)

    def _find(self, place: Place) -> Agent[Any]:
        agent = self._agents.get(place.agent)
        if agent is None:
            known = ", ".join(map(repr, sorted(self._agents)))
            # Another worker of the task queue may have it: so it is tried again.
            raise ApplicationError(f"This worker has no agent {place.agent!r}, but {known or 'none'}.", type="NoAgent")
        return agent

    @asynccontextmanager
    async def _open(self, place: Place, *, take_over: bool) -> AsyncGenerator[Session]:
        session = await open_session(self._store, place.session_id, self._clock, take_over=take_over)
        try:
            yield session
        finally:
            await call_in_thread(session.close)


def _lose(call: ToolCall, why: str, *, again: bool) -> ApplicationError:
    """The failure of a call that was begun."""
    text = f"The outcome of the call {call.id!r} of {call.name!r} is unknown: {why}."
    return ApplicationError(text, type=UNKNOWN, non_retryable=not again)


def _make_context(agent: Agent[Any], place: Place, session: Session | None) -> AgentContext:
    context = AgentContext(
        agent.system_prompt,
        tools=agent.context.tools,
        agent_id=place.agent_id,
        session_id=place.session_id,
        loop_id=place.loop_id,
    )
    if session is not None:
        context.log = session.log
    else:
        # Calls of a turn may run at once, on several machines: none of them has the session while its tool runs.
        context.log.state = State().copy_read_only(_NOTHING_KEPT)
        context.log.artifacts = Artifacts().copy_read_only(_NOTHING_KEPT)
    return context


def _configure(agent: Agent[Any], clock: Callable[[], float]) -> AgentLoopConfig:
    """The options for a step: limits and policies of a turn belong to the workflow, and so do tries of the model."""
    return replace(agent.config, pre_turn_policies=(), execution_limits=None, retry_strategy=None, clock=clock)


def _start_run(session: Session, agent: Agent[Any], place: Place, now: float) -> None:
    """Record the start of the run, once; a workflow that knows a record of the run has seen it start."""
    if place.record or _has_record(session, "run_start", place):
        return
    recorder = session.recorder
    recorder.details.set_prompt(agent.system_prompt, agent.tool_table.read(agent.context.tools).values())
    snapshot = agent.config.snapshot([*agent.tool_table.read(agent.context.tools)])
    recorder.record_event(
        AgentStart(place.loop_id, 0, now, place.agent_id, place.session_id, Initial(), config_snapshot=snapshot)
    )


def _apply_pruns(session: Session, pruns: list[Json]) -> None:
    """Drop what tools asked to drop, unless an earlier attempt has: then the log ends with that."""
    log = session.log
    if not pruns or isinstance(log.entries[-1], PrunEntry):
        return
    answers = [entry.id for entry in log.entries if isinstance(entry, MessageEntry) and is_answer(entry)]
    for prun in pruns:
        log.prun(prun["tokens"], memo=prun["memo"], spare=answers[-1] if answers else None)


def is_answer(entry: MessageEntry) -> bool:
    """Whether an entry is the model's."""
    return isinstance(entry.message, AssistantMessage)


def _has_record(session: Session, type: str, place: Place) -> bool:
    return any(
        record.type == type and record.payload.get("loop_id") == place.loop_id
        for record in session.records(place.record)
    )


def _raise_to_retry(step: AnswerStep) -> None:
    """Fail the attempt if the model failed in a way that another one may mend, and there is another one."""
    error, info = step.error, activity.info()
    if not step.message.failed or error is None or not error.should_retry:
        return
    most = 0 if info.retry_policy is None else info.retry_policy.maximum_attempts
    if most == 0 or info.attempt < most:
        pause = None if error.retry_after is None else timedelta(seconds=error.retry_after)
        raise ApplicationError(error.message, type=error.kind, next_retry_delay=pause)


def _check_saved(session: Session) -> None:
    if session.degraded is not None:
        raise ApplicationError(f"The session could not be saved: {session.degraded}", type="StoreFailed")


def _describe_answer(session: Session, ask: AskInput, step: AnswerStep) -> AskOutput:
    message = step.message
    kept = [block for block in message.content if isinstance(block, TextContent | ToolCall)]
    shown: AssistantMessage = msgspec.structs.replace(message, content=kept)
    error: Json | None = None if step.error is None else to_json_value(step.error)
    return AskOutput(
        find_record(session, ask.entry_id, ask.place.record), to_json_value(shown), to_json_value(step.usage), error
    )


@asynccontextmanager
async def _heartbeat() -> AsyncGenerator[None]:
    """Tell the server that this worker lives, as often as the activity's heartbeat timeout needs it."""
    timeout = activity.info().heartbeat_timeout
    if timeout is None:
        yield
        return

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(timeout.total_seconds() / _BEATS)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
