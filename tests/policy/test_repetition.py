from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.policy.limits import RepeatedCalls, RepeatWatch, Repetition
from steersman.types.content import ToolCall


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"id_{name}_{len(arguments)}", name, arguments)


def watched(batches: list[list[ToolCall]], config: RepeatedCalls | None = None) -> dict[int, Repetition]:
    """What the watch said, by the number of the batch from 1 on."""
    watch = RepeatWatch(config)
    said = {number: watch.observe(batch) for number, batch in enumerate(batches, 1)}
    return {number: repetition for number, repetition in said.items() if repetition is not None}


def test_the_same_call_again_and_again_is_nudged_once_and_then_stopped() -> None:
    """loop.md D9"""
    assert watched([[call("read", path="a")]] * 17) == {
        8: Repetition(("read",), 8, "nudge"),
        16: Repetition(("read",), 16, "stop"),
        17: Repetition(("read",), 17, "stop"),
    }


@pytest.mark.parametrize("period", [2, 3])
def test_a_cycle_is_noticed_by_its_rounds(period: int) -> None:
    """loop.md D9"""
    names = ("a", "b", "c")[:period]
    said = watched([[call(name)] for name in names] * 16)

    assert said == {
        8 * period: Repetition(names, 8, "nudge"),
        16 * period: Repetition(names, 16, "stop"),
    }


def test_a_longer_cycle_is_left_alone() -> None:
    assert watched([[call(name)] for name in "abcd"] * 20) == {}


def test_other_arguments_are_another_call() -> None:
    assert watched([[call("read", page=number)] for number in range(50)]) == {}


def test_the_order_of_the_arguments_does_not_matter_nor_do_the_ids() -> None:
    batches = [[ToolCall("1", "f", {"a": 1, "b": 2})], [ToolCall("2", "f", {"b": 2, "a": 1})]] * 4

    assert watched(batches) == {8: Repetition(("f",), 8, "nudge")}


def test_arguments_that_could_not_be_parsed_are_compared_as_written() -> None:
    same = [[ToolCall("1", "f", {}, '{"a":')]] * 8
    other = [[ToolCall("1", "f", {}, '{"a":' + "x" * number)] for number in range(20)]

    assert (list(watched(same)), watched(other)) == ([8], {})


def test_a_whole_batch_is_compared_not_one_call_of_it() -> None:
    """loop.md D9"""
    batch = [call("read", path="a"), call("read", path="b")]

    assert watched([batch] * 8) == {8: Repetition(("read", "read"), 8, "nudge")}
    assert watched([[call("read", path="a"), call("list", page=number)] for number in range(50)]) == {}


def test_anything_else_in_between_ends_the_streak() -> None:
    same, other = [call("read", path="a")], [call("read", path="b")]

    assert watched([*[same] * 7, other, *[same] * 7]) == {}
    assert watched([*[same] * 7, [], *[same] * 7]) == {}


def test_each_streak_is_nudged_of_its_own() -> None:
    a, b = [call("a")], [call("b")]

    assert watched([*[a] * 10, *[b] * 10]) == {8: Repetition(("a",), 8, "nudge"), 18: Repetition(("b",), 8, "nudge")}


def test_a_reset_forgets_the_streak() -> None:
    watch = RepeatWatch()
    for _ in range(7):
        watch.observe([call("a")])
    watch.reset()

    assert [watch.observe([call("a")]) for _ in range(7)] == [None] * 7


def test_either_answer_can_be_turned_off() -> None:
    batches = [[call("a")]] * 20

    assert watched(batches, RepeatedCalls(stop_after=None)) == {8: Repetition(("a",), 8, "nudge")}
    assert list(watched(batches, RepeatedCalls(nudge_after=None))) == [16, 17, 18, 19, 20]
    assert watched(batches, RepeatedCalls(nudge_after=None, stop_after=None)) == {}


def test_the_texts_tell_the_model_and_the_user() -> None:
    assert Repetition(("a", "b"), 8, "nudge").text == (
        "The same tool calls with the same arguments (a, b) came 8 times in a row. Repeating them will not give "
        "anything new: try another way, or answer with what you have."
    )
    assert Repetition(("a",), 16, "stop").text == (
        "The same tool calls with the same arguments (a) came 16 times in a row."
    )


@pytest.mark.parametrize(
    "settings", [{"nudge_after": 1}, {"stop_after": 0}, {"max_period": 0}, {"nudge_after": True}, {"max_period": None}]
)
def test_a_count_that_is_none_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is a whole number from \d on, got "):
        RepeatedCalls(**settings)


def test_a_nudge_after_the_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="nudge_after comes before stop_after"):
        RepeatedCalls(nudge_after=20)


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_what_is_said_is_true_of_the_batches_seen(names: list[str]) -> None:
    """loop.md D9"""
    config = RepeatedCalls(nudge_after=3, stop_after=5)
    for number, repetition in watched([[call(name)] for name in names], config).items():
        cycle = list(repetition.tool_names)
        assert names[:number][-len(cycle) * repetition.repetitions :] == cycle * repetition.repetitions
        assert repetition.action == ("stop" if repetition.repetitions >= 5 else "nudge")
