"""The tool `todo`: the model keeps a list of what is to do, which its user can see.

It keeps nothing itself: the list is in the `details` of its results, and `find_todo` finds the last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from steersman.tools.tool import tool
from steersman.types.errors import ToolError
from steersman.types.messages import AgentMessage, ToolResultMessage
from steersman.types.tools import ToolOutput

MAX_ITEMS, MAX_TEXT = 50, 300
"""The most items of a list, and the most characters of one."""


class TodoItem(msgspec.Struct, frozen=True):
    """One thing to do."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
    status: Literal["pending", "in_progress", "done"] = "pending"


@tool(name="todo", access="read", idempotent=True)
async def todo(items: Annotated[list[TodoItem], msgspec.Meta(max_length=MAX_ITEMS)]) -> ToolOutput:
    """Show the user your list for a task of three or more steps. Each call replaces the whole list.

    Call it when a step begins or is done.
    """
    # One line each: a break would look like another item.
    kept = [TodoItem(" ".join(item.text.split()), item.status) for item in items]
    for number, item in enumerate(kept, start=1):
        if not item.text:
            raise ToolError(f"Item {number} has no text; the list stays as it was. Say what is to do.")
    done = sum(item.status == "done" for item in kept)
    said = f"{done} of {len(kept)} done." if kept else "The list is empty."
    return ToolOutput(said, details={"todo": [msgspec.to_builtins(item) for item in kept]})


def read_todo(result: ToolResultMessage) -> list[TodoItem] | None:
    """Read the list of a result of `todo`; `None` if it is no such result, or has failed."""
    if result.tool_name != "todo" or result.is_error:
        return None
    try:
        return msgspec.convert(result.details.get("todo"), list[TodoItem])
    except msgspec.ValidationError:  # another tool of this name, or a damaged session
        return None


def find_todo(messages: Iterable[AgentMessage]) -> list[TodoItem]:
    """Find the list as it is after these messages; empty without one."""
    for message in reversed([*messages]):
        if isinstance(message, ToolResultMessage) and (items := read_todo(message)) is not None:
            return items
    return []
