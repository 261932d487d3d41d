"""A plain function in `tools=[...]`: it is read once, and is the same tool in every agent."""

from __future__ import annotations

from collections.abc import Callable

from steersman.tools.table import build_tool_table
from steersman.tools.tool import Tool


def make_function() -> Callable[..., int]:
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    return add


def read(function: Callable[..., int]) -> Tool:
    return build_tool_table([function])["add"]


def test_a_function_is_the_same_tool_in_every_agent() -> None:
    add = make_function()
    assert read(add) is read(add)
    assert read(add) is not read(make_function())


def test_a_function_that_has_changed_is_another_tool() -> None:
    add = make_function()
    first = read(add)
    add.__doc__ = "Add up."
    second = read(add)
    assert (first.description, second.description) == ("Add two numbers.", "Add up.")
    setattr(add, "__defaults__", (5,))  # noqa: B010  # a type checker knows no defaults of a callable
    assert read(add).parameters["properties"]["b"]["default"] == 5
    assert second.parameters["properties"]["b"]["default"] == 1


def test_a_hundred_functions_more_than_are_kept_are_read_again() -> None:
    functions = [make_function() for _ in range(400)]
    tools = [read(function) for function in functions]
    assert len({id(tool) for tool in tools}) == 400
    assert [read(function).execute for function in functions] == functions
