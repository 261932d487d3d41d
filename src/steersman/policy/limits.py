"""How far a run may go, and how far it has gone. Time is what the given clock says; give it a monotonic one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isinf, isnan

from steersman.types.usage import Usage


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """What a run and its sub-agents may use together: turns, tokens, seconds, US dollars; `None` means no limit.

    With `wrap_up` the model gives one last answer, without tools, when a limit other than the duration is reached.
    """

    max_turns: int | None = 50
    max_total_tokens: int | None = 1_000_000
    max_duration: float | None = 600
    max_cost: float | None = None
    wrap_up: bool = False

    def __post_init__(self) -> None:
        _check_whole("max_turns", self.max_turns)
        _check_whole("max_total_tokens", self.max_total_tokens)
        _check_number("max_duration", self.max_duration)
        _check_number("max_cost", self.max_cost)
        _check_flag("wrap_up", self.wrap_up)


class ExecutionTracker:
    """Counts one run against its limits; what a sub-agent uses counts for its parents too."""

    __slots__ = ("clock", "cost", "estimated_tokens", "limits", "parent", "started", "tokens", "turns")

    def __init__(
        self, limits: ExecutionLimits | None, *, clock: Callable[[], float], parent: ExecutionTracker | None = None
    ) -> None:
        self.limits = limits
        self.clock = clock
        self.parent = parent
        self.started = clock()
        self.turns = 0
        self.tokens = 0
        # How many of `tokens` were estimated because the provider did not report.
        self.estimated_tokens = 0
        self.cost = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.started

    def record_turn(self) -> None:
        """A turn has been taken."""
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            tracker.turns += 1
            tracker = tracker.parent

    def record_usage(self, usage: Usage, *, estimated_tokens: int = 0) -> None:
        """A request has been made; where the provider did not report its tokens, the estimate counts."""
        total = usage.total
        tokens = estimated_tokens if total is None else max(total, estimated_tokens) if usage.partial else total
        estimated = tokens - (total or 0)
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            tracker.tokens += tokens
            tracker.estimated_tokens += estimated
            tracker.cost += usage.cost or 0.0
            tracker = tracker.parent

    def check_limits(self) -> str | None:
        """Which limit is reached, as the reason of the stop: the run's own first, then those of its parents."""
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            if tracker.limits is not None and (reason := tracker._reached(tracker.limits)):
                return reason
            tracker = tracker.parent
        return None

    @property
    def deadline(self) -> float | None:
        """When the run must be over, on the clock: the earliest of its own and its parents' deadlines."""
        due = self._most_urgent()
        return None if due is None else due.started + _seconds_of(due)

    def overdue(self) -> str:
        """The reason of a stop at the deadline."""
        # A timer may fire a tick early, so the clock is not asked again whether the time has come.
        due = self._most_urgent()
        return "Max duration reached" if due is None else due._duration_reached(_seconds_of(due))

    def _most_urgent(self) -> ExecutionTracker | None:
        """The tracker whose deadline comes first, itself or a parent; `None` when nobody has one."""
        found: ExecutionTracker | None = None
        earliest = float("inf")
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            due = tracker.started + _seconds_of(tracker)
            if due < earliest:
                found, earliest = tracker, due
            tracker = tracker.parent
        return found

    def _reached(self, limits: ExecutionLimits) -> str | None:
        if limits.max_turns is not None and self.turns >= limits.max_turns:
            return f"Max turns reached ({self.turns}/{limits.max_turns})"
        if limits.max_total_tokens is not None and self.tokens >= limits.max_total_tokens:
            return f"Max tokens reached ({self.tokens}/{limits.max_total_tokens})"
        if limits.max_duration is not None and self.elapsed >= limits.max_duration:
            return self._duration_reached(limits.max_duration)
        if limits.max_cost is not None and self.cost >= limits.max_cost:
            return f"Max cost reached ({_dollars(self.cost)}/{_dollars(limits.max_cost)})"
        return None

    def _duration_reached(self, limit: float) -> str:
        elapsed = max(self.elapsed, limit)
        if limit == int(limit):
            return f"Max duration reached ({int(elapsed)}s/{int(limit)}s)"
        return f"Max duration reached ({elapsed:.2f}s/{limit:.2f}s)"


def _seconds_of(tracker: ExecutionTracker) -> float:
    limit = None if tracker.limits is None else tracker.limits.max_duration
    return float("inf") if limit is None else limit


def _dollars(amount: float) -> str:
    """Cents at least, and as many digits as a small amount needs."""
    whole, _, digits = f"{amount:.6f}".partition(".")
    return f"${whole}.{digits.rstrip('0'):0<2}"


def _check_whole(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ValueError(f"{name} is a whole number from 0 on, or None for no limit; got {value!r}.")


def _check_number(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or isnan(value) or value < 0:
        raise ValueError(f"{name} is a number from 0 on, or None for no limit; got {value!r}.")
    if isinf(value):
        raise ValueError(f"{name} is a finite number; use None for no limit, got {value!r}.")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is True or False, got {value!r}.")
