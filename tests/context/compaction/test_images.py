from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from steersman import AgentMessage, AssistantMessage, ToolCall, ToolResultMessage
from steersman.context.compaction.config import ContextConfig
from steersman.context.compaction.steps import ImageCompaction, count_image_bytes
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import UserMessage, user_message

NOTE = TextContent("[image left out]")


def left(messages: list[AgentMessage]) -> list[AgentMessage]:
    return list(ImageCompaction().compact(messages, ContextConfig()))


def showing(*sizes: int) -> list[AgentMessage]:
    """A task, and a screenshot of each size as the result of a call."""
    messages: list[AgentMessage] = [user_message("the task")]
    for number, size in enumerate(sizes):
        call = ToolCall(f"call_{number}", "look")
        content = [TextContent("Seen."), ImageContent("x" * size)]
        messages += [
            AssistantMessage([call], stop_reason="tool_use"),
            ToolResultMessage(content, tool_call_id=call.id, tool_name="look"),
        ]
    return messages


def test_the_oldest_images_go_until_half_of_their_bytes_are_left() -> None:
    """failures.md E9"""
    before = showing(100, 100, 100, 100)
    after = left(before)
    assert [message.content for message in after[2::2]] == [
        [TextContent("Seen."), NOTE],
        [TextContent("Seen."), NOTE],
        before[6].content,
        before[8].content,
    ]
    assert all(a is b for a, b in zip(after[::2][3:], before[::2][3:], strict=True))


def test_so_do_half_of_them_where_one_is_larger_than_all_others() -> None:
    """A server limits their number, too."""
    after = left(showing(1_000, 10, 10, 10))
    assert [count_image_bytes([message]) for message in after[2::2]] == [0, 0, 10, 10]


def test_what_the_user_has_just_shown_stays_and_what_was_shown_before_does_not() -> None:
    """failures.md E9"""
    shown = UserMessage([ImageContent("x" * 1_000)])
    after = left(
        [*showing(10), UserMessage([ImageContent("x" * 10)]), AssistantMessage([TextContent("I see.")]), shown]
    )
    assert (count_image_bytes(after), after[-1] is shown) == (1_000, True)


@pytest.mark.parametrize(("size", "kept"), [(60, [60, 0, 0, 60]), (100, [0, 0, 0, 60])])
def test_what_the_work_is_about_goes_after_older_work_and_before_the_newest(size: int, kept: list[int]) -> None:
    """failures.md E9"""
    task = UserMessage([TextContent("What is it?"), ImageContent("x" * size)])
    after = left([*showing(10), task, *showing(60, 60, 60)[1:]])
    assert count_image_bytes(after[:3]) == 0
    assert [count_image_bytes([message]) for message in after[3::2]] == kept


def test_a_word_of_the_loop_is_no_work() -> None:
    """failures.md E9"""
    task = UserMessage([TextContent("What is it?"), ImageContent("x" * 100)])
    assert left([task, user_message("[Note]", synthetic=True)])[0] is task


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_an_answer_that_failed_is_no_work(reason: Any) -> None:
    """failures.md E9, loop.md R5: a run that is continued after an error is asked about the same picture."""
    task = UserMessage([TextContent("What is it?"), ImageContent("x" * 100)])
    assert left([task, AssistantMessage([TextContent("I s")], stop_reason=reason)])[0] is task


def test_messages_without_images_are_the_same_ones() -> None:
    before = [user_message("the task"), AssistantMessage([TextContent("Yes.")])]
    assert all(a is b for a, b in zip(left(list(before)), before, strict=True))
    assert left([]) == []


@hypothesis.given(st.lists(st.integers(0, 50), max_size=8))
def test_no_message_is_lost_and_at_most_half_of_the_bytes_are_left(sizes: list[int]) -> None:
    before = showing(*sizes)
    after = left(before)
    assert [message.role for message in after] == [message.role for message in before]
    assert count_image_bytes(after) * 2 <= count_image_bytes(before)
