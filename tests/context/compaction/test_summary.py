from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.context.transcripts import answer, turn, user

from steersman.context.compaction.config import ContextConfig
from steersman.context.compaction.steps import MARKER
from steersman.context.compaction.strategies import DefaultCompaction, SummaryCompaction
from steersman.types.messages import AgentMessage, ExtensionMessage, Message, UserMessage, user_message

CONFIG = ContextConfig(max_context_tokens=800, threshold=0.25, keep_recent=2)
MIDDLE = [*turn("a", "x" * 900), user("steer"), *turn("b", "x" * 900)]
MESSAGES = [user("task"), *MIDDLE, *turn("end")]


def summary(text: str) -> UserMessage:
    return user_message(f"[Summary of earlier messages]\n{text}", synthetic=True)


class Summariser:
    """Gives a text, or raises, and remembers what it was asked."""

    def __init__(self, answer: str | BaseException) -> None:
        self.answer = answer
        self.asked: list[list[Message]] = []

    async def __call__(self, messages: Sequence[Message]) -> str:
        self.asked.append(list(messages))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def compact(
    summarise: Summariser, messages: Sequence[AgentMessage] = MESSAGES, config: ContextConfig = CONFIG
) -> tuple[Sequence[AgentMessage], list[str]]:
    reasons: list[str] = []
    strategy = SummaryCompaction(summarise, on_fallback=reasons.append)
    return asyncio.run(_gathered(strategy, messages, config)), reasons


async def _gathered(
    strategy: SummaryCompaction, messages: Sequence[AgentMessage], config: ContextConfig
) -> Sequence[AgentMessage]:
    return await strategy.compact(messages, config)


def test_a_model_writes_what_stands_between_the_task_and_the_tail() -> None:
    """loop.md C3"""
    summarise = Summariser("  It was done. ")
    assert compact(summarise) == ([user("task"), summary("It was done."), *turn("end")], [])
    assert summarise.asked == [MIDDLE]


def test_a_context_that_fits_is_not_summarised() -> None:
    summarise = Summariser("never")
    messages = [user("task"), *turn("end")]
    shown, reasons = compact(summarise, messages)
    assert shown is messages
    assert (summarise.asked, reasons) == ([], [])


def test_an_old_summary_goes_into_the_new_one() -> None:
    summarise = Summariser("All of it.")
    grown = [user("task"), summary("It was done."), *MIDDLE, *turn("end")]
    assert compact(summarise, grown) == ([user("task"), summary("All of it."), *turn("end")], [])
    assert summarise.asked == [[summary("It was done."), *MIDDLE]]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "the summary was empty"),
        (" \n", "the summary was empty"),
        (RuntimeError("no model"), "the summary failed: RuntimeError: no model"),
        ("x" * 9_000, "the summary was too long (2281 > 200 tokens)"),
    ],
)
def test_a_summary_that_cannot_be_used_falls_back_to_the_deterministic_way(
    said: str | BaseException, reason: str
) -> None:
    """loop.md C3; failures.md I4, I5: the old context is kept until then, and the reason is told."""
    shown, reasons = compact(Summariser(said))
    assert shown == DefaultCompaction().compact(MESSAGES, CONFIG)
    assert reasons == [reason]


def test_cancelling_a_summary_is_not_swallowed() -> None:
    strategy = SummaryCompaction(Summariser(asyncio.CancelledError()))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_gathered(strategy, MESSAGES, CONFIG))


def test_with_nothing_to_summarise_the_fallback_works_alone() -> None:
    summarise = Summariser("never")
    messages = [user("task"), MARKER, answer("x" * 900)]
    shown, reasons = compact(summarise, messages)
    assert shown is messages
    assert summarise.asked == []
    assert reasons == ["there is nothing between the task and the tail to summarise"]


def test_a_tail_too_long_by_itself_is_summarised_but_for_its_last_group() -> None:
    summarise = Summariser("Short.")
    config = ContextConfig(max_context_tokens=200, threshold=1.0, keep_recent=6)
    shown, _ = compact(summarise, config=config)
    assert shown == [user("task"), summary("Short."), *turn("end")]


def test_an_applications_own_messages_are_not_shown_to_the_summariser() -> None:
    summarise = Summariser("Short.")
    compact(summarise, [user("task"), ExtensionMessage([], kind="note"), *MIDDLE, *turn("end")])
    assert summarise.asked == [MIDDLE]


def test_the_fallback_may_be_any_strategy() -> None:
    class Waiting:
        async def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
            return messages[:1]

    strategy = SummaryCompaction(Summariser(""), Waiting())
    assert asyncio.run(_gathered(strategy, MESSAGES, CONFIG)) == [user("task")]


def test_what_is_too_long_for_one_request_is_summarised_piece_by_piece() -> None:
    """failures.md I3: the request for a summary must not overflow itself."""
    summarise = Summariser("So far.")
    config = ContextConfig(max_context_tokens=300, threshold=0.66, keep_recent=2)
    assert compact(summarise, config=config) == ([user("task"), summary("So far."), *turn("end")], [])
    assert summarise.asked == [MIDDLE[:4], [summary("So far."), *MIDDLE[4:]]]


def test_without_anyone_to_ask_the_fallback_works_alone() -> None:
    """failures.md I4"""
    reasons: list[str] = []
    strategy = SummaryCompaction(on_fallback=reasons.append)
    shown = asyncio.run(_gathered(strategy, MESSAGES, CONFIG))
    assert list(shown) == list(DefaultCompaction().compact(MESSAGES, CONFIG))
    assert reasons == ["there is no model to ask; give SummaryCompaction a function"]
