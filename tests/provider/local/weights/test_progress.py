"""Progress is told at most ten times a second, and the beginning and the end of each piece of work always."""

from __future__ import annotations

from steersman.provider.local.weights.disk import Progress, Reporter


def test_progress_is_told_now_and_then_and_at_the_end() -> None:
    told: list[Progress] = []
    now = 0.0
    reporter = Reporter(told.append, clock=lambda: now)
    for step in range(16):
        now = step / 16
        reporter.report("fetching", step, 15)
    reporter.report("checking", 0, None)
    assert told == [
        *(Progress("fetching", done, 15) for done in (0, 2, 4, 6, 8, 10, 12, 14, 15)),
        Progress("checking", 0, None),
    ]


def test_a_listener_is_optional() -> None:
    Reporter(None).report("fetching", 1, 2)
