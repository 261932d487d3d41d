from __future__ import annotations

from typing import Any

import pytest

from steersman.tools.builtin.prun import prun, prun_with_memo
from steersman.tools.output import ToolContext
from steersman.tools.schema.validation import InvalidArguments
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.tools import Prun, ToolOutput


async def run(tool: Tool, arguments: dict[str, Any]) -> ToolOutput:
    return await tool.call(tool.check(arguments), ToolContext("1", tool.name, CancelToken()))


async def test_prun_asks_the_loop_by_an_effect() -> None:
    """loop.md C2"""
    assert await run(prun, {"tokens": "500"}) == ToolOutput(
        "At least 500 tokens of your recent work are dropped after this step.", effects=[Prun(500)]
    )


async def test_prun_with_memo_carries_the_memo() -> None:
    """loop.md C2"""
    assert (await run(prun_with_memo, {"tokens": 500, "memo": "B works"})).effects == [Prun(500, "B works")]


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        (prun, {"tokens": 0}, "arguments.tokens: expected at least 1, got 0"),
        (prun, {}, "arguments.tokens: missing, an integer is required"),
        (prun_with_memo, {"tokens": 1}, "arguments.memo: missing, a string is required"),
        (prun_with_memo, {"tokens": 1, "memo": ""}, "arguments.memo: expected at least 1 characters, got ''"),
    ],
)
def test_nothing_to_drop_or_to_remember_is_refused(tool: Tool, arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        tool.check(arguments)
    assert str(caught.value) == f"Invalid arguments for tool {tool.name!r}:\n{expected}"


def test_the_names_are_the_ones_the_model_knows() -> None:
    assert (prun.name, prun_with_memo.name) == ("prun", "prun_with_memo")
