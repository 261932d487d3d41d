"""The entries of a log, and which messages belong together. A log is append-only: each change is a new entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from steersman.types.content import ToolCall
from steersman.types.frozen import FrozenList
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage, user_message

# The owner of a message that belongs to no assistant message.
NO_OWNER = -1


class MessageEntry(msgspec.Struct, frozen=True, tag="message", tag_field="type", gc=False):
    """A message was added."""

    type: ClassVar[Literal["message"]] = "message"
    id: str
    message: AgentMessage


class CompactionEntry(msgspec.Struct, frozen=True, tag="compaction", tag_field="type", omit_defaults=True):
    """From here on the model sees `items` instead of all that came before: kept messages by id, new ones in full."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    id: str
    items: Sequence[str | AgentMessage]
    tokens_before: int = 0
    tokens_after: int = 0

    def __post_init__(self) -> None:
        if type(self.items) is not FrozenList:
            force_setattr(self, "items", FrozenList(self.items))


class PrunEntry(msgspec.Struct, frozen=True, tag="prun", tag_field="type", omit_defaults=True):
    """The model no longer sees these entries of its own work; the memo takes the place of the earliest of them."""

    type: ClassVar[Literal["prun"]] = "prun"
    id: str
    entry_ids: Sequence[str]
    tokens_removed: int
    memo: str | None = None

    def __post_init__(self) -> None:
        if type(self.entry_ids) is not FrozenList:
            force_setattr(self, "entry_ids", FrozenList(self.entry_ids))


class UndoEntry(msgspec.Struct, frozen=True, tag="undo", tag_field="type"):
    """A compaction or a prun was undone."""

    type: ClassVar[Literal["undo"]] = "undo"
    id: str
    target: str


Entry: TypeAlias = MessageEntry | CompactionEntry | PrunEntry | UndoEntry


class Live(msgspec.Struct, frozen=True):
    """A message of the model's work that no prun has hidden."""

    message: AssistantMessage | ToolResultMessage


class Pruned(msgspec.Struct, frozen=True):
    """A message of the model's work that a prun has hidden."""

    message: AssistantMessage | ToolResultMessage


def make_part_id(entry_id: str, number: int) -> str:
    """The id of a message that a compaction or a prun contains."""
    return f"{entry_id}.{number}"


def make_memo_message(memo: str) -> UserMessage:
    """The message that takes the place of pruned work."""
    return user_message(f"[Memo: {memo}]", synthetic=True)


def find_owners(messages: Sequence[AgentMessage]) -> list[int]:
    """For each message the index of its assistant message: itself, the last one with its call, or `NO_OWNER`."""
    asked: dict[str, int] = {}
    found: list[int] = []
    for index, message in enumerate(messages):
        if type(message) is AssistantMessage:
            asked.update((block.id, index) for block in message.content if type(block) is ToolCall)
            found.append(index)
        elif type(message) is ToolResultMessage:
            found.append(asked.get(message.tool_call_id, NO_OWNER))
        else:
            found.append(NO_OWNER)
    return found


def complete_groups(messages: Sequence[AgentMessage], chosen: Iterable[int]) -> set[int]:
    """The chosen indexes, each with its assistant message and all results of that."""
    owner = find_owners(messages)
    taken = set(chosen)
    heads = {owner[index] for index in taken} - {NO_OWNER}
    taken.update(index for index, head in enumerate(owner) if head in heads)
    return taken


def find_unit_starts(messages: Sequence[AgentMessage]) -> list[int]:
    """The indexes at which the list may be cut without separating a result from its call."""
    last = list(range(len(messages)))
    for index, owner in enumerate(find_owners(messages)):
        if owner != NO_OWNER:
            last[owner] = index
    starts: list[int] = []
    end = -1
    for index, reach in enumerate(last):
        if index > end:
            starts.append(index)
        end = max(end, reach)
    return starts
