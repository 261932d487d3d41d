"""The ways into a run: `agent_loop` with prompts, `agent_loop_continue` without, and `start_run` for any host."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, cast, get_args

import msgspec

from steersman.context.context import AgentContext
from steersman.context.convert import default_convert_to_llm
from steersman.context.log import Log
from steersman.events.dispatch import Dispatcher
from steersman.events.stream import Channel, EventStream
from steersman.loop import watching
from steersman.loop.ask import ask_until_it_fits, commit_error
from steersman.loop.config import AgentLoopConfig
from steersman.loop.ending import CancelWatch
from steersman.loop.inbox import Inbox, is_answered, open_inbox
from steersman.loop.option_checks import WAIT, check_callable
from steersman.loop.questions import Questions
from steersman.loop.request import Conversion, ModelClient
from steersman.loop.run import Run, Turn
from steersman.loop.run_loop import NOTHING_TO_ANSWER, ensure_ended, run_loop
from steersman.policy.limits import ExecutionTracker
from steersman.tools.table import ToolTable
from steersman.types.cancel import CancelToken
from steersman.types.content import Content
from steersman.types.continuation import ContinuationKind, Default, Initial
from steersman.types.errors import AgentBusy
from steersman.types.guards import UNSET, is_instance
from steersman.types.journal import Journal
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    MessageLike,
    require_content,
    to_message,
    to_messages,
)
from steersman.types.model import StreamFn
from steersman.types.result import RunResult

# asyncio keeps only weak references to tasks, and a run may outlive every other reference to it.
_running: dict[asyncio.Task[None], Run] = {}

PromptLike: TypeAlias = MessageLike | Sequence[MessageLike | Content | Sequence[Content | str]]
"""What a run can start with: a string, a message, a dict, a list of content blocks, or a list of these."""
OnePromptLike: TypeAlias = MessageLike | Sequence[Content | Mapping[str, Any] | str]
"""What makes one message: a string, a message, a dict, or a list of content blocks."""
_BLOCKS = get_args(Content)


class Inherited(msgspec.Struct, frozen=True):
    """What a run gets from others: a parent run, the tool call of that run, and a shared budget.

    A run with a parent also has its limits, its guards and its cancel.
    """

    parent: Run | None = None
    tool_call_id: str | None = None
    budget: ExecutionTracker | None = None


class Start(msgspec.Struct, frozen=True):
    """How a run starts: with prompts, or going on from what is there, perhaps with another log.

    `parent_loop_id` is the run that it goes on from, where that is neither in the context nor at the end of its log.

    `signal` cancels the run, `stream_fn` is asked in place of the model's provider, and a `silent` run keeps no events
    for a reader. `deps` takes the place of those of the configuration. `conversion` is what the start was judged by.
    """

    prompts: Sequence[AgentMessage]
    continuation_kind: ContinuationKind | None = None
    log: Log | None = None
    inherited: Inherited = Inherited()
    signal: asyncio.Event | CancelToken | None = None
    stream_fn: StreamFn | None = None
    silent: bool = False
    parent_loop_id: str | None = None
    deps: Any = UNSET
    conversion: Conversion | None = None


class Host(Protocol):
    """Where a run takes place: an `Agent`, or a bare context. It outlives the run; the loop sets `current_run`."""

    context: AgentContext
    config: AgentLoopConfig
    inbox: Inbox
    dispatcher: Dispatcher
    questions: Questions
    tool_table: ToolTable
    current_run: Run | None

    def begin(self, start: Start, token: CancelToken, channel: Channel) -> Journal | None:
        """Get ready for a run; nothing of the host changes before. The journal, if there is one, records the run."""
        ...

    def conclude(self, result: RunResult[Any]) -> RunResult[Any]:
        """Take the result of the run, which is over, and return what the caller gets."""
        ...


class BareContext:
    """A context without an `Agent` as the host of a run; it keeps the messages that a run did not take for the next."""

    __slots__ = ("config", "context", "current_run", "dispatcher", "inbox", "questions", "tool_table")

    def __init__(self, context: AgentContext, config: AgentLoopConfig) -> None:
        self.context = context
        self.config = config
        self.inbox = Inbox()
        self.dispatcher = Dispatcher()
        self.questions = Questions()
        self.tool_table = ToolTable()
        self.tool_table.read(context.tools)  # raises for two of the same name, before anything has changed
        self.current_run: Run | None = None

    def begin(self, start: Start, token: CancelToken, channel: Channel) -> None:
        """Set the kind of the run and queue what the last run left."""
        context = self.context
        context.continuation_kind = start.continuation_kind or context.continuation_kind
        self.inbox.requeue(context.undelivered)
        context.undelivered = ()

    def conclude(self, result: RunResult) -> RunResult:
        """Keep what the run did not take."""
        self.context.undelivered = self.inbox.items
        return result


def agent_loop(
    prompts: PromptLike,
    context: AgentContext,
    config: AgentLoopConfig,
    signal: asyncio.Event | CancelToken | None = None,
    stream_fn: StreamFn | None = None,
) -> EventStream:
    """Start a run with one or more new messages."""
    messages = read_prompts(prompts)
    _check(context, config)
    return start_run(BareContext(context, config), Start(messages, Initial(), signal=signal, stream_fn=stream_fn))


def agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: asyncio.Event | CancelToken | None = None,
    stream_fn: StreamFn | None = None,
) -> EventStream:
    """Start a run that answers what is already there, for instance after an error."""
    _check(context, config)
    conversion = check_continuable(context, config, queued=bool(context.undelivered))
    kind = context.continuation_kind
    kind = Default() if kind is None or type(kind) is Initial else kind
    # Not written to the context, where a caller may set it: a fresh prompt after this has no parent.
    parent = context.last_loop_id
    start = Start((), kind, signal=signal, stream_fn=stream_fn, parent_loop_id=parent, conversion=conversion)
    return start_run(BareContext(context, config), start)


def read_prompts(prompts: PromptLike) -> list[AgentMessage]:
    """The prompts as messages; raises `ValueError` if there is none, or one without content."""
    messages = parse_prompts(prompts)
    if not messages:
        raise ValueError(
            "A run needs at least one prompt, got an empty list. "
            "To go on without one use agent_loop_continue() or agent.continue_()."
        )
    return [require_content(message) for message in messages]


def parse_prompts(prompts: PromptLike) -> list[AgentMessage]:
    """The prompts as messages, which may be none or blank.

    A list of content blocks, with strings between them if need be, is one message.
    """
    if not isinstance(prompts, list | tuple):
        return to_messages(cast(Any, prompts))
    items = cast(Sequence[Any], prompts)
    if any(map(_is_block, items)):
        return [_join_blocks(items)]
    return [_join_blocks(cast(Any, one)) if isinstance(one, list | tuple) else to_message(one) for one in items]


def _is_block(item: Any) -> bool:
    return isinstance(item, _BLOCKS) or (isinstance(item, Mapping) and "type" in item and "role" not in item)


def read_one_prompt(x: OnePromptLike) -> AgentMessage:
    """The one message that can be queued; raises `ValueError` for none and for several."""
    messages = parse_prompts(x)
    if len(messages) != 1:
        raise ValueError(f"One message is queued at a time, got a list of {len(messages)}: call it once for each.")
    return require_content(messages[0])


def _join_blocks(blocks: Sequence[Any]) -> AgentMessage:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    for block in content:
        if not _is_block(block):
            raise TypeError(f"A list with content blocks is one message, and this is no block: {block!r}.")
    return to_message({"role": "user", "content": content})


def check_continuable(context: AgentContext, config: AgentLoopConfig, *, queued: bool) -> Conversion | None:
    """Raise unless there is something to answer and the ids carry over; returns what `check_answerable` does."""
    if context.log.messages and (not context.agent_id or not context.session_id):
        raise ValueError(
            "To continue, agent_id and session_id must be set on the context, as an earlier run leaves them."
        )
    return check_answerable(context.log, config, queued=queued)


def check_answerable(log: Log, config: AgentLoopConfig, *, queued: bool) -> Conversion | None:
    """Raise unless the log ends with something to answer, also after conversion, or something is queued.

    Returns the conversion, if there was one, so that the run need not repeat it. What an async `convert_to_llm` makes
    of the messages is known only in the run: if that is nothing to answer, the run ends as an error.
    """
    messages = log.messages
    if not messages:
        raise ValueError("There is nothing to continue: the context has no messages. Give it a prompt.")
    only_extensions = all(message.role == "extension" for message in messages)
    if not only_extensions and (queued or not is_answered(messages)):
        return None
    if config.convert_to_llm is not default_convert_to_llm:
        converted = _convert_now(config.convert_to_llm, log.visible)
        if converted is None or (converted and (queued or not is_answered(converted))):
            return None if converted is None else Conversion(config.convert_to_llm, list(log.visible), converted)
    if only_extensions:
        raise ValueError("There is nothing to continue: the context has only extension messages.")
    raise ValueError(NOTHING_TO_ANSWER)


def _convert_now(convert: Callable[..., Any], messages: Sequence[AgentMessage]) -> Sequence[AgentMessage] | None:
    """What a sync `convert_to_llm` makes of the messages; `None` if it is async, or raises: then the run reports it."""
    if inspect.iscoroutinefunction(convert):
        return None
    try:
        found: Any = convert(list(messages))
        if inspect.iscoroutine(found):
            found.close()  # else Python warns that it was never awaited
        return None if inspect.isawaitable(found) else to_messages(found)
    except Exception:  # noqa: BLE001  # a function of the caller that breaks ends the run as an error, not this call
        return None


def _check(context: object, config: object) -> None:
    if not isinstance(context, AgentContext):
        raise TypeError(f"context is an AgentContext, got {context!r}.")
    if not isinstance(config, AgentLoopConfig):
        raise TypeError(f"config is an AgentLoopConfig, got {config!r}.")
    if config.approve == WAIT:
        raise ValueError("approve='wait' needs an Agent: the answers are given by agent.approve() and agent.deny().")
    kind = context.continuation_kind
    if kind is not None and not is_instance(kind, ContinuationKind):
        raise TypeError(f"continuation_kind is a Default(), Rerun(tag), Branch(tag) or Compaction(), got {kind!r}.")


def start_run(host: Host, start: Start) -> EventStream[Any]:
    """Start a run, at once if an event loop runs, else when the stream is first used.

    Nothing of the host is changed before the start.
    """
    _check_idle(host.context)
    if start.signal is not None and not is_instance(start.signal, asyncio.Event | CancelToken):
        raise TypeError(f"signal is an asyncio.Event or a CancelToken, got {start.signal!r}.")
    if start.stream_fn is not None:
        check_callable("stream_fn", start.stream_fn)
    client = ModelClient(host.config, start.stream_fn)
    stream, token = EventStream(), CancelToken()
    if start.silent:
        stream.channel.detach()
    if _has_running_loop():
        stream.bind(start=None, cancel=token.cancel)
        _begin_run(host, start, client, token, stream.channel)
    else:
        stream.bind(start=partial(_begin_run, host, start, client, token, stream.channel), cancel=token.cancel)
    return stream


def _begin_run(host: Host, start: Start, client: ModelClient, token: CancelToken, channel: Channel) -> None:
    context = host.context
    _check_idle(context)
    journal = host.begin(start, token, channel)
    context.running = True
    host.current_run = run = Run(host, start, client, token, channel, journal)
    context.log.loops.append((len(context.log.entries), run.loop_id))
    if journal is not None:
        journal.register_secrets(client.secrets)
    for watcher in watching.watchers:
        watcher.watch_run(run)
    open_inbox(run)  # before the task's first step: what is queued right after prompt() is for this run
    run.task = task = asyncio.get_running_loop().create_task(run_loop(run))
    _running[task] = run
    task.add_done_callback(_end_run)


def _end_run(task: asyncio.Task[None]) -> None:
    ensure_ended(_running.pop(task))


def _check_idle(context: AgentContext) -> None:
    if context.running:
        raise AgentBusy("A run already uses this context. Wait for it, or give the other run its own context.")


def _has_running_loop() -> bool:
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
    """One answer of the model, streamed into `stream` and added to the context; no tools run.

    If the calling task is cancelled, what has arrived is added as an aborted answer, and `CancelledError` is raised.
    """
    _check(context, config)
    if not context.log.visible:
        raise ValueError("There is nothing to answer: the context has no messages.")
    _check_idle(context)
    host, start, token = BareContext(context, config), Start((), signal=signal), CancelToken()
    client = ModelClient(config, stream_fn)
    host.begin(start, token, stream.channel)
    run = Run(host, start, client, token, stream.channel)
    # Test suites check the events of every run; those of one answer do not follow the grammar of a run.
    run.witness = None
    run.task = task = asyncio.current_task()
    cancelling = 0 if task is None else task.cancelling()
    turn = Turn(0)
    try:
        with CancelWatch(run):
            try:
                await ask_until_it_fits(run, turn)
            except Exception as error:  # noqa: BLE001  # as in a run: a failure around the model becomes a failed answer
                run.fail(error)
            if turn.message is None:
                commit_error(run, turn, run.ending.detail)
    finally:
        context.undelivered = host.inbox.items
        context.last_loop_id, context.loop_id = run.loop_id, None
    if run.ending.cancelled_by == "task" or (task is not None and task.cancelling() > cancelling):
        raise asyncio.CancelledError
    assert turn.message is not None
    return turn.message
