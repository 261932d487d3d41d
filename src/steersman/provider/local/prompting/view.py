"""What a small model is shown of a conversation: the task at hand, what was done for it, and a little of before.

A small window and a slow reader: long texts keep their head and their tail, and old turns are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, UserMessage

_CUT = "\n[...]\n"


@dataclass(frozen=True, slots=True)
class Step:
    """A call that was made, and what it gave."""

    name: str
    arguments: str
    result: str
    failed: bool = False

    @property
    def shown(self) -> str:
        """The result as the model reads it."""
        return f"error: {self.result}" if self.failed else self.result


@dataclass(slots=True)
class Turn:
    """What was asked, what was done about it, and what was answered, if anything was yet."""

    asked: list[str] = field(default_factory=list[str])
    steps: list[Step] = field(default_factory=list[Step])
    answer: str = ""


def turns_of(messages: Sequence[Message]) -> list[Turn]:
    """The conversation as turns; a message that came in the middle of one belongs to it."""
    turns: list[Turn] = []
    waiting: dict[str, tuple[str, str]] = {}
    for message in messages:
        match message:
            case UserMessage():
                if not turns or turns[-1].answer:
                    turns.append(Turn())
                turns[-1].asked.append(message.text)
            case AssistantMessage():
                turn = _last(turns)
                for call in message.tool_calls:
                    written = call.raw_arguments or msgspec.json.encode(call.arguments, order="sorted").decode()
                    waiting[call.id] = (call.name, written)
                if not message.tool_calls:
                    turn.answer = message.text
            case ToolResultMessage():
                name, written = waiting.pop(message.tool_call_id, (message.tool_name, "{}"))
                _last(turns).steps.append(Step(name, written, message.text, message.is_error))
    return turns


def _last(turns: list[Turn]) -> Turn:
    if not turns:
        turns.append(Turn())
    return turns[-1]


def size(text: str) -> int:
    """About how many tokens a text has, rather too many than too few."""
    if text.isascii():
        return len(text) // 3 + 1
    plain = sum(character.isascii() for character in text)
    return plain // 3 + 2 * (len(text) - plain) + 1


def cut(text: str, tokens: int) -> str:
    """The text, or its head and its tail where it is longer than so many tokens."""
    text = text.strip()
    whole = size(text)
    if whole <= tokens:
        return text
    room = max(0, len(text) * tokens // whole - len(_CUT))
    head = room * 3 // 4
    tail = room - head
    return text[:head].rstrip() + _CUT + (text[-tail:].lstrip() if tail else "")


def shared(texts: Sequence[str], tokens: int) -> list[str]:
    """The texts within so many tokens in all; the later one gets twice what the one before it may have."""
    shown: list[str] = []
    for text in reversed(texts):
        left = max(tokens - sum(map(size, shown)), 0)
        last = len(shown) == len(texts) - 1
        shown.append(cut(text, left if last else max(left * 2 // 3, 1)))
    return shown[::-1]
