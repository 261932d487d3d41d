"""Resuming after a crash: the calls it left open are settled in a turn of their own, before any other.

A call that had ended keeps its result, one that had not begun is run, and one that was running is run again only if its
tool is idempotent: the effect of any other is unknown, and its result says so.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from steersman.context.repair import NOT_STARTED, UNKNOWN, OpenCalls, Recovery, find_open_calls
from steersman.loop.config import SteeringPolicy
from steersman.loop.inbox import QueuedMessage, add_message, take_queued
from steersman.loop.run import Run, Turn
from steersman.loop.tool_calls.dispatch import SKIPPED, execute_tool_calls
from steersman.loop.tool_calls.execution import ABORTED
from steersman.loop.turn import apply_effects, close_turn
from steersman.types.content import TextContent, ToolCall
from steersman.types.events import ToolExecutionEnd, ToolExecutionStart, TurnStart
from steersman.types.messages import ToolResultMessage


async def resume(run: Run) -> None:
    """Settle the calls at the end of the log, if the program that made it ended before they were.

    No model is asked in that turn, so no limit counts it and no hook of a turn is called. A run with prompts runs none
    of the calls: a new prompt does not ask to go on with what came before it.
    """
    if run.check_cancelled():
        return  # the end of the run settles them
    recovery, left = _take_left_calls(run)
    if left is None:
        return
    turn = _start_turn(run, left)
    run.host.questions.recovered = recovery.questions
    try:
        known = (
            _find_results(run, left, recovery, goes_on=not run.start.prompts)
            if run.answer_calls is None
            else recovery.results
        )
        apply_effects(run, turn, await execute_tool_calls(run, turn, left.calls, known=known))
    except asyncio.CancelledError:
        run.interrupt()
    finally:
        run.host.questions.recovered = {}
        close_turn(run, turn)
        run.first_turn = run.turn_index
    if run.ending.reason is None and not any(type(item) is QueuedMessage for item in run.pending):
        await take_queued(run, "steering", at=len(run.pending))


def settle_aborted(run: Run) -> None:
    """Answer the calls that are left when a run is aborted before it came to them: none of them runs any more.

    Otherwise the next run would ask again about what was stopped.
    """
    recovery, left = _take_left_calls(run)
    if left is None:
        return
    turn = _start_turn(run, left)
    turn.results = [recovery.results.get(call.id) or _settle_aborted_call(run, call, recovery) for call in left.calls]
    for result in turn.results:
        add_message(run, result)
    close_turn(run, turn)
    run.first_turn = run.turn_index


def _settle_aborted_call(run: Run, call: ToolCall, recovery: Recovery) -> ToolResultMessage:
    if call.id in recovery.started:
        return _settle_call(run, call, UNKNOWN, "interrupted")
    return _settle_call(run, call, ABORTED, "not_started")


def _take_left_calls(run: Run) -> tuple[Recovery, OpenCalls | None]:
    """What is known of the calls of an earlier program, and those that are open, if there are any."""
    recovery, run.context.recovery = run.context.recovery, None
    return recovery or Recovery(), None if recovery is None else find_open_calls(run.context.log.messages)


def _start_turn(run: Run, left: OpenCalls) -> Turn:
    """Start the turn that settles calls; its answer is the one they are of."""
    turn = run.turn = Turn(run.turn_index)
    turn.message, turn.entry_id = left.message, run.context.log.entry_id_of(left.index)
    run.emit(TurnStart, turn_index=turn.index, triggered_by="continuation")
    return turn


def _find_results(run: Run, left: OpenCalls, recovery: Recovery, *, goes_on: bool) -> dict[str, ToolResultMessage]:
    """The results of the calls that do not run: recorded ones, and those that say why there is none."""
    known: dict[str, ToolResultMessage] = {}
    for call in left.calls:
        kept = recovery.results.get(call.id)
        known_now = kept if kept is not None else _settle_unless_runnable(run, call, recovery, goes_on=goes_on)
        if known_now is not None:
            known[call.id] = known_now
    return known


def _settle_unless_runnable(run: Run, call: ToolCall, recovery: Recovery, *, goes_on: bool) -> ToolResultMessage | None:
    """The result that says why a call does not run; `None` if it runs."""
    steered = _find_steering(run)
    if call.id in recovery.started:
        tool = run.tools.get(call.name)
        again = goes_on and steered != "cancel" and tool is not None and tool.idempotent
        return None if again else _settle_call(run, call, UNKNOWN, "interrupted")
    if not goes_on:
        return _settle_call(run, call, NOT_STARTED, "not_started")
    return None if steered is None else _settle_call(run, call, SKIPPED, "not_started")


def _find_steering(run: Run) -> SteeringPolicy | None:
    """What pending steering does to calls that have not started; `None` when they may start."""
    modes = {
        item.mode or run.config.steering
        for item in run.pending
        if type(item) is QueuedMessage and item.kind == "steering"
    }
    return "cancel" if "cancel" in modes else "skip" if "skip" in modes else None


def _settle_call(
    run: Run, call: ToolCall, text: str, status: Literal["interrupted", "not_started"]
) -> ToolResultMessage:
    """Build the result of a call that does not run, and emit its start and its end."""
    result = ToolResultMessage(
        [TextContent(text)],
        timestamp=run.clock(),
        synthetic=True,
        tool_call_id=call.id,
        tool_name=call.name,
        is_error=True,
        details={"status": status},
    )
    about = {"tool_call_id": call.id, "tool_name": call.name, "args": call.arguments}
    run.emit(ToolExecutionStart, **about)
    run.emit(ToolExecutionEnd, **about, result=result, is_error=True)
    return result
