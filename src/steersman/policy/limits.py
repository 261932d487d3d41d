"""Limits of a run (turns, tokens, duration, cost, sub-agents, repeated calls) and what counts against them.

Time comes from the given clock, which must be monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isinf, isnan
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec

from steersman.types.content import ToolCall
from steersman.types.guards import suggest_options
from steersman.types.usage import Usage


@suggest_options
@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """What a run and its sub-agents may use together: turns, tokens, seconds, US dollars; `None` means no limit.

    With `wrap_up` the model gives one last answer, without tools, when a limit other than the duration is reached.
    The caps of sub-agents count all below the run, at any depth. Reaching one does not end the run: the call is
    answered with an error.
    """

    max_turns: int | None = 50
    max_total_tokens: int | None = 1_000_000
    max_duration: float | None = 600
    max_cost: float | None = None
    wrap_up: bool = False
    max_sub_agents: int | None = 100
    max_sub_agents_at_once: int | None = 16
    max_sub_agent_depth: int | None = 3

    def __post_init__(self) -> None:
        _check_whole("max_turns", self.max_turns)
        _check_whole("max_total_tokens", self.max_total_tokens)
        _check_number("max_duration", self.max_duration)
        _check_number("max_cost", self.max_cost)
        _check_whole("max_sub_agents", self.max_sub_agents)
        _check_whole("max_sub_agents_at_once", self.max_sub_agents_at_once)
        _check_whole("max_sub_agent_depth", self.max_sub_agent_depth)
        _check_flag("wrap_up", self.wrap_up)


class ExecutionTracker:
    """Counts one run against its limits; what a sub-agent uses counts for its parents too."""

    __slots__ = (
        "clock", "cost", "depth", "estimated_tokens", "limits", "parent", "started", "sub_agents", "sub_agents_now",
        "tokens", "turns",
    )  # fmt: skip

    def __init__(
        self,
        limits: ExecutionLimits | None,
        *,
        clock: Callable[[], float],
        parent: ExecutionTracker | None = None,
        depth: int = 0,
    ) -> None:
        self.limits = limits
        self.clock = clock
        self.parent = parent
        # How many runs are above this one; a budget that several runs share does not count as a run.
        self.depth = depth
        self.sub_agents = 0
        self.sub_agents_now = 0
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
        """Count a turn, here and in the parents."""
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            tracker.turns += 1
            tracker = tracker.parent

    def record_usage(self, usage: Usage, *, estimated_tokens: int = 0, estimated_cost: float = 0.0) -> None:
        """Count the usage of a request; where the provider did not report it, the estimate counts."""
        tokens, estimated = usage.total, 0
        if tokens is None or usage.partial:
            tokens = max(tokens or 0, estimated_tokens)
            estimated = tokens - (usage.total or 0)
        cost = estimated_cost if usage.cost is None else usage.cost
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            tracker.tokens += tokens
            if estimated:
                tracker.estimated_tokens += estimated
            if cost:
                tracker.cost += cost
            tracker = tracker.parent

    def start_sub_agent(self) -> str | None:
        """Count one more sub-agent here and above, or return which cap is reached; the caller calls `end_sub_agent`."""
        trackers = [*self._walk_up()]
        for tracker in trackers:
            # There is always a cap: where neither the run nor its parents have limits, the defaults apply.
            limits = tracker.limits or (None if tracker.parent is not None else _USUAL)
            if limits is not None and (reason := tracker._find_sub_agent_cap(limits, self.depth + 1 - tracker.depth)):
                return reason
        for tracker in trackers:
            tracker.sub_agents += 1
            tracker.sub_agents_now += 1
        return None

    def end_sub_agent(self) -> None:
        """Count a sub-agent as ended."""
        for tracker in self._walk_up():
            tracker.sub_agents_now -= 1

    def _walk_up(self) -> Iterator[ExecutionTracker]:
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            yield tracker
            tracker = tracker.parent

    def _find_sub_agent_cap(self, limits: ExecutionLimits, depth: int) -> str | None:
        if limits.max_sub_agent_depth is not None and depth > limits.max_sub_agent_depth:
            return f"Max sub-agent depth reached ({limits.max_sub_agent_depth}/{limits.max_sub_agent_depth})"
        if limits.max_sub_agents is not None and self.sub_agents >= limits.max_sub_agents:
            return f"Max sub-agents reached ({self.sub_agents}/{limits.max_sub_agents})"
        most = limits.max_sub_agents_at_once
        if most is not None and self.sub_agents_now >= most:
            return f"Max sub-agents at once reached ({self.sub_agents_now}/{most})"
        return None

    def check_limits(self) -> str | None:
        """Return the limit that is reached, as the reason of the stop: the run's own first, then its parents'."""
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            if tracker.limits is not None and (reason := tracker._find_reached_limit(tracker.limits)):
                return reason
            tracker = tracker.parent
        return None

    @property
    def deadline(self) -> float | None:
        """When the run must be over, on the clock: the earliest of its own and its parents' deadlines."""
        due = self._find_earliest_deadline()
        return None if due is None else due.started + _get_max_seconds(due)

    def describe_deadline_stop(self) -> str:
        """Describe a stop at the deadline."""
        # A timer may fire slightly early, so this does not compare with the clock again.
        due = self._find_earliest_deadline()
        return "Max duration reached" if due is None else due._describe_duration_limit(_get_max_seconds(due))

    def _find_earliest_deadline(self) -> ExecutionTracker | None:
        """Find the tracker whose deadline comes first, itself or a parent; `None` when there is no deadline."""
        found: ExecutionTracker | None = None
        earliest = float("inf")
        tracker: ExecutionTracker | None = self
        while tracker is not None:
            due = tracker.started + _get_max_seconds(tracker)
            if due < earliest:
                found, earliest = tracker, due
            tracker = tracker.parent
        return found

    def _find_reached_limit(self, limits: ExecutionLimits) -> str | None:
        if limits.max_turns is not None and self.turns >= limits.max_turns:
            return f"Max turns reached ({self.turns}/{limits.max_turns})"
        if limits.max_total_tokens is not None and self.tokens >= limits.max_total_tokens:
            return f"Max tokens reached ({self.tokens}/{limits.max_total_tokens})"
        if limits.max_duration is not None and self.elapsed >= limits.max_duration:
            return self._describe_duration_limit(limits.max_duration)
        if limits.max_cost is not None and self.cost >= limits.max_cost:
            return f"Max cost reached ({_format_dollars(self.cost)}/{_format_dollars(limits.max_cost)})"
        return None

    def _describe_duration_limit(self, limit: float) -> str:
        elapsed = max(self.elapsed, limit)
        if limit == int(limit):
            return f"Max duration reached ({int(elapsed)}s/{int(limit)}s)"
        return f"Max duration reached ({elapsed:.2f}s/{limit:.2f}s)"


