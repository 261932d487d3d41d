"""The transcript checker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.rows import each_row

from steersman.testing import check_request, check_transcript
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    ExtensionMessage,
    StopReason,
    ToolResultMessage,
    UserMessage,
    user_message,
)
from steersman.types.model import Model, Request


def ask() -> UserMessage:
    return user_message("Go")


def says(*blocks: Content, stop_reason: StopReason = "stop") -> AssistantMessage:
    return AssistantMessage(blocks or [TextContent("Hm")], stop_reason=stop_reason, model="m", provider="p")


def calls(*ids: str, stop_reason: StopReason = "tool_use") -> AssistantMessage:
    return says(*(ToolCall(id, "look") for id in ids), stop_reason=stop_reason)


def result(id: str) -> ToolResultMessage:
    return ToolResultMessage([TextContent("seen")], tool_call_id=id, tool_name="look")


GOOD: list[list[AgentMessage]] = [
    [ask()],
    [ask(), calls("a", "b"), result("a"), result("b")],
    [ask(), calls("a"), result("a"), says(), ask()],
]
BAD: list[tuple[list[AgentMessage], str]] = [
    ([ask(), calls("a", "b"), result("a"), ask()], r"messages\.1: `tool_use` ids were found without .*: b\."),
    ([ask(), calls("a"), ask(), result("a")], r"messages\.1: `tool_use` ids were found without .*: a\."),
    ([ask(), calls("a", "b"), result("b"), result("a")], "in call order: expected 'a', got 'b'"),
    ([ask(), calls("a"), result("a"), result("a")], "Found multiple `tool_result` blocks with id: a"),
    ([ask(), result("x")], r"messages\.1: unexpected `tool_use_id` found in `tool_result` blocks: x"),
    ([ask(), calls("a", "a"), result("a"), result("a")], "`tool_use` ids must be unique, got 'a' again"),
    ([ask(), calls("a"), result("a"), calls("a"), result("a")], "`tool_use` ids must be unique, got 'a' again"),
    ([ask(), calls(""), result("")], "`tool_use` ids must not be empty"),
    ([UserMessage([])], "must not be empty|non-empty content"),
]
BAD_REQUESTS: list[tuple[list[AgentMessage], str]] = [
    *BAD,
    ([], "at least one message is required"),
    ([says(), ask()], "the first message must have the role 'user', got 'assistant'"),
    ([ask(), says()], "must end with a user message"),
    ([ask(), calls("a")], "`tool_use` ids were found without"),
    ([ask(), says(stop_reason="aborted"), ask()], "an answer that ended 'aborted' must not be sent"),
    ([ask(), ExtensionMessage(kind="note"), ask()], "unexpected role 'extension'"),
    ([ask(), AssistantMessage([]), ask()], r"messages\.1: all messages must have non-empty content"),
    (
        [ask(), says(TextContent("a"), TextContent("")), ask()],
        r"messages\.1\.content\.1: text content blocks must",
    ),
    ([ask(), says(ToolCall("a", "look", {}, "[1")), result("a")], "Input should be a valid dictionary"),
    ([ask(), says(ThinkingContent("hm", "sig"), TextContent("x")), ask()], "thinking of another model"),
    ([ask(), says(TextContent("x", "sig")), ask()], "Invalid `signature`"),
]


@pytest.mark.parametrize("messages", GOOD)
def test_a_valid_transcript_passes(messages: list[AgentMessage]) -> None:
    check_transcript(messages)
    check_request(sent(messages), Model("other", "model"))
    assert messages


@each_row(("messages", "words"), BAD)
def test_an_invalid_log_is_named_with_the_place_and_an_outline(messages: list[AgentMessage], words: str) -> None:
    """Covers failures.md A1, A9 and A10: unanswered, doubled and orphaned calls."""
    with pytest.raises(AssertionError, match=words) as caught:
        check_transcript(messages)
    assert f"0 {messages[0].role}" in str(caught.value)


@each_row(("messages", "words"), BAD_REQUESTS)
def test_an_invalid_request_is_named_in_a_servers_words(messages: list[AgentMessage], words: str) -> None:
    """Covers failures.md A1, A6, A7, A9, A10, C7 and D7."""
    with pytest.raises(AssertionError, match=words):
        check_request(sent(messages), Model("other", "model"))


def test_a_log_may_hold_what_a_request_may_not() -> None:
    log = [
        ask(),
        calls("a", stop_reason="aborted"),
        ExtensionMessage(kind="note"),
        ask(),
        calls("b"),
        result("b"),
        says(),
    ]
    check_transcript(log)
    with pytest.raises(AssertionError, match="ended 'aborted'"):
        check_request(sent(log))


def test_the_last_calls_of_an_incomplete_log_may_wait() -> None:
    check_transcript([ask(), calls("a", "b"), result("a")], complete=False)
    with pytest.raises(AssertionError, match="without `tool_result`"):
        check_transcript([ask(), calls("a", "b"), result("a")])


def test_the_models_own_thinking_may_be_sent_back() -> None:
    own = [ask(), says(ThinkingContent("hm", "sig"), TextContent("x", "sig")), ask()]
    check_request(sent(own), Model("p", "m"))
    with pytest.raises(AssertionError, match="another model"):
        check_request(sent(own), Model("p", "other"))


def test_two_tools_of_one_name_are_refused() -> None:
    @dataclass
    class Spec:
        name: str
        description: str = ""
        parameters: dict[str, Any] = field(default_factory=dict[str, Any])

    with pytest.raises(AssertionError, match="Tool names must be unique, got 'look' twice"):
        check_request(Request("", [ask()], [Spec("look"), Spec("look")]))


def sent(messages: Sequence[AgentMessage]) -> Request:
    return Request("", messages)  # pyright: ignore[reportArgumentType]  # extension messages are among the faults
