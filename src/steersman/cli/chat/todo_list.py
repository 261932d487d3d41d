"""The list of the tool `todo` as the chat shows it: whole where there is room, one line where there is little."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.agent.agent import Agent
from steersman.cli.terminal.columns import truncate
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.context.entries import MessageEntry
from steersman.tools.builtin.todo import TodoItem, find_todo
from steersman.types.visible import escape_invisible

_MARKS = {"done": "\u2713", "in_progress": "\u25b8", "pending": "\u25cb"}
_ROOMY = 20
"""The least rows of a window in which items have lines of their own."""


def restore_todo(agent: Agent) -> list[TodoItem]:
    """Finds the list of the conversation, also one that the model no longer sees after a compaction."""
    return find_todo(entry.message for entry in agent.context.log.entries if isinstance(entry, MessageEntry))


def render_todo(items: Sequence[TodoItem], columns: int, rows: int) -> list[str]:
    """Renders the list in at most a quarter of the rows; nothing once all is done. The texts are sanitized here."""
    left = [item for item in items if item.status != "done"]
    if not left:
        return []
    most = rows // 4
    count = f"{len(items) - len(left)}/{len(items)}"
    if rows < _ROOMY or most < 3:
        now = next((item for item in left if item.status == "in_progress"), left[0])
        return [truncate(f"todo {count} {_render_item(now)}", columns)]
    shown = items if len(items) <= most - 1 else _choose(items, most - 2)
    more = len(items) - len(shown)
    lines = [f"todo {count}", *(f"  {_render_item(item)}" for item in shown), *([f"  and {more} more"] if more else ())]
    return [truncate(line, columns) for line in lines]


def _choose(items: Sequence[TodoItem], most: int) -> Sequence[TodoItem]:
    """Chooses the items around the first one that is not done."""
    first = next((index for index, item in enumerate(items) if item.status != "done"), 0)
    start = max(0, min(first - 1, len(items) - most))
    return items[start : start + most]


def _render_item(item: TodoItem) -> str:
    return f"{_MARKS[item.status]} {sanitize_line(escape_invisible(item.text))}"
