"""What a type checker knows of tools. `assert_type` and the ignored errors are checked by `make types`.

`# pyright: ignore` that ignores nothing is an error there, so each of them is a test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from steersman import CancelToken, Tool, ToolContext, tool


@dataclass
class Database:
    rows: list[str]


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool(name="look_up", timeout=3)
async def look(name: str, ctx: ToolContext[Database]) -> list[str]:
    """Look for a name."""
    return [row for row in assert_type(ctx.deps, Database).rows if name in row]


class Desk:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    @tool
    def note(self, text: str) -> str:
        """Write it down."""
        return f"{self.owner}: {text}"


def test_a_tool_keeps_the_signature_of_its_function_for_a_checker() -> None:
    """api.md: `@tool` keeps the function callable with its own signature."""
    assert assert_type(add(1, b=3), int) == 4
    with pytest.raises(TypeError):
        add("1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        add(1, c=3)  # pyright: ignore[reportCallIssue]


async def test_an_async_tool_gives_a_coroutine_and_a_method_is_bound() -> None:
    """As above."""
    found = look("x", ToolContext("call_1", "look_up", CancelToken(), deps=Database(["x", "y"])))
    assert assert_type(await found, list[str]) == ["x"]
    desk = Desk("Ada")
    assert assert_type(desk.note("hi"), str) == "Ada: hi"
    assert assert_type(Desk.note(desk, "hi"), str) == "Ada: hi"
    with pytest.raises(TypeError):
        desk.note(desk, "hi")  # pyright: ignore[reportCallIssue]


def test_a_tool_without_type_arguments_is_a_tool_of_any_function() -> None:
    """Lists of tools need no type arguments."""
    tools: list[Tool] = [add, look, Desk("Ada").note, Tool("t", "T.", {"type": "object"}, len)]
    assert [each.name for each in tools] == ["add", "look_up", "note", "t"]


def test_signatures_can_be_read() -> None:
    """`inspect.signature(Tool)` is that of its constructor, and that of a tool its function's."""
    assert [*inspect.signature(Tool).parameters][:4] == ["name", "description", "parameters", "execute"]
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
    assert [*inspect.signature(Desk("Ada").note).parameters] == ["text"]
    function: Callable[..., Any] = inspect.unwrap(add)
    assert function(1) == 3
    assert function is not add
    assert not hasattr(Tool, "__wrapped__")
