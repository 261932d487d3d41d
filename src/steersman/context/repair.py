"""The transcript as a provider accepts it, whatever cancels, crashes, compactions, forks and model switches left.

Every tool call has exactly one result, in call order, directly after it; no result is without its call; nothing is
empty; call ids are unique; thinking goes back byte for byte to the model that made it and to no other; the first
message is not the model's, nor is the last. A message that needs no change stays the same object.

`Recovery` says what is known about the tool calls that a crash left open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from steersman.context.log import MessageView
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.frozen import MemoList
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    ExtensionMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    user_message,
)

UNKNOWN = "Outcome unknown after a crash: the call was running when the program ended. It may have had its effect."
NOT_STARTED = "Not run: the program ended before this call could start."


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question whether a call may run, with the exact call that it is about, and what was shown of it."""

    approval_id: str
    tool_name: str
    args: Mapping[str, Any]
    preview: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """By call id: results of calls that had ended, calls that were about to start or had started, open questions."""

    results: Mapping[str, ToolResultMessage] = field(default_factory=dict[str, ToolResultMessage])
    started: Set[str] = frozenset()
    questions: Mapping[str, OpenQuestion] = field(default_factory=dict[str, OpenQuestion])


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """The last answer of a transcript, its index, and those of its calls that have no result."""

    message: AssistantMessage
    index: int
    calls: Sequence[ToolCall]


def find_open_calls(messages: Sequence[AgentMessage]) -> OpenCalls | None:
    """The tool calls at the end of a transcript that have no result; `None` if there are none."""
    answered: set[str] = set()
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if type(message) is ToolResultMessage:
            answered.add(message.tool_call_id)
        elif type(message) is AssistantMessage:
            calls = [] if message.failed else [call for call in message.tool_calls if call.id not in answered]
            return OpenCalls(message, index, calls) if calls else None
        elif type(message) is not ExtensionMessage:
            return None
    return None


INTERRUPTED = "Tool call interrupted: its outcome is unknown."
NO_OUTPUT = "(no output)"

_BEGIN = user_message("(conversation continues)", synthetic=True)
_GO_ON = user_message("Continue.", synthetic=True)
_INTERRUPTED = TextContent(INTERRUPTED)
_NO_OUTPUT = TextContent(NO_OUTPUT)


def repair(messages: Sequence[AgentMessage], *, provider: str, model: str) -> list[Message]:
    """The messages as `provider` accepts them for `model`; repairing twice changes nothing more."""
    transcript = _RepairedTranscript(provider, model)
    transcript.add_all(messages)
    return transcript.written + transcript.make_ending()


class Repairer:
    """`repair` for a transcript that grows: of a view of the same list, only the new messages are repaired."""

    __slots__ = ("_base", "_repaired_count", "_transcript", "model", "provider")

    def __init__(self, provider: str, model: str) -> None:
        self.provider = provider
        self.model = model
        self._base: list[AgentMessage] | None = None
        self._repaired_count = 0
        self._transcript = _RepairedTranscript(provider, model)

    def apply(self, messages: Sequence[AgentMessage]) -> Sequence[Message]:
        """The same as `repair(messages)`, without a copy of the history where the messages are a view."""
        if not isinstance(messages, MessageView):
            return repair(messages, provider=self.provider, model=self.model)
        length = len(messages)
        if messages.base is not self._base or length < self._repaired_count:
            self._base = messages.base
            self._repaired_count = 0
            self._transcript = _RepairedTranscript(self.provider, self.model)
        transcript = self._transcript
        transcript.add_all(messages.base[self._repaired_count : length])
        self._repaired_count = length
        ending = transcript.make_ending()
        if ending:
            return transcript.written + ending
        transcript.shared = True
        return MessageView(transcript.written)  # pyright: ignore[reportReturnType, reportArgumentType]  # a view is only read, and here of messages for a model


class _Slot:
    """Where the result of one call belongs: in the open group while `position` is `None`, then in what is written."""

    __slots__ = ("call", "position", "result", "timestamp")

    def __init__(self, call: ToolCall, timestamp: float) -> None:
        self.call = call
        self.timestamp = timestamp
        self.result: ToolResultMessage | None = None
        self.position: int | None = None

    def build_result(self) -> ToolResultMessage:
        """The result of a call that has none."""
        return ToolResultMessage(
            [_INTERRUPTED],
            timestamp=self.timestamp,
            synthetic=True,
            tool_call_id=self.call.id,
            tool_name=self.call.name,
            is_error=True,
            details={"status": "interrupted"},
        )


