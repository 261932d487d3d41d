"""Validates transcripts as a strict server does, with the error messages of the real ones."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ExtensionMessage, ToolResultMessage
from steersman.types.model import Model, Request


class TranscriptReader:
    """Reads a transcript message by message and reports the first fault.

    `request=True` checks what is sent to a model, which allows less than what a log may hold. The reader continues
    where it stopped, so a growing transcript is read once, not once per turn.
    """

    __slots__ = ("_model", "_request", "_seen", "_waiting", "_where", "count", "last")

    def __init__(self, *, request: bool = True, model: Model | None = None) -> None:
        self._request = request
        self._model = model
        self._seen: set[str] = set()
        self._waiting: list[str] = []
        self._where = 0
        self.count = 0
        self.last: AgentMessage | None = None

    def read(self, message: AgentMessage) -> str | None:
        """The fault of the transcript with this message added, or `None`."""
        at = f"messages.{self.count}"
        fault = self._check_form(at, message) or self._check_pairing(at, message)
        self.count += 1
        self.last = message
        return fault

    def find_unanswered(self) -> str | None:
        """The fault if nothing follows: tool calls without a result; or `None`."""
        if not self._waiting:
            return None
        return (
            f"messages.{self._where}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(self._waiting)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
            "next message."
        )

    def check_end(self) -> str | None:
        """The fault of a request that ends here, or `None`."""
        if self.last is None:
            return "messages: at least one message is required."
        if isinstance(self.last, AssistantMessage) and not self._waiting:
            return "The conversation must end with a user message: this model does not support assistant prefill."
        return self.find_unanswered()

    def _check_form(self, at: str, message: AgentMessage) -> str | None:
        if not self._request:
            return (
                f"{at}: a user message must not be empty." if message.role == "user" and not message.content else None
            )
        if isinstance(message, ExtensionMessage):
            return f"{at}: unexpected role 'extension'; extension messages are not for models."
        if self.count == 0 and message.role != "user":
            return f"{at}: the first message must have the role 'user', got {message.role!r}."
        if isinstance(message, AssistantMessage) and message.failed:
            return f"{at}: an answer that ended {message.stop_reason!r} must not be sent."
        if not message.content:
            return f"{at}: all messages must have non-empty content."
        foreign = isinstance(message, AssistantMessage) and self._is_foreign(message)
        for number, block in enumerate(message.content):
            fault = _check_block(block, foreign=foreign)
            if fault is not None:
                return f"{at}.content.{number}: {fault}"
        return None

    def _is_foreign(self, message: AssistantMessage) -> bool:
        model = self._model
        return model is not None and (message.provider, message.model) != (model.provider, model.id)

    def _check_pairing(self, at: str, message: AgentMessage) -> str | None:
        if isinstance(message, ToolResultMessage):
            return self._check_result(at, message)
        if isinstance(message, ExtensionMessage):
            return None
        fault = self.find_unanswered()
        self._waiting = []
        if fault is None and isinstance(message, AssistantMessage) and not message.failed:
            fault = self._check_calls(at, message)
        return fault

    def _check_calls(self, at: str, message: AssistantMessage) -> str | None:
        for call in message.tool_calls:
            if call.id in self._seen:
                return f"{at}: `tool_use` ids must be unique, got {call.id!r} again."
            if not call.id:
                return f"{at}: `tool_use` ids must not be empty (tool {call.name!r})."
            self._seen.add(call.id)
            self._waiting.append(call.id)
        self._where = self.count
        return None

    def _check_result(self, at: str, message: ToolResultMessage) -> str | None:
        call_id = message.tool_call_id
        if self._waiting and self._waiting[0] == call_id:
            del self._waiting[0]
            return None
        if call_id in self._waiting:
            return f"{at}: results must come in call order: expected {self._waiting[0]!r}, got {call_id!r}."
        if call_id in self._seen:
            return (
                f"{at}: each `tool_use` must have a single result. "
                f"Found multiple `tool_result` blocks with id: {call_id}."
            )
        return (
            f"{at}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
        )


class RequestReader:
    """Checks every request of one conversation; a transcript that only grew is not read again from the start."""

    __slots__ = ("_base", "_model", "_reader")

    def __init__(self) -> None:
        self._base: object = None
        self._model: Model | None = None
        self._reader = TranscriptReader()

    def find_fault(self, request: Request, model: Model | None = None) -> str | None:
        """The fault of the request, or `None`."""
        messages = request.messages
        # A view over a growing list names that list as `base`; anything else is read from its start.
        base: object = getattr(messages, "base", None)
        known = base is not None and base is self._base and model is self._model and self._reader.count <= len(messages)
        if not known:
            self._reader = TranscriptReader(model=model)
        self._base, self._model = base, model
        for index in range(self._reader.count, len(messages)):
            fault = self._reader.read(messages[index])
            if fault is not None:
                self._base = None
                return fault
        return self._reader.check_end() or _check_tools(request)


def find_request_fault(request: Request, model: Model | None = None) -> str | None:
    """The error of a strict server for the request, or `None` if it accepts it."""
    return RequestReader().find_fault(request, model)


def find_transcript_fault(messages: Sequence[AgentMessage], *, complete: bool) -> str | None:
    """The first fault of a log, or `None`; with `complete=False` its last calls need no results yet."""
    reader = TranscriptReader(request=False)
    for message in messages:
        fault = reader.read(message)
        if fault is not None:
            return fault
    return reader.find_unanswered() if complete else None


def _check_block(block: Content, *, foreign: bool) -> str | None:
    match block:
        case TextContent(text=""):
            return "text content blocks must be non-empty."
        case ThinkingContent() if foreign:
            return "thinking of another model must not be sent."
        case TextContent(signature=str()) | ToolCall(signature=str()) if foreign:
            return "Invalid `signature`: it was made by another model."
        case ToolCall(raw_arguments=str(), arguments=arguments) if not arguments:
            return "tool_use.input: Input should be a valid dictionary."
        case _:
            return None


def _check_tools(request: Request) -> str | None:
    names: set[str] = set()
    for spec in request.tools:
        if spec.name in names:
            return f"tools: Tool names must be unique, got {spec.name!r} twice."
        names.add(spec.name)
    return None
