"""What clients of OpenAI's APIs send: the input of Responses and the messages of Chat Completions, as our messages.

Only what is new at the end of an input counts where the session has the rest; a fresh session begins with all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from steersman.server.http.bodies import check_part_count
from steersman.types.content import Content, ImageContent, TextContent, ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage
from steersman.types.user_content import read_user_content

_INSTRUCTING = ("system", "developer")
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


@dataclass(slots=True)
class Input:
    """An input in its parts: the history, the user's new message at its end, and the results of the client's tools."""

    history: list[AgentMessage] = field(default_factory=list[AgentMessage])
    message: AgentMessage | None = None
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    instructions: list[str] = field(default_factory=list[str])

    def cut_ids(self) -> None:
        """Take the name of a session from the ids of calls."""
        self.outputs = {id.partition("~")[0]: output for id, output in self.outputs.items()}
        self.history = [_cut_ids(message) for message in self.history]


def read_items(value: str | Sequence[Mapping[str, Any]]) -> Input:
    """The input of Responses; raises `ValueError` for what cannot be read."""
    if isinstance(value, str):
        return Input(message=read_user_content(value, "input"))
    _check_count(value)
    found = _Reader()
    for item in value:
        match item:
            case {"role": str(role)}:
                found.add_message(role, item.get("content"))
            case {"type": "function_call", "call_id": str(id), "name": str(name), "arguments": str(arguments)}:
                found.add_calls("", [ToolCall(id, name, _read_arguments(arguments))])
            case {"type": "function_call_output", "call_id": str(id), "output": output}:
                found.add_output(id, output)
            case {"type": "reasoning" | "item_reference"}:
                continue  # the log has it
            case _:
                raise ValueError(f"An input item of the type {item.get('type')!r} cannot be read: {dict(item)!r:.200}.")
    return found.finish()


def read_messages(messages: Sequence[Mapping[str, Any]]) -> Input:
    """The messages of Chat Completions; raises `ValueError` for what cannot be read."""
    _check_count(messages)
    found = _Reader()
    for message in messages:
        match message:
            case {"role": "tool", "tool_call_id": str(id)}:
                found.add_output(id, message.get("content"))
            case {"role": "assistant", "tool_calls": calls} if calls:
                found.add_calls(_read_text(message.get("content")), list(_read_calls(calls)))
            case {"role": str(role)}:
                found.add_message(role, message.get("content"))
            case _:
                raise ValueError(f"A message needs a role, got {dict(message)!r:.200}.")
    return found.finish()


def _cut_ids(message: AgentMessage) -> AgentMessage:
    if isinstance(message, ToolResultMessage):
        return msgspec.structs.replace(message, tool_call_id=message.tool_call_id.partition("~")[0])
    if not isinstance(message, AssistantMessage):
        return message
    blocks = [
        msgspec.structs.replace(block, id=block.id.partition("~")[0]) if isinstance(block, ToolCall) else block
        for block in message.content
    ]
    return msgspec.structs.replace(message, content=blocks)


class _Reader:
    """Makes messages of the items or messages of a client, one after the other; each takes the same time."""

    def __init__(self) -> None:
        self._found = Input()
        # The blocks of the answer at the end of the history: calls of one answer come as items of their own.
        self._answer: list[Content] = []
        # By its id: the name of the function of a call.
        self._names: dict[str, str] = {}

    def add_message(self, role: str, content: Any) -> None:
        if role in _INSTRUCTING:
            self._found.instructions.append(_read_text(content))
        elif role == "assistant":
            if text := _read_text(content):
                self._end_answer()
                self._answer.append(TextContent(text))
        elif role == "user":
            self._end_answer()
            self._found.history.append(UserMessage(list(_read_parts(content))))
        else:
            raise ValueError(f"A role is user, assistant, system, developer or tool, got {role!r:.100}.")

    def add_calls(self, text: str, calls: list[ToolCall]) -> None:
        if text:
            self._end_answer()
            self._answer.append(TextContent(text))
        self._answer += calls
        self._names.update((call.id, call.name) for call in calls)

    def add_output(self, id: str, output: Any) -> None:
        self._end_answer()
        text = self._found.outputs[id] = _read_text(output)
        name = self._names.get(id, "")
        self._found.history.append(ToolResultMessage([TextContent(text)], tool_call_id=id, tool_name=name))

    def finish(self) -> Input:
        """Take the user's new message from the end of the history, and keep the outputs after the last call."""
        self._end_answer()
        found, start = self._found, len(self._found.history)
        while start and isinstance(found.history[start - 1], UserMessage):
            start -= 1
        blocks = [block for message in found.history[start:] for block in message.content]
        del found.history[start:]
        found.message = UserMessage(blocks) if blocks else None
        new: dict[str, str] = {}
        for message in reversed(found.history):
            if not isinstance(message, ToolResultMessage):
                break
            new[message.tool_call_id] = found.outputs[message.tool_call_id]
        found.outputs = new
        return found

    def _end_answer(self) -> None:
        if self._answer:
            has_calls = any(isinstance(block, ToolCall) for block in self._answer)
            self._found.history.append(AssistantMessage(self._answer, stop_reason="tool_use" if has_calls else "stop"))
            self._answer = []


def _check_count(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ValueError` for too many messages, parts and calls."""
    lists = [message.get(name) for message in messages for name in ("content", "output", "tool_calls")]
    check_part_count(len(messages) + sum(len(cast("list[Any]", found)) for found in lists if isinstance(found, list)))


def _read_calls(calls: Any) -> Iterator[ToolCall]:
    given: list[Any] = [*calls] if isinstance(calls, list) else [calls]
    for call in given:
        match call:
            case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
                yield ToolCall(id, name, _read_arguments(arguments))
            case _:
                raise ValueError(
                    f"A tool call needs an id and a function with its name and arguments, got {call!r:.200}."
                )


def _read_parts(content: Any) -> Iterator[TextContent | ImageContent]:
    if isinstance(content, str):
        yield TextContent(content)
        return
    parts: list[Any] = [*content] if isinstance(content, list) else [content]
    for part in parts:
        match part:
            case {"type": str(kind), "text": str(text)} if kind in _TEXT_PARTS:
                yield TextContent(text)
            case {"type": "input_image", "image_url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)}}:
                yield _read_image(url)
            case _:
                raise ValueError(f"Content is text or images as data URLs, got {part!r:.200}.")


def _read_image(url: str) -> ImageContent:
    head, separator, data = url.partition(";base64,")
    if not separator or not head.startswith("data:image/"):
        raise ValueError(f"An image must be a data URL such as data:image/png;base64,..., got {url!r:.100}.")
    return ImageContent(data, head.removeprefix("data:"))


def _read_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in _read_parts(content) if isinstance(part, TextContent))


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"The arguments of a function call are a JSON object, got {text!r:.200}.") from error