def _get_max_seconds(tracker: ExecutionTracker) -> float:
    limit = None if tracker.limits is None else tracker.limits.max_duration
    return float("inf") if limit is None else limit


def _format_dollars(amount: float) -> str:
    """Format an amount with at least two decimals, and as many as a small amount needs."""
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


_USUAL = ExecutionLimits()


_Batch: TypeAlias = list[tuple[str, Mapping[str, Any], str | None]]
_get_parts = attrgetter("name", "arguments", "raw_arguments")


@suggest_options
@dataclass(frozen=True, slots=True)
class RepeatedCalls:
    """After how many repetitions the model is nudged, and after how many the run is stopped; `None` means never.

    A repetition is one more round of the same pattern: one batch of calls, or a cycle of up to `max_period` batches.
    """

    nudge_after: int | None = 8
    stop_after: int | None = 16
    max_period: int = 3

    def __post_init__(self) -> None:
        _check_count("nudge_after", self.nudge_after, 2)
        _check_count("stop_after", self.stop_after, 2)
        _check_count("max_period", self.max_period, 1)
        if self.nudge_after is not None and self.stop_after is not None and self.nudge_after > self.stop_after:
            raise ValueError(
                f"nudge_after comes before stop_after, got nudge_after={self.nudge_after!r}, "
                f"stop_after={self.stop_after!r}; use nudge_after=None for no nudge."
            )


class Repetition(msgspec.Struct, frozen=True):
    """The tools of the repeated pattern in order, how many times it came in a row, and what to do about it."""

    tool_names: tuple[str, ...]
    repetitions: int
    action: Literal["nudge", "stop"]

    @property
    def text(self) -> str:
        """The message to the model, or the detail of the stop."""
        calls = ", ".join(self.tool_names)
        seen = f"The same tool calls with the same arguments ({calls}) came {self.repetitions} times in a row"
        if self.action == "stop":
            return f"{seen}."
        return f"{seen}. Repeating them will not give anything new: try another way, or answer with what you have."


class RepeatWatch:
    """Compares each batch of calls of one run with the last ones; keeps as many batches as the longest cycle."""

    __slots__ = ("_config", "_nudged", "_recent", "_same")

    def __init__(self, config: RepeatedCalls | None = None) -> None:
        self._config = RepeatedCalls() if config is None else config
        self._recent: list[_Batch] = []
        # How often each of the last batches came in a row, by how far back it is.
        self._same: Sequence[int] = ()
        self._nudged = False

    def reset(self) -> None:
        """Forget the streak, for instance because a user said something new."""
        if self._recent:
            self._recent.clear()
            self._same = ()
            self._nudged = False

    def observe(self, calls: Sequence[ToolCall]) -> Repetition | None:
        """Add a batch of calls; return the repetition it completes, if any. A turn without calls ends a streak."""
        if not calls:
            self.reset()
            return None
        batch: _Batch = [*map(_get_parts, calls)]
        recent, period = self._recent, self._config.max_period
        if batch not in recent:
            # The usual case: a new batch repeats nothing.
            recent.insert(0, batch)
            del recent[period:]
            self._same = ()
            self._nudged = False
            return None
        same = self._same or [0] * period
        # recent[0] is the batch before this one: a cycle of n batches continues when the n-th batch before is equal.
        self._same = [
            same[index] + 1 if index < len(recent) and recent[index] == batch else 0 for index in range(period)
        ]
        recent.insert(0, batch)
        del recent[period:]
        return self._judge()

    def _judge(self) -> Repetition | None:
        rounds = [count // (index + 1) + 1 for index, count in enumerate(self._same)]
        repetitions = max(rounds)
        config = self._config
        if config.stop_after is not None and repetitions >= config.stop_after:
            return self._build_repetition(rounds, repetitions, "stop")
        if config.nudge_after is None or repetitions < config.nudge_after:
            self._nudged = False
            return None
        if self._nudged:
            return None
        self._nudged = True
        return self._build_repetition(rounds, repetitions, "nudge")

    def _build_repetition(self, rounds: list[int], repetitions: int, action: Literal["nudge", "stop"]) -> Repetition:
        period = rounds.index(repetitions) + 1
        cycle = reversed(self._recent[:period])
        return Repetition(tuple(name for batch in cycle for name, _, _ in batch), repetitions, action)


def _check_count(name: str, value: object, least: int) -> None:
    if value is None and name != "max_period":
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is a whole number from {least} on, got {value!r}.")
