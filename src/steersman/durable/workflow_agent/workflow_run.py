"""`WorkflowAgent`: an agent inside a workflow. The loop runs there; its model and its tools are activities.

The log of the workflow holds what was said since it began; the conversation is in the session, where the activities
read it. So the history of a workflow grows with the turns, and never with the conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityConfig

from steersman.agent.agent import Agent
from steersman.context.convert import default_convert_to_llm
from steersman.context.entries import Entry, MessageEntry
from steersman.durable.workflow_agent.activities import ADD, ASK, CALL, END
from steersman.durable.workflow_agent.activity_options import MODEL, SESSION, find_tool_options, join_options
from steersman.durable.workflow_agent.outcomes import (
    build_failure,
    explain_lost_call,
    raise_if_cancelled,
    subtract_usage,
    yield_event,
)
from steersman.durable.workflow_agent.registry import find_registered
from steersman.durable.workflow_agent.session_access import read_queue
from steersman.durable.workflow_agent.sizes import MOST_TOGETHER, check_message, count_bytes, split_parts
from steersman.durable.workflow_agent.values import (
    AddInput,
    AgentResult,
    AskInput,
    AskOutput,
    CallInput,
    CallOutput,
    Carried,
    EndInput,
    Json,
    NewEntry,
    Place,
)
from steersman.events.stream import EventStream
from steersman.loop.inbox import Receipt
from steersman.loop.questions import Answer
from steersman.loop.run import Run
from steersman.policy.hooks import PolicyView
from steersman.policy.verdicts import Stop
from steersman.session.records import to_json_value
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage, ToolResultMessage, user_message
from steersman.types.model import Model, Request, StreamOptions, StreamResponse
from steersman.types.result import RunResult
from steersman.types.stream import Done, Failed
from steersman.types.tools import ToolOutput
from steersman.types.usage import Usage

MAX_EVENTS = 9_000
"""A run with a longer history continues as new after its turn; it does so sooner where Temporal suggests it."""

FULL = "the history of the workflow is full"
_GOES_ON = ("done", "terminated")
_BEFORE = user_message("(the conversation so far is in the session)", synthetic=True)
# The keys that are carried: a message that comes again comes soon, and what an execution begins with is limited.
_MOST_KEYS = 5_000
_WINDOW = 1_000_000_000  # the activity knows the real one, and compacts for it


class WorkflowAgent:
    """One run of a registered agent in a workflow; make it before the first `await`, so that no signal is lost.

    `model`, `tools` and `session` are options of its activities, as in `AgentPlugin`, and go before those there.
    `max_events` is how long the history may be before the run asks to continue as new.
    """

    def __init__(
        self,
        agent: str,
        session_id: str | None = None,
        *,
        model: ActivityConfig | None = None,
        tools: Mapping[str, ActivityConfig] | None = None,
        session: ActivityConfig | None = None,
        carried: Carried | None = None,
        max_events: int = MAX_EVENTS,
    ) -> None:
        found = find_registered(agent)
        self._model = join_options(MODEL, found.model, model)
        self._tools = [found.tools, tools or {}]
        self._session = join_options(SESSION, found.session, session)
        self._max_events = max_events
        self._prefix = workflow.uuid4().hex[:12]
        self._minted = 0
        self._answer_id: str | None = None
        # Entries of the log that no activity has recorded yet.
        self._new: list[NewEntry] = [] if carried is None else list(carried.entries)
        # Calls whose result an activity has recorded.
        self._recorded: set[str] = set()
        self._pruns: list[Json] = []
        self._is_aborted = False
        self._last_answer = ""
        self._carried = carried
        self._agent = self._build_agent(found.agent)
        session_id = session_id or workflow.info().workflow_id
        self._place = carried.place if carried is not None else Place(agent, session_id, "", "")
        if carried is not None:
            self._restore_queue(carried)

    # From outside

    def steer(self, x: Any, mode: Any = None, key: str | None = None) -> None:
        """Queue a message for the start of the next turn, as `Agent.steer`; one above 1.9 MB is a `ValueError`."""
        check_message(x)
        self._agent.steer(x, mode, key=key)

    def follow_up(self, x: Any, key: str | None = None) -> None:
        """Queue a message for when the agent would otherwise stop, as `Agent.follow_up`; at most 1.9 MB."""
        check_message(x)
        self._agent.follow_up(x, key=key)

    def abort(self) -> None:
        """Interrupt the run, or the one that is about to start."""
        self._is_aborted = True
        self._agent.abort()

    def approve(self, approval_id: str, *, remember: bool = False, by: str = "application") -> None:
        """Let a tool call run that waits for approval; an unknown id is ignored."""
        self._agent.questions.answer_or_keep(approval_id, Answer("approved", by, "", remember))

    def deny(self, approval_id: str, reason: str = "", *, by: str = "application") -> None:
        """Deny a tool call that waits for approval; an unknown id is ignored."""
        self._agent.questions.answer_or_keep(approval_id, Answer("denied", by, reason))

    @property
    def open_approvals(self) -> list[Json]:
        """The questions that wait for an answer, oldest first."""
        return [to_json_value(question) for question in self._agent.open_approvals]

    @property
    def turns(self) -> int:
        """How many turns the run has taken."""
        run = self._agent.current_run
        return 0 if run is None else run.tracker.turns

    # The run

    async def run(self, prompt: Any = None) -> AgentResult:
        """Run a prompt to its end; without one, go on with what was carried over or queued.

        A failed model, tool or hook does not raise: `end_reason` says so.
        """
        carried, self._carried = self._carried, None
        stream = self._start(prompt, carried)
        while True:
            run = self._prepare_run(carried)
            try:
                result = await stream
            except asyncio.CancelledError:
                # Not in a `finally`: a workflow that is dropped from memory must not wait for anything.
                await asyncio.shield(self._end(run, None))
                raise
            if result.detail == FULL:
                return AgentResult(self._place.session_id, "stopped", FULL, carried=self._carry(run))
            await self._end(run, result)
            if not self._has_more(result.end_reason):
                break
            # Said after the run had looked for the last time: another run hears it, and goes on counting.
            carried, self._place.record = self._carry(run), 0
            stream = self._agent.continue_()
        usage = to_json_value(run.usage)
        output = None if result.end_reason != "done" else to_json_value(result.output)
        return AgentResult(
            self._place.session_id, result.end_reason, result.detail, result.text, output, usage, run.tracker.turns
        )

    def _start(self, prompt: Any, carried: Carried | None) -> EventStream[Any]:
        check_message(prompt)
        context = self._agent.context
        context.session_id = self._place.session_id
        if carried is not None:
            context.agent_id, context.loop_id = self._place.agent_id, self._place.loop_id
            # What was said before is in the session. The model is asked by position, and never sees this message.
            context.messages = [_BEFORE]
        return self._agent.continue_() if carried is not None else self._agent.prompt(prompt)

    def _prepare_run(self, carried: Carried | None) -> Run:
        """Prepare the run that was just started, before it takes its first step."""
        context, run = self._agent.context, cast(Run, self._agent.current_run)
        # Outputs are revised where the tools run.
        run.guards = msgspec.structs.replace(run.guards, after_tool_execution=())
        context.log.listener, context.log.mint = self._note_entry, self._mint
        self._place.agent_id, self._place.loop_id = context.agent_id or "", run.loop_id
        if carried is not None:
            _resume_counts(run, carried)
        if self._is_aborted:
            self._agent.abort()
        return run

    def _build_agent(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent with activities in place of its model and its tools."""
        model = agent.config.model
        return agent.variant(
            model=Model(model.provider, model.id, context_window=_WINDOW),
            tools=[
                tool.with_function(self._make_call(tool))
                for tool in agent.tool_table.read(agent.context.tools).values()
            ],
            stream_fn=self._ask,
            retry=None,
            fallbacks=(),
            context_config=None,
            convert_to_llm=default_convert_to_llm,
            transform_context=None,
            async_transform_context=None,
            get_api_key=None,
            tool_timeout=None,
            post_turn_policies=[*agent.config.post_turn_policies, self._stop_when_full],
            clock=workflow.time,
            new_id=self._mint,
        )

    def _mint(self, kind: str) -> str:
        if kind == "entry" and self._answer_id is not None:
            answer, self._answer_id = self._answer_id, None
            return answer
        self._minted += 1
        return f"{kind}_{self._prefix}_{self._minted:x}"

    def _note_entry(self, entry: Entry) -> None:
        if isinstance(entry, MessageEntry) and entry.id != self._last_answer:
            message = entry.message
            if isinstance(message, ToolResultMessage) and message.tool_call_id in self._recorded:
                self._new.append(NewEntry(entry.id, call_id=message.tool_call_id))
            else:
                self._new.append(NewEntry(entry.id, to_json_value(message)))

    # The model

    async def _ask(self, _model: Model, _request: Request, options: StreamOptions, /) -> StreamResponse:
        entry_id = self._mint("entry")
        try:
            await self._add_early()
            ask = AskInput(self._place, entry_id, self._new, options.tool_choice, self._pruns)
            output = await workflow.execute_activity(ASK, ask, result_type=AskOutput, **self._model)
        except ActivityError as error:
            raise_if_cancelled()
            return yield_event(build_failure(error))
        self._new, self._pruns = [], []
        self._place.record = output.record
        self._answer_id = self._last_answer = entry_id
        message = msgspec.convert(output.message, AssistantMessage)
        self._count_more(msgspec.convert(output.usage, Usage), message)
        if not message.failed:
            return yield_event(Done(message))
        # The activity has done what can be done about an overflow.
        kind = "internal" if message.error_kind == "context_overflow" else message.error_kind
        info = None if output.error is None else msgspec.convert(output.error, ErrorInfo)
        info = None if info is None else msgspec.structs.replace(info, kind=kind or "internal")
        return yield_event(Failed(msgspec.structs.replace(message, error_kind=kind), info))

    async def _add_early(self) -> None:
        """Add the first of the new entries to the session, if they are too long for the next activity."""
        for part in split_parts(self._new, _is_said)[:-1]:
            await workflow.execute_activity(ADD, AddInput(self._place, part), **self._session)
            del self._new[: len(part)]

    def _count_more(self, total: Usage, message: AssistantMessage) -> None:
        """Count what the activity used beside the answer: for a summary, or for an answer that was not kept."""
        run = self._agent.current_run
        more = subtract_usage(total, message.usage)
        if run is not None and more is not None:
            run.add_usage(more)

    # Tools

    def _make_call(self, tool: Tool) -> Any:
        config = find_tool_options(tool, self._tools)

        async def call(arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            return await self._call(config, arguments, ctx)

        return call

    async def _call(self, config: ActivityConfig, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        run = cast(Run, self._agent.current_run)
        turn = run.turn
        asked = None if turn is None or turn.message is None else turn.message.tool_calls
        same = any(call.id == ctx.tool_call_id and call.arguments == arguments for call in asked or ())
        entry_id = "" if turn is None else turn.entry_id
        work = CallInput(self._place, entry_id, ctx.tool_call_id, None if same else arguments)
        try:
            output = await workflow.execute_activity(CALL, work, result_type=CallOutput, **config)
        except ActivityError as error:
            raise_if_cancelled()
            raise explain_lost_call(error) from error
        self._recorded.add(ctx.tool_call_id)
        # Applied where the conversation is, before the model is asked again.
        self._pruns.extend(output.pruns)
        return ToolOutput("", is_error=output.is_error, terminate=output.terminate)

    # The end

    def _stop_when_full(self, view: PolicyView) -> Stop | None:
        info = workflow.info()
        is_full = info.get_current_history_length() >= self._max_events or info.is_continue_as_new_suggested()
        # With more in the queue than it can take along, the run goes on until less is left.
        return Stop(FULL) if is_full and view.tool_results and self._can_carry() else None

    def _can_carry(self) -> bool:
        return count_bytes([item.message for item in self._agent.inbox.items]) <= MOST_TOGETHER

    async def _end(self, run: Run, result: RunResult[Any] | None) -> None:
        reason, detail = run.ending.reason or "aborted", run.ending.detail
        if result is not None:
            reason, detail = result.end_reason, result.detail
        usage, take_over = to_json_value(run.usage), reason in ("aborted", "limit")
        left: list[Receipt] = []
        while True:
            await self._add_early()
            queued = [] if reason in _GOES_ON else self._write_queue(left)
            if count_bytes([self._new, queued]) > MOST_TOGETHER:
                for part in split_parts(queued, lambda _: True):
                    await workflow.execute_activity(ADD, AddInput(self._place, queued=part), **self._session)
                queued = []
            end = EndInput(
                self._place, reason, detail, usage, run.tracker.turns, self._new, take_over=take_over, queued=queued
            )
            last = await workflow.execute_activity(END, end, result_type=int, **self._session)
            self._new = []
            if reason in _GOES_ON or len(self._agent.inbox) == len(left):  # else more was said meanwhile
                break
        self._place.record = last

    def _has_more(self, end_reason: str) -> bool:
        return end_reason in _GOES_ON and len(self._agent.inbox) > 0

    def _write_queue(self, known: list[Receipt]) -> list[Json]:
        """What is queued and not known yet, for the session; it is known then."""
        new = [item for item in self._agent.inbox.items if all(item.receipt is not one for one in known)]
        known.extend(item.receipt for item in new)
        return [{**to_json_value(item), "id": self._mint("queued"), "receipt": None} for item in new]

    def _carry(self, run: Run) -> Carried:
        tracker = run.tracker
        queued = [{**to_json_value(item), "receipt": None} for item in self._agent.inbox.items]
        return Carried(
            self._place,
            to_json_value(run.usage),
            tracker.turns,
            tracker.tokens,
            tracker.cost,
            tracker.elapsed,
            self._new,
            queued,
            self._agent.inbox.delivered_keys[-_MOST_KEYS:],
        )

    def _restore_queue(self, carried: Carried) -> None:
        heard = Receipt(_BEFORE, "delivered")
        self._agent.inbox.restore(read_queue(carried.queued), dict.fromkeys(carried.keys, heard))


def _is_said(entry: NewEntry) -> bool:
    """Whether an entry was said by a user: the results of an answer are added together."""
    return (entry.message or {}).get("role") == "user"


def _resume_counts(run: Run, carried: Carried) -> None:
    """Go on counting where the run before has stopped, before the run takes its first step."""
    run.usages = [msgspec.convert(carried.usage, Usage)]
    run.turn_index, run.tracker.turns = carried.turns, carried.turns
    run.tracker.tokens, run.tracker.cost = carried.tokens, carried.cost
    run.tracker.started -= carried.elapsed
