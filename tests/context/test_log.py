from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.context.transcripts import (
    CHAOS,
    answer,
    call,
    result,
    turn,
    user,
)

from steersman.context.entries import MessageEntry
from steersman.context.log import Log
from steersman.context.tokens import estimate_tokens, estimate_total_tokens
from steersman.types.messages import AgentMessage, user_message
from steersman.types.usage import Usage


def test_appending_gives_an_id_and_every_view_has_the_message() -> None:
    """loop.md C1"""
    log = Log([user()])
    added = log.append(answer(call("a")))
    assert log.messages == log.visible == [user(), answer(call("a"))]
    assert log.entries[1] == MessageEntry(added, answer(call("a")))
    assert (log.entry_id_of(1), log.visible_id(-1), log.entries[1].id) == (added, added, added)
    assert "a" in log.call_ids
    assert "b" not in log.call_ids


@given(CHAOS, st.booleans())
def test_adding_results_at_once_is_adding_them_one_by_one(before: list[AgentMessage], is_heard: bool) -> None:
    results = [result("a"), result("b", "two")]
    logs = [Log(before), Log(before)]
    heard: list[list[object]] = [[], []]
    for log, entries in zip(logs, heard, strict=True):
        log.prun(1, memo="m", spare=None)
        log.listener = entries.append if is_heard else None
    for one in results:
        logs[0].append(one)
    logs[1].append_results(results)
    for view in ("messages", "visible", "tokens", "call_ids"):
        assert getattr(logs[1], view) == getattr(logs[0], view)
    assert [entry.id for entry in logs[1].entries[-2:]] == [logs[1].entry_id_of(at) for at in (-2, -1)]
    assert heard[1] == (list(logs[1].entries[-2:]) if is_heard else [])


def test_views_are_snapshots() -> None:
    log = Log([user()])
    messages, visible, entries = log.messages, log.visible, log.entries
    log.append(user("more"))
    assert (messages, visible, len(entries)) == ([user()], [user()], 1)


def test_order_is_log_order_and_never_time() -> None:
    """loop.md C1"""
    later, earlier = user_message("first", timestamp=2.0), user_message("second", timestamp=1.0)
    assert Log([later, earlier]).messages == [later, earlier]


def test_what_is_no_message_is_refused() -> None:
    log = Log()
    with pytest.raises(TypeError, match="A log takes messages, got 'Hi'"):
        log.append(cast(Any, "Hi"))
    assert log.entries == []


@pytest.mark.parametrize("index", [1, -2])
def test_asking_for_a_message_that_is_not_there_says_how_many_there_are(index: int) -> None:
    log = Log([user()])
    with pytest.raises(IndexError, match=f"no message {index} in log.messages, which has 1"):
        log.entry_id_of(index)
    with pytest.raises(IndexError, match=f"no message {index} in log.visible, which has 1"):
        log.visible_id(index)


def test_tokens_are_the_last_usage_and_estimates_of_what_came_after() -> None:
    """loop.md C4"""
    log = Log([user("x" * 400)])
    assert log.tokens == 104
    log.append(answer("ok", usage=Usage(input=5_000, output=20, cache_read=300)))
    assert log.tokens == 5_320
    log.append(user("x" * 40))
    assert log.tokens == 5_334
    log.append(answer("ok", usage=Usage(input=6_000, output=1)))
    assert log.tokens == 6_001


def test_an_unknown_usage_and_that_of_a_failed_answer_count_as_estimates() -> None:
    """loop.md C4"""
    unknown = [answer("a" * 40), answer("b" * 40, usage=Usage(total=0)), answer("c" * 40, usage=Usage(cost=1.0))]
    failed = answer("d" * 40, usage=Usage(input=9, output=9), stop_reason="aborted")
    assert Log([*unknown, failed]).tokens == 4 * 14


def test_the_estimator_is_pluggable_also_later() -> None:
    """loop.md C4"""
    log = Log([user(), user()], estimator=lambda _: 7)
    assert log.tokens == 14
    log.estimator = estimate_tokens
    assert log.tokens == 12
    assert log.estimator is estimate_tokens


def test_after_the_view_changed_only_a_new_usage_counts() -> None:
    """loop.md C4"""
    log = Log([user(), *turn("a"), answer("x" * 40, usage=Usage(total=9_000))])
    entry = log.compact([log.visible[0], log.visible[3]])
    assert log.tokens == estimate_total_tokens(log.visible)
    log.append(answer("y", usage=Usage(total=50)))
    assert log.tokens == 50
    log.undo(entry.id)
    assert log.tokens == estimate_total_tokens(log.visible)
    log.append(answer("y", usage=Usage(total=9_100)))
    assert log.tokens == 9_100
    log.prun(1)
    assert log.tokens == estimate_total_tokens(log.visible)


@given(CHAOS, st.lists(st.booleans(), min_size=14, max_size=14))
def test_counting_as_messages_come_is_counting_all_of_them(messages: list[AgentMessage], asked: list[bool]) -> None:
    log = Log()
    for message, ask in zip(messages, asked, strict=False):
        log.append(message)
        if ask:
            assert log.tokens == Log(log.messages).tokens
    assert log.tokens == Log(messages).tokens
