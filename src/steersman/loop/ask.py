"""The answer of one turn: asked for, shown as it arrives, and put in the transcript once, however it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from steersman.loop.compact import Overflow, is_hopeless, make_room, overflow_of
from steersman.loop.keeping import save
from steersman.loop.request import options_for, prepare_request
from steersman.loop.run import Run, Turn
from steersman.provider.streaming.batches import Batch, Batches
from steersman.provider.streaming.normalize import DELTAS, batches_of
from steersman.provider.streaming.partial import partial_message
from steersman.types.content import Content, ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.events import MessageEnd, MessageStart, ModelFallback, RetryScheduled
from steersman.types.ids import new_id
from steersman.types.messages import AssistantMessage
from steersman.types.model import Request, StreamOptions, ToolChoice
from steersman.types.stream import Done, Failed, FallbackNotice, Reset, RetryNotice, StreamEvent
from steersman.types.usage import Usage

_UNKNOWN = Usage()


class ResponseStreamState:
    """An answer while it arrives: what was shown of it, and whether its `message_start` is out."""

    __slots__ = ("asked", "deltas", "error", "fallbacks", "model", "paid", "provider", "started", "timestamp", "usage")

    def __init__(self, run: Run) -> None:
        self.deltas: list[StreamEvent] = []
        # What is known of the failure that the last attempt ended with.
        self.error: ErrorInfo | None = None
        # What the last attempt cost, until that is counted.
        self.usage = _UNKNOWN
        self.paid = False
        # How many models the last attempt has fallen back from.
        self.fallbacks = 0
        self.model = run.config.model.id
        self.provider = run.config.model.provider
        self.started = False
        self.asked = False
        self.timestamp = time.time()

    def start(self, run: Run) -> None:
        """Say once that the answer begins."""
        if not self.started:
            self.started = True
            empty = AssistantMessage((), self.timestamp, model=self.model, provider=self.provider)
            run.emit(MessageStart, message=empty)

    @property
    def shown(self) -> bool:
        """Whether consumers have something of the answer before them."""
        return bool(self.deltas) and type(self.deltas[-1]) is not Reset

    def since_reset(self) -> list[StreamEvent]:
        """What consumers have before them."""
        resets = [index for index, delta in enumerate(self.deltas) if type(delta) is Reset]
        return self.deltas[resets[-1] + 1 :] if resets else list(self.deltas)

    def partial(self, count: int) -> AssistantMessage:
        """The answer as its first deltas gave it."""
        return partial_message(
            self.deltas[:count], stop_reason="stop", model=self.model, provider=self.provider, timestamp=self.timestamp
        )

    def broken(self, stop_reason: Any, error: str) -> AssistantMessage:
        """What had arrived of an answer that came to no end."""
        message = self.partial(len(self.deltas))
        return msgspec.structs.replace(message, stop_reason=stop_reason, error_message=error, usage=self.usage)


async def answer(run: Run, turn: Turn, *, tool_choice: ToolChoice = "auto") -> AssistantMessage | None:
    """Ask the model and put its answer in the transcript; `None` when it was not asked because the run ended."""
    state = ResponseStreamState(run)
    run.answering = lambda: commit(run, turn, state, state.broken("aborted", run.detail)) if state.asked else None
    try:
        message = await _answered(run, turn, state, tool_choice)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if run.token.cancelled or (task is not None and task.cancelling()):
            run.interrupt()
            if not state.asked:
                return None
            message = state.broken("aborted", run.detail or "operation aborted")
        else:
            message = state.broken("error", "The stream raised CancelledError though nobody cancelled it.")
    except Exception as error:
        # An answer that has begun to be told is told to its end, also when the loop broke under it.
        if not state.started:
            raise
        run.fail(error)
        message = state.broken("error", run.detail)
    finally:
        run.answering = None
    if message is None and state.started:
        message = state.broken("aborted", run.detail)
    return None if message is None else commit(run, turn, state, message)


async def _answered(
    run: Run, turn: Turn, state: ResponseStreamState, tool_choice: ToolChoice
) -> AssistantMessage | None:
    """The answer, asked for a second time after compaction where the request was too long; the better one of the two.

    The second one counts unless it failed or says nothing while the first one said something.
    """
    ended = run.end_reason  # of the last answer after a limit that is known before it
    request = await prepare_request(run, turn, overflow=False)
    if request is None or run.cancelled():
        return None
    message, found = await _judged(run, state, request, tool_choice)
    if found is None or (found.leaves(message) and is_hopeless(run, found)):
        return message
    if not await make_room(run, found):
        return found.hopeless(message, freed=False)
    first, shown = message, state.since_reset()
    # Whoever was told of the compaction may have said stop.
    if found.leaves(first) and run.end_reason != ended:
        _pay(run, state, first.usage, None)
        return _paid(state, first)
    _void(run, state, first.usage)
    request = await prepare_request(run, turn, overflow=True)
    if request is None or run.end_reason != ended or run.cancelled():
        return None
    message, still = await _judged(run, state, request, tool_choice)
    if still is None and message.stop_reason != "error":
        return message
    if still is not None and still.leaves(message):
        run.compaction_stuck = run.overbilled = still.sent
        return message
    if not found.leaves(first):
        return message if still is None else still.hopeless(message, freed=True)
    # There was an answer, if perhaps to less than all of the request: that is better than none.
    _void(run, state, message.usage)
    return await _consumed(run, state, _once((*shown, Done(_paid(state, first)))))


def _paid(state: ResponseStreamState, message: AssistantMessage) -> AssistantMessage:
    """An answer that is counted already, without its bill: that speaks of what is no longer shown to the model."""
    state.paid = True
    return msgspec.structs.replace(message, usage=_UNKNOWN)


async def _judged(
    run: Run, state: ResponseStreamState, request: Request, tool_choice: ToolChoice
) -> tuple[AssistantMessage, Overflow | None]:
    """An answer, and whether the request was too long for it."""
    message = await _asked_within(run, state, request, tool_choice)
    return message, overflow_of(message, state.error, run.window(message, state.fallbacks))


def _void(run: Run, state: ResponseStreamState, usage: Usage) -> None:
    """Count an answer that is not kept, and take back what was shown of it."""
    _pay(run, state, usage, state.error)
    if state.shown:
        run.emit_deltas((Reset(),), state.deltas, state.partial)


async def _once(batch: Batch) -> Batches:
    yield batch


async def _asked_within(
    run: Run, state: ResponseStreamState, request: Request, tool_choice: ToolChoice
) -> AssistantMessage:
    """Ask, and once more for a shorter answer where the server says that only that much has room beside the request."""
    options = options_for(run, tool_choice)
    message = await _asked(run, state, request, options)
    if message.error_kind != "context_overflow" or run.cancelled():
        return message
    from steersman.provider.wires.overflow import find_token_budget  # only a failure pays for it

    words = message.error_message or ""
    room = find_token_budget(words)
    if room is None or (options.max_tokens is not None and room >= options.max_tokens):
        return message
    _noticed(run, state, RetryNotice(1, 0.0, state.error or ErrorInfo("context_overflow", words), message.usage))
    if state.shown:
        run.emit_deltas((Reset(),), state.deltas, state.partial)
    return await _asked(run, state, request, replace(options, max_tokens=room))


async def _asked(run: Run, state: ResponseStreamState, request: Request, options: StreamOptions) -> AssistantMessage:
    if len(run.channel.buffer) >= run.channel.limit:
        await run.channel.room()  # also for a provider that gives its answers whole
    if run.journal is not None:
        await save(run)
    state.asked = True
    state.error, state.usage, state.fallbacks = None, _UNKNOWN, 0
    batches = batches_of(run.stream_fn, run.config.model, request, options)
    try:
        return await _consumed(run, state, batches)
    finally:
        await batches.aclose()


async def _consumed(run: Run, state: ResponseStreamState, batches: Batches) -> AssistantMessage:
    """Show each delta as it comes; nothing here may cost more than it must, for it is done per batch of them."""
    token, channel, deltas, partial = run.token, run.channel, state.deltas, state.partial
    async for batch in batches:
        while batch:
            event = batch[0]
            if not state.started and type(event) in DELTAS:
                state.start(run)
            told = run.emit_deltas(batch, deltas, partial)
            if told:
                if token.reason is not None:
                    run.interrupt()
                    return state.broken("aborted", run.detail)
                if len(channel.buffer) >= channel.limit:
                    await channel.room()
            elif isinstance(event, Done | Failed):
                state.error = event.error if type(event) is Failed else None
                state.usage = event.message.usage
                return event.message
            else:
                _noticed(run, state, event)
                told = 1
            batch = batch[told:] if told < len(batch) else ()
    run.interrupt()
    return state.broken("aborted", run.detail)


def _noticed(run: Run, state: ResponseStreamState, event: StreamEvent) -> None:
    match event:
        case RetryNotice():
            state.start(run)
            run.emit(RetryScheduled, attempt=event.attempt, delay=event.delay, error=run.redacted_info(event.error))
        case FallbackNotice():
            state.start(run)
            state.fallbacks += 1
            told = run.redacted_info(event.error)
            run.emit(ModelFallback, from_model=event.from_model, to_model=event.to_model, error=told)
        case _:
            return
    _pay(run, state, event.usage or _UNKNOWN, event.error)


def _pay(run: Run, state: ResponseStreamState, usage: Usage, error: ErrorInfo | None) -> None:
    """Count an attempt that came to nothing."""
    # Refused with a status and nothing shown, it cost nothing; any other may have, and did not say.
    if usage.known or error is None or error.status is None or state.shown:
        run.add_usage(usage)
    state.usage = _UNKNOWN


def commit(run: Run, turn: Turn, state: ResponseStreamState, message: AssistantMessage) -> AssistantMessage:
    """The answer in its final form, in the transcript, counted, and told."""
    message = _settled(run, state, message)
    run.error = _known(run, state, message) if message.failed else None
    state.start(run)
    turn.message = message
    turn.entry_id = run.append(message)
    if not state.paid:
        run.add_usage(message.usage, estimated_tokens=0 if message.usage.known else run.context.log.tokens)
    run.emit(MessageEnd, message=message)
    return message


def _known(run: Run, state: ResponseStreamState, message: AssistantMessage) -> ErrorInfo:
    """What is known of the failure of an answer, in the words of its message."""
    kind, words = message.error_kind or "internal", message.error_message or ""
    if state.error is None:
        return ErrorInfo(kind, words, message.provider or None)
    info = msgspec.structs.replace(
        state.error, kind=kind, message=words, provider=state.error.provider or message.provider
    )
    return run.redacted_info(info)


def _settled(run: Run, state: ResponseStreamState, message: AssistantMessage) -> AssistantMessage:
    """With its origin, price and time filled in, ids nobody else has, and a stop reason that fits its content."""
    calls = message.tool_calls
    reason = message.stop_reason
    if reason in ("stop", "tool_use"):
        # Servers do not always say that a call breaks off.
        reason = "stop" if not calls else "length" if any(call.is_truncated for call in calls) else "tool_use"
    return msgspec.structs.replace(
        message,
        content=_unique(run, message, calls) if calls else message.content,
        stop_reason=reason,
        timestamp=message.timestamp or state.timestamp,
        model=message.model or state.model,
        provider=message.provider or state.provider,
        error_message=None if message.error_message is None else run.redacted(message.error_message),
    )


def _unique(run: Run, message: AssistantMessage, calls: Sequence[ToolCall]) -> Sequence[Content]:
    """Servers repeat ids, across turns and within one; ours are unique, theirs is kept beside."""
    taken = run.context.log.call_ids
    own = {call.id for call in calls}
    if len(own) == len(calls) and "" not in own and taken.isdisjoint(own):
        return message.content
    own.clear()
    content: list[Content] = []
    for block in message.content:
        if type(block) is ToolCall:
            if not block.id or block.id in taken or block.id in own:
                block = msgspec.structs.replace(block, id=new_id("call"), provider_id=block.id or None)
            own.add(block.id)
        content.append(block)
    return content


def error_answer(run: Run, turn: Turn, text: str) -> None:
    """A failure outside of any answer, told as an answer that failed: the loop's own, or a provider's."""
    state = ResponseStreamState(run)
    state.error = run.error
    kind = "internal" if run.error is None else run.error.kind
    commit(run, turn, state, AssistantMessage(stop_reason="error", error_message=text, error_kind=kind))