class _RepairedTranscript:
    """Takes messages one by one and keeps the valid ones. Only a late result changes what is kept."""

    __slots__ = ("_group", "_missing", "_model", "_numbers", "_provider", "_used", "_waiting", "shared", "written")

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        # A wire keeps the encoded messages beside these.
        self.written: MemoList[Message] = MemoList()
        self.shared = False
        self._group: list[_Slot] = []
        self._missing = 0
        # Unanswered calls by the id the model gave them, of the last message that used it.
        self._waiting: dict[str, list[_Slot]] = {}
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def add_all(self, messages: Sequence[AgentMessage]) -> None:
        at = 0
        while at < len(messages):
            message = messages[at]
            at += 1
            if message.role == "assistant":
                answered = self._add_answered(message, messages, at)
                if answered:
                    at += answered
                else:
                    self._add_assistant(message)
            elif message.role == "tool_result":
                self._add_result(message)
            elif message.role == "user":
                self._add_user(message)

    def _add_answered(self, message: AssistantMessage, messages: Sequence[AgentMessage], at: int) -> int:
        """Add an answer with the results of its calls, which begin at `at`; returns how many there are.

        That is 0, and nothing is added, unless the results of all its calls follow and nothing has to be changed.
        """
        ids: list[str] = []
        for block in message.content:
            if type(block) is not ToolCall:
                if not self._is_clean(block, message):
                    return 0
            elif block.raw_arguments is not None or (block.signature is not None and not self._gave(message)):
                return 0
            elif at < len(messages) and _fits(messages[at], block):
                ids.append(block.id)
                at += 1
            else:
                return 0
        different = {*ids}
        if message.failed or not ids or len(different) < len(ids) or "" in different or different & self._used:
            return 0
        self._used |= different
        self._close_group()
        if not self.written:
            self.written.append(_BEGIN)
        self.written.append(message)
        self.written += messages[at - len(ids) : at]  # pyright: ignore[reportOperatorIssue]  # these are the results
        return len(ids)

    def _gave(self, message: AssistantMessage) -> bool:
        """Whether an answer is of the model that the messages are for."""
        return message.provider == self._provider and message.model == self._model

    def _is_clean(self, block: Content, message: AssistantMessage) -> bool:
        """Whether a block of an answer, other than a call, goes to the model as it is."""
        if type(block) is TextContent:
            return not _is_blank(block.text) and (block.signature is None or self._gave(message))
        return type(block) is ThinkingContent and not _is_blank(block.thinking) and self._gave(message)

    def make_ending(self) -> list[Message]:
        """What has to follow if the request is sent now; more messages may still make it unnecessary."""
        if self._group:
            return [slot.result or slot.build_result() for slot in self._group]
        if self.written and self.written[-1].role == "assistant":
            return [_GO_ON]
        return []

    def _add_user(self, message: UserMessage) -> None:
        content = _clean_blocks(message.content)
        if content:
            self._close_group()
            self.written.append(message if content == message.content else replace(message, content=content))

    def _add_assistant(self, message: AssistantMessage) -> None:
        if self._waiting:
            for call in message.tool_calls:
                # From here on a result with this id answers this message, not an older one that used the id too.
                self._waiting.pop(call.id, None)
        if message.failed:
            return
        content, slots, solid = self._clean_answer(message)
        if not solid:
            return
        self._close_group()
        if not self.written:
            self.written.append(_BEGIN)
        self.written.append(message if content == message.content else replace(message, content=content))
        self._group = slots
        self._missing = len(slots)

    def _add_result(self, message: ToolResultMessage) -> None:
        slots = self._waiting.get(message.tool_call_id)
        if not slots:
            return
        slot = slots.pop(0)
        if not slots:
            del self._waiting[message.tool_call_id]
        slot.result = _fit_result(message, slot.call)
        if slot.position is not None:
            self._copy_if_shared()
            self.written[slot.position] = slot.result
            return
        self._missing -= 1
        if not self._missing:
            self._close_group()

    def _clean_answer(self, message: AssistantMessage) -> tuple[list[Content], list[_Slot], bool]:
        """The blocks to send, the places for results, and whether there is more than thinking and white space."""
        own = self._gave(message)
        content: list[Content] = []
        slots: list[_Slot] = []
        solid = False
        for block in message.content:
            if type(block) is ToolCall:
                content.append(self._add_call(block, slots, message.timestamp, keep_signature=own))
                solid = True
            elif type(block) is TextContent:
                fixed = block if own else _strip_signature(block)
                if not _is_blank(fixed.text):
                    content.append(fixed)
                    solid = True
                elif fixed.signature is not None:
                    content.append(fixed)
            elif type(block) is ThinkingContent:
                # A model's thinking may be empty but for its signature, which has to go back all the same.
                if own and (block.signature is not None or not _is_blank(block.thinking)):
                    content.append(block)
            elif type(block) is ImageContent and block.data:
                content.append(block)
                solid = True
        return content, slots, solid

    def _add_call(self, call: ToolCall, slots: list[_Slot], timestamp: float, *, keep_signature: bool) -> ToolCall:
        fixed = call
        if not call.id or call.id in self._used:
            fixed = replace(fixed, id=self._make_unique_id(call.id), provider_id=call.provider_id or call.id or None)
        self._used.add(fixed.id)
        if call.raw_arguments is not None:
            fixed = replace(fixed, arguments={"_raw": call.raw_arguments}, raw_arguments=None)
        if call.signature is not None and not keep_signature:
            fixed = replace(fixed, signature=None)
        slot = _Slot(fixed, timestamp)
        self._waiting.setdefault(call.id, []).append(slot)
        slots.append(slot)
        return fixed

    def _make_unique_id(self, call_id: str) -> str:
        unique = call_id
        while not unique or unique in self._used:
            number = self._numbers.get(call_id, 1) + 1
            self._numbers[call_id] = number
            unique = f"{call_id or 'call'}_{number}"
        return unique

    def _close_group(self) -> None:
        if not self._group:
            return
        written = self.written
        for slot in self._group:
            slot.position = len(written)
            written.append(slot.result or slot.build_result())
        self._group = []
        self._missing = 0

    def _copy_if_shared(self) -> None:
        """Views that were given out stay as they were."""
        if self.shared:
            self.written = MemoList(self.written)
            self.shared = False


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _clean_blocks(content: Sequence[Content]) -> list[Content]:
    """The blocks that a user or a tool can say, without the empty ones and without any model's marks."""
    shown: list[Content] = []
    for block in content:
        if isinstance(block, TextContent):
            if not _is_blank(block.text):
                shown.append(_strip_signature(block))
        elif isinstance(block, ImageContent) and block.data:
            shown.append(block)
    return shown


