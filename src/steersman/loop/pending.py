"""How messages get into the transcript: pending ones first of all in a turn, so that nothing can lose them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from steersman.loop.inbox import Queued, QueueKind
from steersman.loop.run import Run
from steersman.policy.filters import apply_filters
from steersman.types.events import InputRejected, MessageEnd, MessageStart
from steersman.types.messages import AgentMessage, AssistantMessage, ExtensionMessage, UserMessage


def add_message(run: Run, message: AgentMessage) -> str:
    """Add a message to the transcript, with its events; returns its entry id."""
    if not message.timestamp:
        message = msgspec.structs.replace(message, timestamp=time.time())
    run.emit(MessageStart, message=message)
    entry_id = run.append(message)
    run.emit(MessageEnd, message=message)
    return entry_id


def add_pending(run: Run) -> None:
    """Add all pending messages to the transcript."""
    while run.pending:
        item = run.pending.pop(0)
        message = item.message if type(item) is Queued else item
        assert not isinstance(message, Queued)
        if type(item) is Queued:
            run.inbox.start_delivery(item)
        entry_id = add_message(run, message)
        if type(item) is Queued:
            run.inbox.deliver(item, entry_id)
        if run.repeats is not None and type(message) is UserMessage and not message.synthetic:
            run.repeats.reset()


def is_answered(messages: Sequence[AgentMessage]) -> bool:
    """Whether the last thing said between user and model is a complete answer, with nothing left to do about it."""
    last = next((message for message in reversed(messages) if type(message) is not ExtensionMessage), None)
    return type(last) is AssistantMessage and not last.failed and not last.tool_calls


async def take_queued(run: Run, kind: QueueKind, *, at: int = 0) -> bool:
    """Make the next steering messages or follow-ups pending, before injections; returns whether any is pending."""
    items = run.inbox.take(kind)
    if not items and run.inbox.has_source(kind):
        await run.inbox.poll(kind)
        items = run.inbox.take(kind)
    if not items:
        return False
    if run.config.input_filters:
        await _filter_queued(run, items, at)
    else:
        run.pending[at:at] = items
    return bool(run.pending)


async def _filter_queued(run: Run, items: list[Queued], at: int) -> None:
    # Nothing is lost while the filters work: if the run ends meanwhile, these go back to the queue.
    run.filtering = items
    kept = await apply_filters(run.config.input_filters, [item.message for item in items])
    run.filtering = []
    if kept.rejected is not None:
        for item in items:
            run.inbox.reject(item)
        run.emit(InputRejected, reason=kept.rejected, source=items[0].kind)
        return
    let_in = [replace(item, message=message) for item, message in zip(items, kept.messages, strict=False)]
    run.pending[at:at] = [*let_in, *kept.messages[len(items) :]]
