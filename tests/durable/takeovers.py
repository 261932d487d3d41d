"""How a campaign of takeovers is judged: all of them, or their median where others keep the machine busy.

The judgement is chosen before the campaign, by what the caller says or by the load of that moment, and is told.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass

SWITCH = "STEERSMAN_QUIET"
"""An environment variable: 1 has every takeover judged, 0 the median."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """Seconds from the death of a worker until Temporal gave the run to another one, and until its first record."""

    until_given: float
    until_record: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.until_given + self.until_record


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether every takeover is judged or only the median, and why."""

    is_each: bool
    why: str

    def find_worst(self, seconds: Collection[float]) -> float:
        """The number that is judged."""
        return max(seconds) if self.is_each else statistics.median(seconds)


def choose_judgement(said: str | None, load: float, cores: int) -> Judgement:
    """Every takeover is judged if the load of the last minute is below the number of cores, or if it is said."""
    if said is not None:
        if said not in ("0", "1"):
            raise ValueError(f"{SWITCH} is 0 or 1, got {said!r}.")
        return Judgement(said == "1", f"{SWITCH}={said}")
    is_quiet = load < cores
    return Judgement(is_quiet, f"load {load:.1f} before, {'below' if is_quiet else 'not below'} {cores} cores")


def describe_takeovers(points: int, takeovers: Collection[Takeover], judgement: Judgement, limit: float) -> list[str]:
    """The numbers of a campaign, in lines."""
    seconds, given, ours = (
        [takeover.seconds for takeover in takeovers],
        [takeover.until_given for takeover in takeovers],
        [takeover.until_record for takeover in takeovers],
    )
    judged = "every takeover" if judgement.is_each else "the median alone"
    return [
        f"{points} kill points, {len(takeovers)} takeovers: {_describe(seconds)}",
        f"until Temporal gave the run to another worker: {_describe(given)}; from then on: {_describe(ours)}",
        f"judged against {limit:.1f} s: {judged} ({judgement.why}), {judgement.find_worst(seconds):.2f} s",
    ]


def _describe(seconds: Collection[float]) -> str:
    return f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s"
