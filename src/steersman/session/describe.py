"""Describes who says a message and what an entry that is no message did, in words that are safe to show."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from steersman.context.entries import CompactionEntry, Entry, PrunEntry, UndoEntry
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage
from steersman.types.visible import sanitize_line

AuthorStyle: TypeAlias = Literal["bold", "dim", "good", "bad"]


def describe_author(message: AgentMessage) -> tuple[str, AuthorStyle]:
    """Describes who says a message, and the style for it."""
    match message:
        case UserMessage(synthetic=True):
            return "steersman", "dim"
        case UserMessage():
            return "user", "bold"
        case AssistantMessage():
            named = f" ({sanitize_line(message.model)})" if message.model else ""
            failed = f" [{message.stop_reason}]" if message.stop_reason not in ("stop", "tool_use") else ""
            return f"assistant{named}{failed}", "bold"
        case ToolResultMessage():
            status = sanitize_line(str(message.details.get("status", "")))
            trouble = " failed" if message.is_error and status == "completed" else f" {status}" if status else ""
            return f"{sanitize_line(message.tool_name)}:{trouble or ' done'}", "bad" if message.is_error else "good"
        case _:
            return f"note ({sanitize_line(message.kind)})", "dim"


def describe_change(entry: Entry) -> str:
    """Describes an entry that is not a message."""
    match entry:
        case CompactionEntry():
            return f"compacted: from here on the model sees {len(entry.items)} messages for everything before"
        case PrunEntry():
            memo = f"; memo: {sanitize_line(entry.memo)}" if entry.memo else ""
            return f"the model removed {len(entry.entry_ids)} messages of its own work from its context{memo}"
        case UndoEntry():
            return "the last compaction or prun was undone"
        case _:
            return entry.type


def encode_json(value: object) -> str:
    """Encodes a value as JSON; what has no JSON form by its `repr`."""
    return msgspec.json.encode(value, enc_hook=repr).decode()
