"""Replays a session without a model and without tools: the loop produces the same transcript, events and requests.

    replayed = await replay(session)
    assert replayed.messages == session.messages

All input of the runs comes from the records, and everything the loop does is compared with them: the first difference
raises `ReplayMismatch`. Three things are not recorded, so they are not replayed: the deltas of an answer (it comes with
one for each block), the updates of tools, and `custom` events. The usage at the end of a run is the recorded one,
because failed attempts and sub-agents are part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from steersman.agent.agent import Agent
from steersman.context.compaction.config import CompactionConfig, ContextConfig
from steersman.context.context import AgentContext
from steersman.context.entries import Entry
from steersman.context.log import Log
from steersman.context.repair import repair
from steersman.context.tokens import estimate_tokens
from steersman.events.stream import EventStream
from steersman.loop.config import AgentLoopConfig
from steersman.loop.entry import BareContext, Inherited, Start
from steersman.loop.inbox import open_inbox
from steersman.loop.request import ModelClient
from steersman.loop.run import Run
from steersman.loop.run_loop import run_loop
from steersman.policy.limits import ExecutionLimits, ExecutionTracker
from steersman.provider.models.registry import get_model
from steersman.provider.streaming.normalize import NormalizedStreamFn
from steersman.provider.wires.protocol import Wire
from steersman.session.records import Payload
from steersman.session.session import Session
from steersman.testing.replay.cursor import ReplayMismatch
from steersman.testing.replay.environment import ReplayEnvironment
from steersman.testing.replay.recorded import Move, RecordedEntry, RecordedRun, read_steps
from steersman.types.cancel import CancelToken
from steersman.types.continuation import ContinuationKind
from steersman.types.events import AgentEvent, CompactionStarted, LoopConfigSnapshot, MessageEnd, MessageStart
from steersman.types.messages import AgentMessage, EndReason, MessageLike, UserMessage, to_messages
from steersman.types.model import Model, Request, StreamOptions, ToolSpec
from steersman.types.usage import Usage

__all__ = ["Replayed", "ReplayedRun", "ReplayMismatch", "normalize_events", "replay"]

_PASSING = frozenset(("message_update", "tool_execution_update", "turn_request", "custom"))
_TIMES = frozenset(("seq", "timestamp", "duration"))
_MESSAGES = ("message", "messages", "result", "tool_results")
_UNKNOWN_MODEL = "unknown:unknown"


async def replay_run(environment: ReplayEnvironment, config: AgentLoopConfig, tools: dict[str, ToolSpec]) -> None:
    """Let the loop repeat the run, until the run or its records end."""
    context, part = environment.context, environment.part
    host = BareContext(context, config)
    host.tool_table.by_name = cast(Any, tools)
    host.dispatcher.subscribe(environment.check_event)
    start = Start((), inherited=Inherited(tool_call_id=(part.start or {}).get("parent_tool_call_id")))
    stream = EventStream()
    stream.channel.detach()
    client = ModelClient(config, NormalizedStreamFn(environment.answer))
    run = environment.run = _RunOfRecords(host, start, client, CancelToken(), stream.channel)
    run.witness = None  # it has already checked the recorded run, which has the same id
    run.environment = environment
    run.usages = [msgspec.convert((part.end or {}).get("usage", {}), Usage)]
    run.tracker = _Tracker(environment)
    run.answer_calls = environment.answer_calls
    context.running = True
    context.recovery = environment.recovery
    log = context.log
    log.listener, log.mint = environment.check_entry, environment.mint
    open_inbox(run)
    stopped = asyncio.ensure_future(environment.stopped.wait())
    run.task = asyncio.get_running_loop().create_task(run_loop(run))
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


class _RunOfRecords(Run):
    """A run with the recorded times of messages and the recorded usage."""

    __slots__ = ("environment",)
    environment: ReplayEnvironment

    def emit(self, kind: Callable[..., AgentEvent], *fields: Any, **more: Any) -> None:
        if kind is CompactionStarted:
            more["estimated_tokens"] = self.environment.find_recorded_estimate(more["estimated_tokens"])
        super().emit(kind, *fields, **more)

    def emit_message(self, kind: type[MessageStart] | type[MessageEnd], message: AgentMessage) -> None:
        """Emit the recorded message, because the loop gives its own messages the current time."""
        if type(message) is UserMessage:
            is_new = kind is MessageStart
            message = self.environment.find_recorded_message(message) if is_new else self.new_messages[-1]
        super().emit_message(kind, message)

    def append(self, message: AgentMessage) -> str:
        return "" if self.environment.end_if_over() else super().append(self.environment.find_recorded_message(message))

    def add_usage(self, usage: Usage, *, estimated_tokens: int = 0, estimated_cost: float = 0.0) -> None:
        """Ignore it: the recorded usage is set at the start."""


class _Tracker(ExecutionTracker):
    """Reaches a limit where the recorded run did."""

    __slots__ = ("_environment",)

    def __init__(self, environment: ReplayEnvironment) -> None:
        super().__init__(None, clock=asyncio.get_running_loop().time)
        self._environment = environment

    def check_limits(self) -> str | None:
        return self._environment.find_limit()


class ReplayConfig(AgentLoopConfig):
    """A configuration whose snapshot is the recorded one."""

    __slots__ = ("recorded",)
    recorded: LoopConfigSnapshot

    def snapshot(self, tools: Sequence[str]) -> LoopConfigSnapshot:
        """The recorded snapshot."""
        return self.recorded


class ReplayContextConfig(ContextConfig):
    """A context configuration that compacts where the recorded run did."""

    __slots__ = ()

    @property
    def limit(self) -> int:
        """The limit that the replay environment sets."""
        return cast(ReplayEnvironment, self.compaction.in_memory_strategy).limit


@dataclass(frozen=True, slots=True)
class _Spec:
    """A tool as the recorded requests declared it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """A replayed run: its events and the request for each answer. `end_reason` is `None` if its program was killed."""

    loop_id: str
    events: Sequence[AgentEvent]
    requests: Sequence[Request]
    end_reason: EndReason | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replayed session: its runs in order, and the log of its current branch."""

    runs: Sequence[ReplayedRun]
    log: Log
    model: Model
    system_prompt: str
    tools: Sequence[ToolSpec]
    options: StreamOptions

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The messages of the current branch."""
        return self.log.messages

    @property
    def events(self) -> Sequence[AgentEvent]:
        """The events of all runs, in order."""
        return [event for run in self.runs for event in run.events]

    def build_next_request(self, prompt: MessageLike | Sequence[MessageLike] = ()) -> Request:
        """Build the next request to the model, with this prompt if there is one."""
        visible = [*self.log.visible, *to_messages(prompt)]
        messages = repair(visible, provider=self.model.provider, model=self.model.id)
        return Request(self.system_prompt, messages, self.tools)

    def encode_next_request(self, wire: Wire, prompt: MessageLike | Sequence[MessageLike] = ()) -> bytes:
        """Encode the body of the next request in a wire protocol."""
        return wire.request(self.model, self.build_next_request(prompt), self.options, None).body


