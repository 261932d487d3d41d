from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.context.transcripts import (
    answer,
    call,
    conversations,
    memo,
    result,
    turn,
    user,
    valid,
)

from steersman.context.entries import Live, Pruned
from steersman.context.log import Log
from steersman.context.tokens import estimate_total_tokens
from steersman.types.messages import AgentMessage, AssistantMessage, ExtensionMessage, UserMessage, user_message


def test_prun_hides_recent_groups_whole_until_enough_is_freed() -> None:
    """loop.md C2"""
    log = Log([user(), *turn("a", "x" * 400), *turn("b", "x" * 400), user("steer"), *turn("c", "x" * 400)])
    entry = log.prun(150, memo=None, spare=None)
    assert entry is not None
    assert log.visible == [user(), *turn("a", "x" * 400), user("steer")]
    assert entry.entry_ids == [log.entry_id_of(index) for index in (3, 4, 6, 7)]
    assert entry.tokens_removed == estimate_total_tokens([*turn("b", "x" * 400), *turn("c", "x" * 400)])
    assert log.entries[-1] == entry
    assert len(log.messages) == 8


def test_prun_spares_the_group_that_asked() -> None:
    """loop.md C2"""
    log = Log([user(), *turn("a"), *turn("b")])
    asking = log.append(answer(call("prun_1", "prun")))
    log.append(result("prun_1", name="prun"))
    log.prun(1, memo=None, spare=asking)
    assert log.visible == [user(), *turn("a"), answer(call("prun_1", "prun")), result("prun_1", name="prun")]


def test_one_memo_stands_where_the_earliest_pruned_group_stood() -> None:
    """loop.md C2"""
    log = Log([user(), *turn("a"), user("steer"), *turn("b"), answer("end")])
    entry = log.prun(10_000, memo=" found it ", spare=log.entry_id_of(-1))
    assert entry is not None
    assert entry.memo == "found it"
    assert log.visible == [user(), memo("found it"), user("steer"), answer("end")]
    assert log.visible_id(1) == f"{entry.id}.0"


def test_users_are_never_pruned_and_nothing_to_prun_is_said() -> None:
    """loop.md C2; failures.md S11: the task, a prompt like any other user message, stays."""
    log = Log([user(), user_message("note", synthetic=True), ExtensionMessage([], kind="note")])
    assert log.prun(1_000, memo="m", spare=None) is None
    assert log.prun(0, memo=None, spare=None) is None
    assert len(log.entries) == 3


def test_sparing_what_is_not_visible_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="No visible entry 'nope' to spare"):
        Log([user(), *turn("a")]).prun(1, memo=None, spare="nope")


def test_a_result_far_from_its_call_is_pruned_with_it() -> None:
    log = Log([user(), answer(call("a")), user("steer"), result("a"), answer("end")])
    log.prun(1, memo=None, spare=log.entry_id_of(-1))
    assert log.visible == [user(), user("steer"), answer("end")]


@given(conversations(), st.integers(-5, 4_000), st.booleans())
def test_prun_frees_what_was_asked_or_all_it_may(messages: list[AgentMessage], tokens: int, with_memo: bool) -> None:
    """loop.md C2"""
    log = Log(messages)
    work = [message for message in messages if not isinstance(message, UserMessage)]
    entry = log.prun(tokens, memo="m" if with_memo else None, spare=None)
    freed = 0 if entry is None else entry.tokens_removed
    assert freed >= min(tokens, estimate_total_tokens(work))
    memos = [memo("m")] if with_memo and entry else []
    assert estimate_total_tokens(messages) + estimate_total_tokens(memos) - freed == estimate_total_tokens(log.visible)
    assert log.user_context == [message for message in log.visible if message.role == "user" and not message.synthetic]
    assert log.messages == messages
    assert valid(log.visible)


@given(conversations(), st.integers(1, 4_000))
def test_prun_takes_no_group_more_than_it_must(messages: list[AgentMessage], tokens: int) -> None:
    """loop.md C2"""
    log = Log(messages)
    entry = log.prun(tokens, memo=None, spare=None)
    if entry is None:
        return
    first = next(message for index, message in enumerate(messages) if log.entry_id_of(index) == entry.entry_ids[0])
    assert isinstance(first, AssistantMessage)
    ids = {one.id for one in first.tool_calls}
    group = [first, *(message for message in messages if message.role == "tool_result" and message.tool_call_id in ids)]
    assert entry.tokens_removed - estimate_total_tokens(group) < tokens


def test_the_work_of_a_run_is_live_or_pruned() -> None:
    """loop.md C1"""
    log = Log([user(), *turn("a"), *turn("b"), user_message("nudge", synthetic=True)])
    entry = log.prun(1, memo="m", spare=None)
    assert entry is not None
    asked, given_back = cast(Any, turn("a"))
    assert log.inrun_context == [Live(asked), Live(given_back), *(Pruned(message) for message in cast(Any, turn("b")))]
    assert log.user_context == [user()]
    log.undo(entry.id)
    assert log.inrun_context == [Live(message) for message in cast(Any, [*turn("a"), *turn("b")])]
