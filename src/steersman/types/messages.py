"""The messages of a run: from the user, the model, a tool, or the application itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import force_setattr

from steersman.types.content import Content, TextContent, ToolCall, join_text_blocks
from steersman.types.errors import ErrorKind
from steersman.types.frozen import FrozenDict, FrozenList, freeze
from steersman.types.guards import is_instance, refuse_unknown
from steersman.types.usage import Usage

StopReason: TypeAlias = Literal["stop", "tool_use", "length", "refusal", "error", "aborted"]
EndReason: TypeAlias = Literal["done", "limit", "vetoed", "stopped", "terminated", "rejected", "aborted", "error"]
ToolStatus: TypeAlias = Literal["completed", "not_started", "interrupted", "denied", "invalid"]


_STOP_REASONS: tuple[str, ...] = get_args(StopReason)
_BLOCKS = frozenset(get_args(Content))
_build = msgspec.StructMeta.__call__


class _MessageType(msgspec.StructMeta):
    """Refuses every positional argument but the content, with an error that shows what to write.

    It makes a message several times as expensive to build: what is built in every turn copies another message instead,
    with `msgspec.structs.replace`.
    """

    if not TYPE_CHECKING:  # a checker knows the keywords from the fields

        def __call__(cls, *content: Any, **fields: Any) -> Any:
            if len(content) > 1:
                names = ", ".join(f"{name}=..." for name in cls.__struct_fields__[1:])
                raise TypeError(
                    f"{cls.__name__} takes its content first and everything else by keyword, got {len(content)} "
                    f"positional arguments: {content!r:.200}. Write {cls.__name__}(content, {names})."
                )
            try:
                return _build(cls, *content, **fields)
            except TypeError:
                refuse_unknown(cls.__name__, fields, cls.__struct_fields__)
                raise


class _Content(msgspec.Struct, frozen=True, tag_field="role", gc=False, metaclass=_MessageType):
    content: Sequence[Content] = ()


class _MessageFields(_Content, frozen=True, kw_only=True):
    timestamp: float = 0.0
    synthetic: bool = False

    def __post_init__(self) -> None:
        content: object = self.content
        if type(content) is not FrozenList:
            try:
                blocks = FrozenList([TextContent(content)] if isinstance(content, str) else self.content)
            except TypeError:
                raise _refuse_content(self, content) from None
            for block in blocks:
                if type(block) not in _BLOCKS:
                    raise _refuse_content(self, block)
            force_setattr(self, "content", blocks)

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return join_text_blocks(self.content)


def _refuse_content(message: _MessageFields, value: object) -> TypeError:
    return TypeError(
        f"The content of a {type(message).__name__} is a text or a list of TextContent, ImageContent, ThinkingContent "
        f"and ToolCall, got {value!r:.200}. As dicts, write the whole message as one: "
        "{'role': ..., 'content': [...]}."
    )


# A checker reads each `__init__` for what the fields cannot say: content may be given as a text, and is read as blocks.


class UserMessage(_MessageFields, frozen=True, kw_only=True, tag="user"):
    """A prompt, a steering message, a follow-up, or (when `synthetic`) a message of the loop itself."""

    role: ClassVar[Literal["user"]] = "user"

    if TYPE_CHECKING:

        def __init__(
            self, content: str | Sequence[Content] = (), *, timestamp: float = 0.0, synthetic: bool = False
        ) -> None: ...


class AssistantMessage(_MessageFields, frozen=True, kw_only=True, tag="assistant"):
    """The model's complete answer; a failed one says why in `error_message`."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    stop_reason: StopReason = "stop"
    raw_stop_reason: str | None = None
    usage: Usage = msgspec.field(default_factory=Usage)
    model: str = ""
    provider: str = ""
    error_message: str | None = None
    error_kind: ErrorKind | None = None
    response_id: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            content: str | Sequence[Content] = (),
            *,
            timestamp: float = 0.0,
            synthetic: bool = False,
            stop_reason: StopReason = "stop",
            raw_stop_reason: str | None = None,
            usage: Usage = ...,
            model: str = "",
            provider: str = "",
            error_message: str | None = None,
            error_kind: ErrorKind | None = None,
            response_id: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.content) is not FrozenList:
            _MessageFields.__post_init__(self)
        if self.stop_reason not in _STOP_REASONS:
            raise ValueError(f"stop_reason is one of {', '.join(_STOP_REASONS)}, got {self.stop_reason!r}.")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls among the content, in order."""
        return [block for block in self.content if type(block) is ToolCall]

    @property
    def failed(self) -> bool:
        """Whether the answer failed: it stays in the log, is left out of requests, and its tool calls never run."""
        return self.stop_reason in _FAILED


_FAILED = frozenset(("error", "aborted", "refusal"))


class PartialMessage(AssistantMessage, frozen=True, kw_only=True, tag="assistant"):
    """The answer so far: the `message` of a `message_update`. It grows while the answer arrives; copy it to keep it.

    It cannot be changed, and has no `stop_reason` yet. Its last tool call may not be `complete`.
    """

    stop_reason: None = None  # pyright: ignore[reportIncompatibleVariableOverride]  # only a complete answer has one

    def __post_init__(self) -> None:
        _MessageFields.__post_init__(self)

    def __copy__(self) -> PartialMessage:
        """A copy that no longer grows."""
        return copy.deepcopy(self)


class ToolResultMessage(_MessageFields, frozen=True, kw_only=True, tag="tool_result"):
    """The result of a tool call; `details["status"]` says what happened to it."""

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    details: dict[str, Any] = msgspec.field(default_factory=FrozenDict)

    if TYPE_CHECKING:

        def __init__(
            self,
            content: str | Sequence[Content] = (),
            *,
            timestamp: float = 0.0,
            synthetic: bool = False,
            tool_call_id: str = "",
            tool_name: str = "",
            is_error: bool = False,
            details: dict[str, Any] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.content) is not FrozenList:
            _MessageFields.__post_init__(self)
        if type(self.details) is not FrozenDict:
            force_setattr(self, "details", freeze(self.details))


class ExtensionMessage(_MessageFields, frozen=True, kw_only=True, tag="extension", gc=True):
    """An application's own entry in the transcript, never sent to a model unless `convert_to_llm` says so."""

    role: ClassVar[Literal["extension"]] = "extension"
    kind: str = ""
    data: Any = None

    if TYPE_CHECKING:

        def __init__(
            self,
            content: str | Sequence[Content] = (),
            *,
            timestamp: float = 0.0,
            synthetic: bool = False,
            kind: str = "",
            data: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "data", freeze(self.data))


AgentMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage | ExtensionMessage
Message: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage
"""The messages that are sent to a model."""

MessageLike: TypeAlias = str | AgentMessage | Mapping[str, Any]

_TYPES = (UserMessage, AssistantMessage, ToolResultMessage, ExtensionMessage)
_EMPTY = UserMessage()


def user_message(text: str, *, synthetic: bool = False, timestamp: float = 0.0) -> UserMessage:
    """Build a user message with one text block."""
    content = FrozenList((TextContent(text),))
    return msgspec.structs.replace(_EMPTY, content=content, timestamp=timestamp, synthetic=synthetic)


def to_message(value: MessageLike) -> AgentMessage:
    """Build a message from a string, a message, or a dict such as `{"role": "user", "content": "Hello"}`.

    Raises `ValueError` for a dict with a key that is not known, at any level.
    """
    if isinstance(value, _TYPES):
        if type(value) is PartialMessage:
            raise ValueError("The message of a message_update still grows; take the message of its message_end.")
        return value
    if isinstance(value, str):
        if not value.strip():
            raise ValueError(f"A message needs some text, got {value!r}.")
        return user_message(value)
    if is_instance(value, Mapping):
        from steersman.types.message_dicts import message_from_dict  # most messages are built otherwise

        return message_from_dict(value)
    raise TypeError(f"A message is a string, a message or a dict with 'role' and 'content', got {value!r}.")


def require_content(message: AgentMessage) -> AgentMessage:
    """Return the message; raise `ValueError` for a user message without content, which no server accepts."""
    if type(message) is UserMessage and is_blank(message):
        raise ValueError(f"A message needs some text or an image, got {message!r}.")
    return message


def is_blank(message: AgentMessage) -> bool:
    """Whether it has nothing but blank text."""
    return all(type(block) is TextContent and not block.text.strip() for block in message.content)


def to_messages(value: MessageLike | Sequence[MessageLike]) -> list[AgentMessage]:
    """Build a list of messages from one message or several."""
    if isinstance(value, (str, Mapping, *_TYPES)):
        return [to_message(value)]
    if is_instance(value, Sequence) and not is_instance(value, bytes | bytearray):
        return [to_message(item) for item in value]
    raise TypeError(f"Messages are a string, a message, a dict or a list of these, got {value!r}.")
