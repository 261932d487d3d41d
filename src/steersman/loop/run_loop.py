"""The loop: begin, take turns until there is a reason to end, and end. A run always comes to its end.

Steering, tool results, injections and follow-ups are all pending messages: the next turn takes them first.
"""

from __future__ import annotations

import asyncio

from steersman.context.convert import default_convert_to_llm
from steersman.loop.ask import commit_error, commit_unfinished
from steersman.loop.ending import DEADLINE, CancelWatch, Phase
from steersman.loop.inbox import QueuedMessage, Receipt, add_pending, is_answered, take_queued
from steersman.loop.request import convert
from steersman.loop.run import Run, Turn
from steersman.loop.saving import save
from steersman.loop.turn import close_turn, fail_between_turns, find_trigger, take_turn
from steersman.policy.answers import decide, observe
from steersman.policy.filters import apply_filters
from steersman.policy.hooks import PROCEED, HookError
from steersman.types.continuation import Initial
from steersman.types.events import AgentEnd, AgentStart, InputRejected, TurnStart
from steersman.types.result import RunResult

NOTHING_TO_ANSWER = "There is nothing to answer: the last message is the assistant's. Give it a prompt."

OVER = "over"
"""The cancel reason of a run that has ended: it stops what still works for the run, such as abandoned tools."""

# asyncio keeps only weak references to tasks.
_concluding: set[asyncio.Task[None]] = set()


async def run_loop(run: Run) -> None:
    """Do a whole run, from `before_loop` to `after_loop`, and deliver its result, whatever happens."""
    try:
        with CancelWatch(run, _give_up):
            try:
                _accept_prompts(run)
                if await _begin(run):
                    while run.ending.reason is None:
                        turn = await take_turn(run)
                        if run.ending.reason is None:
                            await _queue_next_or_finish(run, turn)
            except asyncio.CancelledError:
                run.interrupt()
            except Exception as error:  # noqa: BLE001  # whatever raised between turns, the run ends and reports it
                await fail_between_turns(run, error)
            if run.ending.phase >= Phase.ENDED:
                return  # given up meanwhile
            _end(run)
            await _call_after_loop(run)
            _cancel_abandoned(run)
            if run.journal is not None:
                await _save_end(run)
    finally:
        _release(run)
    if run.ending.cancelled_by == "task":
        raise asyncio.CancelledError


def ensure_ended(run: Run) -> None:
    """End a run whose task was cancelled before its first step: its coroutine never ran."""
    if run.ending.phase < Phase.ENDED:
        _accept_prompts(run)
        run.interrupt()
        _end(run)
        _release(run)


# Beginning


def _accept_prompts(run: Run) -> None:
    """Make the prompts pending; if there are input filters, only once these have let them in.

    Until then they count as queued messages: if the run ends first, `_end` queues them for the next run.
    """
    prompts = run.start.prompts
    if run.config.input_filters:
        run.filtering = [QueuedMessage("steering", prompt, Receipt(prompt, "accepted")) for prompt in prompts]
    else:
        run.pending.extend(prompts)


async def _begin(run: Run) -> bool:
    """Ask `before_loop`, emit `agent_start`, filter the prompts; returns whether the run goes on."""
    prompts, hooks = run.start.prompts, run.config.seams.before_loop
    decision = PROCEED if not hooks else await decide(hooks, (run.context.log.messages, 0), seam="before_loop")
    if decision.stop is not None:
        run.pending.clear()
        run.filtering = []
        run.ending.finish("vetoed", decision.stop.reason or "before_loop said no")
        return False
    _emit_start(run)
    if prompts and run.config.input_filters:
        kept = await apply_filters(run.config.input_filters, prompts)
        run.filtering = []
        run.pending[:] = kept.messages
        if kept.rejected is not None:
            run.emit(InputRejected, reason=kept.rejected, source="prompt")
            run.ending.finish("rejected", kept.rejected)
            return False
    run.is_admitted = True
    await take_queued(run, "steering", at=len(run.pending))
    # A new run without prompts, and a continuation after a finished answer, are about what was queued since.
    if (
        not prompts
        and not run.pending
        and not decision.inject
        and (type(run.start.continuation_kind) is Initial or await _is_answered(run))
        and not await take_queued(run, "follow_up")
    ):
        if run.refused is not None:
            run.ending.finish("rejected", run.refused)
            return False
        if run.config.convert_to_llm is not default_convert_to_llm:
            raise ValueError(NOTHING_TO_ANSWER)  # an async conversion can only be judged here
    run.pending.extend(decision.inject)
    if run.context.recovery is not None:
        from steersman.loop.resume import resume  # only needed after a crash

        await resume(run)
    return True


