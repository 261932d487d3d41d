"""What the constructors of messages and message dicts take, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.rows import each_row

from steersman import Agent
from steersman.testing import ScriptedModel
from steersman.types import (
    AssistantMessage,
    ExtensionMessage,
    ImageContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    decode,
)
from steersman.types.messages import to_message

MISPLACED: dict[str, tuple[Callable[..., object], tuple[Any, ...], str]] = {
    "the seeds' order": (ToolResultMessage, ("c1", "echo", [TextContent("hi")]), "tool_call_id=..., tool_name=..."),
    "a time": (UserMessage, ("hi", 1.5), r"Write UserMessage\(content, timestamp=..., synthetic=...\)"),
    "a stop reason": (AssistantMessage, ("hi", "stop"), "stop_reason=..."),
    "a kind": (ExtensionMessage, ((), "note"), "kind=..., data=..."),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_fields_after_the_content_are_taken_by_keyword_only(name: str) -> None:
    """api.md, five-minute version: fields of messages after `content` are keyword-only."""
    kind, arguments, advice = MISPLACED[name]
    with pytest.raises(TypeError, match=advice):
        kind(*arguments)


def test_the_content_may_be_given_by_position_or_by_keyword() -> None:
    assert ToolResultMessage([TextContent("hi")], tool_call_id="c1") == ToolResultMessage(
        content=[TextContent("hi")], tool_call_id="c1"
    )
    assert UserMessage() == UserMessage(())


@pytest.mark.parametrize("reason", ["banana", "", None, ["stop"]])
def test_an_unknown_stop_reason_is_refused(reason: Any) -> None:
    with pytest.raises(ValueError, match="stop_reason is one of stop, tool_use, length, refusal, error, aborted, got"):
        AssistantMessage([TextContent("hi")], stop_reason=reason)


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/jpeg"}
CALL = {"type": "tool_call", "id": "c1", "name": "echo"}
UNKNOWN: dict[str, tuple[Mapping[Any, Any], str]] = {
    "contents": ({"role": "user", "contents": "hi"}, "'contents'; did you mean 'content'?"),
    "mimeType": ({"role": "user", "content": [IMAGE]}, "'image' has no key 'mimeType'; did you mean 'mime_type'?"),
    "toolCallId": ({"role": "tool_result", "content": "hi", "toolCallId": "c1"}, "did you mean 'tool_call_id'?"),
    "tool_use_id": ({"role": "tool_result", "content": "hi", "tool_use_id": "c1"}, "did you mean 'tool_call_id'?"),
    "isError": ({"role": "tool_result", "content": "hi", "isError": True}, "did you mean 'is_error'?"),
    "args": ({"role": "assistant", "content": [{**CALL, "args": {"a": 1}}]}, "did you mean 'arguments'?"),
    "args next to text": (
        {"role": "assistant", "content": [{**CALL, "arguments": "{}", "args": 1}]},
        "did you mean 'arguments'?",
    ),
    "assistent": ({"role": "assistent", "content": "hi"}, "no role 'assistent'; did you mean 'assistant'?"),
    "tool": ({"role": "tool", "content": "hi"}, "no role 'tool'; did you mean 'tool_result'?"),
    "system": ({"role": "system", "content": "hi"}, "no role 'system'; give the text as system_prompt"),
    "nobody": ({"role": "nobody", "content": "hi"}, "'nobody'; there are user, assistant, tool_result, extension."),
    "txt": ({"role": "user", "content": [{"type": "txt", "text": "hi"}]}, "no type 'txt'; did you mean 'text'?"),
    "tool_use": ({"role": "assistant", "content": [{"type": "tool_use"}]}, "'tool_use'; did you mean 'tool_call'?"),
    "result block": ({"role": "user", "content": [{"type": "tool_result"}]}, "a tool's result is a message: "),
    "stopReason": ({"role": "assistant", "content": "hi", "stopReason": "stop"}, "did you mean 'stop_reason'?"),
    "inside the usage": (
        {"role": "assistant", "content": "hi", "usage": {"input": 1, "outputs": 2}},
        "'usage' has no key 'outputs'; did you mean 'output'?",
    ),
    "nothing near": ({"role": "user", "content": "hi", "zzz": 1}, "there are role, content, timestamp, synthetic."),
    "no text": ({"role": "user", "content": "hi", 7: 1}, "has no key 7; there are role"),
}


@each_row("name", UNKNOWN)
def test_a_dict_with_an_unknown_key_is_refused_with_the_nearest_known_one(name: str) -> None:
    """api.md, five-minute version: a dict with a key that is not known is refused; nothing is dropped silently."""
    value, words = UNKNOWN[name]
    with pytest.raises(ValueError, match=r"^Not a message: ") as caught:
        to_message(value)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [3, None, TextContent("x")])
def test_content_that_is_no_text_and_no_list_is_refused_with_what_to_write(content: Any) -> None:
    """house.md: say what happened with the value, and what to do."""
    with pytest.raises(TypeError, match=r"The content of a UserMessage is a text or a list of TextContent, .*, got"):
        UserMessage(content)


async def test_a_prompt_with_an_unknown_key_raises_at_the_call() -> None:
    agent = Agent(ScriptedModel("hi").model)
    with pytest.raises(ValueError, match="did you mean 'mime_type'"):
        agent.prompt({"role": "user", "content": [IMAGE]})
    assert (await agent.run("hi")).text == "hi"


def test_every_known_key_of_a_dict_is_kept() -> None:
    given = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "hi", "signature": "s1"},
            {**CALL, "arguments": '{"a": 1}', "signature": "s2", "provider_id": "p1"},
            {**CALL, "raw_arguments": "{broken"},
            {**CALL, "arguments": "{broken", "signature": "s3"},
        ],
        "timestamp": 1.5,
        "stop_reason": "tool_use",
        "usage": {"input": 1, "output": 2},
    }
    assert to_message(given) == AssistantMessage(
        [
            TextContent("hi", "s1"),
            ToolCall("c1", "echo", {"a": 1}, signature="s2", provider_id="p1"),
            ToolCall("c1", "echo", raw_arguments="{broken"),
            ToolCall("c1", "echo", raw_arguments="{broken", signature="s3"),
        ],
        timestamp=1.5,
        stop_reason="tool_use",
        usage=Usage(1, 2),
    )


def test_blocks_in_a_dict_may_be_content_already() -> None:
    image = ImageContent("aGk=", "image/jpeg")
    assert to_message({"role": "user", "content": [image, {"type": "text", "text": "hi"}]}) == UserMessage(
        [image, TextContent("hi")]
    )


def test_json_of_a_later_version_may_have_more_keys() -> None:
    line = '{"role":"tool_result","content":"hi","tool_call_id":"c1","colour":"red"}'
    assert decode(line) == ToolResultMessage([TextContent("hi")], tool_call_id="c1")
