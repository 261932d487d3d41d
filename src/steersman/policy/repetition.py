"""Detects a model that repeats the same tool calls with the same arguments, alone or in a short cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from steersman.types.content import ToolCall
from steersman.types.guards import suggest_options

_Batch: TypeAlias = list[tuple[str, Mapping[str, Any], str | None]]


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


@dataclass(frozen=True, slots=True)
class Repetition:
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
        batch: _Batch = [(call.name, call.arguments, call.raw_arguments) for call in calls]
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


DEFAULT_REPEATED_CALLS = RepeatedCalls()