async def _is_answered(run: Run) -> bool:
    """Whether there is nothing to answer, also after conversion."""
    log = run.context.log
    if not is_answered(log.messages) or run.config.convert_to_llm is default_convert_to_llm:
        return is_answered(log.messages)
    run.conversion = await convert(run, log.visible)
    return is_answered(run.conversion.result)


def _emit_start(run: Run) -> None:
    """Emit `agent_start`, once."""
    if run.ending.phase > Phase.NEW:
        return
    run.ending.phase = Phase.RUNNING
    context = run.context
    run.emit(
        AgentStart,
        agent_id=context.agent_id,
        session_id=context.session_id,
        continuation_kind=context.continuation_kind or Initial(),
        parent_loop_id=context.parent_loop_id or run.start.parent_loop_id,
        parent_tool_call_id=run.start.inherited.tool_call_id,
        config_snapshot=run.config.snapshot([*run.tools]) if run.has_listeners else None,
    )
    run.emit_held()


# Between turns


async def _queue_next_or_finish(run: Run, turn: Turn) -> None:
    """Make pending what the next turn starts with: steering, an injection, a follow-up; if nothing is left, finish."""
    while not run.check_cancelled():
        steered = run.inbox.may_have("steering") and await take_queued(run, "steering")
        if steered or turn.results or run.pending:
            return
        await _ask_policies(run, turn)
        if run.ending.reason is not None or run.pending or await take_queued(run, "follow_up") or run.check_cancelled():
            return
        # The last look and the end are one step; what came while the policies were asked gets another round.
        if run.inbox.close(only_if_empty=True):
            truncated = turn.message is not None and turn.message.stop_reason == "length"
            return run.ending.finish("done", "The last answer was cut at the token limit." if truncated else "")


async def _ask_policies(run: Run, turn: Turn) -> None:
    """Ask the post-loop policies and `before_follow_up`: they may end the run, or inject messages."""
    seams = run.config.seams
    if seams.post_loop_policies:
        decision = await decide(seams.post_loop_policies, (run.view(turn),), seam="post_loop_policies")
        run.apply(decision, "post_loop_policies")
    if seams.before_follow_up and run.ending.reason is None:
        decision = await decide(seams.before_follow_up, (run.context.log.messages,), seam="before_follow_up")
        run.apply(decision, "before_follow_up")


# Ending


def _end(run: Run) -> None:
    """Close the run: accepted messages are in the log or queued again, and `agent_end` is the last event."""
    ending = run.ending
    if run.context.recovery is not None and ending.reason == "aborted":
        from steersman.loop.resume import settle_aborted

        _emit_start(run)
        settle_aborted(run)
    limit_is_new = ending.reason == "limit" and ending.phase < Phase.AT_LIMIT
    if limit_is_new or (ending.reason not in ("vetoed", "rejected") and _needs_closing_turn(run)):
        _take_closing_turn(run)
    run.inbox.requeue([*[item for item in run.pending if type(item) is QueuedMessage], *run.filtering])
    run.pending.clear()
    run.inbox.close()
    ending.finish("done")
    if run.token.reason not in (None, DEADLINE):
        ending.prefer_abort(run.token)
    ending.is_closing = True
    run.emit(AgentEnd, messages=run.new_messages, usage=run.usage, end_reason=ending.reason, detail=ending.detail)
    run.emit_no_more()
    context = run.context
    context.last_loop_id, context.loop_id = run.loop_id, None


