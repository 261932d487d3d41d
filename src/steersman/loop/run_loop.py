"""The loop: take a turn, listen, repeat, until nobody has more to say."""

from __future__ import annotations

from steersman.loop.pending import receive
from steersman.loop.run import Run, Turn
from steersman.loop.turn import take_turn
from steersman.policy.hooks import decide


async def run_loop(run: Run) -> None:
    """Turns, until there is a reason to end."""
    while run.end_reason is None:
        turn = await take_turn(run)
        if run.end_reason is None:
            await listen(run, turn)


async def listen(run: Run, turn: Turn) -> None:
    """What the next turn is about: steering, tool results, an injection, a follow-up; or else the run is done."""
    while not run.cancelled():
        steered = run.inbox.expects("steering") and await receive(run, "steering")
        if steered or turn.results or run.pending:
            return
        await _ask_around(run, turn)
        if run.end_reason is not None or run.pending or await receive(run, "follow_up") or run.cancelled():
            return
        # The last look and the end are one step; what came while we asked around is heard in another round.
        if run.inbox.close(only_if_empty=True):
            return run.finish("done", _remark(turn))


async def _ask_around(run: Run, turn: Turn) -> None:
    """The policies for when the agent would stop: they may end the run, or have something more to say."""
    seams = run.config.seams
    if seams.post_loop_policies:
        decision = await decide(seams.post_loop_policies, (run.view(turn),), seam="post_loop_policies")
        run.heed(decision, "post_loop_policies")
    if seams.before_follow_up and run.end_reason is None:
        decision = await decide(seams.before_follow_up, (run.context.log.messages,), seam="before_follow_up")
        run.heed(decision, "before_follow_up")


def _remark(turn: Turn) -> str:
    cut = turn.message is not None and turn.message.stop_reason == "length"
    return "The last answer was cut at the token limit." if cut else ""
