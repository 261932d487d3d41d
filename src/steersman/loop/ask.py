"""The answer of one turn: ask the model until the request fits, emit the answer as it arrives, commit it once.

    ask_until_it_fits    the one way to an answer; handles a context overflow, a cancel and a failure
    ask_once             one request
    consume              emits the deltas of one request
    commit               puts the answer in the log, however it ended

After an overflow the model is asked for a shorter answer, if the server says how many tokens are left; else, or if that
overflows too, the context is compacted once and both steps are repeated: at most four requests. All count in the usage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec

from steersman.context.repair import make_ids_unique
from steersman.loop.compact import Overflow, compact_after_overflow, is_hopeless
from steersman.loop.deltas import DELTAS, emit_deltas, take_deltas
from steersman.loop.request import emit_request, find_window, get_options, prepare_request
from steersman.loop.run import Run, Turn
from steersman.loop.saving import save
from steersman.loop.unreported import count_unreported
from steersman.provider.streaming.batches import Batch, Batches, GeneratedBatches
from steersman.provider.streaming.normalize import deliver_deltas, stream_batches
from steersman.provider.streaming.partial import GrowingAnswer, partial_message
from steersman.types.content import ToolCall, has_truncated_call
from steersman.types.errors import ErrorInfo
from steersman.types.events import MessageEnd, MessageStart, ModelFallback, RetryScheduled
from steersman.types.messages import AssistantMessage, PartialMessage, StopReason
from steersman.types.model import Request, ToolChoice
from steersman.types.stream import Done, Failed, FallbackNotice, Reset, RetryNotice, StreamEvent, StreamStart
from steersman.types.usage import Usage

_UNKNOWN = Usage()
_EMPTY = AssistantMessage()


class ResponseStreamState:
    """An answer while it arrives: the deltas so far, and the outcome of the last attempt."""

    takes_more = False
    """Whether deltas of the last attempt are taken as they arrive; those of an answer that comes whole are not."""
    growing: GrowingAnswer | None = None
    """The partial message, once it has been read."""
    error: ErrorInfo | None = None
    """The failure of the last attempt."""
    usage = _UNKNOWN
    """What the last attempt cost, until it is added to the usage of the run."""
    is_counted = False
    """Whether the usage of the kept answer is in the usage of the run already."""
    fallbacks = 0
    """How many models the last attempt has fallen back from."""
    started = False
    """Whether `message_start` was emitted."""
    asked = False
    """Whether a request was sent: only then can there be something to commit after a cancel."""

    def __init__(self, run: Run, tool_choice: ToolChoice = "auto") -> None:
        model = run.config.model
        self.tool_choice: ToolChoice = tool_choice
        # Set before the answer if this is the last one, after a limit.
        self.end_reason_before = run.ending.reason
        self.deltas: list[StreamEvent] = []
        self.model, self.provider = model.id, model.provider
        self.timestamp = run.clock()

    def start(self, run: Run) -> None:
        """Emit `message_start`, once."""
        if not self.started:
            self.started = True
            empty = msgspec.structs.replace(_EMPTY, timestamp=self.timestamp, model=self.model, provider=self.provider)
            run.emit_message(MessageStart, empty)

    def take_more(self, run: Run, batches: Batches) -> None:
        """Take the deltas that come while more of an answer is waited for, as they arrive."""
        if not self.takes_more:
            self.takes_more = True
            deliver_deltas(batches, partial(take_deltas, run, self))

    @property
    def is_visible(self) -> bool:
        """Whether deltas were emitted since the last reset, so that consumers show a part of the answer."""
        return bool(self.deltas) and type(self.deltas[-1]) is not Reset

    def list_deltas_since_reset(self) -> list[StreamEvent]:
        """The deltas that consumers show: those after the last reset."""
        resets = [index for index, delta in enumerate(self.deltas) if type(delta) is Reset]
        return self.deltas[resets[-1] + 1 :] if resets else list(self.deltas)

    def read_partial(self, count: int) -> PartialMessage:
        """The answer after its first `count` deltas, or later; nothing is done for it before it is read."""
        if self.growing is None:
            head = PartialMessage(model=self.model, provider=self.provider, timestamp=self.timestamp)
            self.growing = GrowingAnswer(self.deltas, head)
        return self.growing.read(count)

    def break_off(self, stop_reason: StopReason, error: str) -> AssistantMessage:
        """The part of the answer that had arrived when it broke off; tool calls that are not complete are left out."""
        return partial_message(
            self.deltas,
            stop_reason=stop_reason,
            error_message=error,
            usage=self.usage,
            model=self.model,
            provider=self.provider,
            timestamp=self.timestamp,
        )


async def ask_until_it_fits(run: Run, turn: Turn, tool_choice: ToolChoice = "auto") -> AssistantMessage | None:
    """Ask the model and commit its answer; `None` if the run ended before there was anything to commit.

    That is: before the first request, or after an overflow of which no delta was emitted.
    """
    state = turn.answer = ResponseStreamState(run, tool_choice)
    message: AssistantMessage | None = None
    try:
        request = await prepare_request(run, turn, overflow=False)
        if request is not None and not run.check_cancelled():
            message = await ask_once(run, state, request)
            if find_overflow(run, state, message) is not None:
                message = await _fit_and_ask_again(run, turn, state, request, message)
    except asyncio.CancelledError:
        message = _break_off_by_cancel(run, state)
    except Exception as error:
        # Once its message_start is out, an answer also gets its message_end.
        if not state.started:
            raise
        run.fail(error)
        message = state.break_off("error", run.ending.detail)
    finally:
        turn.answer = None
    if message is None and state.started:
        message = state.break_off("aborted", run.ending.detail)
    return None if message is None else commit(run, turn, state, message)


async def ask_once(
    run: Run, state: ResponseStreamState, request: Request, *, max_tokens: int | None = None
) -> AssistantMessage:
    """Send one request and emit what comes back; retries and fallbacks are inside `client.stream_fn`."""
    if len(run.channel.buffer) >= run.channel.limit:
        await run.channel.wait_for_reader()  # a provider may give its answer whole: wait for the reader before it, too
    if run.journal is not None:
        await save(run)
    if state.asked:
        state.takes_more, state.error, state.usage, state.fallbacks = False, None, _UNKNOWN, 0
    state.asked = True
    options = get_options(run, state.tool_choice)
    if max_tokens is not None:
        options = replace(options, max_tokens=max_tokens)
    if run.config.events and run.has_listeners:
        emit_request(run, request, options)
    batches = stream_batches(run.client.stream_fn, run.config.model, request, options)
    try:
        return await consume(run, state, batches)
    finally:
        await batches.aclose()


async def consume(run: Run, state: ResponseStreamState, batches: Batches) -> AssistantMessage:
    """Emit each delta as it comes and return the final message."""
    token, channel, deltas, read_partial = run.token, run.channel, state.deltas, state.read_partial
    async for batch in batches:
        if len(channel.buffer) >= channel.limit:
            await channel.wait_for_reader()
        if type(batch[0]) is StreamStart:
            batch = batch[1:]
        while batch:
            event = batch[0]
            if type(event) in DELTAS:
                if not state.started and type(event) is not Reset:
                    state.start(run)
                emitted = emit_deltas(run, batch, deltas, read_partial)
                if token.reason is not None:
                    run.interrupt()
                    return state.break_off("aborted", run.ending.detail)
                if len(channel.buffer) >= channel.limit:
                    await channel.wait_for_reader()
            elif type(event) is Done or type(event) is Failed:
                state.error = event.error if type(event) is Failed else None
                state.usage = event.message.usage
                return event.message
            else:
                emitted = 1
                _report_attempt(run, state, event)
            batch = batch[emitted:]
        state.take_more(run, batches)
    # The normal form always has a terminal event: a stream that ends without one was closed from outside.
    run.interrupt()
    return state.break_off("aborted", run.ending.detail)


def commit(run: Run, turn: Turn, state: ResponseStreamState, message: AssistantMessage) -> AssistantMessage:
    """Add the answer to the log, add its usage and emit `message_end`."""
    message, turn.calls = _complete(run, state, message)
    is_failed, usage = message.failed, message.usage
    run.ending.error = _describe_failure(run, state, message) if is_failed else None
    if not state.started:
        state.start(run)
    turn.message = message
    turn.entry_id = run.append(message)
    is_known = usage.known
    if not state.is_counted:
        if is_known:
            run.add_usage(usage)
        else:
            log = run.context.log
            count_unreported(run, message, max(0, log.tokens - log.estimator(message)))
    if is_known and not is_failed:
        run.context.head.mark_billed()
    run.emit_message(MessageEnd, message)
    return message


def commit_error(run: Run, turn: Turn, text: str) -> None:
    """Commit a failure outside of any answer, of the loop or of a provider, as an answer that failed."""
    state = ResponseStreamState(run)
    state.error = run.ending.error
    kind = "internal" if run.ending.error is None else run.ending.error.kind
    commit(run, turn, state, AssistantMessage(stop_reason="error", error_message=text, error_kind=kind))


def commit_unfinished(run: Run, turn: Turn) -> None:
    """Commit what had arrived of an answer whose stream does not react to a cancel."""
    if turn.answer is not None and turn.answer.asked:
        commit(run, turn, turn.answer, turn.answer.break_off("aborted", run.ending.detail))


# After an overflow


def find_overflow(run: Run, state: ResponseStreamState, message: AssistantMessage) -> Overflow | None:
    """Whether the provider refused the request as too long, silently cut it, or had no tokens left to answer."""
    if message.error_kind == "context_overflow":
        status = None if state.error is None else state.error.status
        return Overflow.from_refusal(message.error_message or "", status, find_window(run, message, state.fallbacks))
    window = None if message.failed else find_window(run, message, state.fallbacks)
    if window is None:
        return None
    usage = message.usage
    sent = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    # Some gateways fill the window with what fits of the request, and stop with "length".
    full = message.stop_reason == "length" and sent * 100 >= window * 99
    if not full and sent <= window:
        return None
    empty = not message.tool_calls and not message.text.strip()
    return Overflow(empty=empty, sent=sent, window=window) if empty or sent > window else None


async def _fit_and_ask_again(
    run: Run, turn: Turn, state: ResponseStreamState, request: Request, message: AssistantMessage
) -> AssistantMessage | None:
    """Ask for a shorter answer, or compact and ask again; returns the answer to keep.

    That is the second one, unless it failed or says nothing while the first one says something. It is a failure if
    neither says anything, and `None` if the run ended after the compaction, with no answer to keep.
    """
    first = await _ask_for_less(run, state, request, message)
    overflow = find_overflow(run, state, first)
    if overflow is None or (overflow.has_answer(first) and is_hopeless(run, overflow)):
        return first
    stuck = await compact_after_overflow(run, overflow)
    if stuck is not None:
        return overflow.to_failure(first, stuck)
    deltas = state.list_deltas_since_reset()
    # A hook or a subscriber may have stopped the run during the compaction.
    if overflow.has_answer(first) and run.ending.reason != state.end_reason_before:
        _count_attempt(run, state, first.usage, None)
        return _remove_usage(state, first)
    _discard_answer(run, state, first.usage)
    shorter = await prepare_request(run, turn, overflow=True)
    if shorter is None or run.ending.reason != state.end_reason_before or run.check_cancelled():
        return None
    second = await _ask_for_less(run, state, shorter, await ask_once(run, state, shorter))
    still = find_overflow(run, state, second)
    if still is None and second.stop_reason != "error":
        return second
    if still is not None and still.has_answer(second):
        run.futile.estimated = run.futile.billed = still.sent
        return second
    if not overflow.has_answer(first):
        return second if still is None else still.to_failure(second)
    _discard_answer(run, state, second.usage)
    return await consume(run, state, _yield_once((*deltas, Done(_remove_usage(state, first)))))


async def _ask_for_less(
    run: Run, state: ResponseStreamState, request: Request, message: AssistantMessage
) -> AssistantMessage:
    """Ask again for a shorter answer if the server says how many tokens it has left; else return the message."""
    if message.error_kind != "context_overflow" or run.check_cancelled():
        return message
    from steersman.provider.wires.overflow import find_token_budget  # only needed after a failure

    words = message.error_message or ""
    room = find_token_budget(words)
    max_tokens = get_options(run, state.tool_choice).max_tokens
    if room is None or (max_tokens is not None and room >= max_tokens):
        return message
    error = state.error or ErrorInfo("context_overflow", words)
    _report_attempt(run, state, RetryNotice(1, 0.0, error, message.usage))
    _reset(run, state)
    return await ask_once(run, state, request, max_tokens=room)


def _remove_usage(state: ResponseStreamState, message: AssistantMessage) -> AssistantMessage:
    """Remove the usage of an answer that is counted already: it says how long the request was before compaction."""
    state.is_counted = True
    return msgspec.structs.replace(message, usage=_UNKNOWN)


def _discard_answer(run: Run, state: ResponseStreamState, usage: Usage) -> None:
    """Count an answer that is not kept, and emit a reset, so that consumers drop it."""
    _count_attempt(run, state, usage, state.error)
    _reset(run, state)


def _reset(run: Run, state: ResponseStreamState) -> None:
    if state.is_visible:
        emit_deltas(run, (Reset(),), state.deltas, state.read_partial)


async def _yield_once(batch: Batch) -> GeneratedBatches:
    yield batch


# Attempts and the final form


def _break_off_by_cancel(run: Run, state: ResponseStreamState) -> AssistantMessage | None:
    task = asyncio.current_task()
    if not run.token.cancelled and (task is None or not task.cancelling()):
        return state.break_off("error", "The stream raised CancelledError, but the run was not cancelled.")
    run.interrupt()
    return state.break_off("aborted", run.ending.detail or "operation aborted") if state.asked else None


def _report_attempt(run: Run, state: ResponseStreamState, event: StreamEvent) -> None:
    """Emit that an attempt failed and what follows, a retry or a fallback, and count the attempt."""
    match event:
        case RetryNotice():
            state.start(run)
            run.emit(RetryScheduled, attempt=event.attempt, delay=event.delay, error=run.redact_info(event.error))
        case FallbackNotice():
            state.start(run)
            state.fallbacks += 1
            error = run.redact_info(event.error)
            run.emit(ModelFallback, from_model=event.from_model, to_model=event.to_model, error=error)
        case _:
            return
    _count_attempt(run, state, event.usage or _UNKNOWN, event.error)


def _count_attempt(run: Run, state: ResponseStreamState, usage: Usage, error: ErrorInfo | None) -> None:
    """Add the usage of an attempt that is not kept."""
    # An attempt that was refused with a status before its first delta cost nothing; any other may have.
    if usage.known or error is None or error.status is None or state.is_visible:
        run.add_usage(usage)
    state.usage = _UNKNOWN


def _describe_failure(run: Run, state: ResponseStreamState, message: AssistantMessage) -> ErrorInfo:
    """What is known of the failure, with the error message of the answer."""
    kind, words = message.error_kind or "internal", message.error_message or ""
    if state.error is None:
        return ErrorInfo(kind, words, message.provider or None)
    info = msgspec.structs.replace(
        state.error, kind=kind, message=words, provider=state.error.provider or message.provider
    )
    return run.redact_info(info)


def _complete(
    run: Run, state: ResponseStreamState, message: AssistantMessage
) -> tuple[AssistantMessage, Sequence[ToolCall]]:
    """Fill in model, provider and time, give its calls unique ids and the stop reason that fits; returns them too."""
    calls, content, reason = message.tool_calls, message.content, message.stop_reason
    if reason in ("stop", "tool_use"):
        # Servers do not always say that a call was truncated.
        reason = "stop" if not calls else "length" if has_truncated_call(calls) else "tool_use"
    if calls:
        content, calls = make_ids_unique(content, calls, run.context.log.call_ids, run.new_id)
    completed = msgspec.structs.replace(
        message,
        content=content,
        stop_reason=reason,
        timestamp=message.timestamp or state.timestamp,
        model=message.model or state.model,
        provider=message.provider or state.provider,
        error_message=None if message.error_message is None else run.redact(message.error_message),
    )
    return completed, calls
