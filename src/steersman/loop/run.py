"""One run: its state, what it is started with, and the one place its events are emitted from."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from time import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from steersman.context.tokens import FutileCompaction
from steersman.events.stream import Channel
from steersman.loop.config import AgentLoopConfig
from steersman.loop.ending import DEADLINE, CancelWatch, Ending, Phase, describe_abort
from steersman.loop.inbox import QueuedMessage
from steersman.policy.hooks import Decision, Guards, PolicyView, join_guards
from steersman.policy.limits import ExecutionTracker, RepeatWatch
from steersman.tools.threads import call_soon_in
from steersman.types.cancel import CancelToken
from steersman.types.content import ToolCall
from steersman.types.errors import ErrorInfo, ProviderError, SteersmanError, describe_exception
from steersman.types.events import AgentEvent, CustomEvent, MessageEnd, MessageStart
from steersman.types.guards import UNSET
from steersman.types.ids import new_id
from steersman.types.journal import Journal
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.secrets import redact
from steersman.types.usage import NO_USAGE, Usage, add_usages

if TYPE_CHECKING:
    from steersman.loop.ask import ResponseStreamState
    from steersman.loop.entry import Host, Start
    from steersman.loop.request import ModelClient
    from steersman.loop.tool_calls.execution import Slot

witness: ContextVar[Callable[[AgentEvent], object] | None] = ContextVar("witness", default=None)
"""Gets every event of every run started in its context; for test suites that check all of them."""

_ENDED = Phase.ENDED  # read for every event, and an attribute of an enum is slow
_adding_up = threading.Lock()
_log = logging.getLogger("steersman")


class Turn:
    """One turn while it is taken; `answer` is there while the model answers."""

    answer: ResponseStreamState | None = None
    message: AssistantMessage | None = None
    entry_id = ""
    calls: Sequence[ToolCall] = ()
    """The tool calls of the message."""
    results: Sequence[ToolResultMessage] = ()
    slots: Sequence[Slot] = ()
    """The calls on their way to their results."""

    def __init__(self, index: int) -> None:
        self.index = index


class Run:
    """The state of one run. Only the loop changes it."""

    __slots__ = (
        "abandoned", "answer_calls", "approval_lock", "channel", "client", "clock", "config", "context", "conversion",
        "deps", "dispatcher", "ending", "filtering", "first_turn", "futile", "guards", "held", "host", "inbox",
        "is_admitted", "is_flushing", "is_unusual", "journal", "loop_id", "new_id", "new_messages", "on_wake",
        "outside", "pending", "refused", "repeats", "save_failure", "seq", "start", "system_prompt", "task", "token",
        "tool_specs", "tools", "tracker", "turn", "turn_index", "usages", "watch", "witness",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        start: Start,
        client: ModelClient,
        token: CancelToken,
        channel: Channel,
        journal: Journal | None = None,
    ) -> None:
        # What it is given.
        self.host = host
        self.start = start
        self.client = client
        self.token = token
        self.channel = channel
        self.journal = journal
        self.context = context = host.context
        config = client.config  # the host's may be another one already: `take_changes` looks
        self.inbox = host.inbox
        self.dispatcher = host.dispatcher
        self.tools = host.tool_table.read(context.tools)
        self.tool_specs = tuple(self.tools.values())
        self.system_prompt = context.system_prompt
        # What it inherits.
        parent = start.inherited.parent
        # When something was, and the one source of ids: with the same two a run repeats itself.
        self.clock = config.clock or (time if parent is None else parent.clock)
        self.new_id = config.new_id or (new_id if parent is None else parent.new_id)
        context.mint_ids(self.new_id)
        self.tracker = ExecutionTracker(
            config.execution_limits,
            clock=asyncio.get_running_loop().time,
            parent=start.inherited.budget or (None if parent is None else parent.tracker),
            depth=0 if parent is None else parent.tracker.depth + 1,
        )
        self.use_config(config)
        # The progress of the run.
        self.ending = Ending()
        # Whether `before_loop` and the input filters have let it begin.
        self.is_admitted = False
        self.task: asyncio.Task[None] | None = None
        self.watch: CancelWatch | None = None
        self.loop_id = context.loop_id or ""
        self.seq = 0
        self.turn: Turn | None = None
        self.turn_index = 0
        # The first turn in which the model may be asked: a turn that only settles old calls comes before it.
        self.first_turn = 0
        # What the requests used, or the sum of the first ones.
        self.usages: list[Usage] = []
        self.new_messages: list[AgentMessage] = []
        self.pending: list[QueuedMessage | AgentMessage] = []
        # Messages that the input filters have not let in yet.
        self.filtering: list[QueuedMessage] = []
        # Why they refused what was queued last.
        self.refused: str | None = None
        self.futile = FutileCompaction()
        self.repeats = None if config.repeated_calls is None else RepeatWatch(config.repeated_calls)
        self.abandoned: set[asyncio.Task[None]] = set()
        # Why the journal cannot save what happens, as last reported.
        self.save_failure: str | None = None
        self.approval_lock: asyncio.Lock | None = None
        # Called when a tool call is settled.
        self.on_wake: Callable[[], None] | None = None
        # Settles the calls of a batch in place of the tools; for replays.
        self.answer_calls: Callable[[Sequence[Any]], Awaitable[None]] | None = None
        # Custom events of the application that wait for `agent_start`, or for the event that is being dispatched.
        self.held: list[tuple[str, Any]] = []
        # What other threads want to emit, in the order they asked; and whether it is being emitted.
        self.outside: deque[Callable[[], None]] = deque()
        self.is_flushing = False
        # What `convert_to_llm` made of the messages when the continuation was judged.
        self.conversion = start.conversion
        self.witness = witness.get()
        # Whether an event takes more than a place in the channel and the subscribers: there is a witness, other threads
        # have posted events, or the run is over. Nothing is lost if it is true without need.
        self.is_unusual = self.witness is not None

    def use_config(self, config: AgentLoopConfig) -> None:
        """Use these options from now on, with the guards and, if it has none of its own, the deps of the parent."""
        parent, seams, has_policy = self.parent, config.seams, config.approval is not None
        guards = Guards(
            seams.pre_dispatch_policies, seams.before_tool_execution, seams.after_tool_execution, has_policy
        )
        self.config = config
        self.guards = guards if parent is None else join_guards(guards, parent.guards)
        own: Any = self.start.deps
        if own is UNSET:
            own = parent.deps if config.deps is None and parent is not None else config.deps
        self.deps: Any = own
        if config.context_config is not None:
            self.context.log.estimator = config.context_config.estimator

    @property
    def parent(self) -> Run | None:
        """The run it works for."""
        return self.start.inherited.parent

    # Events

    @property
    def has_listeners(self) -> bool:
        """Whether there is a reader or a subscriber; without one, events are counted and not built."""
        return not self.channel.detached or bool(self.dispatcher.callbacks) or self.witness is not None

    @property
    def has_followers(self) -> bool:
        """Whether there is a reader, or a subscriber that wants every delta; they get the events of sub-agents too."""
        return not self.channel.detached or bool(self.dispatcher.delta_callbacks) or self.witness is not None

    @property
    def is_only_read(self) -> bool:
        """Whether events that are due now have a reader, and nobody who sees them one by one."""
        return not (self.is_unusual or self.channel.detached or self.dispatcher.callbacks)

    def emit(self, kind: Callable[..., AgentEvent], *fields: Any, **more: Any) -> None:
        """Give an event to every subscriber and reader, before the run goes on; nothing is emitted after the end."""
        if self.is_unusual or self.channel.detached or self.dispatcher.callbacks:
            if self.is_wanted(kind):
                self.show(kind(self.loop_id, self.seq, self.clock(), *fields, **more))
        else:
            self.channel.push(kind(self.loop_id, self.seq, self.clock(), *fields, **more))
            self.seq += 1

    def emit_message(self, kind: type[MessageStart] | type[MessageEnd], message: AgentMessage) -> None:
        """Emit the start or the end of a message: `emit` for what comes most often."""
        if self.is_unusual or self.channel.detached or self.dispatcher.callbacks:
            self.emit(kind, message)
        else:
            self.channel.push(kind(self.loop_id, self.seq, self.clock(), message))
            self.seq += 1

    def emit_no_more(self) -> None:
        """Emit nothing from here on, and add nothing to the log: `agent_end` was the last event."""
        self.ending.phase = Phase.ENDED
        self.is_unusual = True

    def is_wanted(self, kind: Callable[..., AgentEvent]) -> bool:
        """Whether an event of this class, due now, has a reader or a subscriber; without one it is only counted."""
        if self.is_unusual:
            if self.ending.phase >= _ENDED:
                return False
            if self.outside:
                self.flush_outside()
        if not self.channel.detached or self.witness is not None:
            return True
        dispatcher = self.dispatcher
        if dispatcher.callbacks and dispatcher.find_callbacks(kind):
            return True
        self.seq += 1
        return False

    def show(self, event: AgentEvent) -> None:
        """Give an event that is wanted, and has the next number, to every subscriber and reader."""
        self.seq += 1
        if self.dispatcher.callbacks or self.witness is not None:
            self._show_to_all(event)
        else:
            self.channel.push(event)

    def _show_to_all(self, event: AgentEvent) -> None:
        failures = self.call_subscribers(event)
        if not self.channel.detached:
            self.channel.push(event)
        if failures is not None and event.type != "agent_end":
            self.report_subscribers(failures)

    def call_subscribers(self, event: AgentEvent) -> list[str] | None:
        """Give an event to the witness and the subscribers; returns what `dispatch` returns."""
        if self.witness:
            self.witness(event)
        return self.dispatcher.dispatch(event)

    def report_subscribers(self, failures: list[str]) -> None:
        """Emit which subscribers failed, and what had to wait for the event that they were given."""
        if failures:
            self.emit(CustomEvent, name="subscriber_failed", data={"failures": failures})
        self.emit_held()

    def emit_held(self) -> None:
        """Emit the custom events of the application that had to wait."""
        while self.held:
            name, data = self.held.pop(0)
            self.emit(CustomEvent, name=name, data=data)

    def post(self, emit: Callable[[], None]) -> None:
        """Emit something from another thread: soon, and before anything that is emitted later."""
        self.outside.append(emit)
        self.is_unusual = True
        if self.task is not None:
            call_soon_in(self.task.get_loop(), self.flush_outside)

    def flush_outside(self) -> None:
        """Emit what other threads have posted, but nothing before `agent_start` or inside the dispatch of an event."""
        if self.seq and not self.is_flushing and not self.dispatcher.dispatching:
            self.is_flushing = True
            # Before looking: what is posted meanwhile sets it again.
            self.is_unusual = self.witness is not None or self.ending.phase >= _ENDED
            try:
                for _ in range(len(self.outside)):
                    self.outside.popleft()()
            finally:
                self.is_flushing = False

    # Ending

    def apply(self, decision: Decision, seam: str) -> None:
        """Apply what hooks decided after a turn: end the run, or inject messages into the next turn."""
        if decision.stop is not None:
            self.ending.finish("stopped", decision.stop.reason or f"{seam} said no")
        else:
            self.pending.extend(decision.inject)

    def fail(self, error: Exception) -> None:
        """End the run because something in it raised."""
        ending = self.ending
        # A provider's failure keeps its kind, wherever in the run it came up.
        if ending.reason is None and isinstance(error, ProviderError) and error.info.provider is not None:
            ending.error = self.redact_info(error.info)
        ending.finish(
            "error", self.redact(str(error) if isinstance(error, SteersmanError) else describe_exception(error))
        )
        _log.debug("The run failed.", exc_info=error)

    def interrupt(self) -> None:
        """End the run because it was cancelled, by its caller or by its deadline."""
        ending, token, task = self.ending, self.token, asyncio.current_task()
        if not token.cancelled:
            # The task itself was cancelled, not the token: its canceller expects a CancelledError at the end.
            ending.cancelled_by = "task"
            token.cancel()
        elif ending.cancelled_by != "task":
            ending.cancelled_by = "token"
            # Another canceller of the task expects a CancelledError, so its cancels stay.
            while task is not None and task is self.task and ending.cancels:
                ending.cancels -= 1
                task.uncancel()
        if token.reason == DEADLINE:
            ending.finish("limit", self.tracker.describe_deadline_stop())
        else:
            ending.finish("aborted", describe_abort(token))

    def check_cancelled(self) -> bool:
        """Whether the run was cancelled; if so, this is why it ends."""
        signal = self.start.signal
        if signal is not None and isinstance(signal, asyncio.Event) and signal.is_set():
            self.token.cancel()
        if self.token.reason is None:
            return False
        self.interrupt()
        return True

    def limit_hooks(self) -> asyncio.Timeout:
        """A time limit for hooks at the end of a run; there is one only after a cancel, which cannot come twice."""
        return asyncio.timeout(self.config.gate_timeout if self.token.cancelled else None)

    def wake(self) -> None:
        """Let the dispatcher of tool calls look again."""
        if self.on_wake is not None:
            self.on_wake()

    # Secrets

    def redact(self, text: str) -> str:
        """The text without the keys this run has used."""
        return redact(text, *self.client.secrets)

    def redact_info(self, error: ErrorInfo) -> ErrorInfo:
        """What is known of a failure, without the keys this run has used."""
        return replace(error, message=self.redact(error.message), body=error.body and self.redact(error.body))

    def log_problem(self, text: str) -> None:
        """Log a problem that changes nothing in the run any more."""
        _log.error("%s", text)

    def append(self, message: AgentMessage) -> str:
        """Add a message to the log and to the new messages, unless the run has ended; returns its entry id."""
        if self.ending.phase >= _ENDED:
            return ""
        self.new_messages.append(message)
        return self.context.log.append(message)

    def append_results(self, results: Sequence[ToolResultMessage]) -> None:
        """Add the results of tool calls, as `append` does."""
        if self.ending.phase < _ENDED:
            self.new_messages += results
            self.context.log.append_results(results)

    def add_usage(self, usage: Usage, *, estimated_tokens: int = 0, estimated_cost: float = 0.0) -> None:
        """Add the usage of a request to this run and to the runs above it."""
        self.tracker.record_usage(usage, estimated_tokens=estimated_tokens, estimated_cost=estimated_cost)
        if usage.total is None:
            usage = Usage(partial=True)
        run: Run | None = self
        while run is not None:
            run.usages.append(usage)
            run = run.parent

    @property
    def usage(self) -> Usage:
        """What the requests have used so far; it is only added up when it is read."""
        usages = self.usages
        if len(usages) > 1:
            with _adding_up:  # another thread may read it too
                count = len(usages)
                usages[:count] = [add_usages(usages[:count])]
        return usages[0] if usages else NO_USAGE

    def view(self, turn: Turn | None = None, call: ToolCall | None = None) -> PolicyView:
        """The read-only view that policies get."""
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
            state=context.log.state.view,
        )
