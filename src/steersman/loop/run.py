"""One run: its state, and the one place its events leave from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from time import time
from typing import Any, get_args

from msgspec.structs import force_setattr, replace

from steersman.context.context import AgentContext
from steersman.events.dispatch import Dispatcher
from steersman.events.stream import Channel
from steersman.loop.config import AgentLoopConfig
from steersman.loop.inbox import Inbox, Queued
from steersman.policy.hooks import Decision, PolicyView
from steersman.policy.limits import ExecutionTracker
from steersman.policy.repetition import RepeatWatch
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.content import ToolCall
from steersman.types.errors import ErrorInfo, ProviderError, SteersmanError, describe_exception
from steersman.types.events import AgentEvent, CustomEvent, MessageUpdate
from steersman.types.journal import Journal
from steersman.types.messages import AgentMessage, AssistantMessage, EndReason, ToolResultMessage
from steersman.types.model import Model, StreamFn, StreamOptions, ToolChoice
from steersman.types.result import RunResult
from steersman.types.secrets import redact
from steersman.types.stream import Delta, StreamEvent
from steersman.types.usage import Usage

witness: ContextVar[Callable[[AgentEvent], object] | None] = ContextVar("witness", default=None)
"""Hears every event of every run started in its context; for test suites that check all of them."""

DEADLINE = "deadline"
"""The cancel reason of a run that took too long."""

_DELTAS = frozenset(get_args(Delta))
_log = logging.getLogger("steersman")


class Turn:
    """One turn while it is taken."""

    __slots__ = ("entry_id", "index", "message", "results")

    def __init__(self, index: int) -> None:
        self.index = index
        self.message: AssistantMessage | None = None
        self.entry_id = ""
        self.results: Sequence[ToolResultMessage] = ()


class Run:
    """The state of one run. Only the loop changes it."""

    __slots__ = (
        "_witness",
        "abandoned",
        "after_tool_execution",
        "answer_calls",
        "answering",
        "asking",
        "before_tool_execution",
        "begun",
        "channel",
        "closed",
        "compaction_stuck",
        "conclude",
        "config",
        "context",
        "detail",
        "dispatcher",
        "end_reason",
        "error",
        "external_cancel",
        "first_turn",
        "gated",
        "given_up",
        "inbox",
        "interrupted",
        "journal",
        "judged",
        "limit_noted",
        "loop_id",
        "new_messages",
        "on_wake",
        "options",
        "overbilled",
        "own_stream_fn",
        "parent",
        "parent_tool_call_id",
        "pending",
        "pre_dispatch_policies",
        "repairer",
        "repeats",
        "secrets",
        "seq",
        "signal",
        "stream_fn",
        "task",
        "token",
        "tool_specs",
        "tools",
        "tracker",
        "turn",
        "turn_index",
        "unkept",
        "usage",
    )

    def __init__(
        self,
        context: AgentContext,
        config: AgentLoopConfig,
        *,
        stream_fn: StreamFn,
        tools: dict[str, Tool],
        inbox: Inbox,
        dispatcher: Dispatcher,
        token: CancelToken,
        channel: Channel,
        secrets: set[str],
        parent: Run | None = None,
        parent_tool_call_id: str | None = None,
        budget: ExecutionTracker | None = None,
        journal: Journal | None = None,
        whole: bool = True,
    ) -> None:
        self.context = context
        self.config = config
        if config.context_config is not None:
            context.log.estimator = config.context_config.estimator
        self.stream_fn = stream_fn
        # The caller's, before retry and fallback were put around it: sub-agents get the same.
        self.own_stream_fn: StreamFn | None = None
        self.tools = tools
        self.tool_specs = tuple(tools.values())
        self.options: dict[ToolChoice, StreamOptions] = {}
        self.inbox = inbox
        self.dispatcher = dispatcher
        self.token = token
        self.channel = channel
        self.secrets = secrets
        self.parent = parent
        self.parent_tool_call_id = parent_tool_call_id
        self.journal = journal
        self.unkept: str | None = None
        self.tracker = ExecutionTracker(
            config.execution_limits,
            clock=asyncio.get_running_loop().time,
            parent=budget or (None if parent is None else parent.tracker),
            depth=0 if parent is None else parent.tracker.depth + 1,
        )
        # What guards the tools of a run guards those of its sub-agents: theirs are asked first, its own decide.
        seams = config.seams
        self.pre_dispatch_policies = seams.pre_dispatch_policies
        self.before_tool_execution = seams.before_tool_execution
        self.after_tool_execution = seams.after_tool_execution
        if parent is not None:
            self.pre_dispatch_policies = _joined(seams.pre_dispatch_policies, parent.pre_dispatch_policies)
            self.before_tool_execution = _joined(seams.before_tool_execution, parent.before_tool_execution)
            self.after_tool_execution = _joined(seams.after_tool_execution, parent.after_tool_execution)
        # Whether a policy of its own, or of a run above it, has a say about its tool calls.
        self.gated: bool = config.approval is not None or (parent is not None and parent.gated)
        self.asking: asyncio.Lock | None = None
        self.repairer = context.get_repairer(config.model.provider, config.model.id)
        self.repeats = None if config.repeated_calls is None else RepeatWatch(config.repeated_calls)
        self.loop_id = context.loop_id or ""
        self.seq = 0
        self.signal: asyncio.Event | None = None
        self.turn_index = 0
        # The first turn in which the model may be asked: a turn that only settles old calls comes before it.
        self.first_turn = 0
        self.turn: Turn | None = None
        self.answering: Callable[[], object] | None = None
        self.usage = Usage()
        self.pending: list[Queued | AgentMessage] = []
        self.judged: list[Queued] = []
        self.new_messages: list[AgentMessage] = []
        self.end_reason: EndReason | None = None
        self.detail = ""
        # What is known of the failure of the last answer.
        self.error: ErrorInfo | None = None
        self.task: asyncio.Task[None] | None = None
        # What is done with its result before anyone hears of it.
        self.conclude: Callable[[RunResult], RunResult] | None = None
        self.begun = False
        self.closed = False
        self.interrupted = False
        self.external_cancel = False
        self.given_up = False
        self.compaction_stuck = -1
        # What was sent, by the bill, when also the hardest one had freed too little.
        self.overbilled = -1
        self.limit_noted = False
        self.abandoned: set[asyncio.Task[None]] = set()
        self.on_wake: Callable[[], None] | None = None
        # Settles the calls of a batch in the place of the tools, as a replay does.
        self.answer_calls: Callable[[Sequence[Any]], Awaitable[None]] | None = None
        # One answer asked for by hand is no run, and no judge of runs is to hear it.
        self._witness = witness.get() if whole else None

    # Events

    @property
    def audible(self) -> bool:
        """Whether anyone listens; events nobody hears are counted and not built."""
        return not self.channel.detached or bool(self.dispatcher.callbacks) or self._witness is not None

    def emit(self, kind: Callable[..., AgentEvent], **fields: Any) -> None:
        """Tell everyone what happened, before going on; nothing is told after the end."""
        if self.closed:
            return
        number = self.seq
        self.seq = number + 1
        if self.dispatcher.callbacks or not self.channel.detached or self._witness is not None:
            event = kind(self.loop_id, number, time(), **fields)
            if self._witness is not None:
                self._witness(event)
            failures = self.dispatcher.dispatch(event)
            if not self.channel.detached:
                self.channel.push(event)
            if failures is not None and event.type != "agent_end":
                self._tell_of(failures)

    def emit_deltas(
        self, batch: Sequence[StreamEvent], shown: list[StreamEvent], partial: Callable[[int], AssistantMessage]
    ) -> int:
        """Tell everyone about more of an answer: `emit` for the one event that comes by the thousand.

        It stops at what is no delta, and once the run is to end or its reader falls behind; how many were told comes
        back, and they are added to what was `shown`.
        """
        channel, dispatcher, witness, loop_id = self.channel, self.dispatcher, self._witness, self.loop_id
        told = 0
        for delta in batch:
            if type(delta) not in _DELTAS:
                break
            told += 1
            shown.append(delta)
            number = self.seq
            self.seq = number + 1
            if dispatcher.callbacks or not channel.detached or witness is not None:
                update = MessageUpdate(loop_id, number, time(), delta)  # pyright: ignore[reportArgumentType]  # it is one of these
                force_setattr(update, "_partial", (partial, len(shown)))
                if witness is not None:
                    witness(update)
                failures = dispatcher.dispatch(update)
                if not channel.detached:
                    channel.push(update)
                if failures is not None:
                    self._tell_of(failures)
            if self.token.reason is not None or len(channel.buffer) >= channel.limit:
                break
        return told

    def _tell_of(self, failures: list[str]) -> None:
        self.emit(CustomEvent, name="subscriber_failed", data={"failures": failures})

    # Ending

    def finish(self, reason: EndReason, detail: str = "") -> None:
        """Say why the run ends; the first reason stays."""
        if self.end_reason is None:
            self.end_reason = reason
            self.detail = detail

    def heed(self, decision: Decision, seam: str) -> None:
        """Do what a decision after a turn says: end the run, or say something more in the next turn."""
        if decision.stop is not None:
            self.finish("stopped", decision.stop.reason or f"{seam} said no")
        else:
            self.pending.extend(decision.inject)

    def fail(self, error: Exception) -> None:
        """End the run because something in it broke."""
        # A provider's failure stays one, wherever in the run it came up.
        if self.end_reason is None and isinstance(error, ProviderError) and error.info.provider is not None:
            self.error = self.redacted_info(error.info)
        self.finish(
            "error", self.redacted(str(error) if isinstance(error, SteersmanError) else describe_exception(error))
        )
        _log.debug("The run failed.", exc_info=error)

    def redacted(self, text: str) -> str:
        """The text without the keys this run has used, whoever put them there."""
        return redact(text, *self.secrets)

    def redacted_info(self, error: ErrorInfo) -> ErrorInfo:
        """What is known of a failure, without the keys this run has used."""
        body = None if error.body is None else self.redacted(error.body)
        return replace(error, message=self.redacted(error.message), body=body)

    def report(self, text: str) -> None:
        """Say what went wrong where nothing can be done about it any more."""
        _log.error("%s", text)

    def interrupt(self) -> None:
        """End the run because it was cancelled, by its caller or by its deadline."""
        task = asyncio.current_task()
        self.interrupted = True
        if not self.token.cancelled:
            # Nobody asked through the token: the task itself was cancelled, and its canceller expects it to end so.
            self.external_cancel = True
            self.token.cancel()
        elif task is not None and not self.external_cancel:
            while task.cancelling():
                task.uncancel()
        if self.token.reason == DEADLINE:
            self.finish("limit", self.tracker.describe_overdue())
        else:
            self.finish("aborted", "operation aborted")

    def prefer_abort(self) -> None:
        """An abort that came while the run was ending for another reason is what the caller hears."""
        if self.token.reason not in (None, DEADLINE) and self.end_reason not in ("vetoed", "rejected", "aborted"):
            self.end_reason = "aborted"
            self.detail = f"operation aborted ({self.detail})" if self.detail else "operation aborted"

    def cancelled(self) -> bool:
        """Whether the run was cancelled; if so, its end is noted."""
        if self.signal is not None and self.signal.is_set():
            self.token.cancel()
        if self.token.reason is None:
            return False
        self.interrupt()
        return True

    def patience(self) -> asyncio.Timeout:
        """How long hooks may take at the end of a run: once it is cancelled, nobody could interrupt them any more."""
        return asyncio.timeout(self.config.gate_timeout if self.token.cancelled else None)

    def wake(self) -> None:
        """Let the dispatcher look again."""
        if self.on_wake is not None:
            self.on_wake()

    # The transcript

    def append(self, message: AgentMessage) -> str:
        """Put a message in the log and among the new ones; what comes after the end goes nowhere."""
        if self.closed:
            return ""
        self.new_messages.append(message)
        return self.context.log.append(message)

    def add_usage(self, usage: Usage, *, estimated_tokens: int = 0) -> None:
        """Count a request for this run and for the runs it belongs to."""
        self.tracker.record_usage(usage, estimated_tokens=estimated_tokens)
        if not usage.known:
            usage = Usage(partial=True)
        run: Run | None = self
        while run is not None:
            run.usage = run.usage + usage
            run = run.parent

    def window(self, message: AssistantMessage, fallbacks: int) -> int | None:
        """The window of the model that gave an answer, after so many others had failed."""
        own = self.config.model
        if not self.config.fallbacks:
            return own.context_window
        models = [own, *(model for model in self.config.fallbacks if isinstance(model, Model))]
        # Another server may have the same model with another window.
        for model in (*models[fallbacks:], *models):
            if (model.id, model.provider) == (message.model, message.provider):
                return model.context_window
        return own.context_window

    def view(self, turn: Turn | None = None, call: ToolCall | None = None) -> PolicyView:
        """What a policy gets to see."""
        context = self.context
        return PolicyView(
            messages=context.log.messages,
            turn_index=self.turn_index,
            usage=self.usage,
            agent_id=context.agent_id or "",
            session_id=context.session_id or "",
            loop_id=self.loop_id,
            message=None if turn is None else turn.message,
            tool_results=() if turn is None else turn.results,
            call=call,
        )


def _joined(
    own: tuple[Callable[..., Any], ...], inherited: tuple[Callable[..., Any], ...]
) -> tuple[Callable[..., Any], ...]:
    """Both, each once: an agent may be its own sub-agent."""
    return (*own, *[hook for hook in inherited if hook not in own])
