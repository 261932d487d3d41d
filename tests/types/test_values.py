"""What holds for the plain values."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.types.cancel import CancelToken
from steersman.types.content import TextContent, ToolCall, parse_tool_call
from steersman.types.frozen import FrozenDict, FrozenList, freeze, thaw
from steersman.types.ids import new_id
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    ToolResultMessage,
    UserMessage,
    to_message,
    to_messages,
    user_message,
)
from steersman.types.model import Model, StreamOptions
from steersman.types.result import RunResult
from steersman.types.usage import Prices, Usage, add_cost, add_usages

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_frozen_and_thawed_values_are_equal_to_what_they_came_from(value: Any) -> None:
    """failures.md J9: read-only all the way down, and a copy that may be changed."""
    frozen = freeze(value)
    assert frozen == value == thaw(frozen)
    assert type(thaw(frozen)) is type(value)


CHANGES: list[Callable[[Any], object]] = [
    lambda value: value["list"].append(1),
    lambda value: value.update(a=1),
    lambda value: value.pop("list"),
    lambda value: value["list"].__setitem__(0, 2),
    lambda value: value["dict"].clear(),
    lambda value: value.__delitem__("dict"),
    lambda value: value["list"].sort(),
    lambda value: value.setdefault("x", 1),
]


@each_row("change", CHANGES)
def test_arguments_of_a_call_cannot_be_changed(change: Any) -> None:
    """failures.md J9: whatever a subscriber does with an event, the transcript stays as it was."""
    call = ToolCall("1", "a", {"list": [1], "dict": {"b": 2}})
    with pytest.raises(TypeError, match="read-only"):
        change(call.arguments)
    assert call.arguments == {"list": [1], "dict": {"b": 2}}


def test_frozen_values_can_be_copied_and_pickled() -> None:
    """Users put messages in queues and caches."""
    message = AssistantMessage([ToolCall("1", "a", {"b": [1]})])
    assert pickle.loads(pickle.dumps(message)) == message == copy.deepcopy(message)
    assert type(copy.copy(FrozenList([1]))) is FrozenList
    assert type(copy.deepcopy(FrozenDict(a=1))) is FrozenDict


# Who reads a transcript later may have less of the stack left than the one who has written it.
DEEPEST = "[" * 127 + "]" * 127


@each_row(
    ("arguments", "value", "raw"),
    [
        ("", {}, None),
        ("  ", {}, None),
        (None, {}, None),
        ("null", {}, None),
        ('{"a": 1}', {"a": 1}, None),
        ({"a": 1}, {"a": 1}, None),
        ('{"a": 1', {}, '{"a": 1'),
        ("[1]", {}, "[1]"),
        ([1], {}, "[1]"),
        ('"{}"', {}, '"{}"'),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ("[" * 100_000, {}, "[" * 100_000),
        ('{"a":' + DEEPEST + "}", {"a": msgspec.json.decode(DEEPEST)}, None),
        ('{"a":[' + DEEPEST + "]}", {}, '{"a":[' + DEEPEST + "]}"),
        ('{"a":"' + "[" * 200 + '\\"[' + '", "b":{}}', {"a": "[" * 200 + '"[', "b": {}}, None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_arguments_as_servers_send_them(arguments: Any, value: dict[str, Any], raw: str | None) -> None:
    """loop.md D8; failures.md C6, C7, C12, C17: nothing means no arguments, what is no object is kept as written."""
    call = parse_tool_call("1", "a", arguments)
    assert (call.arguments, call.raw_arguments) == (value, raw)


def test_unknown_usage_is_not_zero() -> None:
    """loop.md T8; failures.md I8"""
    assert Usage().total is None
    assert Usage() + Usage() == Usage()
    assert Usage(input=1, output=2) + Usage() == Usage(input=1, output=2)
    priced_one, other = Usage(input=1, cost=0.5), Usage(input=1)
    assert (priced_one + other).partial, "What the other cost is unknown, and not nothing."
    assert other + priced_one == priced_one + other == Usage(input=2, cost=0.5, partial=True)
    assert not (priced_one + priced_one).partial
    assert Usage(input=1, cache_read=5) + Usage(output=2, partial=True) == Usage(
        input=1, output=2, cache_read=5, total=8, partial=True
    )


def test_a_total_is_the_sum_of_its_disjoint_parts() -> None:
    """Reasoning is part of the output."""
    assert Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=2).total == 10


_COUNTS = st.none() | st.integers(0, 9)
_USAGES = st.builds(
    Usage, _COUNTS, _COUNTS, _COUNTS, _COUNTS, _COUNTS, cost=st.none() | st.floats(0, 1), partial=st.booleans()
)


@given(st.lists(_USAGES) | st.lists(_USAGES.map(lambda usage: msgspec.structs.replace(usage, cost=None))))
def test_usages_add_up_to_the_same_together_and_one_by_one(usages: Sequence[Usage]) -> None:
    """A run adds up what its requests used when somebody asks."""
    assert add_usages(usages) == reduce(add, usages, Usage())


def test_a_cost_is_known_only_where_prices_and_usage_are() -> None:
    """A model without a price has unknown cost, never 0."""
    prices = Prices(input=3, output=15, cache_read=0.3)
    usage = Usage(input=1_000_000, output=100_000, cache_read=1_000_000, cache_write=1_000_000)
    assert add_cost(usage, prices).cost == pytest.approx(3 + 1.5 + 0.3 + 3)
    assert add_cost(usage, None).cost is None
    assert add_cost(Usage(), prices).cost is None
    assert add_cost(Usage(input=1, cost=7.0), prices).cost == 7.0


def test_a_token_is_set_once_and_tells_everyone_once() -> None:
    """failures.md F12: cancelling is idempotent."""
    token, told = CancelToken(), list[str]()
    token.on_cancel(lambda: told.append("first"))
    take_back = token.on_cancel(lambda: told.append("never"))
    take_back()
    assert not token.cancelled
    token.cancel("enough")
    token.cancel("again")
    token.on_cancel(lambda: told.append("late"))
    take_back()
    assert (token.cancelled, token.reason, told) == (True, "enough", ["first", "late"])


def test_ids_do_not_repeat_in_a_forked_process() -> None:
    """The child counts on from the same number under a prefix of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, new_id("x").encode())
        os._exit(0)
    ours = new_id("x")
    os.waitpid(child, 0)
    theirs = os.read(read, 100).decode()
    os.close(read)
    os.close(write)
    assert theirs.split("_")[1] != ours.split("_")[1]
    assert len({new_id("x") for _ in range(100)}) == 100


