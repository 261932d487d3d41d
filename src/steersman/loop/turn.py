"""One turn: what is pending is heard, the model answers once, the tools it asked for run."""

from __future__ import annotations

import asyncio

from steersman.loop.ask import answer, error_answer
from steersman.loop.compact import compact_if_needed, may_compact
from steersman.loop.pending import hear, say
from steersman.loop.run import Run, Turn
from steersman.loop.tool_calls.dispatch import Outcome, execute_tool_calls
from steersman.policy.hooks import HookError, decide, observe
from steersman.types.continuation import Branch, Initial, TurnTrigger
from steersman.types.events import LoopDetected, PrunApplied, TurnEnd, TurnStart
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import ToolChoice


async def take_turn(run: Run) -> Turn:
    """Take the next turn; however it goes, it is closed, and a run that has to end knows why."""
    turn = run.turn = Turn(run.turn_index)
    run.emit(TurnStart, turn_index=turn.index, triggered_by=trigger(run))
    try:
        hear(run)
        if await _may_go_on(run, turn):
            if may_compact(run):
                await compact_if_needed(run)
            message = await answer(run, turn, tool_choice=_tool_choice(run)) if run.end_reason is None else None
            if message is not None:
                await _act_on(run, turn, message)
                run.tracker.record_turn()
                if run.config.seams.after_turn or run.config.seams.post_turn_policies:
                    await _conclude(run, turn)
    except asyncio.CancelledError:
        run.interrupt()
    except Exception as error:  # noqa: BLE001  # whatever broke, the turn is closed and the run says so
        await _failed(run, turn, error)
    finally:
        close(run, turn)
    return turn


def trigger(run: Run) -> TurnTrigger:
    """What made this turn happen."""
    kind = run.context.continuation_kind
    if run.turn_index > run.first_turn:
        return "continuation"
    if type(kind) is Branch:
        return "branch"
    return run.config.first_turn_trigger if kind is None or type(kind) is Initial else "continuation"


def _tool_choice(run: Run) -> ToolChoice:
    """A tool that is required is required once: a model that must call one in every turn could never answer."""
    choice = run.config.tool_choice
    return "auto" if choice == "required" and run.turn_index > run.first_turn else choice


async def _may_go_on(run: Run, turn: Turn) -> bool:
    """Whether neither a cancel, nor a limit, nor a veto stands against asking the model."""
    if run.cancelled():
        return False
    if (reason := run.tracker.check_limits()) is not None:
        await _stop_at_limit(run, turn, reason)
        return False
    hooks = run.config.seams.before_turn
    if hooks:
        decision = await decide(hooks, (run.context.log.messages, turn.index), seam="before_turn")
        for message in decision.inject:
            say(run, message)
        if decision.stop is not None:
            run.finish("vetoed", decision.stop.reason or "before_turn said no")
            return False
    return not run.cancelled()


async def _stop_at_limit(run: Run, turn: Turn, reason: str) -> None:
    """End the run at a limit; with `wrap_up` the model gets one last answer, with tools declared and not allowed."""
    run.finish("limit", reason)
    _note_limit(run)
    limits = run.config.execution_limits
    if limits is not None and limits.wrap_up:
        message = await answer(run, turn, tool_choice="none")
        if message is not None and not message.failed:
            await execute_tool_calls(run, turn, message.tool_calls, refusal=f"Not run: {reason}.")


def _note_limit(run: Run) -> None:
    if not run.limit_noted:
        run.limit_noted = True
        say(run, user_message(f"[Agent stopped: {run.detail}]", synthetic=True))


async def _act_on(run: Run, turn: Turn, message: AssistantMessage) -> None:
    """Run the tools of a good answer; of a failed one, never."""
    if message.failed:
        text = message.error_message or f"The model's answer ended with {message.stop_reason!r}."
        if message.stop_reason != "aborted":
            run.finish("error", text)
            await _tell(run, text)
        elif not run.cancelled():
            run.finish("aborted", text)
        return
    calls = message.tool_calls
    if calls:
        grant(run, turn, await execute_tool_calls(run, turn, calls))
    repetition = None if run.repeats is None else run.repeats.observe(calls)
    if repetition is not None:
        names, action = repetition.tool_names, repetition.action
        run.emit(LoopDetected, tool_names=names, repetitions=repetition.repetitions, action=action)
        if action == "stop":
            run.finish("stopped", repetition.text)
        else:
            run.pending.append(user_message(repetition.text, synthetic=True))


def grant(run: Run, turn: Turn, outcome: Outcome) -> None:
    """Do what the tools asked the loop for, now that the batch is done."""
    for effect in outcome.effects:
        entry = run.context.log.prun(effect.tokens, memo=effect.memo, spare=turn.entry_id)
        if entry is not None:
            run.emit(PrunApplied, entry_ids=entry.entry_ids, tokens_removed=entry.tokens_removed, memo=entry.memo)
    if outcome.terminate:
        run.finish("terminated", "A tool asked to end the run.")


async def _conclude(run: Run, turn: Turn) -> None:
    """Ask who wants a word after the turn."""
    seams = run.config.seams
    usage = run.usage if turn.message is None else turn.message.usage
    try:
        async with run.patience():
            after = await decide(seams.after_turn, (run.context.log.messages, usage), seam="after_turn")
            post = await decide(seams.post_turn_policies, (run.view(turn),), seam="post_turn_policies")
    except TimeoutError:
        return run.report("A hook after the turn gave no answer after the run was cancelled.")
    run.heed(after, "after_turn")
    run.heed(post, "post_turn_policies")


async def _failed(run: Run, turn: Turn, error: Exception) -> None:
    """Something in the turn broke: an error answer if there was none, and a word to those who listen for errors."""
    run.fail(error)
    if turn.message is None:
        error_answer(run, turn, run.detail)
    await _tell(run, run.detail)


async def fail(run: Run, error: Exception) -> None:
    """Something between turns broke: the run ends, and those who listen for errors hear of it."""
    run.fail(error)
    await _tell(run, run.detail)


async def _tell(run: Run, text: str) -> None:
    """Tell `on_error`, once; it only listens, so what it breaks is reported and changes nothing."""
    try:
        async with run.patience():
            await observe(run.config.seams.on_error, (text,), seam="on_error")
    except (HookError, TimeoutError) as second:
        run.report(str(second) or "on_error gave no answer after the run was cancelled.")
    except asyncio.CancelledError:
        run.interrupt()


def close(run: Run, turn: Turn) -> None:
    """The one place a turn ends, with the notice of a limit where that is why."""
    if run.end_reason == "limit":
        _note_limit(run)
    reason = turn.message.stop_reason if turn.message is not None else run.end_reason or ""
    run.emit(TurnEnd, turn_index=turn.index, message=turn.message, tool_results=turn.results, reason=reason)
    run.turn_index += 1
    run.turn = None
