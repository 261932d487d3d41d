"""The two ways into a run: `agent_loop` with fresh prompts, `agent_loop_continue` with what the context holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from steersman.context.context import AgentContext
from steersman.events.dispatch import Dispatcher
from steersman.events.stream import Channel, EventStream
from steersman.loop.ask import answer, error_answer
from steersman.loop.conduct import Reach, conduct, ensure_ended, open_inbox
from steersman.loop.config import AgentLoopConfig, check_callable
from steersman.loop.inbox import Inbox, Queued
from steersman.loop.pending import answered
from steersman.loop.request import layered
from steersman.loop.run import Run, Turn
from steersman.policy.limits import ExecutionTracker
from steersman.tools.tool import Tool, build_tool_table
from steersman.types.cancel import CancelToken
from steersman.types.continuation import ContinuationKind, Default, Initial
from steersman.types.errors import AgentBusy
from steersman.types.guards import is_instance
from steersman.types.ids import new_id
from steersman.types.journal import Journal
from steersman.types.messages import AgentMessage, AssistantMessage, MessageLike, require_content, to_messages
from steersman.types.model import StreamFn
from steersman.types.result import RunResult

# asyncio keeps only weak references to tasks, and a run may outlive every other reference to it.
_running: set[asyncio.Task[None]] = set()


class Place(msgspec.Struct, frozen=True):
    """Where a run belongs: to another run and its tool call, to a budget shared with others, or to nobody."""

    parent: Run | None = None
    tool_call_id: str | None = None
    budget: ExecutionTracker | None = None


NOWHERE = Place()


class Shell(msgspec.Struct, frozen=True):
    """What an `Agent` brings to its runs and a bare context does not have."""

    inbox: Inbox
    dispatcher: Dispatcher
    tools: dict[str, Tool]
    conclude: Callable[[RunResult], RunResult]
    place: Place = NOWHERE
    journal: Journal | None = None


def agent_loop(
    prompts: MessageLike | Sequence[MessageLike],
    context: AgentContext,
    config: AgentLoopConfig,
    signal: asyncio.Event | CancelToken | None = None,
    stream_fn: StreamFn | None = None,
) -> EventStream:
    """Start a run with one or more new messages."""
    messages = to_messages(prompts)
    if not messages:
        raise ValueError("agent_loop() needs at least one prompt. To go on without one use agent_loop_continue().")
    for message in messages:
        require_content(message)
    _check(context, config)
    return launch(messages, context, config, _bare(context, Initial()), signal=signal, stream_fn=stream_fn)


def agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: asyncio.Event | CancelToken | None = None,
    stream_fn: StreamFn | None = None,
) -> EventStream:
    """Start a run that answers what is already there, for instance after an error."""
    _check(context, config)
    check_continuable(context, queued=bool(context.undelivered))
    kind = context.continuation_kind
    kind = Default() if kind is None or type(kind) is Initial else kind
    return launch([], context, config, _bare(context, kind), signal=signal, stream_fn=stream_fn)


def check_continuable(context: AgentContext, *, queued: bool) -> None:
    """Raise unless there is something to answer and the ids carry over."""
    messages = context.log.messages
    if messages and (not context.agent_id or not context.session_id):
        raise ValueError(
            "To continue, agent_id and session_id must be set on the context, as an earlier run leaves them."
        )
    check_answerable(messages, queued=queued)


def check_answerable(messages: Sequence[AgentMessage], *, queued: bool) -> None:
    """Raise unless the messages end with something to answer, or something is queued."""
    if not messages:
        raise ValueError("There is nothing to continue: the context has no messages. Give it a prompt.")
    if all(message.role == "extension" for message in messages):
        raise ValueError("There is nothing to continue: the context has only extension messages.")
    if answered(messages) and not queued:
        raise ValueError("There is nothing to answer: the last message is the assistant's. Give it a prompt.")


def _check(context: object, config: object) -> None:
    if not isinstance(context, AgentContext):
        raise TypeError(f"context is an AgentContext, got {context!r}.")
    if not isinstance(config, AgentLoopConfig):
        raise TypeError(f"config is an AgentLoopConfig, got {config!r}.")
    kind = context.continuation_kind
    if kind is not None and not is_instance(kind, ContinuationKind):
        raise TypeError(f"continuation_kind is a Default(), Rerun(tag), Branch(tag) or Compaction(), got {kind!r}.")


def launch(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    begin: Callable[[CancelToken, Channel], Shell],
    *,
    signal: asyncio.Event | CancelToken | None = None,
    stream_fn: StreamFn | None = None,
    silent: bool = False,
) -> EventStream:
    """Make a run and start it, at once where an event loop runs, else when the stream is first used.

    Nothing is changed before the start; `begin` is called then, to change what is the caller's to change.
    """
    _refuse_if_running(context)
    if signal is not None and not is_instance(signal, asyncio.Event | CancelToken):
        raise TypeError(f"signal is an asyncio.Event or a CancelToken, got {signal!r}.")
    check_callable("stream_fn", stream_fn)
    secrets: set[str] = set()
    layers = layered(config, stream_fn, secrets)
    stream, token = EventStream(), CancelToken()
    channel = stream.channel
    if silent:
        channel.detach()
    start = partial(
        _start, prompts, context, config, begin, signal, stream_fn or config.stream_fn, layers, token, channel, secrets
    )
    if _loop_runs():
        stream.bind(start=None, cancel=token.cancel)
        start()
    else:
        stream.bind(start=start, cancel=token.cancel)
    return stream


def _start(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    begin: Callable[[CancelToken, Channel], Shell],
    signal: asyncio.Event | CancelToken | None,
    own_stream_fn: StreamFn | None,
    layers: StreamFn,
    token: CancelToken,
    channel: Channel,
    secrets: set[str],
) -> None:
    _refuse_if_running(context)
    shell = begin(token, channel)
    context.running = True
    _mint(context)
    run = _run_of(context, config, layers, shell, token, channel, secrets)
    run.own_stream_fn = own_stream_fn
    run.conclude = shell.conclude
    if shell.journal is not None:
        shell.journal.redact(secrets)
    open_inbox(run)  # before the task's first step: what is queued right after prompt() is for this run
    run.task = task = asyncio.get_running_loop().create_task(conduct(run, prompts, signal))
    _running.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(partial(ensure_ended, run, prompts))


def _mint(context: AgentContext) -> None:
    context.loop_id = context.loop_id or new_id("loop")
    context.agent_id = context.agent_id or new_id("agent")
    context.session_id = context.session_id or new_id("session")


def _refuse_if_running(context: AgentContext) -> None:
    if context.running:
        raise AgentBusy(
            "A run is already going on with this context. Wait for it, or give the other run its own context."
        )


def _run_of(
    context: AgentContext,
    config: AgentLoopConfig,
    stream_fn: StreamFn,
    shell: Shell,
    token: CancelToken,
    channel: Channel,
    secrets: set[str],
    *,
    whole: bool = True,
) -> Run:
    return Run(
        context,
        config,
        stream_fn=stream_fn,
        tools=shell.tools,
        inbox=shell.inbox,
        dispatcher=shell.dispatcher,
        token=token,
        channel=channel,
        secrets=secrets,
        parent=shell.place.parent,
        parent_tool_call_id=shell.place.tool_call_id,
        budget=shell.place.budget,
        journal=shell.journal,
        whole=whole,
    )


def _bare(context: AgentContext, kind: ContinuationKind | None = None) -> Callable[[CancelToken, Channel], Shell]:
    """The shell of a bare context: what one run leaves unheard, the context keeps for the next."""
    tools = build_tool_table(context.tools)

    def begin(_: CancelToken, __: Channel) -> Shell:
        context.continuation_kind = kind or context.continuation_kind
        inbox = Inbox()
        items: list[Queued] = context.undelivered
        inbox.give_back(items)
        context.undelivered = []

        def conclude(result: RunResult) -> RunResult:
            context.undelivered = inbox.items
            return result

        return Shell(inbox, Dispatcher(), tools, conclude)

    return begin


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def stream_assistant_response(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: asyncio.Event | CancelToken | None,
    stream: EventStream,
    stream_fn: StreamFn | None = None,
) -> AssistantMessage:
    """One answer of the model, streamed into `stream` and added to the context; no tools run."""
    _check(context, config)
    if not context.log.visible:
        raise ValueError("There is nothing to answer: the context has no messages.")
    _refuse_if_running(context)
    token = CancelToken()
    shell = _bare(context)(token, stream.channel)
    _mint(context)
    secrets: set[str] = set()
    layers = layered(config, stream_fn, secrets)
    run = _run_of(context, config, layers, shell, token, stream.channel, secrets, whole=False)
    run.task = asyncio.current_task()
    turn = Turn(0)
    try:
        with Reach(run, signal):
            try:
                await answer(run, turn)
            except Exception as error:  # noqa: BLE001  # as in a run: a failure around the model is told as its answer
                run.fail(error)
            if turn.message is None:
                error_answer(run, turn, run.detail)
    finally:
        context.undelivered = run.inbox.items
        context.last_loop_id, context.loop_id = run.loop_id, None
    assert turn.message is not None
    return turn.message
