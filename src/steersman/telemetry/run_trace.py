"""One run as spans: a subscriber of the run, which starts and ends its spans and adds what happens as span events.

It never raises: if recording fails, the open spans are ended and the run goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from opentelemetry.context import Context, attach
from opentelemetry.trace import Link, Status, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from steersman.loop.inbox import QueuedMessage
from steersman.loop.run import Run
from steersman.provider.models.registry import find_known_keys
from steersman.telemetry import names
from steersman.telemetry.backlog import Backlog, LateSpan
from steersman.telemetry.content import write_instructions, write_json, write_messages
from steersman.telemetry.recording import Attributes, Recording, describe_usage
from steersman.types.errors import describe_exception
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ApprovalRequested,
    ApprovalResolved,
    CompactionEnded,
    InputRejected,
    LoopDetected,
    ModelFallback,
    PrunApplied,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnStart,
)
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model
from steersman.types.secrets import redact

if TYPE_CHECKING:
    from steersman.telemetry.request_trace import AskedModel

# Ids and names that a server or a model made are cut here.
_LONGEST = 200

_log = logging.getLogger("steersman")

# Weak: a task that a tool has left running keeps its context, and must not keep the run and its agent with it.
_current_trace: ContextVar[ref[RunTrace] | None] = ContextVar("current_trace", default=None)


def get_current_trace() -> RunTrace | None:
    """The trace of the run that the current task works for, until the run is over."""
    held = _current_trace.get()
    trace = None if held is None else held()
    return None if trace is None or trace.is_over else trace


class _OpenCall(NamedTuple):
    """A tool call that goes on: its span, the context of its task, its name and when it began."""

    span: LateSpan
    context: Context
    name: str
    began: float


class RunTrace:
    """The spans of one run: its own, and those of its tool calls below the request that asked for them."""

    def __init__(
        self,
        recording: Recording,
        run: Run,
        outer: RunTrace | None,
        links: Sequence[Link],
        on_end: Callable[[RunTrace], object],
    ) -> None:
        self.recording = recording
        self.backlog = Backlog(recording, self.give_up)
        self.run = run
        self.is_over = False
        self._on_end = on_end
        self._began = perf_counter()
        self._turns = 0
        self._tools: dict[str, _OpenCall] = {}
        # The attributes of the durations of calls, by the name of the tool: OpenTelemetry copies what it is given.
        self._measured_tools: dict[str, Attributes] = {}
        # What ends each request that goes on; there is more than one only where a stream was abandoned.
        self.open_requests: set[Callable[[], None]] = set()
        self.secrets = run.client.secrets
        self.asked: AskedModel | None = None
        model = run.config.model
        if recording.content:
            others = [other for other in run.config.fallbacks if isinstance(other, Model)]
            self.secrets = run.client.secrets | find_known_keys(model, *others)
        call = None if outer is None else outer.find_call_of(run)
        self._attributes: Attributes = {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.AGENT_NAME: recording.name if call is None else call.name,
            names.PROVIDER_NAME: names.name_provider(model.provider),
            names.REQUEST_MODEL: model.id,
        }
        self.span = recording.tracer.start_span(
            f"{names.INVOKE_AGENT} {self._attributes[names.AGENT_NAME]}",
            context=None if call is None else call.context,
            attributes={
                **self._attributes,
                names.AGENT_ID: run.context.agent_id or "",
                names.CONVERSATION_ID: run.context.session_id or "",
                names.LOOP_ID: run.loop_id,
                names.CONTINUATION: type(run.context.continuation_kind).__name__.lower(),
            },
            links=links,
        )
        self.context: Context = set_span_in_context(self.span)
        # The context of the request whose answer has the tool calls of the turn.
        self.answer_context = self.context
        self._subscription = run.host.dispatcher.subscribe(self.on_event, kinds=_ACTIONS)

    def find_call_of(self, run: Run) -> _OpenCall | None:
        """The tool call of this run that a sub-agent works for; `None` for any other run."""
        inherited = run.start.inherited
        return self._tools.get(inherited.tool_call_id or "") if inherited.parent is self.run else None

    def find_tool_name(self, name: str) -> str:
        """The name of a tool of this run; a name that only the model knows is not told."""
        return name if name in self.run.tools else names.UNKNOWN_TOOL

    def redact(self, text: str) -> str:
        """An id or name that a server made, without keys and not longer than it needs to be."""
        secrets = self.run.client.secrets
        return (redact(text, *secrets) if secrets else text)[:_LONGEST]

    def on_event(self, event: AgentEvent) -> None:
        """Record an event of this run; events of others come here too where they share a dispatcher."""
        if event.loop_id != self.run.loop_id or self.is_over:
            return
        try:
            _ACTIONS[type(event)](self, event)
        except Exception as error:  # noqa: BLE001  # telemetry that fails, such as a span processor, must not be seen in the run
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """End all spans after a failure of the recording itself."""
        if self.is_over:
            _log.debug("A span could not be recorded.", exc_info=error)
            return
        _log.warning("The run is no longer traced: %s", describe_exception(error))
        try:
            self.end()
        except Exception as again:  # noqa: BLE001  # as above
            _log.debug("Its spans could not be ended.", exc_info=again)

    def end(self) -> None:
        """End all spans that are open, once."""
        if self.is_over:
            return
        self.is_over = True
        self.run.host.dispatcher.unsubscribe(self._subscription)
        self._on_end(self)
        try:
            for end_request in list(self.open_requests):
                end_request()
            for call in self._tools.values():
                call.span.finish({})
        finally:
            self.backlog.close()
            self.span.end()

    # What happens

    def start_run(self, _: AgentStart) -> None:
        """Make this the trace of the task of the run: requests, tools and runs inside find it there."""
        _current_trace.set(ref(self))
        self.backlog.open()
        attach(self.context)
        if self.recording.content and self.span.is_recording():
            self.span.set_attribute(names.SYSTEM_INSTRUCTIONS, write_instructions(self.run.system_prompt, self.secrets))
            self.span.set_attribute(names.INPUT_MESSAGES, write_messages(self.run.start.prompts, self.secrets))

    def start_turn(self, _: TurnStart) -> None:
        """Count a turn; the queued messages that it begins with are still pending."""
        self._turns += 1
        self.answer_context = self.context
        attach(self.context)
        if self._turns == 1 and not self.run.start.prompts:
            return  # what was queued is the prompt of this run
        for item in self.run.pending:
            if type(item) is QueuedMessage:
                self.span.add_event(names.EVENT_STEERING if item.kind == "steering" else names.EVENT_FOLLOW_UP)

    def start_tool(self, event: ToolExecutionStart) -> None:
        """Start the span of a tool call, in which its task then works."""
        name = self.find_tool_name(event.tool_name)
        span = self.backlog.start_span(
            f"{names.EXECUTE_TOOL} {name}",
            self.answer_context,
            {
                names.OPERATION_NAME: names.EXECUTE_TOOL,
                names.TOOL_NAME: name,
                names.TOOL_TYPE: "function",
                names.TOOL_CALL_ID: self.redact(event.tool_call_id),
            },
        )
        context = set_span_in_context(span, self.context)
        self._tools[event.tool_call_id] = _OpenCall(span, context, name, perf_counter())
        attach(context)

    def end_tool(self, event: ToolExecutionEnd) -> None:
        """End the span of a tool call."""
        call = self._tools.pop(event.tool_call_id)
        attach(self.context)
        status = str(event.result.details.get("status", ""))
        measured: Attributes | None = self._measured_tools.get(call.name)
        if measured is None:
            measured = {names.OPERATION_NAME: names.EXECUTE_TOOL, names.TOOL_NAME: call.name}
            self._measured_tools[call.name] = measured
        described: Attributes = {names.TOOL_STATUS: status}
        failure = None
        if self.recording.content and call.span.is_recording():
            described[names.TOOL_CALL_ARGUMENTS] = write_json(event.args, self.secrets)
            described[names.TOOL_CALL_RESULT] = write_json(event.result.text, self.secrets)
        if event.is_error:
            kind = described[names.ERROR_TYPE] = "tool_error" if status == "completed" else status
            measured = {**measured, names.ERROR_TYPE: kind}
            failure = self.describe_failure(event.result.text)
        call.span.finish(described, failure)
        self.backlog.add_duration(call.began, measured)

    def end_run(self, event: AgentEnd) -> None:
        """End the span of the run, and what is still open in it."""
        span, ending = self.span, self.run.ending
        ended: Attributes = {names.END_REASON: event.end_reason, names.TURNS: self._turns}
        span.set_attributes({**ended, **describe_usage(event.usage)})
        if event.end_reason == "limit":
            span.add_event(names.EVENT_LIMIT, {"steersman.limit.reason": event.detail})
        elif event.end_reason == "error":
            kind = "error" if ending.error is None else ending.error.kind
            self._attributes[names.ERROR_TYPE] = kind
            span.set_attribute(names.ERROR_TYPE, kind)
            span.set_status(self.describe_failure(event.detail))
        if self.recording.content and span.is_recording():
            answers = [message for message in event.messages if type(message) is AssistantMessage]
            span.set_attribute(names.OUTPUT_MESSAGES, write_messages(answers[-1:], self.secrets))
        self.backlog.add_duration(self._began, self._attributes)
        self.end()

    def describe_failure(self, text: str) -> Status:
        """The status of an operation that failed; what the error says is text, recorded only as content."""
        return Status(StatusCode.ERROR, redact(text, *self.secrets) if self.recording.content else None)

    def add_event(self, name: str, attributes: Mapping[str, AttributeValue]) -> None:
        """Add a span event to the run."""
        self.span.add_event(name, attributes)


def _note_approval_request(trace: RunTrace, event: ApprovalRequested) -> None:
    trace.add_event(names.EVENT_APPROVAL_REQUESTED, {names.TOOL_NAME: trace.find_tool_name(event.tool_name)})


def _note_approval(trace: RunTrace, event: ApprovalResolved) -> None:
    trace.add_event(names.EVENT_APPROVAL_RESOLVED, {"steersman.approval.decision": event.decision})


def _note_compaction(trace: RunTrace, event: CompactionEnded) -> None:
    trace.add_event(
        names.EVENT_COMPACTION,
        {
            "steersman.compaction.messages_before": event.messages_before,
            "steersman.compaction.messages_after": event.messages_after,
            "steersman.compaction.tokens_before": event.tokens_before,
            "steersman.compaction.tokens_after": event.tokens_after,
            "steersman.compaction.reduced": event.reduced,
        },
    )


def _note_prun(trace: RunTrace, event: PrunApplied) -> None:
    trace.add_event(names.EVENT_PRUN, {"steersman.prun.tokens_removed": event.tokens_removed})


def _note_retry(trace: RunTrace, event: RetryScheduled) -> None:
    trace.add_event(
        names.EVENT_RETRY,
        {
            names.ERROR_TYPE: event.error.kind,
            "steersman.retry.attempt": event.attempt,
            "steersman.retry.delay": event.delay,
        },
    )


def _note_fallback(trace: RunTrace, event: ModelFallback) -> None:
    trace.add_event(
        names.EVENT_FALLBACK,
        {
            names.ERROR_TYPE: event.error.kind,
            "steersman.fallback.from": event.from_model,
            "steersman.fallback.to": event.to_model,
        },
    )


def _note_rejection(trace: RunTrace, event: InputRejected) -> None:
    trace.add_event(names.EVENT_INPUT_REJECTED, {"steersman.input.source": event.source})


def _note_repetition(trace: RunTrace, event: LoopDetected) -> None:
    trace.add_event(
        names.EVENT_LOOP_DETECTED,
        {"steersman.loop.repetitions": event.repetitions, "steersman.loop.action": event.action},
    )


_ACTIONS: dict[type, Callable[[RunTrace, Any], None]] = {
    AgentStart: RunTrace.start_run,
    AgentEnd: RunTrace.end_run,
    TurnStart: RunTrace.start_turn,
    ToolExecutionStart: RunTrace.start_tool,
    ToolExecutionEnd: RunTrace.end_tool,
    ApprovalRequested: _note_approval_request,
    ApprovalResolved: _note_approval,
    CompactionEnded: _note_compaction,
    PrunApplied: _note_prun,
    RetryScheduled: _note_retry,
    ModelFallback: _note_fallback,
    InputRejected: _note_rejection,
    LoopDetected: _note_repetition,
}
