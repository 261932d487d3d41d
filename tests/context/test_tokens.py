from __future__ import annotations

from tests.context.transcripts import answer, call, result, user

from steersman.context.convert import default_convert_to_llm
from steersman.context.tokens import IMAGE_TOKENS, estimate_tokens, estimate_total_tokens
from steersman.types.content import ImageContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage, ExtensionMessage, UserMessage


def test_tokens_are_a_quarter_of_the_bytes_and_four_for_the_message() -> None:
    """loop.md C4"""
    assert estimate_tokens(user("x" * 400)) == 104
    assert estimate_tokens(user("ü" * 400)) == 204
    assert estimate_tokens(user("x")) == 5
    assert estimate_tokens(UserMessage([])) == 4


def test_every_kind_of_block_counts() -> None:
    assert estimate_tokens(UserMessage([ImageContent("x" * 1_000_000)])) == 4 + IMAGE_TOKENS
    assert estimate_tokens(answer(call("c", "read", path="a"))) == 4 + (len("read") + len('{"path":"a"}')) // 4
    assert estimate_tokens(answer(ToolCall("c", "read", {}, raw_arguments="[" * 36))) == 14
    assert estimate_tokens(answer(ThinkingContent("x" * 40, "sig"))) == 14
    assert estimate_tokens(answer(ThinkingContent("", "x" * 40, redacted=True))) == 14


def test_hostile_text_and_arguments_are_still_measured() -> None:
    assert estimate_tokens(user("\ud83d" * 4)) == 7
    assert estimate_tokens(answer(call("c", "read", path="\ud83d"))) > 4
    assert estimate_tokens(answer(call("c", "read", path=object()))) > 4


def test_extension_messages_count_nothing_because_models_are_not_sent_them() -> None:
    note = ExtensionMessage([], kind="note", data="x" * 1000)
    assert estimate_tokens(note) == 0
    assert default_convert_to_llm([user(), note, result("c")]) == [user(), result("c")]


def test_estimates_add_up_with_any_estimator() -> None:
    assert estimate_total_tokens([user(), AssistantMessage([])], lambda _: 7) == 14
