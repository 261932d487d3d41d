"""The dispatcher of tool calls: each call is admitted or refused, starts when it may, and is settled exactly once.

The dispatcher only peeks at steering; the loop alone takes it. Ends come in completion order, results in source order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from operator import attrgetter

import msgspec

from steersman.loop.config import SteeringPolicy
from steersman.loop.inbox import add_results
from steersman.loop.run import Run, Turn
from steersman.loop.saving import save_intent
from steersman.loop.tool_calls.execution import ABORTED, Slot, abandon, begin_calls, emit_start, emit_starts, settle
from steersman.loop.tool_calls.gates import ask_gates, check_call, judge_again, list_modes
from steersman.tools.threads import call_soon_in
from steersman.types.content import ToolCall
from steersman.types.errors import describe_exception
from steersman.types.frozen import FrozenList
from steersman.types.messages import ToolResultMessage
from steersman.types.tools import Effect

SKIPPED = "Skipped due to queued user message."
_arguments, _index, _result = attrgetter("arguments"), attrgetter("index"), attrgetter("result")
_effects, _terminate = attrgetter("effects"), attrgetter("terminate")
STEERED = "tool call cancelled: user requested steering interrupt"
# Policies judge so many characters before the first call starts, and the rest call by call, with the gates: to judge
# all that an answer can hold would take seconds, in which the event loop does nothing else.
_JUDGED_AT_ONCE = 20_000
# In place of the modes where a call was judged in others than those known: all are judged again before they start.
_OTHER = "other"
_NOTHING_KNOWN: Mapping[str, ToolResultMessage] = {}


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a batch of tool calls, besides its results."""

    effects: list[Effect]
    terminate: bool


async def execute_tool_calls(
    run: Run,
    turn: Turn,
    calls: Sequence[ToolCall],
    *,
    refusal: str | None = None,
    known: Mapping[str, ToolResultMessage] = _NOTHING_KNOWN,
) -> Outcome:
    """Run a batch of calls; with a `refusal` none of them runs and each is answered with it.

    A call whose result is `known`, by its id, is answered with that.
    """
    turn.slots = batch = [*map(Slot, calls, count(), map(_arguments, calls))]
    if known:
        for slot in batch:
            slot.result = known.get(slot.call.id)
    try:
        if run.answer_calls is not None:
            await run.answer_calls(batch)
        elif refusal is None:
            await _Batch(run, turn, batch).run_calls()
        else:
            for slot in batch:
                settle(run, slot, refusal, status="not_started")
    finally:
        # However the batch ended, each call is answered, in the order of the calls.
        for slot in batch:
            if slot.result is None:
                settle(run, slot, ABORTED, status="not_started" if slot.task is None else "interrupted")
        turn.results = FrozenList(map(_result, batch))
        add_results(run, turn.results)
    return Outcome([*chain(*map(_effects, batch))], terminate=bool(batch) and all(map(_terminate, batch)))


