"""Emits the deltas of an answer: the one kind of event that comes by the thousand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import force_setattr

from steersman.loop.ending import Phase
from steersman.loop.run import Run
from steersman.types.events import MessageUpdate
from steersman.types.messages import PartialMessage
from steersman.types.stream import Delta, StreamEvent

if TYPE_CHECKING:
    from steersman.loop.ask import ResponseStreamState

DELTAS: frozenset[type] = frozenset(get_args(Delta))
"""The types of events that are emitted as parts of an answer; a reset is one too."""

_ENDED = Phase.ENDED  # an attribute of an enum is slow
_run_through = deque[None](maxlen=0).extend  # calls what a `map` maps, and keeps nothing


def emit_deltas(
    run: Run, batch: Sequence[StreamEvent], shown: list[StreamEvent], partial: Callable[[int], PartialMessage]
) -> int:
    """Emit the deltas at the beginning of a batch, and add them to `shown`; returns how many.

    It stops at an event that is no delta, when the run is cancelled, and when the reader falls behind.
    """
    if run.is_unusual and run.ending.phase >= _ENDED:
        return len(batch)  # the run gave this stream up
    if run.dispatcher.delta_callbacks or run.witness is not None:
        return _show_one_by_one(run, batch, shown, partial)
    if len(batch) == 1:
        return _push_one(run, batch[0], shown, partial)
    return _push_together(run, batch, shown, partial)


def take_deltas(run: Run, state: ResponseStreamState, batch: Sequence[StreamEvent]) -> int:
    """Emit deltas as they arrive, without a step of the run's task; returns how many. This is the hot path.

    What concerns more than a reader is left to the task: subscribers, a cancel, a reader that has fallen behind.
    """
    channel = run.channel
    if run.token.reason is not None or len(channel.buffer) >= channel.limit or not state.started:
        return 0
    if run.dispatcher.delta_callbacks:
        return 0
    try:
        if len(batch) == 1 and not run.is_unusual:
            return _push_one(run, batch[0], state.deltas, state.read_partial)
        return emit_deltas(run, batch, state.deltas, state.read_partial)
    except Exception:  # noqa: BLE001  # a clock that raises does so again in the task
        return 0


def _push_one(run: Run, delta: StreamEvent, shown: list[StreamEvent], partial: Callable[[int], PartialMessage]) -> int:
    """Emit what came alone, if it is a delta, and only a reader gets it: most deltas of a slow answer come so."""
    if type(delta) not in DELTAS:
        return 0
    channel, now, seq = run.channel, run.clock(), run.seq
    shown.append(delta)
    run.seq = seq + 1
    if not channel.detached:
        update = MessageUpdate(run.loop_id, seq, now, delta)  # pyright: ignore[reportArgumentType]  # it is one of these
        force_setattr(update, "_source", (partial, seq - len(shown)))
        channel.push(update)
    return 1


def _push_together(
    run: Run, batch: Sequence[StreamEvent], shown: list[StreamEvent], partial: Callable[[int], PartialMessage]
) -> int:
    """Emit deltas that only a reader gets, if there is one: all at once, with one look at the clock."""
    channel, now, seq, before = run.channel, run.clock(), run.seq, len(shown)
    room = channel.limit - len(channel.buffer)
    # No more is looked at than is emitted, because the rest comes again, and a batch may have 100,000 deltas.
    if len(batch) > room and not channel.detached and (room > 0 or channel.is_full):
        batch = batch[: max(1, room)]
    are_deltas = [*map(DELTAS.__contains__, map(type, batch)), False]
    deltas: Any = batch[: are_deltas.index(False)]
    shown += deltas
    run.seq = seq + len(deltas)
    if not channel.detached:
        updates = [*map(MessageUpdate, repeat(run.loop_id), count(seq), repeat(now), deltas)]
        source = partial, seq - before - 1
        _run_through(map(force_setattr, updates, repeat("_source"), repeat(source)))
        channel.push_all(updates)
    return len(deltas)


def _show_one_by_one(
    run: Run, batch: Sequence[StreamEvent], shown: list[StreamEvent], partial: Callable[[int], PartialMessage]
) -> int:
    """Emit deltas one by one: a subscriber may cancel the run after any of them."""
    channel, emitted = run.channel, 0
    for delta in batch:
        if type(delta) not in DELTAS:
            break
        emitted += 1
        shown.append(delta)
        update = MessageUpdate(run.loop_id, run.seq, run.clock(), delta)  # pyright: ignore[reportArgumentType]  # it is one of these
        run.seq += 1
        force_setattr(update, "_source", (partial, update.seq - len(shown)))
        failures = run.call_subscribers(update)
        if not channel.detached:
            channel.push(update)
        if failures is not None:
            run.report_subscribers(failures)
        if run.token.reason is not None or (len(channel.buffer) >= channel.limit and channel.is_full):
            break
    return emitted
