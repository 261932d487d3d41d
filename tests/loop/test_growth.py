"""What a turn costs does not depend on how long the conversation is."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from steersman import Agent, tool
from steersman.context.log import MessageView
from steersman.testing import ScriptedModel, answer, call, error
from steersman.types.errors import ErrorInfo

HISTORY = 20_000
# A copy of the history as a list of references alone would take eight bytes a message.
ALLOWED = HISTORY * 8 // 2


@tool
async def nothing() -> str:
    """Do nothing."""
    return "nothing"


def long_conversation() -> list[dict[str, Any]]:
    return [{"role": role, "content": "words"} for _ in range(HISTORY // 2) for role in ("user", "assistant")]


@pytest.mark.parametrize("down", [False, True])
async def test_a_turn_does_not_copy_the_history(down: bool) -> None:
    """loop.md section 6, C1; failures.md I11: what a turn allocates has nothing to do with what was said before.

    Nor has it where another model answers, because the first one is down.
    """
    turns = 4
    script = ScriptedModel(*[answer(call("nothing")) for _ in range(2 * turns - 1)], "Done.")
    peaks: list[int] = []

    def measure(*_: Any) -> None:
        peaks.append(tracemalloc.get_traced_memory()[1] - base[0])
        tracemalloc.reset_peak()
        base[0] = tracemalloc.get_traced_memory()[0]

    base = [0]
    models: dict[str, Any] = {"model": script.model}
    if down:
        broken = ScriptedModel(error(ErrorInfo("authentication", "no", status=401)), repeat_last=True)
        models = {"model": broken.model, "fallbacks": [script.model]}
    agent = Agent(**models, tools=[nothing], messages=long_conversation(), before_turn=measure)
    gc.collect()
    tracemalloc.start()
    try:
        result = await agent.run("Go.")
    finally:
        tracemalloc.stop()
    assert result.end_reason == "done"
    # The first request of a conversation that was handed in looks at all of it once.
    assert [peak for peak in peaks[2:] if peak > ALLOWED] == []
    assert len(peaks) == 2 * turns


async def test_a_second_run_looks_only_at_what_is_new() -> None:
    """loop.md C1: going on with a long conversation does not look at all of it again."""
    script = ScriptedModel("One.", "Two.", "Three.")
    agent = Agent(script.model, messages=long_conversation())
    await agent.run("First.")
    await agent.run("Second.")
    await agent.run("Third.")
    views = [request.messages for request, _ in script.requests]
    assert all(isinstance(view, MessageView) for view in views)
    assert len({id(view.base) for view in views if isinstance(view, MessageView)}) == 1
    assert [len(view) - HISTORY for view in views] == [1, 3, 5]
