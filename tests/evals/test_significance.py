"""Intervals and p-values against values that are known otherwise, and what must always hold of them."""

from __future__ import annotations

from itertools import product
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.evals.significance import compute_interval, compute_p_value

RATES = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("passed", "count", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)],
)
def test_single_runs_have_wilsons_interval(passed: int, count: int, low: float, high: float) -> None:
    """The values are those of Wilson's formula, as tables have them."""
    found = compute_interval([[1.0]] * passed + [[0.0]] * (count - passed))
    assert found == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_repeats_of_equal_outcome_make_no_interval_narrower() -> None:
    once = compute_interval([[1.0], [0.0], [1.0], [1.0]])
    alike = compute_interval([[1.0] * 9, [0.0] * 9, [1.0] * 9, [1.0] * 9])
    assert alike == once


def test_repeats_that_differ_make_the_interval_narrower() -> None:
    once = compute_interval([[1.0], [0.0]] * 10)
    mixed = compute_interval([[1.0, 0.0], [0.0, 1.0]] * 10)
    assert mixed[1] - mixed[0] < once[1] - once[0]


@given(st.lists(RATES, min_size=1, max_size=20))
def test_an_interval_holds_its_mean_and_stays_between_0_and_1(cases: list[list[float]]) -> None:
    low, high = compute_interval(cases)
    mean = sum(sum(values) / len(values) for values in cases) / len(cases)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (5, 0), (6, 0), (9, 2), (3, 12), (20, 20)])
def test_pass_or_fail_gives_mcnemars_exact_test(gained: int, lost: int) -> None:
    before = [[0.0]] * gained + [[1.0]] * lost + [[1.0]] * 7
    after = [[1.0]] * gained + [[0.0]] * lost + [[1.0]] * 7
    count, fewer = gained + lost, min(gained, lost)
    exact = min(1.0, 2 * sum(comb(count, k) for k in range(fewer + 1)) / 2**count) if gained != lost else 1.0
    assert compute_p_value(before, after) == pytest.approx(exact)


@given(st.lists(st.tuples(RATES, RATES), min_size=1, max_size=8))
def test_the_p_value_is_the_share_of_all_sign_flips_that_are_as_extreme(
    pairs: list[tuple[list[float], list[float]]],
) -> None:
    before, after = [old for old, _ in pairs], [new for _, new in pairs]
    differences = [sum(new) / len(new) - sum(old) / len(old) for old, new in pairs]
    observed = abs(sum(differences))
    flips = list(product((1, -1), repeat=len(pairs)))
    extreme = sum(
        abs(sum(sign * size for sign, size in zip(signs, differences, strict=True))) >= observed - 1e-9
        for signs in flips
    )
    assert compute_p_value(before, after) == pytest.approx(extreme / len(flips))
    assert compute_p_value(after, before) == compute_p_value(before, after)


def test_scores_with_many_values_are_compared_by_the_same_flips_each_time() -> None:
    before = [[number / 997] for number in range(400)]
    better = [[min(1.0, value + 0.01 + number % 7 / 1009)] for number, [value] in enumerate(before)]
    shuffled = [[before[(number * 7) % 400][0]] for number in range(400)]
    assert compute_p_value(before, better) == compute_p_value(before, better) < 0.001
    assert compute_p_value(before, shuffled) > 0.5
