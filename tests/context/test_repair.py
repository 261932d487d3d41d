from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.context.transcripts import CHAOS, MODEL, PROVIDER, answer, call, conversations, faults, result, user

from steersman.context.repair import INTERRUPTED, NO_OUTPUT, repair
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall, parse_tool_call
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    ExtensionMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    user_message,
)

GO_ON = user_message("Continue.", synthetic=True)
BEGIN = user_message("(conversation continues)", synthetic=True)


def fixed(*messages: AgentMessage, provider: str = PROVIDER, model: str = MODEL) -> list[Message]:
    repaired = repair(messages, provider=provider, model=model)
    assert faults(repaired, provider, model) == []
    return repaired


def interrupted(call_id: str, name: str = "read") -> ToolResultMessage:
    return result(call_id, INTERRUPTED, name=name, is_error=True, details={"status": "interrupted"}, synthetic=True)


@given(CHAOS)
def test_whatever_was_said_the_request_is_valid(messages: list[AgentMessage]) -> None:
    """loop.md section 6; failures.md A1, A6, A7, A9, A10, C7, D7, D8"""
    assert faults(repair(messages, provider=PROVIDER, model=MODEL)) == []


@given(CHAOS)
def test_repairing_twice_changes_nothing_more(messages: list[AgentMessage]) -> None:
    once = repair(messages, provider=PROVIDER, model=MODEL)
    twice = repair(once, provider=PROVIDER, model=MODEL)
    assert [id(message) for message in twice] == [id(message) for message in once]


@given(CHAOS, st.integers(0, 14))
def test_every_beginning_of_a_transcript_can_be_sent(messages: list[AgentMessage], length: int) -> None:
    """failures.md A3: a hard kill may come after any message."""
    assert faults(repair(messages[:length], provider=PROVIDER, model=MODEL)) == []


@given(conversations())
def test_a_good_transcript_keeps_its_objects(messages: list[AgentMessage]) -> None:
    repaired = repair(messages, provider=PROVIDER, model=MODEL)
    assert list(map(id, repaired[: len(messages)])) == list(map(id, messages))
    assert repaired[len(messages) :] in ([], [GO_ON])


@given(CHAOS)
def test_what_users_said_is_never_lost(messages: list[AgentMessage]) -> None:
    def texts(said: list[AgentMessage] | list[Message]) -> list[str]:
        users = [message for message in said if isinstance(message, UserMessage) and message not in (GO_ON, BEGIN)]
        return [message.text.strip() for message in users if message.text.strip()]

    assert texts(repair(messages, provider=PROVIDER, model=MODEL)) == texts(messages)


@pytest.mark.parametrize("given_results", range(4))
def test_a_cancel_during_tools_leaves_no_call_unanswered(given_results: int) -> None:
    """failures.md A1: three parallel calls, cancelled after any number of results."""
    asked = answer(call("a"), call("b"), call("c"))
    results = [result("a"), result("b"), result("c")][:given_results]
    missing = [interrupted(name) for name in ("a", "b", "c")[given_results:]]
    assert fixed(user(), asked, *results) == [user(), asked, *results, *missing]
    assert fixed(user(), asked, *results, user("next")) == [user(), asked, *results, *missing, user("next")]


def test_a_kill_between_call_and_result_is_answered_once() -> None:
    """failures.md A3: the second repair adds nothing."""
    once = fixed(user(), answer(call("a")))
    assert once == [user(), answer(call("a")), interrupted("a")]
    assert fixed(*once) == once


def test_results_come_before_what_the_user_said_meanwhile() -> None:
    """failures.md A6"""
    asked = answer(call("a"), call("b"))
    said = [user(), asked, result("a"), user("steer"), result("b")]
    assert fixed(*said) == [user(), asked, result("a"), result("b"), user("steer")]


def test_results_are_put_in_call_order() -> None:
    asked = answer(call("a"), call("b"))
    assert fixed(user(), asked, result("b"), result("a")) == [user(), asked, result("a"), result("b")]


def test_a_late_result_goes_to_its_call_however_late_it_is() -> None:
    said = [user(), answer(call("a")), user("next"), answer(call("b")), result("b"), result("a", "late")]
    expected = [user(), answer(call("a")), result("a", "late"), user("next"), answer(call("b")), result("b")]
    assert fixed(*said) == expected


def test_empty_answers_and_blocks_are_left_out() -> None:
    """failures.md A7"""
    said = [
        user(),
        answer(),
        user("a"),
        answer("", " \n"),
        user("b"),
        answer("", "text"),
        UserMessage([TextContent("")]),
    ]
    assert fixed(*said) == [user(), user("a"), user("b"), answer("text"), GO_ON]


def test_an_empty_picture_is_left_out() -> None:
    said = UserMessage([TextContent("see"), ImageContent(""), ImageContent("aGk=")])
    assert fixed(said) == [UserMessage([TextContent("see"), ImageContent("aGk=")])]


def test_a_tool_that_said_nothing_says_so() -> None:
    silent: list[ToolResultMessage] = [result("a", ""), ToolResultMessage([], tool_call_id="b", tool_name="read")]
    assert fixed(user(), answer(call("a"), call("b")), *silent)[2:] == [result("a", NO_OUTPUT), result("b", NO_OUTPUT)]


