"""A run from its first id to its last event: it begins, goes round the loop, and always comes to an end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from steersman.loop.ask import error_answer
from steersman.loop.inbox import Queued, Receipt
from steersman.loop.keeping import save_end
from steersman.loop.pending import answered, hear, receive
from steersman.loop.run import DEADLINE, Run, Turn
from steersman.loop.run_loop import run_loop
from steersman.loop.turn import close, fail, trigger
from steersman.policy.filters import apply_filters
from steersman.policy.hooks import PROCEED, HookError, decide, observe
from steersman.tools.threads import call_soon_in
from steersman.types.cancel import CancelToken
from steersman.types.continuation import Initial
from steersman.types.events import AgentEnd, AgentStart, InputRejected, TurnStart
from steersman.types.messages import AgentMessage
from steersman.types.result import RunResult

OVER = "over"
"""The cancel reason of a run that has come to its end."""

# Seconds a cancelled stream may take to clean up before it is cancelled again.
_AGAIN = 1.0
_ATTEMPTS = 5


async def conduct(run: Run, prompts: Sequence[AgentMessage], signal: asyncio.Event | CancelToken | None = None) -> None:
    """Do the whole run; its outcome is told, whatever happens."""
    try:
        with Reach(run, signal, give_up=True):
            try:
                _accept(run, prompts)
                if await _begin(run, prompts):
                    if run.context.recovery is not None:
                        from steersman.loop.resume import resume  # only what a crash left behind needs it

                        await resume(run, prompted=bool(prompts))
                    await run_loop(run)
            except asyncio.CancelledError:
                run.interrupt()
            except Exception as error:  # noqa: BLE001  # whatever broke between turns, the run ends and says so
                await fail(run, error)
            if run.closed:
                return  # it was given up, and ended without us
            _end(run)
            await _after(run)
            if run.journal is not None:
                await save_end(run)
    finally:
        if not run.given_up:
            _release(run)
    if run.external_cancel:
        raise asyncio.CancelledError


def ensure_ended(run: Run, prompts: Sequence[AgentMessage], _task: asyncio.Task[None]) -> None:
    """End a run whose task was cancelled before its first step: its coroutine never ran."""
    if not run.closed:
        _accept(run, prompts)
        run.interrupt()
        _end(run)
        _release(run)


def _release(run: Run) -> None:
    """Let the context go and the result be known: from here on the agent is idle."""
    run.context.running = False
    # Whatever was started on its behalf and is still at work stops now, and what starts later starts cancelled.
    run.token.cancel(OVER)
    result = _result(run)
    run.channel.finish(result if run.conclude is None else run.conclude(result))


def _accept(run: Run, prompts: Sequence[AgentMessage]) -> None:
    """From here on the prompts are heard, or, where filters have not let them in yet, queued for the next run."""
    if run.config.input_filters:
        run.judged = [Queued("steering", prompt, Receipt(prompt, "accepted")) for prompt in prompts]
    else:
        run.pending.extend(prompts)


def _give_up(run: Run) -> None:
    """End a run from outside, because a stream or a hook in it will not be cancelled: nothing may hold it for ever."""
    if run.closed:
        return
    run.given_up = True
    run.interrupt()
    if run.answering is not None:
        run.answering()
    if run.turn is not None:
        close(run, run.turn)
    _end(run)
    run.report("A stream or a hook would not be cancelled and was left behind.")
    _release(run)


async def _begin(run: Run, prompts: Sequence[AgentMessage]) -> bool:
    """Ask `before_loop`, say that the run starts, filter the prompts; whether there is a run to go on with."""
    hooks = run.config.seams.before_loop
    decision = PROCEED if not hooks else await decide(hooks, (run.context.log.messages, 0), seam="before_loop")
    if decision.stop is not None:
        run.pending.clear()
        run.judged = []
        run.finish("vetoed", decision.stop.reason or "before_loop said no")
        return False
    _start(run)
    if prompts and run.config.input_filters:
        kept = await apply_filters(run.config.input_filters, prompts)
        run.judged = []
        run.pending[:] = kept.messages
        if kept.rejected is not None:
            run.emit(InputRejected, reason=kept.rejected, source="prompt")
            run.finish("rejected", kept.rejected)
            return False
    await receive(run, "steering", at=len(run.pending))
    if not prompts and not run.pending and not decision.inject:
        await _hear_follow_up(run)
    run.pending.extend(decision.inject)
    return True


def open_inbox(run: Run) -> None:
    """Let the run hear what is queued from now on; its callbacks and its message provider are the same sources."""
    config, provider = run.config, run.config.message_provider
    run.inbox.open(
        steering=config.get_steering_messages or (provider.poll_steering if provider is not None else None),
        follow_up=config.get_follow_up_messages or (provider.poll_follow_up if provider is not None else None),
    )


async def _hear_follow_up(run: Run) -> None:
    """A continuation after a finished answer is about what was queued since."""
    if answered(run.context.log.messages):
        await receive(run, "follow_up")


def _start(run: Run) -> None:
    """Say that the run starts, once."""
    if run.begun:
        return
    run.begun = True
    context = run.context
    run.emit(
        AgentStart,
        agent_id=context.agent_id,
        session_id=context.session_id,
        continuation_kind=context.continuation_kind or Initial(),
        parent_loop_id=context.parent_loop_id,
        parent_tool_call_id=run.parent_tool_call_id,
        config_snapshot=run.config.snapshot([*run.tools]) if run.audible else None,
    )


def _end(run: Run) -> None:
    """Close the run: everything that was accepted is heard or queued again, and `agent_end` is the last word."""
    untold_limit = run.end_reason == "limit" and not run.limit_noted
    if untold_limit or (run.end_reason not in ("vetoed", "rejected") and _untold(run)):
        _last_turn(run)
    run.inbox.give_back([*[item for item in run.pending if type(item) is Queued], *run.judged])
    run.pending.clear()
    run.inbox.close()
    run.finish("done")
    run.prefer_abort()
    run.emit(AgentEnd, messages=run.new_messages, usage=run.usage, end_reason=run.end_reason, detail=run.detail)
    run.closed = True
    context = run.context
    context.last_loop_id, context.loop_id = run.loop_id, None


def _untold(run: Run) -> bool:
    """Whether the run ends before its first turn with something to tell, the turn that settles old calls apart."""
    nothing_yet = run.turn_index == 0
    return nothing_yet or (run.turn_index == run.first_turn and (bool(run.pending) or run.end_reason == "error"))


def _last_turn(run: Run) -> None:
    """A run that ended outside a turn before it told everything: its prompts are heard, and what went wrong is said."""
    _start(run)
    turn = Turn(run.turn_index)
    run.emit(TurnStart, turn_index=turn.index, triggered_by=trigger(run))
    hear(run)
    if run.end_reason == "error":
        error_answer(run, turn, run.detail)
    close(run, turn)


async def _after(run: Run) -> None:
    """Tell `after_loop`, unless the run was refused; nothing it does can change the run any more."""
    hooks = () if run.end_reason in ("vetoed", "rejected") else run.config.seams.after_loop
    if hooks:
        try:
            async with run.patience():
                await observe(hooks, (run.new_messages, run.usage), seam="after_loop")
        except (HookError, TimeoutError) as error:
            run.report(str(error) or "after_loop gave no answer after the run was cancelled.")
        except asyncio.CancelledError:
            run.interrupt()
    for task in run.abandoned:
        task.cancel()


def _result(run: Run) -> RunResult:
    return RunResult(
        list(run.new_messages),
        run.usage,
        run.end_reason or "error",
        run.detail,
        undelivered=[item.message for item in run.inbox.items],
        error=run.error if run.end_reason == "error" else None,
    )


class Reach:
    """Connects everything that may cancel a run, until it is left.

    With `give_up` a run that has been cancelled again and again and still goes on is ended without it.
    """

    __slots__ = ("_give_up", "_home", "_loop", "_run", "_undo")

    def __init__(self, run: Run, signal: asyncio.Event | CancelToken | None, *, give_up: bool = False) -> None:
        self._run = run
        self._loop = loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._give_up = give_up
        self._undo: list[Callable[[], object]] = [run.token.on_cancel(self._deliver)]
        if (deadline := run.tracker.deadline) is not None:
            self._undo.append(loop.call_at(deadline, run.token.cancel, DEADLINE).cancel)
        if run.parent is not None:
            parent = run.parent.token
            self._undo.append(parent.on_cancel(lambda: run.token.cancel(parent.reason or "aborted")))
        if isinstance(signal, CancelToken):
            self._undo.append(signal.on_cancel(run.token.cancel))
        elif signal is not None:
            run.signal = signal
            self._undo.append(loop.create_task(_watch(signal, run.token)).cancel)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undo):
            undo()

    def _deliver(self, attempt: int = 1) -> None:
        """Wake the run where it waits. In its own task that has to be later: it may see the cancel by itself first."""
        run, loop = self._run, self._loop
        if loop.is_closed() or run.task is None or run.interrupted or run.task.done():
            return
        if threading.get_ident() != self._home:
            call_soon_in(loop, self._deliver)
        elif asyncio.current_task(loop) is run.task:
            loop.call_soon(self._deliver)
        elif attempt > _ATTEMPTS and self._give_up:
            _give_up(run)
        else:
            run.task.cancel()
            # A stream that swallows its cancel is cancelled again: nothing may hold a run that was told to stop.
            loop.call_later(_AGAIN, self._deliver, attempt + 1)


async def _watch(signal: asyncio.Event, token: CancelToken) -> None:
    await signal.wait()
    token.cancel()
