from __future__ import annotations

from typing import Any, cast

import pytest
from tests.context.transcripts import answer, call, result, user
from tests.rows import each_row

from steersman.context.context import AgentContext
from steersman.context.entries import Live
from steersman.types.continuation import Rerun


def test_a_context_is_made_of_what_users_type() -> None:
    tools = [print]
    context = AgentContext("Be brief.", [{"role": "user", "content": "Hi"}, "there", user("!")], tools)
    assert context.system_prompt == "Be brief."
    assert context.messages == [user("Hi"), user("there"), user("!")]
    assert context.tools == [print]
    assert context.tools is not tools
    assert context.undelivered == ()
    assert repr(context) == "AgentContext('Be brief.', 3 messages, 1 tools)"


def test_a_context_may_start_with_one_message_or_any_iterable() -> None:
    assert AgentContext(messages="Hi").messages == [user("Hi")]
    assert AgentContext(messages={"role": "user", "content": "Hi"}).messages == [user("Hi")]
    assert AgentContext(messages=iter(["Hi", "there"])).messages == [user("Hi"), user("there")]
    assert AgentContext().messages == []


def test_ids_are_kept_as_given() -> None:
    context = AgentContext(
        agent_id="a",
        session_id="s",
        loop_id="l",
        last_loop_id="k",
        parent_loop_id="p",
        continuation_kind=Rerun("again"),
    )
    assert (context.agent_id, context.session_id, context.loop_id) == ("a", "s", "l")
    assert (context.last_loop_id, context.parent_loop_id, context.continuation_kind) == ("k", "p", Rerun("again"))


def test_messages_grow_like_a_list_and_are_one_with_the_log() -> None:
    """loop.md C1"""
    context = AgentContext()
    messages = context.messages
    messages.append("one")
    messages.extend(["two", {"role": "user", "content": "three"}])
    context.messages += [user("four")]
    expected = [user("one"), user("two"), user("three"), user("four")]
    assert messages == expected
    assert expected == context.messages
    assert context.log.messages == expected
    assert (len(messages), messages[-1], messages[1:3], messages.index(user("two"))) == (
        4,
        user("four"),
        [user("two"), user("three")],
        1,
    )
    more = [user("five")]
    assert (messages + more, more + messages) == ([*expected, *more], [*more, *expected])
    assert messages.copy() == expected
    assert repr(messages) == repr(expected)


def test_extending_with_one_bad_message_adds_none() -> None:
    context = AgentContext(messages=["a"])
    with pytest.raises(ValueError, match="Not a message"):
        context.messages.extend(["b", {"role": "nobody"}])
    assert context.messages == [user("a")]


def _set(messages: Any) -> None:
    messages[0] = "x"


def _set_several(messages: Any) -> None:
    messages[1:] = ["x", "y"]


def _delete(messages: Any) -> None:
    del messages[0]


def _pop(messages: Any) -> None:
    assert messages.pop() == user("a")


def _insert(messages: Any) -> None:
    messages.insert(0, "x")


def _remove(messages: Any) -> None:
    messages.remove(user("a"))


def _sort(messages: Any) -> None:
    messages.sort(key=_get_text)


def _get_text(message: Any) -> str:
    return message.text


def _clear(messages: Any) -> None:
    messages.clear()


def _reverse(messages: Any) -> None:
    messages.reverse()


def _double(messages: Any) -> None:
    messages *= 2


@each_row(
    ("change", "after"),
    [
        (_set, "xca"),
        (_set_several, "bxy"),
        (_delete, "ca"),
        (_pop, "bc"),
        (_clear, ""),
        (_insert, "xbca"),
        (_remove, "bc"),
        (_sort, "abc"),
        (_reverse, "acb"),
        (_double, "bcabca"),
    ],
)
def test_a_change_works_as_in_a_list_and_rewrites_no_log(change: Any, after: str) -> None:
    """loop.md C1: the log is never rewritten; another one begins."""
    context = AgentContext(messages=["b", "c", "a"])
    before, messages = context.log, context.messages
    change(messages)
    expected = [user(text) for text in after]
    assert (context.messages == expected, messages == expected, context.log.messages == expected) == (True, True, True)
    assert before.messages == [user("b"), user("c"), user("a")]


def test_a_change_to_no_message_changes_nothing() -> None:
    context = AgentContext(messages=["a"])
    with pytest.raises((ValueError, TypeError)):
        context.messages[0] = cast(Any, 3)
    with pytest.raises((ValueError, TypeError)):
        context.messages.insert(0, cast(Any, {"role": "nobody"}))
    with pytest.raises(IndexError):
        del context.messages[4]
    assert context.messages == [user("a")]


def test_messages_that_were_replaced_stay_as_they_were() -> None:
    """A program may keep them and assign them again."""
    context = AgentContext(messages=["a"])
    kept = context.messages
    context.messages = []
    kept.insert(0, "b")
    assert (kept == [user("b"), user("a")], context.messages == []) == (True, True)
    context.messages = kept
    assert context.messages == [user("b"), user("a")]


def test_assigning_messages_begins_a_new_log() -> None:
    context = AgentContext(messages=["a"])
    before = context.log
    context.messages = ["b"]
    assert context.messages == [user("b")]
    assert before.messages == [user("a")]


def test_prompts_steering_and_model_work_are_views_of_one_log() -> None:
    """failures.md S11: the first prompt is classified like any later message."""
    work = [answer(call("c")), result("c")]
    context = AgentContext(messages=[user("task"), *work, user("steer")])
    assert context.user_context == [user("task"), user("steer")]
    assert context.inrun_context == [Live(work[0]), Live(work[1])]
