"""The tool `todo`: one call replaces the list, which is bounded and checked, and is found again in the conversation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rows import each_row

from steersman.tools import TodoItem, find_todo, todo
from steersman.tools.output import ToolContext
from steersman.tools.schema.validation import InvalidArguments
from steersman.types.cancel import CancelToken
from steersman.types.errors import ToolError
from steersman.types.messages import ToolResultMessage
from steersman.types.tools import ToolOutput


async def run(items: object) -> ToolOutput:
    return await todo.call(todo.check({"items": items}), ToolContext("1", "todo", CancelToken()))


def to_result(output: ToolOutput, *, name: str = "todo", is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage([], tool_call_id="1", tool_name=name, is_error=is_error, details=output.details)


async def test_each_call_replaces_the_list_and_the_last_one_is_found() -> None:
    first = await run([{"text": "look", "status": "in_progress"}, {"text": "change"}])
    second = await run([{"text": "look\n  around", "status": "done"}, {"text": "change", "status": "in_progress"}])
    assert (first.content, second.content) == ("0 of 2 done.", "1 of 2 done.")
    failed, other = to_result(first, is_error=True), to_result(first, name="other")
    damaged = to_result(ToolOutput("", details={"todo": [{"text": 1}]}))
    assert find_todo([to_result(first), to_result(second), failed, other, damaged]) == [
        TodoItem("look around", "done"),
        TodoItem("change", "in_progress"),
    ]
    assert find_todo([to_result(second), to_result(await run([]))]) == []
    with pytest.raises(ToolError, match="Item 1 has no text; the list stays as it was"):
        await run([{"text": "   "}])


@each_row(
    ("items", "says"),
    [
        ([{"text": "x", "status": "doing"}], "status"),
        ([{"text": ""}], "text"),
        ([{"text": "x" * 301}], "text"),
        ([{"text": "x", "more": 1}], "more"),
        ([{"status": "done"}], "text"),
        ([{"text": "x"}] * 51, "items"),
        ({"text": "x"}, "items"),
        ("x", "items"),
    ],
)
async def test_a_list_that_is_not_valid_is_an_error_that_names_the_field(items: Any, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        await run(items)
