"""One turn: pending messages enter the log, the model answers once, the tools it called run."""

from __future__ import annotations

import asyncio

from steersman.context.tokens import FutileCompaction
from steersman.loop.ask import ask_until_it_fits, commit_error
from steersman.loop.compact import compact_before_request
from steersman.loop.ending import Phase
from steersman.loop.inbox import add_message, add_pending, open_inbox
from steersman.loop.request import ModelClient, exceeds_threshold
from steersman.loop.run import Run, Turn
from steersman.loop.tool_calls.dispatch import SKIPPED, STEERED, Outcome, execute_tool_calls
from steersman.policy.answers import decide, observe
from steersman.policy.hooks import HookError
from steersman.policy.limits import RepeatWatch
from steersman.types.continuation import Branch, Compaction, Initial, TurnTrigger
from steersman.types.events import LoopDetected, PrunApplied, TurnEnd, TurnStart
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import ToolChoice


async def take_turn(run: Run) -> Turn:
    """Take the next turn; however it goes, it is closed, and the run knows whether it ends."""
    turn = run.turn = Turn(run.turn_index)
    try:
        try:
            take_changes(run)
        finally:  # however that goes, the turn starts, and no pending message is lost
            run.emit(TurnStart, turn.index, find_trigger(run))
            add_pending(run)
        if await _may_ask(run, turn):
            forced = _must_compact(run)
            if forced or exceeds_threshold(run):
                await compact_before_request(run, forced=forced)
            if run.ending.reason is None:
                message = await ask_until_it_fits(run, turn, _choose_tool_use(run))
                if message is not None:
                    await _process_answer(run, turn, message)
                    run.tracker.record_turn()
                    if run.config.seams.after_turn or run.config.seams.post_turn_policies:
                        await _call_after_turn(run, turn)
    except asyncio.CancelledError:
        run.interrupt()
    except Exception as error:  # noqa: BLE001  # whatever raised, the turn is closed and the run reports it
        run.fail(error)
        if turn.message is None:
            commit_error(run, turn, run.ending.detail)
        await _call_on_error(run, run.ending.detail)
    finally:
        close_turn(run, turn)
    return turn


def take_changes(run: Run) -> None:
    """Use the options, tools and prompt that the host has now: an agent may be changed while it runs.

    This comes before `turn_start`: a change that a subscriber or `before_turn` makes counts from the next turn on.
    """
    run.system_prompt = run.context.system_prompt
    tools = run.host.tool_table.read(run.context.tools)
    if tools is not run.tools:
        run.tools, run.tool_specs = tools, tuple(tools.values())
    config, before = run.host.config, run.config
    if config is before:
        return
    # The set of secrets stays: the journal redacts by it.
    run.client = ModelClient(config, run.start.stream_fn, run.client.secrets)
    run.use_config(config)
    run.futile = FutileCompaction()
    if config.repeated_calls != before.repeated_calls:
        run.repeats = None if config.repeated_calls is None else RepeatWatch(config.repeated_calls)
    if config.execution_limits != before.execution_limits:
        run.tracker.limits = config.execution_limits
        if run.watch is not None:
            run.watch.set_deadline()
    open_inbox(run)


def _must_compact(run: Run) -> bool:
    """Whether this is the first turn of a `Compaction` continuation; a turn that only settled old calls is no turn."""
    return run.turn_index == run.first_turn and type(run.context.continuation_kind) is Compaction


def find_trigger(run: Run) -> TurnTrigger:
    """What made this turn happen."""
    kind = run.context.continuation_kind
    if run.turn_index > run.first_turn:
        return "continuation"
    if type(kind) is Branch:
        return "branch"
    return run.config.first_turn_trigger if kind is None or type(kind) is Initial else "continuation"


def _choose_tool_use(run: Run) -> ToolChoice:
    """A required tool call is required once: a model that must call a tool in every turn could never answer."""
    choice = run.config.tool_choice
    return "auto" if choice == "required" and run.turn_index > run.first_turn else choice


async def _may_ask(run: Run, turn: Turn) -> bool:
    """Whether the model may be asked: no cancel, no limit reached, no veto of `before_turn`."""
    if run.check_cancelled():
        return False
    if (reason := run.tracker.check_limits()) is not None:
        await _stop_at_limit(run, turn, reason)
        return False
    hooks = run.config.seams.before_turn
    if hooks:
        decision = await decide(hooks, (run.context.log.messages, turn.index), seam="before_turn")
        for message in decision.inject:
            add_message(run, message)
        if decision.stop is not None:
            run.ending.finish("vetoed", decision.stop.reason or "before_turn said no")
            return False
        return not run.check_cancelled()
    return True


