"""Whether the model may, must or must not call a tool."""

from __future__ import annotations

from typing import Any, cast

import pytest

from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call


@tool
async def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize(
    ("choice", "asked"),
    [("auto", ["auto", "auto"]), ("required", ["required", "auto"]), ("none", ["none", "none"])],
)
async def test_a_required_tool_is_required_in_the_first_turn_of_a_run(choice: Any, asked: list[str]) -> None:
    """loop.md T6: in later turns the model may answer, or the run could never end."""
    script = ScriptedModel(answer(call("look")), "Done.")
    agent = Agent(script.model, tools=[look], tool_choice=choice)
    result = await agent.run("Go.")
    assert result.end_reason == "done"
    assert [options.tool_choice for _, options in script.requests] == asked


def test_an_unknown_choice_is_refused() -> None:
    """Bad input gets a clear error."""
    with pytest.raises(ValueError, match="tool_choice"):
        Agent("some:one", tool_choice=cast(Any, "maybe"))
