from __future__ import annotations

from typing import Any

import pytest
from tests.rows import each_row

from steersman.policy.limits import ExecutionLimits, ExecutionTracker
from steersman.types.usage import Usage

UNLIMITED = ExecutionLimits(max_turns=None, max_total_tokens=None, max_duration=None, max_cost=None)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def tracker(clock: Clock | None = None, parent: ExecutionTracker | None = None, **limits: Any) -> ExecutionTracker:
    unlimited: dict[str, Any] = {"max_turns": None, "max_total_tokens": None, "max_duration": None}
    return ExecutionTracker(ExecutionLimits(**{**unlimited, **limits}), clock=clock or Clock(), parent=parent)


def test_the_limits_have_the_documented_defaults() -> None:
    assert ExecutionLimits() == ExecutionLimits(
        max_turns=50, max_total_tokens=1_000_000, max_duration=600, max_cost=None, wrap_up=False
    )


@pytest.mark.parametrize("turns", [0, 1, 49])
def test_fewer_turns_than_allowed_go_on(turns: int) -> None:
    """failures.md I9"""
    run = tracker(max_turns=50)
    for _ in range(turns):
        run.record_turn()

    assert run.check_limits() is None


def test_the_last_allowed_turn_reaches_the_limit() -> None:
    """loop.md T3, failures.md I9"""
    run = tracker(max_turns=50)
    for _ in range(50):
        run.record_turn()

    assert run.check_limits() == "Max turns reached (50/50)"


def test_tokens_count_with_the_cached_ones() -> None:
    """loop.md T3"""
    run = tracker(max_total_tokens=100)
    run.record_usage(Usage(input=10, output=20, cache_read=60, cache_write=9))
    assert run.check_limits() is None
    run.record_usage(Usage(input=1, output=1))

    assert run.check_limits() == "Max tokens reached (101/100)"


def test_the_time_is_up_when_the_duration_is_reached() -> None:
    """loop.md T3"""
    clock = Clock()
    run = tracker(clock, max_duration=600)
    clock.now += 599.9
    assert run.check_limits() is None
    clock.now += 1.2

    assert run.check_limits() == "Max duration reached (601s/600s)"


def test_a_duration_with_a_fraction_is_told_with_it() -> None:
    clock = Clock()
    run = tracker(clock, max_duration=0.5)
    clock.now += 0.75

    assert run.check_limits() == "Max duration reached (0.75s/0.50s)"


@pytest.mark.parametrize(
    ("spent", "limit", "text"),
    [
        (0.5, 0.5, "Max cost reached ($0.50/$0.50)"),
        (1.2345, 1, "Max cost reached ($1.2345/$1.00)"),
        (0.000012, 0.00001, "Max cost reached ($0.000012/$0.00001)"),
    ],
)
def test_the_cost_is_told_in_dollars(spent: float, limit: float, text: str) -> None:
    """loop.md T3"""
    run = tracker(max_cost=limit)
    run.record_usage(Usage(input=1, cost=spent))

    assert run.check_limits() == text


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"max_turns": 0}, "Max turns reached (0/0)"),
        ({"max_total_tokens": 0}, "Max tokens reached (0/0)"),
        ({"max_duration": 0}, "Max duration reached (0s/0s)"),
        ({"max_cost": 0}, "Max cost reached ($0.00/$0.00)"),
    ],
)
def test_a_limit_of_nothing_is_reached_at_once(limits: dict[str, Any], text: str) -> None:
    """failures.md I9"""
    assert tracker(**limits).check_limits() == text


def test_without_limits_nothing_is_ever_reached() -> None:
    clock = Clock()
    for limits in (None, UNLIMITED):
        run = ExecutionTracker(limits, clock=clock)
        run.record_turn()
        run.record_usage(Usage(input=10**12, cost=10**6))
        clock.now += 10**9

        assert (run.check_limits(), run.deadline) == (None, None)


def test_unknown_usage_counts_as_its_estimate_and_says_so() -> None:
    """failures.md I8"""
    run = tracker(max_total_tokens=100)
    run.record_usage(Usage(), estimated_tokens=70)
    run.record_usage(Usage(input=20, output=10), estimated_tokens=999)

    assert (run.tokens, run.estimated_tokens) == (100, 70)
    assert run.check_limits() == "Max tokens reached (100/100)"


def test_a_usage_known_in_part_counts_at_least_its_estimate() -> None:
    """failures.md I8"""
    run = tracker()
    run.record_usage(Usage(input=20, partial=True), estimated_tokens=50)
    run.record_usage(Usage(input=80, partial=True), estimated_tokens=50)

    assert (run.tokens, run.estimated_tokens) == (130, 30)


def test_what_a_sub_agent_uses_counts_for_its_parents() -> None:
    """failures.md S10, failures.md I9"""
    parent = tracker(max_turns=2, max_total_tokens=100, max_cost=1)
    child = tracker(parent=parent)
    grandchild = tracker(parent=child)
    grandchild.record_turn()
    grandchild.record_usage(Usage(input=100, cost=0.25))

    assert [(run.turns, run.tokens, run.cost) for run in (grandchild, child, parent)] == [(1, 100, 0.25)] * 3
    assert grandchild.check_limits() == parent.check_limits() == "Max tokens reached (100/100)"


def test_what_a_parent_uses_does_not_count_for_a_sub_agent() -> None:
    parent = tracker()
    child = tracker(parent=parent, max_turns=1)
    parent.record_turn()

    assert (child.turns, child.check_limits()) == (0, None)


def test_the_limit_of_the_sub_agent_is_told_before_that_of_its_parent() -> None:
    parent = tracker(max_total_tokens=10)
    child = tracker(parent=parent, max_total_tokens=5)
    child.record_usage(Usage(input=10))

    assert child.check_limits() == "Max tokens reached (10/5)"


def test_the_deadline_is_the_earliest_of_all_that_hold() -> None:
    """failures.md S9"""
    clock = Clock()
    parent = tracker(clock, max_duration=600)
    clock.now += 500
    patient = tracker(clock, parent=parent, max_duration=300)
    hasty = tracker(clock, parent=parent, max_duration=30)
    free = ExecutionTracker(None, clock=clock, parent=parent)

    assert [run.deadline for run in (parent, patient, hasty, free)] == [1600.0, 1600.0, 1530.0, 1600.0]


def test_overdue_tells_whose_time_is_up() -> None:
    """failures.md S9"""
    clock = Clock()
    parent = tracker(clock, max_duration=600)
    clock.now += 500
    child = tracker(clock, parent=parent, max_duration=300)
    clock.now += 101

    assert child.describe_deadline_stop() == "Max duration reached (601s/600s)"


def test_overdue_never_tells_less_than_the_limit_when_the_timer_was_a_tick_early() -> None:
    clock = Clock()
    run = tracker(clock, max_duration=600)
    clock.now += 599.9999

    assert run.describe_deadline_stop() == "Max duration reached (600s/600s)"


@each_row("name", ["max_turns", "max_total_tokens", "max_duration", "max_cost"])
@each_row("value", [-1, float("nan"), float("inf"), True, "5", [1]])
def test_a_limit_that_is_no_limit_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} is a .* got "):
        ExecutionLimits(**{name: value})


def test_turns_and_tokens_are_whole_numbers_and_wrap_up_is_a_flag() -> None:
    wrong: list[dict[str, Any]] = [{"max_turns": 1.5}, {"max_total_tokens": 2.0}, {"wrap_up": 1}]
    for limits in wrong:
        with pytest.raises(ValueError, match="got "):
            ExecutionLimits(**limits)