def _needs_closing_turn(run: Run) -> bool:
    """Whether no turn has shown the prompts or the error yet; a turn that only settled old calls does not count."""
    if run.turn_index == 0:
        return True
    return run.turn_index == run.first_turn and (bool(run.pending) or run.ending.reason == "error")


def _take_closing_turn(run: Run) -> None:
    """Take a turn without a model: it adds the prompts to the log, and the error, if that is why the run ends."""
    _emit_start(run)
    turn = Turn(run.turn_index)
    run.emit(TurnStart, turn_index=turn.index, triggered_by=find_trigger(run))
    add_pending(run)
    if run.ending.reason == "error":
        commit_error(run, turn, run.ending.detail)
    close_turn(run, turn)


async def _call_after_loop(run: Run) -> None:
    """Call `after_loop` if the run got past `before_loop` and the input filters.

    `agent_end` has been emitted. If a hook raises, or the run is aborted meanwhile, the result says so.
    """
    hooks, ending = run.config.seams.after_loop, run.ending
    if not hooks or not run.is_admitted:
        return
    was_cancelled = run.token.cancelled
    try:
        async with run.limit_hooks():
            await observe(hooks, (run.new_messages, run.usage), seam="after_loop")
    except (HookError, TimeoutError) as error:
        problem = run.redact(str(error) or "after_loop gave no answer after the run was cancelled.")
        run.log_problem(problem)
        ending.fail_after_end(problem)
    except asyncio.CancelledError:
        run.interrupt()
    if not was_cancelled and run.token.reason not in (None, DEADLINE):
        ending.prefer_abort(run.token)


def _cancel_abandoned(run: Run) -> None:
    """Cancel once more the tool calls that did not stop when they were cancelled."""
    for task in run.abandoned:
        task.cancel()


async def _save_end(run: Run) -> None:
    """Wait until the journal has saved the end of the run, even during a cancel; at most `gate_timeout` seconds."""
    loop = asyncio.get_running_loop()
    patience = run.config.gate_timeout
    deadline = None if patience is None else loop.time() + patience
    saving = loop.create_task(save(run))
    while not saving.done() and (deadline is None or loop.time() < deadline):
        try:
            await asyncio.wait((saving,), timeout=None if deadline is None else deadline - loop.time())
        except asyncio.CancelledError:
            # Another cancel of a run that has ended already: only the saved end makes the result known.
            run.interrupt()
    if not saving.done():
        saving.cancel()
        run.log_problem("The journal did not confirm in time that the end of the run is saved.")


def _give_up(run: Run) -> None:
    """End a run from outside when a stream or a hook in it does not react to cancels."""
    if run.ending.phase >= Phase.ENDED:
        return
    run.interrupt()
    if run.turn is not None:
        commit_unfinished(run, run.turn)
        close_turn(run, run.turn)
    _end(run)
    run.log_problem("A stream or a hook did not react to cancels and was abandoned.")
    if run.is_admitted and run.config.seams.after_loop:
        task = asyncio.get_running_loop().create_task(_conclude(run))
        _concluding.add(task)
        task.add_done_callback(_concluding.discard)
    else:
        _release(run)


async def _conclude(run: Run) -> None:
    """Call `after_loop` for a run that was given up: its own task does not get there."""
    try:
        await _call_after_loop(run)
    finally:
        _release(run)


def _release(run: Run) -> None:
    """Free the context and deliver the result, once: from here on the agent is idle."""
    if run.ending.phase == Phase.RELEASED:
        return
    if run.ending.phase == Phase.ENDED:
        run.ending.phase = Phase.RELEASED
    run.context.running = False
    # What still works on its behalf stops now, and what starts later starts cancelled.
    run.token.cancel(OVER)
    run.host.current_run = None
    run.channel.finish(run.host.conclude(_build_result(run)))


def _build_result(run: Run) -> RunResult:
    ending = run.ending
    return RunResult(
        list(run.new_messages),
        run.usage,
        ending.reason or "error",
        ending.detail,
        undelivered=[item.message for item in run.inbox.items],
        error=ending.error if ending.reason == "error" else None,
    )
