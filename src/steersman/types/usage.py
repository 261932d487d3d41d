"""Usage of requests, in tokens and US dollars. An unknown number is `None`, never 0."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, attrgetter

import msgspec
from msgspec.structs import force_setattr


class Prices(msgspec.Struct, frozen=True, omit_defaults=True):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one request, or of many added up.

    `input`, `cache_read` and `cache_write` are disjoint; `reasoning` is part of `output`; `total` is all of them.
    `cost` is in US dollars. `partial` says that a request in this sum reported no usage: the numbers are lower bounds.
    """

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    total: int | None = None
    cost: float | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        if self.total is None and (self.input is not None or self.output is not None):
            counts = self.input, self.output, self.cache_read, self.cache_write
            force_setattr(self, "total", sum(filter(None, counts)))

    def __add__(self, other: Usage) -> Usage:
        if self == NO_USAGE:
            return other
        return Usage(
            other.input if self.input is None else self.input + (other.input or 0),
            other.output if self.output is None else self.output + (other.output or 0),
            other.cache_read if self.cache_read is None else self.cache_read + (other.cache_read or 0),
            other.cache_write if self.cache_write is None else self.cache_write + (other.cache_write or 0),
            other.reasoning if self.reasoning is None else self.reasoning + (other.reasoning or 0),
            other.total if self.total is None else self.total + (other.total or 0),
            other.cost if self.cost is None else self.cost + (other.cost or 0),
            self.partial or other.partial or self._lacks_one_cost(other),
        )

    def _lacks_one_cost(self, other: Usage) -> bool:
        """Whether only one of the two has a cost, so that their sum is a lower bound."""
        # Where no token was used, no cost is missing.
        return (self.cost is None) is not (other.cost is None) and bool(self.total) and bool(other.total)

    @property
    def known(self) -> bool:
        """Whether the provider reported anything."""
        return self.total is not None


def add_cost(usage: Usage, prices: Prices | None) -> Usage:
    """Return the usage with its cost, where the prices are known and the provider reported none."""
    if prices is None or usage.cost is not None or not usage.known:
        return usage
    cost = (
        (usage.input or 0) * prices.input
        + (usage.output or 0) * prices.output
        + (usage.cache_read or 0) * (prices.input if prices.cache_read is None else prices.cache_read)
        + (usage.cache_write or 0) * (prices.input if prices.cache_write is None else prices.cache_write)
    )
    return msgspec.structs.replace(usage, cost=cost / 1_000_000)


NO_USAGE = Usage()
_get_parts = attrgetter("input", "output", "cache_read", "cache_write", "reasoning", "total", "cost", "partial")


def add_usages(usages: Sequence[Usage]) -> Usage:
    """What adding these one by one gives; faster, if there are many."""
    if len(usages) <= 2:
        return reduce(add, usages, NO_USAGE)
    *tokens, costs, are_partial = zip(*map(_get_parts, usages), strict=True)
    is_free = costs.count(None) == len(costs)
    if None in costs and not is_free:
        return reduce(add, usages, NO_USAGE)  # whether a cost is missing depends on the tokens it is for
    return Usage(*map(_add_tokens, tokens), cost=None if is_free else reduce(add, costs), partial=any(are_partial))


def _add_tokens(counts: Sequence[int | None]) -> int | None:
    return None if counts.count(None) == len(counts) else sum(filter(None, counts))
