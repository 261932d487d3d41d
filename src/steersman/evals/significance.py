"""The statistics of an evaluation: intervals around rates, and whether a difference is more than noise.

Nothing here is random from one call to the next: the same numbers give the same interval and the same p-value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from math import fsum, lcm, sqrt

Z = 1.959963984540054
"""The quantile of the normal distribution for intervals of 95 %."""

ALPHA = 0.05
"""A difference whose p-value is below this is called more than noise."""

_FLIPS = 10_000
_MOST_UNITS = 20_000


def compute_interval(cases: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95 % Wilson interval of a mean of values from 0 to 1; each case has the values of its repeats.

    Wilson's interval stays inside 0 and 1, and is honest where all passed or all failed, where a bootstrap would give
    no width at all. The repeats of one case resemble each other, so they do not count as so many new cases: the number
    of observations is the effective one, between the number of cases and the number of runs.
    """
    means = [fsum(values) / len(values) for values in cases if values]
    if not means:
        return 0.0, 1.0
    mean = fsum(means) / len(means)
    count = _count_effective(means, mean, sum(map(len, cases)))
    center = (mean + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * sqrt(max(0.0, mean * (1 - mean) / count + Z * Z / (4 * count * count)))
    return max(0.0, min(mean, center - half)), min(1.0, max(mean, center + half))


def _count_effective(means: Sequence[float], mean: float, runs: int) -> float:
    """The number of independent observations that would give the mean as much spread as its cases have."""
    cases = len(means)
    if cases < 2 or not 0 < mean < 1:
        # All passed, or all failed: that may be chance, so the repeats count for nothing.
        return float(cases)
    spread = fsum((value - mean) ** 2 for value in means) / (cases - 1) / cases
    most = mean * (1 - mean)
    return max(float(cases), float(runs) if most > runs * spread else most / spread)


def compute_p_value(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> float:
    """The two-sided p-value of a paired sign-flip permutation test over cases; both sides have the same cases.

    If nothing had changed, each case's difference could as well have the other sign. With one run of each case and
    pass or fail this is McNemar's exact test. Rates are computed exactly; other scores with 10,000 flips that are the
    same every time.
    """
    differences = [_mean(new) - _mean(old) for old, new in zip(before, after, strict=True)]
    changed = [abs(difference) for difference in differences if difference]
    if not changed:
        return 1.0
    observed = abs(sum(differences))
    unit = lcm(*(size.denominator for size in changed))
    if sum(changed) * unit <= _MOST_UNITS:
        return _count_flips([int(size * unit) for size in changed], int(observed * unit))
    return _sample_flips([float(size) for size in changed], float(observed))


def _mean(values: Sequence[float]) -> Fraction:
    exact = [Fraction(value).limit_denominator(1_000_000) for value in values]
    return sum(exact, Fraction()) / len(exact)


def _count_flips(sizes: Sequence[int], observed: int) -> float:
    """The share of all flips whose sum is at least as far from 0.

    The number of ways to each sum of the positive sizes is a coefficient of the product of `1 + x ** size`. One large
    integer holds all coefficients side by side, so a multiplication is a shift and an addition.
    """
    width = len(sizes) + 1
    ways = 1
    for size in sizes:
        ways += ways << (size * width)
    total, mask, extreme = sum(sizes), (1 << width) - 1, 0
    for positive in range(total + 1):
        if abs(2 * positive - total) >= observed:
            extreme += (ways >> (positive * width)) & mask
    return float(Fraction(extreme, 1 << len(sizes)))


def _sample_flips(sizes: Sequence[float], observed: float) -> float:
    source = random.Random(0)  # fixed, so that a report is the same every time
    extreme = 1
    for _ in range(_FLIPS):
        bits = source.getrandbits(len(sizes))
        found = fsum(size if bits >> place & 1 else -size for place, size in enumerate(sizes))
        extreme += abs(found) >= observed - 1e-12
    return extreme / (_FLIPS + 1)
