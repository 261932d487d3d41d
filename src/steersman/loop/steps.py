"""Single steps of a run, for engines that run the loop elsewhere: one answer of the model, one tool call.

Nothing is emitted here, and no hook of a turn is called: the loop that asked for the step does that.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from steersman.context.context import AgentContext
from steersman.events.stream import EventStream
from steersman.loop.ask import ask_until_it_fits, commit_error
from steersman.loop.compact import compact_before_request
from steersman.loop.config import AgentLoopConfig
from steersman.loop.ending import CancelWatch
from steersman.loop.entry import BareContext, Start
from steersman.loop.request import ModelClient, exceeds_threshold
from steersman.loop.run import Run, Turn
from steersman.loop.tool_calls.execution import ABORTED, Slot, abandon, begin_calls, emit_start, settle
from steersman.tools.table import describe_unknown_tool
from steersman.types.cancel import CancelToken
from steersman.types.content import ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage, ToolResultMessage
from steersman.types.model import ToolChoice
from steersman.types.tools import Effect
from steersman.types.usage import Usage


class AnswerStep(NamedTuple):
    """An answer that is in the log now, what all its requests used, and what is known of its failure."""

    message: AssistantMessage
    usage: Usage
    error: ErrorInfo | None


class CallStep(NamedTuple):
    """The result of a tool call, which is not in the log yet, and what the tool asked of the loop."""

    result: ToolResultMessage
    effects: tuple[Effect, ...]
    terminate: bool


async def take_answer_step(
    context: AgentContext, config: AgentLoopConfig, tool_choice: ToolChoice = "auto"
) -> AnswerStep:
    """Ask the model for one answer and add it to the log; the context is compacted first if it is over its threshold.

    Raises `CancelledError` if the calling task is cancelled; what had arrived is in the log then.
    """
    run, turn = _make_run(context, config), Turn(0)
    with CancelWatch(run):
        try:
            if exceeds_threshold(run):
                await compact_before_request(run, forced=False)
            if run.ending.reason is None:
                await ask_until_it_fits(run, turn, tool_choice)
        except Exception as error:  # noqa: BLE001  # as in a run: a failure around the model becomes a failed answer
            run.fail(error)
        if turn.message is None:
            commit_error(run, turn, run.ending.detail)
    if run.ending.cancelled_by == "task":
        raise asyncio.CancelledError
    assert turn.message is not None
    return AnswerStep(turn.message, run.usage, run.ending.error)


async def take_call_step(context: AgentContext, config: AgentLoopConfig, call: ToolCall, answer_id: str) -> CallStep:
    """Run one tool call, whose arguments are checked already and which no gate is asked about.

    `answer_id` is the entry of the answer that made the call. A cancel of the calling task cancels the tool, and its
    result says so.
    """
    run, slot = _make_run(context, config), Slot(call, 0, call.arguments)
    run.turn = Turn(0)
    run.turn.entry_id = answer_id
    slot.tool = run.tools.get(call.name)
    if slot.tool is None:
        settle(run, slot, describe_unknown_tool(call.name, run.tools), status="invalid")
    else:
        emit_start(run, slot)
        begin_calls(run, (slot,))
        await _wait_for(run, slot)
    assert slot.result is not None
    return CallStep(slot.result, slot.effects, slot.terminate)


async def _wait_for(run: Run, slot: Slot) -> None:
    assert slot.task is not None
    try:
        while slot.result is None:
            await asyncio.wait((slot.task,))
    except asyncio.CancelledError:
        slot.stop(ABORTED)
        await asyncio.wait((slot.task,), timeout=run.config.cancel_grace)
        abandon(run, slot, ABORTED)


def _make_run(context: AgentContext, config: AgentLoopConfig) -> Run:
    stream = EventStream()
    stream.channel.detach()
    run = Run(BareContext(context, config), Start(()), ModelClient(config), CancelToken(), stream.channel)
    # Test suites check the events of every run; those of a step do not follow the grammar of a run.
    run.witness = None
    run.task = asyncio.current_task()
    return run