def test_the_same_call_id_in_two_turns_and_twice_in_one_is_made_unique() -> None:
    """failures.md A9: results are paired by order."""
    said = [
        user(),
        answer(call("call_0")),
        result("call_0", "1"),
        answer(call("call_0"), call("call_0")),
        result("call_0", "2"),
        result("call_0", "3"),
    ]

    def renamed(number: int) -> ToolCall:
        return ToolCall(f"call_0_{number}", "read", {}, provider_id="call_0")

    assert fixed(*said) == [
        user(),
        answer(call("call_0")),
        result("call_0", "1"),
        answer(renamed(2), renamed(3)),
        result("call_0_2", "2"),
        result("call_0_3", "3"),
    ]


def test_a_new_id_is_never_one_that_is_taken() -> None:
    """failures.md A9"""
    said = [user(), answer(call("a_2"), call("a"), call("a"), call(""))]
    asked = fixed(*said)[1]
    assert isinstance(asked, AssistantMessage)
    assert [one.id for one in asked.tool_calls] == ["a_2", "a", "a_3", "call_2"]


def test_a_result_answers_the_last_message_that_used_its_id() -> None:
    said = [user(), answer(call("a")), user("next"), answer(call("a")), result("a", "second")]
    renamed = ToolCall("a_2", "read", {}, provider_id="a")
    expected = [user(), answer(call("a")), interrupted("a"), user("next"), answer(renamed), result("a_2", "second")]
    assert fixed(*said) == expected


def test_the_first_result_of_a_call_wins() -> None:
    """failures.md A10: a second one comes late and is dropped."""
    said = [user(), answer(call("a")), interrupted("a"), user("next"), result("a", "too late")]
    assert fixed(*said) == [user(), answer(call("a")), interrupted("a"), user("next")]


def test_a_result_without_its_call_is_dropped() -> None:
    assert fixed(user(), result("gone"), answer("ok"), user("next"), result("gone")) == [
        user(),
        answer("ok"),
        user("next"),
    ]


def test_a_result_carries_the_name_of_its_call() -> None:
    assert fixed(user(), answer(call("a", "write")), result("a", name=""))[2] == result("a", name="write")


@pytest.mark.parametrize("arguments", ["[]", '"x"', "1", '{"path": "a"', '"{\\"path\\": 1}"'])
def test_arguments_that_are_no_object_are_replayed_as_one(arguments: str) -> None:
    """failures.md C7"""
    bad = parse_tool_call("a", "read", arguments)
    assert fixed(user(), answer(bad), result("a")) == [
        user(),
        answer(ToolCall("a", "read", {"_raw": arguments})),
        result("a"),
    ]


def test_a_model_switch_drops_thinking_and_signatures_and_switching_back_restores_them() -> None:
    """failures.md D7"""
    signed: list[Content] = [
        ThinkingContent("hm", "s1"),
        TextContent("a", "s2"),
        ToolCall("a", "read", {}, signature="s3"),
    ]
    said: list[AgentMessage] = [user(), answer(*signed), result("a"), user("next")]
    assert list(map(id, fixed(*said))) == list(map(id, said))
    plain = [user(), answer(TextContent("a"), call("a")), result("a"), user("next")]
    assert fixed(*said, model="other") == plain
    assert fixed(*said, provider="other") == plain
    assert list(map(id, fixed(*said))) == list(map(id, said))


def test_thinking_that_is_only_a_signature_goes_back_and_empty_thinking_does_not() -> None:
    kept = answer(ThinkingContent("", "sig"), ThinkingContent("hm"), "text")
    assert fixed(user(), kept, user())[1] is kept
    assert fixed(user(), answer(ThinkingContent(""), "text"), user())[1] == answer("text")


def test_an_empty_text_that_carries_its_models_signature_is_kept() -> None:
    kept = answer("text", TextContent("", "sig"))
    assert fixed(user(), kept, user())[1] is kept
    assert fixed(user(), kept, user(), model="other")[1] == answer("text")


def test_an_answer_of_thinking_alone_is_left_out() -> None:
    assert fixed(user(), answer(ThinkingContent("hm", "sig")), user("next")) == [user(), user("next")]


@pytest.mark.parametrize("reason", ["error", "aborted", "refusal"])
def test_a_broken_answer_and_its_results_are_left_out(reason: str) -> None:
    """failures.md D8: thinking cut short is never replayed, nor is anything else of that answer."""
    broken = answer(ThinkingContent("hm"), call("a"), stop_reason=reason)
    assert fixed(user(), broken, result("a"), user("next")) == [user(), user("next")]
    assert fixed(user(), broken) == [user()]


def test_a_broken_answer_takes_the_result_of_the_id_it_used_again() -> None:
    broken = answer(call("a"), stop_reason="aborted")
    assert fixed(user(), answer(call("a")), broken, result("a")) == [user(), answer(call("a")), interrupted("a")]


def test_a_request_neither_starts_nor_ends_with_the_model() -> None:
    assert fixed(answer("a")) == [BEGIN, answer("a"), GO_ON]
    assert fixed(answer(call("a")), result("a")) == [BEGIN, answer(call("a")), result("a")]


def test_nothing_said_is_nothing_to_send() -> None:
    assert fixed() == []
    assert fixed(ExtensionMessage([], kind="note"), result("a"), answer()) == []


def test_many_calls_of_one_id_take_time_in_proportion() -> None:
    count = 3_000
    said = [user(), answer(*[call("a")] * count), *[result("a", str(number)) for number in range(count)]]
    repaired = fixed(*said)
    assert [message.text for message in repaired[2:]] == [str(number) for number in range(count)]