def _strip_signature(block: TextContent) -> TextContent:
    return block if block.signature is None else TextContent(block.text)


def _fits(message: AgentMessage, call: ToolCall) -> bool:
    """Whether a message is the result of a call and can be sent as it is: one plain text, nearly always."""
    if type(message) is not ToolResultMessage or message.tool_call_id != call.id or message.tool_name != call.name:
        return False
    content = message.content
    if len(content) != 1 or type(block := content[0]) is not TextContent:
        return False
    return block.signature is None and not _is_blank(block.text)


def _fit_result(message: ToolResultMessage, call: ToolCall) -> ToolResultMessage:
    if _fits(message, call):
        return message
    content = _clean_blocks(message.content)
    changes: dict[str, Any] = {}
    if not content or content != message.content:
        changes["content"] = content or [_NO_OUTPUT]
    if message.tool_call_id != call.id:
        changes["tool_call_id"] = call.id
    if message.tool_name != call.name:
        changes["tool_name"] = call.name
    return replace(message, **changes) if changes else message


_get_id = attrgetter("id")


def make_ids_unique(
    content: Sequence[Content], calls: Sequence[ToolCall], taken: Set[str], mint: Callable[[str], str]
) -> tuple[Sequence[Content], Sequence[ToolCall]]:
    """Servers repeat call ids, across turns and within one: a repeated one is replaced and kept as `provider_id`.

    Returns the content with its calls.
    """
    own = set(map(_get_id, calls))
    if len(own) == len(calls) and "" not in own and taken.isdisjoint(own):
        return content, calls
    own.clear()
    unique: list[Content] = []
    for block in content:
        if type(block) is ToolCall:
            if not block.id or block.id in taken or block.id in own:
                block = replace(block, id=mint("call"), provider_id=block.id or None)
            own.add(block.id)
        unique.append(block)
    return unique, [block for block in unique if type(block) is ToolCall]
