"""The steps of the deterministic compaction, each pure, each without effect the second time.

A step changes only what is outside the task and the tail, and it keeps every call together with its results.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.context.entries import find_unit_starts
from steersman.context.tokens import Estimator, estimate_total_tokens
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage, user_message

if TYPE_CHECKING:
    from steersman.context.compaction.config import ContextConfig


MARKER = user_message("[Earlier messages were left out to save space.]", synthetic=True)
IMAGE_LEFT_OUT = "[image left out]"
EXCERPT_CHARS = 200


def find_task(messages: Sequence[AgentMessage], count: int) -> list[int]:
    """The indexes of the task: the first user messages that are not synthetic, or else the first user message."""
    users = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    return [index for index in users if not messages[index].synthetic][:count] or users[:1]


def find_tail(messages: Sequence[AgentMessage], keep: int) -> int:
    """Where the last `keep` messages begin, moved back so that no group is split; never after the last group."""
    if not messages:
        return 0
    starts = find_unit_starts(messages)
    wanted = max(0, len(messages) - max(keep, 1))
    return starts[bisect_right(starts, wanted) - 1]


def find_last_group(messages: Sequence[AgentMessage]) -> int:
    """Where the last group begins, or what the user just said."""
    start = find_tail(messages, 1)
    if start and _is_from_user(messages[start]):
        while start and _is_from_user(messages[start - 1]):
            start -= 1
    return start


def list_middle(messages: Sequence[AgentMessage], tail: int, keep_first: int) -> list[AgentMessage]:
    """What may be changed: everything before the tail but the task."""
    kept = set(find_task(messages, keep_first))
    return [message for index, message in enumerate(messages[:tail]) if index not in kept]


def shorten_outputs(messages: Sequence[AgentMessage], tail: int, chars: int) -> list[AgentMessage]:
    """Long tool outputs before the tail with their middle left out."""
    old = [
        _shorten_result(message, chars) if isinstance(message, ToolResultMessage) else message
        for message in messages[:tail]
    ]
    return old + list(messages[tail:])


def summarise_turns(messages: Sequence[AgentMessage], tail: int, estimator: Estimator) -> list[AgentMessage]:
    """Each turn before the tail as one short message, where that is shorter."""
    kept: list[AgentMessage] = []
    for start, end in pairwise([*(start for start in find_unit_starts(messages) if start < tail), tail]):
        kept += _summarise_unit(messages[start:end], estimator)
    return kept + list(messages[tail:])


def drop_middle(
    messages: Sequence[AgentMessage], tail: int, keep_first: int, estimator: Estimator
) -> list[AgentMessage]:
    """The task, one constant marker, the tail; unless that would be longer."""
    if estimate_total_tokens(list_middle(messages, tail, keep_first), estimator) <= estimator(MARKER):
        return list(messages)
    return replace_middle(messages, tail, keep_first, MARKER)


def replace_middle(
    messages: Sequence[AgentMessage], tail: int, keep_first: int, middle: AgentMessage
) -> list[AgentMessage]:
    """The task and the tail with one message between them for all the rest."""
    first = [messages[index] for index in find_task(messages, keep_first) if index < tail]
    return [*first, middle, *messages[tail:]]


def _is_from_user(message: AgentMessage) -> bool:
    return isinstance(message, UserMessage) and not message.synthetic


def _shorten_result(message: ToolResultMessage, chars: int) -> ToolResultMessage:
    texts = [block.text if isinstance(block, TextContent) else IMAGE_LEFT_OUT for block in message.content]
    text = "\n".join(texts)
    if len(text) <= chars:
        if all(isinstance(block, TextContent) for block in message.content):
            return message
        return replace(message, content=[TextContent(text)])
    return replace(message, content=[TextContent(_truncate_middle(text, chars))])


def _truncate_middle(text: str, chars: int) -> str:
    """Head and tail of a text, at most `chars` long together with the note between them."""
    note = f"\n[... {len(text)} characters, shortened to save space ...]\n"
    room = chars - len(note)
    if room <= 0:
        return note.strip()[:chars]
    head = room * 2 // 3
    return text[:head] + note + text[len(text) - (room - head) :]


def _summarise_unit(unit: Sequence[AgentMessage], estimator: Estimator) -> list[AgentMessage]:
    work = [message for message in unit if isinstance(message, AssistantMessage | ToolResultMessage)]
    if not work:
        return list(unit)
    text = _summarise_work(work)
    summary = [UserMessage([TextContent(text)], timestamp=work[0].timestamp, synthetic=True)] if text else []
    if estimate_total_tokens(summary, estimator) >= estimate_total_tokens(work, estimator):
        return list(unit)
    return [*summary, *(message for message in unit if not isinstance(message, AssistantMessage | ToolResultMessage))]


def _summarise_work(work: Sequence[AssistantMessage | ToolResultMessage]) -> str:
    """What is worth knowing of a turn: what the model said first, and which tools it used."""
    answers = [message for message in work if isinstance(message, AssistantMessage) and not message.failed]
    said = " ".join(" ".join(message.text for message in answers).split())
    if len(said) > EXCERPT_CHARS:
        said = said[: EXCERPT_CHARS - 3] + "..."
    used = Counter(call.name for message in answers for call in message.tool_calls)
    failed = sum(message.is_error for message in work if isinstance(message, ToolResultMessage))
    parts = [said] if said else []
    if used:
        names = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in used.items())
        parts.append(f"Tools used: {names}" + (f" ({failed} failed)." if failed else "."))
    return f"[Earlier turn] {' '.join(parts)}" if parts else ""


def count_image_bytes(messages: Sequence[AgentMessage]) -> int:
    """How many bytes the images in these messages are on the wire."""
    return sum(map(_count_bytes_of_images, messages))


class ImageCompaction:
    """Leaves out images, the oldest first, until at most half of them, and of their bytes, are left.

    Those that the user has just shown stay, because the answer has to be about them. Once the
    model has begun to work on it they may go too, after all others but the newest. With `all`, for a model that takes
    none, the others are left out without exception.
    """

    __slots__ = ("_all",)

    def __init__(self, *, all: bool = False) -> None:
        self._all = all

    def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
        """The messages with a note where an image was; the same ones when there is none to leave out."""
        del config
        sizes = [
            [len(block.data) for block in message.content if isinstance(block, ImageContent)] for message in messages
        ]
        total = left = sum(map(sum, sizes))
        number = many = sum(map(len, sizes))
        shown = list(messages)
        asked = _find_last_request(messages)
        worked = any(map(_is_work, messages[asked.stop :]))
        end = len(messages) if worked else asked.start
        newest = find_last_group(messages)
        for index in sorted(range(end), key=lambda index: 2 if index >= newest else index in asked):
            if sizes[index] and (self._all or left * 2 > total or many * 2 > number):
                left -= sum(sizes[index])
                many -= len(sizes[index])
                shown[index] = _drop_images(messages[index])
        return shown


def _find_last_request(messages: Sequence[AgentMessage]) -> range:
    """The indexes of the last messages of the user."""
    said = [index for index, message in enumerate(messages) if _is_from_user(message)]
    if not said:
        return range(0)
    start = find_last_group(messages[: said[-1] + 1])
    return range(start, said[-1] + 1)


def _is_work(message: AgentMessage) -> bool:
    """Whether the model has worked on the request; a failed answer does not count, because it is not sent again."""
    return isinstance(message, ToolResultMessage) or (isinstance(message, AssistantMessage) and not message.failed)


def _count_bytes_of_images(message: AgentMessage) -> int:
    return sum(len(block.data) for block in message.content if isinstance(block, ImageContent))


def _drop_images(message: AgentMessage) -> AgentMessage:
    note = TextContent(IMAGE_LEFT_OUT)
    return replace(message, content=[note if isinstance(block, ImageContent) else block for block in message.content])
