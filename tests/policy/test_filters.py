from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from steersman.policy.filters import FilterResult, InputFilter, apply_filters
from steersman.policy.verdicts import FilterVerdict, Pass, Reject, Warn
from steersman.testing.clock import run_virtual
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, AssistantMessage, ExtensionMessage, UserMessage, user_message


def filtered(filters: list[Any], messages: list[AgentMessage]) -> FilterResult:
    return run_virtual(apply_filters(cast(list[InputFilter], filters), messages))


def passing(text: str) -> FilterVerdict:
    return Pass()


def warning(words: str) -> InputFilter:
    return lambda text: Warn(words)


def test_filters_see_the_joined_text_of_the_user_messages_in_order() -> None:
    """loop.md R4"""
    heard: list[str] = []

    def listen(text: str) -> FilterVerdict:
        heard.append(text)
        return Pass()

    messages: list[AgentMessage] = [
        user_message("one"),
        AssistantMessage([TextContent("not this")]),
        user_message("two"),
    ]

    assert filtered([listen, listen], messages) == FilterResult(messages)
    assert heard == ["one\ntwo", "one\ntwo"]


def test_the_first_reject_wins_and_later_filters_are_not_asked() -> None:
    """loop.md R4"""
    asked: list[str] = []

    def reject(text: str) -> FilterVerdict:
        asked.append("reject")
        return Reject("no secrets")

    def late(text: str) -> FilterVerdict:
        asked.append("late")
        return Reject("too late")

    assert filtered([warning("odd"), reject, late], [user_message("hi")]) == FilterResult([], "no secrets")
    assert asked == ["reject"]


def test_warnings_go_to_a_copy_of_the_last_user_message() -> None:
    """loop.md R4"""
    first, last = user_message("one"), user_message("two", timestamp=5.0)
    extension = ExtensionMessage(kind="note")

    result = filtered([warning("a"), passing, warning("b")], [first, last, extension])

    warned = UserMessage([TextContent("two"), TextContent("[Warning: a] [Warning: b]")], timestamp=5.0)
    assert result == FilterResult([first, warned, extension])
    assert last == user_message("two", timestamp=5.0)


def test_a_warning_about_an_image_follows_the_image() -> None:
    """failures.md S15"""
    image = ImageContent("aGk=")

    assert filtered([warning("a")], [UserMessage([image])]) == FilterResult(
        [UserMessage([image, TextContent("[Warning: a]")])]
    )


def test_a_warning_without_a_user_message_becomes_one() -> None:
    """failures.md S15"""
    extension = ExtensionMessage(kind="note")

    assert filtered([warning("a")], [extension]) == FilterResult([extension, user_message("[Warning: a]")])
    assert filtered([warning("a")], []) == FilterResult([user_message("[Warning: a]")])


def test_a_filter_may_be_async_or_an_object_with_a_filter_method() -> None:
    class Object:
        def filter(self, text: str) -> FilterVerdict:
            return Warn(f"object saw {text}")

    async def later(text: str) -> FilterVerdict:
        await asyncio.sleep(1)
        return Warn("later")

    result = filtered([later, Object()], [user_message("hi")])

    assert [message.text for message in result.messages] == ["hi[Warning: later] [Warning: object saw hi]"]


def test_without_filters_the_same_messages_come_back_in_a_new_list() -> None:
    messages: list[AgentMessage] = [user_message("hi")]

    result = filtered([], messages)

    assert result == FilterResult(messages)
    assert result.messages is not messages


def test_a_filter_that_raises_rejects_and_is_named() -> None:
    def broken(text: str) -> FilterVerdict:
        raise KeyError("lists")

    assert filtered([broken], [user_message("hi")]) == FilterResult([], "input filter broken raised KeyError: 'lists'")


@pytest.mark.parametrize("answer", [None, True, False, "ok", Pass])
def test_a_filter_that_gives_no_verdict_rejects(answer: object) -> None:
    def vague(text: str) -> object:
        return answer

    assert filtered([vague], [user_message("hi")]) == FilterResult(
        [], f"input filter vague gave {answer!r}; return Pass(), Warn(text) or Reject(reason)"
    )


def test_what_is_no_filter_at_all_rejects() -> None:
    assert filtered([3], [user_message("hi")]) == FilterResult(
        [], "input filter int raised AttributeError: 'int' object has no attribute 'filter'"
    )


def test_a_reject_without_a_reason_is_still_a_reject() -> None:
    def terse(text: str) -> FilterVerdict:
        return Reject()

    assert filtered([terse], [user_message("hi")]) == FilterResult([], "input filter terse gave no reason")


def test_a_cancel_while_a_filter_thinks_is_not_taken_for_its_answer() -> None:
    async def stuck(text: str) -> FilterVerdict:
        await asyncio.sleep(3600)
        return Pass()

    async def cancelled_at_once() -> bool:
        task = asyncio.create_task(apply_filters([stuck], [user_message("hi")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert run_virtual(cancelled_at_once())