async def replay(session: Session, *, like: Agent | None = None) -> Replayed:
    """Replay all runs of a session; raises `ReplayMismatch` at the first difference.

    Functions of the agent that change what a model is shown (`transform_context`, `convert_to_llm`, an estimator) are
    not recorded. If the agent had any, pass an agent with the same configuration as `like`; its functions, model and
    tools are used.
    """
    again = _SessionReplay(like)
    for step in read_steps(session.records()):
        if isinstance(step, RecordedRun):
            await again.replay_run(step)
        elif isinstance(step, RecordedEntry):
            again.add_entry(step.entry, step.parent)
        else:
            again.move_to(step)
    return again.make_result()


def normalize_events(events: Iterable[AgentEvent]) -> list[dict[str, Any]]:
    """Turn events into plain values that can be compared: without times, numbers, and what is not recorded.

    The moment when an answer begins is not recorded, so its `message_start` is left out.
    """
    form: list[dict[str, Any]] = []
    for event in events:
        if event.type in _PASSING or (isinstance(event, MessageStart) and event.message.role == "assistant"):
            continue
        fields = msgspec.json.decode(msgspec.json.encode(event, enc_hook=repr))
        for name in _MESSAGES:
            if name in fields:
                fields[name] = _drop_times(fields[name])
        form.append({name: value for name, value in fields.items() if name not in _TIMES})
    return form


def _drop_times(message: Any) -> Any:
    if isinstance(message, list):
        return [_drop_times(item) for item in cast(list[Any], message)]
    if isinstance(message, dict):
        return {name: value for name, value in cast(dict[str, Any], message).items() if name != "timestamp"}
    return message


