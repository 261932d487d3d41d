"""Which assistant message a tool result belongs to: the one rule that prun, compaction and forks share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steersman.types.content import ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage

NOBODY = -1


def owners(messages: Sequence[AgentMessage]) -> list[int]:
    """The index of the assistant message each message belongs to: itself, the last with its call, or `NOBODY`."""
    asked: dict[str, int] = {}
    found: list[int] = []
    for index, message in enumerate(messages):
        if type(message) is AssistantMessage:
            asked.update((block.id, index) for block in message.content if type(block) is ToolCall)
            found.append(index)
        elif type(message) is ToolResultMessage:
            found.append(asked.get(message.tool_call_id, NOBODY))
        else:
            found.append(NOBODY)
    return found


def whole_groups(messages: Sequence[AgentMessage], chosen: Iterable[int]) -> set[int]:
    """The chosen indexes, each with its assistant message and all results of that."""
    owner = owners(messages)
    taken = set(chosen)
    heads = {owner[index] for index in taken} - {NOBODY}
    taken.update(index for index, head in enumerate(owner) if head in heads)
    return taken


def unit_starts(messages: Sequence[AgentMessage]) -> list[int]:
    """Where the list may be cut: the starts of runs that keep every result together with its call."""
    last = list(range(len(messages)))
    for index, owner in enumerate(owners(messages)):
        if owner != NOBODY:
            last[owner] = index
    starts: list[int] = []
    end = -1
    for index, reach in enumerate(last):
        if index > end:
            starts.append(index)
        end = max(end, reach)
    return starts