async def _stop_at_limit(run: Run, turn: Turn, reason: str) -> None:
    """End the run at a limit; with `wrap_up` the model gives one last answer, with tools declared but not allowed."""
    run.ending.finish("limit", reason)
    _add_limit_notice(run)
    limits = run.config.execution_limits
    if limits is not None and limits.wrap_up:
        message = await ask_until_it_fits(run, turn, "none")
        if message is not None and not message.failed:
            await execute_tool_calls(run, turn, message.tool_calls, refusal=f"Not run: {reason}.")


def _add_limit_notice(run: Run) -> None:
    """Add the notice of the limit to the log, once."""
    if run.ending.phase < Phase.AT_LIMIT:
        run.ending.phase = Phase.AT_LIMIT
        add_message(run, user_message(f"[Agent stopped: {run.ending.detail}]", synthetic=True))


async def _process_answer(run: Run, turn: Turn, message: AssistantMessage) -> None:
    """Do what follows from an answer: run its tool calls, and notice repeated ones.

    A failed answer ends the run, and its calls never run.
    """
    if message.failed:
        text = message.error_message or f"The model's answer ended with {message.stop_reason!r}."
        if message.stop_reason != "aborted":
            run.ending.finish("error", text)
            await _call_on_error(run, text)
        elif not run.check_cancelled():
            run.ending.finish("aborted", text)
        return
    calls = turn.calls
    if calls:
        apply_effects(run, turn, await execute_tool_calls(run, turn, calls))
    repetition = None if run.repeats is None else run.repeats.observe(calls)
    if repetition is not None:
        names, action = repetition.tool_names, repetition.action
        run.emit(LoopDetected, tool_names=names, repetitions=repetition.repetitions, action=action)
        if action == "stop":
            run.ending.finish("stopped", repetition.text)
        else:
            run.pending.append(user_message(repetition.text, synthetic=True))


def apply_effects(run: Run, turn: Turn, outcome: Outcome) -> None:
    """Apply the effects that the tools returned, now that the batch is done."""
    for effect in outcome.effects:
        entry = run.context.log.prun(effect.tokens, memo=effect.memo, spare=turn.entry_id)
        if entry is not None:
            run.emit(PrunApplied, entry_ids=entry.entry_ids, tokens_removed=entry.tokens_removed, memo=entry.memo)
    if outcome.terminate:
        run.ending.finish("terminated", "A tool asked to end the run.")


async def _call_after_turn(run: Run, turn: Turn) -> None:
    """Call `after_turn` and the post-turn policies."""
    seams = run.config.seams
    usage = run.usage if turn.message is None else turn.message.usage
    try:
        async with run.limit_hooks():
            after = await decide(seams.after_turn, (run.context.log.messages, usage), seam="after_turn")
            post = await decide(seams.post_turn_policies, (run.view(turn),), seam="post_turn_policies")
    except TimeoutError:
        return run.log_problem("A hook after the turn gave no answer after the run was cancelled.")
    run.apply(after, "after_turn")
    run.apply(post, "post_turn_policies")


async def fail_between_turns(run: Run, error: Exception) -> None:
    """End the run because something between turns raised, and call `on_error`."""
    run.fail(error)
    await _call_on_error(run, run.ending.detail)


async def _call_on_error(run: Run, text: str) -> None:
    """Call `on_error`; it only observes, so what it raises is logged and changes nothing."""
    try:
        async with run.limit_hooks():
            await observe(run.config.seams.on_error, (text,), seam="on_error")
    except (HookError, TimeoutError) as second:
        run.log_problem(str(second) or "on_error gave no answer after the run was cancelled.")
    except asyncio.CancelledError:
        run.interrupt()


def _find_reason(run: Run, turn: Turn) -> str:
    """Why a turn ended: what its results say about steering, so that a replay finds the same."""
    if turn.message is None:
        return run.ending.reason or ""
    # Results that the loop made are synthetic; a tool may use the same words.
    for result in turn.results:
        if result.synthetic and result.text in (SKIPPED, STEERED):
            return "steered"
    return turn.message.stop_reason


def close_turn(run: Run, turn: Turn) -> None:
    """Emit `turn_end`, the only place that does, after the notice of a limit if that is why the run ends."""
    if run.ending.reason == "limit":
        _add_limit_notice(run)
    run.emit(TurnEnd, turn.index, turn.message, turn.results, _find_reason(run, turn))
    run.turn_index += 1
    run.turn = None
