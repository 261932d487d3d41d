"""Computes what the model sees from the entries of a log alone: how compaction, prun and undo take effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from steersman.context.entries import (
    CompactionEntry,
    Entry,
    Live,
    MessageEntry,
    Pruned,
    PrunEntry,
    UndoEntry,
    complete_groups,
    find_owners,
    make_memo_message,
    make_part_id,
)
from steersman.context.tokens import Estimator, estimate_total_tokens
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage


class VisibleMessages(msgspec.Struct):
    """Visible messages and their ids. The usage reported by messages before `usage_from` belongs to another context."""

    messages: list[AgentMessage]
    ids: list[str]
    usage_from: int = 0


def list_undo_targets(entries: Iterable[Entry]) -> set[str]:
    """The ids of the entries that were undone."""
    return {entry.target for entry in entries if type(entry) is UndoEntry}


def compute_visible(entries: Sequence[Entry]) -> VisibleMessages:
    """The view that all entries together produce."""
    void = list_undo_targets(entries)
    known: dict[str, AgentMessage] = {}
    seen = VisibleMessages([], [])
    for entry in entries:
        if type(entry) is MessageEntry:
            known[entry.id] = entry.message
            seen.messages.append(entry.message)
            seen.ids.append(entry.id)
            continue
        # Parts of an undone entry stay known: a later compaction may have kept them.
        known.update(_collect_parts(entry))
        if isinstance(entry, PrunEntry) and entry.id not in void:
            seen = apply_prun(entry, seen.messages, seen.ids)
        elif isinstance(entry, CompactionEntry) and entry.id not in void:
            seen = _apply_compaction(entry, known)
        seen.usage_from = len(seen.messages)
    return seen


def apply_prun(entry: PrunEntry, messages: Sequence[AgentMessage], ids: Sequence[str]) -> VisibleMessages:
    """The view without the groups that a prun hides, with its memo in the place of the earliest one."""
    taken = complete_groups(messages, find_indexes(ids, set(entry.entry_ids)))
    first = min(taken, default=-1)
    seen = VisibleMessages([], [])
    for index, message in enumerate(messages):
        if index not in taken:
            seen.messages.append(message)
            seen.ids.append(ids[index])
        elif entry.memo and index == first:
            seen.messages.append(make_memo_message(entry.memo))
            seen.ids.append(make_part_id(entry.id, 0))
    seen.usage_from = len(seen.messages)
    return seen


def choose_groups(
    messages: Sequence[AgentMessage], end: int, tokens: int, estimator: Estimator
) -> tuple[list[int], int]:
    """The most recent whole groups before `end`, until `tokens` are freed: their indexes, and what they free."""
    groups: dict[int, list[int]] = {}
    for index, owner in enumerate(find_owners(messages)):
        groups.setdefault(owner, []).append(index)
    freed = 0
    taken: list[int] = []
    for head in range(end - 1, -1, -1):
        if freed >= tokens:
            break
        group = groups.get(head, ())
        taken += group
        freed += estimate_total_tokens((messages[index] for index in group), estimator)
    return sorted(taken), freed


def list_inrun(entries: Sequence[Entry], messages: Sequence[AgentMessage], ids: Sequence[str]) -> list[Live | Pruned]:
    """What the model and its tools said, and whether a prun hides it."""
    void = list_undo_targets(entries)
    gone = {
        entry_id
        for entry in entries
        if type(entry) is PrunEntry and entry.id not in void
        for entry_id in entry.entry_ids
    }
    hidden = complete_groups(messages, find_indexes(ids, gone))
    return [
        Pruned(message) if index in hidden else Live(message)
        for index, message in enumerate(messages)
        if isinstance(message, AssistantMessage | ToolResultMessage)
    ]


def find_group_end(entries: Sequence[Entry], place: int) -> int:
    """One past the last result that belongs to the group at `place`, so that no call is split from its results."""
    calls: set[str] = set()
    for at in range(place, -1, -1):
        message = _get_message(entries[at])
        if isinstance(message, AssistantMessage):
            calls = {call.id for call in message.tool_calls}
        if isinstance(message, AssistantMessage | UserMessage):
            break
    end = place + 1
    for at in range(end, len(entries)):
        message = _get_message(entries[at])
        if isinstance(message, AssistantMessage | UserMessage):
            break
        if isinstance(message, ToolResultMessage) and message.tool_call_id in calls:
            end = at + 1
    return end


def find_last_question(entries: Sequence[Entry], place: int, *, spoken_only: bool) -> int | None:
    """The index of the last message, at `place` or before, that a model answers; `spoken_only`: only user messages."""
    for at in range(place, -1, -1):
        message = _get_message(entries[at])
        if spoken_only:
            if isinstance(message, UserMessage) and not message.synthetic:
                return at
        elif isinstance(message, UserMessage | ToolResultMessage):
            return at
    return None


def find_indexes(ids: Sequence[str], wanted: set[str]) -> list[int]:
    """The places of the wanted ids."""
    return [index for index, entry_id in enumerate(ids) if entry_id in wanted]


def _get_message(entry: Entry) -> AgentMessage | None:
    return entry.message if type(entry) is MessageEntry else None


def _collect_parts(entry: Entry) -> dict[str, AgentMessage]:
    if isinstance(entry, CompactionEntry):
        return {make_part_id(entry.id, at): item for at, item in enumerate(entry.items) if not isinstance(item, str)}
    if isinstance(entry, PrunEntry) and entry.memo:
        return {make_part_id(entry.id, 0): make_memo_message(entry.memo)}
    return {}


def _apply_compaction(entry: CompactionEntry, known: dict[str, AgentMessage]) -> VisibleMessages:
    ids = [item if isinstance(item, str) else make_part_id(entry.id, at) for at, item in enumerate(entry.items)]
    for item in ids:
        if item not in known:
            raise ValueError(f"The compaction {entry.id!r} keeps {item!r}, which is not in the log before it.")
    return VisibleMessages([known[item] for item in ids], ids)