class _SessionReplay:
    """A session during its replay: the tree so far, and the current entry."""

    def __init__(self, like: Agent | None) -> None:
        self._like = like
        self._entries: dict[str, tuple[Entry, str | None]] = {}
        self._tip: str | None = None
        self._log: Log | None = Log()
        self._runs: list[ReplayedRun] = []
        self._start: Payload = {}
        self._system_prompt = ""
        self._tools: tuple[ToolSpec, ...] = ()

    def add_entry(self, entry: Entry, parent: str | None) -> None:
        """Add an entry that was recorded outside of a run."""
        self._entries[entry.id] = (entry, parent)
        self._tip = entry.id
        self._log = None

    def move_to(self, move: Move) -> None:
        """Move to another entry, as the session did."""
        self._tip = move.target
        self._log = None

    async def replay_run(self, part: RecordedRun) -> None:
        """Replay one run."""
        self._begin(part.start or {})
        context = self._make_context(part)
        environment = ReplayEnvironment(part, context)
        before = len(context.log.entries)
        await replay_run(environment, self._make_config(environment), {tool.name: tool for tool in self._tools})
        if environment.mismatch is not None:
            raise environment.mismatch
        parent = self._tip
        for entry in context.log.entries[before:]:
            self._entries[entry.id] = (entry, parent)
            self._tip = parent = entry.id
        end_reason: EndReason | None = None if part.end is None else part.end["end_reason"]
        self._runs.append(ReplayedRun(part.loop_id, environment.events, environment.requests, end_reason))

    def make_result(self) -> Replayed:
        """Build the result of the replay."""
        snapshot = _parse_snapshot(self._start)
        like = self._like
        options = StreamOptions(
            thinking_level=cast(Any, snapshot.thinking_level),
            max_tokens=snapshot.max_tokens,
            temperature=snapshot.temperature,
            top_p=snapshot.top_p,
            stop=tuple(snapshot.stop),
            seed=snapshot.seed,
            output_schema=None if like is None else like.config.output_schema,
            session_id=self._start.get("session_id"),
        )
        model = get_model(snapshot.model) if like is None else like.config.model
        return Replayed(self._runs, self._build_log(), model, self._system_prompt, self._tools, options)

    def _begin(self, start: Payload) -> None:
        """Take over the system prompt and the tools, which are recorded only when they changed."""
        self._start = start or self._start
        if "system_prompt" in start:
            self._system_prompt = start["system_prompt"]
            self._tools = tuple(msgspec.convert(tool, _Spec) for tool in start["tools"])
        if self._like is not None:
            self._system_prompt = self._like.context.system_prompt
            self._tools = tuple(self._like.tool_table.read(self._like.context.tools).values())

    def _build_log(self) -> Log:
        if self._log is None:
            path: list[Entry] = []
            at = self._tip
            while at is not None and at in self._entries:
                entry, at = self._entries[at]
                path.append(entry)
            path.reverse()
            self._log = Log.from_entries(path)
        return self._log

    def _make_context(self, part: RecordedRun) -> AgentContext:
        start = part.start or {}
        kind: Any = start.get("continuation_kind")
        context = AgentContext(
            self._system_prompt,
            agent_id=start.get("agent_id"),
            session_id=start.get("session_id"),
            loop_id=part.loop_id,
            parent_loop_id=start.get("parent_loop_id"),
            continuation_kind=None if kind is None else cast(ContinuationKind, msgspec.convert(kind, ContinuationKind)),
        )
        context.log = self._build_log()
        return context

    def _make_config(self, environment: ReplayEnvironment) -> AgentLoopConfig:
        snapshot = _parse_snapshot(environment.part.start or {})
        own = None if self._like is None else self._like.config
        estimator = estimate_tokens if own is None or own.context_config is None else own.context_config.estimator
        shaping = {} if own is None else {name: getattr(own, name) for name in _SHAPING}
        config = ReplayConfig(
            model=_get_model(snapshot.model),
            execution_limits=ExecutionLimits(None, None, None, wrap_up=bool((snapshot.limits or {}).get("wrap_up"))),
            context_config=ReplayContextConfig(
                max_context_tokens=2**62, estimator=estimator, compaction=CompactionConfig(cast(Any, environment))
            ),
            retry_strategy=None,
            repeated_calls=None,
            first_turn_trigger=(environment.part.end or {}).get("trigger", "user"),
            get_steering_messages=environment.get_steering,
            before_loop=environment.before_loop,
            before_turn=environment.before_turn,
            before_compaction_start=environment.before_compaction,
            pre_turn_policies=[environment.pre_turn],
            post_turn_policies=[environment.post_turn],
            **shaping,
        )
        object.__setattr__(config, "recorded", snapshot)
        return config


_SHAPING = ("convert_to_llm", "transform_context", "async_transform_context")


def _parse_snapshot(start: Payload) -> LoopConfigSnapshot:
    return msgspec.convert(start.get("config_snapshot") or {"model": _UNKNOWN_MODEL}, LoopConfigSnapshot)


def _get_model(name: str) -> Model:
    """The model of this name without its window and prices: with a window, the loop would detect overflows itself."""
    return replace(get_model(name), context_window=None, prices=None)