class _Batch:
    """The calls of one answer while they run."""

    _change: asyncio.Future[None] | None = None
    _rung = False
    _free = False

    def __init__(self, run: Run, turn: Turn, slots: list[Slot]) -> None:
        self.run = run
        self.turn = turn
        self.slots = slots
        self.waiting: list[Slot] = []
        self.running: list[Slot] = []
        self._loop = asyncio.get_running_loop()
        # Before any call is judged: subscribers are told of those that cannot run, and may change a mode.
        self._modes = list_modes(run)
        mode = run.config.tool_execution
        self._size = len(slots) if mode == "parallel" else 1 if mode == "sequential" else mode.size

    async def run_calls(self) -> None:
        """Start calls that may start and wait for a change, until no call waits or runs."""
        run = self.run
        # The end of a tool, a steering message and a cancel all wake the dispatcher.
        run.on_wake = self._wake
        run.inbox.on_arrival = self._ring
        broken: Exception | None = None
        try:
            self._check_calls()
            while self.waiting or self.running:
                if run.token.reason is not None or run.ending.reason is not None:
                    break
                urgency = run.inbox.find_urgency(run.config.steering)
                if urgency is not None and urgency != "wait" and await self._apply_steering(urgency):
                    break
                started = self.waiting and (
                    self._start_ready() if run.journal is None else await self._start_after_saving()
                )
                if not started and not self._rung:
                    await self._wait_for_change()
                # Reset before looking: a call that ends while the sources are polled below rings again.
                rung, self._rung = self._rung, False
                if rung and self._collect_ended() and run.inbox.has_source("steering"):
                    await run.inbox.poll("steering")
        except asyncio.CancelledError:
            run.interrupt()
        except Exception as error:  # noqa: BLE001  # a broken source of steering: raised again once the running calls have ended
            run.fail(error)
            broken = error
        finally:
            run.on_wake = None
            run.inbox.on_arrival = None
        if self.waiting or self.running:
            await self._wind_down()
        if broken is not None:
            raise broken

    def _collect_ended(self) -> bool:
        """Take note of calls and gates that have ended; returns whether a call has."""
        if self.waiting:
            for slot in self.waiting:
                if slot.gate is not None and slot.gate.done():
                    slot.gate.result()
            self.waiting = [slot for slot in self.waiting if slot.result is None]
        before = self.running
        self.running = [slot for slot in before if slot.result is None]
        return len(self.running) < len(before)

    def _wake(self) -> None:
        self._rung = True
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def _wait_for_change(self) -> None:
        """Wait until a call ends, steering arrives, or the run is cancelled."""
        self._change = self._loop.create_future()
        try:
            await self._change
        finally:
            self._change = None

    def _ring(self) -> None:
        """Wake the dispatcher for steering, which may come from any thread."""
        call_soon_in(self._loop, self._wake)

    def _check_calls(self) -> None:
        """Settle the calls that cannot run at once; the others wait."""
        run, limit, room = self.run, self.run.config.max_tool_calls, _JUDGED_AT_ONCE
        # The usual case: no call has a gate, must run alone or has a key, so that all of them may start.
        is_free = self._size >= len(self.slots)
        for slot in self.slots:
            if slot.index >= limit:
                settle(run, slot, f"Not run: more than {limit} tool calls in one answer.", status="not_started")
            elif slot.result is None and check_call(run, self.turn, slot, now=room > 0):
                self.waiting.append(slot)
                if slot.is_alone or slot.keys or not slot.admitted:
                    is_free = False
                if run.guards.has_policy:
                    room -= _measure(slot)
        self._free = is_free

    def _start_ready(self) -> bool:
        """Start the calls that may start now, or have the gates of one asked; whether there was one.

        All of them are told to have started before the first one takes a step. Gates are asked one call at a time, in
        a task of their own: calls without a gate do not wait for them, and questions that are asked by an event alone
        do not wait for each other.
        """
        started: list[Slot] = []
        asked: Slot | None = None
        if self.run.guards.has_policy and self._modes != (modes := list_modes(self.run)):
            self._modes, self._free = modes, False
            for slot in self.waiting:
                judge_again(self.run, slot)
            self.waiting = [slot for slot in self.waiting if slot.result is None]
        if self._free and self.run.is_only_read:
            return self._start_all()
        for slot in self.waiting if self._free else self._iterate_startable():
            if slot.admitted:
                emit_start(self.run, slot)
                started.append(slot)
                self.running.append(slot)
                if self.run.dispatcher.callbacks and self._is_disturbed():
                    break
            elif slot.gate is None and not self._is_asking():
                asked = slot
                break
        if started:
            self.waiting = [slot for slot in self.waiting if not slot.started]
        begin_calls(self.run, started)
        if asked is not None:
            asked.gate = self._loop.create_task(self._ask_gates(asked))
        return bool(started) or asked is not None

    def _start_all(self) -> bool:
        """Start all waiting calls, where none has to wait and nobody could disturb."""
        started, self.waiting = self.waiting, []
        self.running += started
        emit_starts(self.run, started)
        begin_calls(self.run, started)
        return True

    def _is_disturbed(self) -> bool:
        """Whether a subscriber did what is looked at before more calls start: cancel, stop, steer, change a mode."""
        run = self.run
        is_ending = run.token.reason is not None or run.ending.reason is not None
        return is_ending or run.inbox.has_steering or self._modes != list_modes(run)

    def _is_asking(self) -> bool:
        """Whether the gates of a call are asked, and it does not just wait for an answer."""
        return any(slot.gate is not None and not slot.gate.done() and not slot.waits for slot in self.waiting)

    async def _start_after_saving(self) -> bool:
        """Start the next call, after the journal has saved which calls are about to start."""
        ready = self.waiting if self._free else self._iterate_startable()
        slots = [slot for slot in ready if slot.admitted and not slot.intended and slot.answer is None]
        for slot in slots:
            slot.intended = True
        if slots:
            await save_intent(self.run, [msgspec.structs.replace(slot.call, arguments=slot.args) for slot in slots])
            return True  # look again first: steering or a cancel may have come meanwhile
        return self._start_ready()

    async def _ask_gates(self, slot: Slot) -> None:
        try:
            await ask_gates(self.run, self.turn, slot)
            if self._modes != list_modes(self.run):
                self._modes = [_OTHER]
        finally:
            self._wake()

    async def _close_gates(self) -> None:
        """Stop asking the gates: the calls they are asked about are not going to start."""
        gates = [slot.gate for slot in self.waiting if slot.gate is not None]
        for gate in gates:
            gate.cancel()
        if gates:
            await asyncio.wait(gates, timeout=self.run.config.cancel_grace)
        for gate in gates:
            if gate.done() and not gate.cancelled() and (error := gate.exception()) is not None:
                self.run.log_problem(f"A gate that was no longer asked raised {describe_exception(error)}.")

    def _iterate_startable(self) -> Iterator[Slot]:
        """The waiting calls that may start: no earlier group, lone call or call with the same key is unfinished."""
        unfinished = sorted((*self.running, *self.waiting), key=_index)
        group = unfinished[0].index // self._size if unfinished else 0
        busy: set[str] = {key for slot in self.running for key in slot.keys}
        for place, slot in enumerate(unfinished):
            if slot.index // self._size > group:
                return
            if slot.is_alone and (place > 0 or len(self.running) > slot.started):
                return
            if not slot.started and not slot.keys & busy:
                yield slot
            if slot.is_alone:
                return
            busy |= slot.keys

    async def _apply_steering(self, mode: SteeringPolicy) -> bool:
        """Skip calls that have not started and, if asked to, cancel the others; returns whether the batch is over."""
        await self._close_gates()
        for slot in self.waiting:
            settle(self.run, slot, SKIPPED, status="not_started")
        self.waiting.clear()
        if mode == "cancel":
            await self._wait_for_calls(self.running, self.run.config.cancel_grace)
            await self._cancel_calls([slot for slot in self.running if not slot.uninterruptible], STEERED)
        return not self.running

    async def _wind_down(self) -> None:
        """End the batch after a cancel or a stop: waiting calls do not start, running ones are cancelled or awaited."""
        run = self.run
        await self._close_gates()
        aborted = run.token.cancelled
        text = ABORTED if aborted else f"Not run: {run.ending.detail or 'the run was stopped.'}"
        for slot in self.waiting:
            settle(run, slot, text, status="not_started")
        self.waiting.clear()
        try:
            if not aborted:
                await self._wait_for_calls(self.running, None)
            await self._cancel_calls(self.running, ABORTED)
        except asyncio.CancelledError:
            run.interrupt()
            await self._cancel_calls(self.running, ABORTED)

    async def _cancel_calls(self, slots: list[Slot], text: str) -> None:
        """Cancel running calls; one that will not stop within the grace is abandoned."""
        for slot in slots:
            slot.stop(text)
        await self._wait_for_calls(slots, self.run.config.cancel_grace)
        for slot in slots:
            if slot.result is None:
                abandon(self.run, slot, text)
        self.running = [slot for slot in self.running if slot.result is None]

    async def _wait_for_calls(self, slots: list[Slot], seconds: float | None) -> None:
        tasks = [slot.task for slot in slots if slot.result is None and slot.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def _measure(slot: Slot) -> int:
    """How many characters of a call a policy may look at."""
    return sum([len(value) for value in slot.args.values() if isinstance(value, str)])