def test_keys_are_in_no_repr() -> None:
    """failures.md L13"""
    model = Model("some", "one", api_key="canary", headers={"authorization": "canary"})
    assert "canary" not in repr(model)
    assert "canary" not in repr(StreamOptions(api_key="canary"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Hello", [user_message("Hello")]),
        ({"role": "user", "content": [{"type": "text", "text": "Hello"}]}, [user_message("Hello")]),
        (["One", {"role": "user", "content": "Two"}], [user_message("One"), user_message("Two")]),
        ([], []),
    ],
)
def test_messages_are_made_of_what_users_type(value: Any, expected: list[UserMessage]) -> None:
    """A string, a message, a dict as in the seeds, or a list of these."""
    assert to_messages(value) == expected


def test_a_dict_may_hold_arguments_that_are_still_text() -> None:
    """failures.md C8: as OpenAI-like servers write them."""
    block = {"type": "tool_call", "id": "1", "name": "a", "arguments": '{"b": 1}'}
    assert to_message({"role": "assistant", "content": [block]}) == AssistantMessage([ToolCall("1", "a", {"b": 1})])


def test_a_result_lists_the_results_of_its_tool_calls() -> None:
    first, second = (ToolResultMessage([TextContent(word)], tool_call_id=word, tool_name="say") for word in ("a", "b"))
    messages: list[AgentMessage] = [UserMessage([TextContent("Hi")]), first, AssistantMessage([]), second]
    assert RunResult(messages, Usage(), "done").tool_results == [first, second]


@pytest.mark.parametrize("content", [[{"type": "text", "text": "Hi"}], ["Hi"], [TextContent("Hi"), None]])
def test_a_message_refuses_content_that_is_no_block(content: Any) -> None:
    """A message like that would be lost on its way to the model, and break every later run."""
    with pytest.raises(TypeError, match="The content of a UserMessage is a text or a list of TextContent"):
        UserMessage(content)
