"""What the command says beside its answer: how far a piece of work is, in `cli/terminal/numbers.py`."""

from __future__ import annotations

from steersman.cli.terminal.numbers import format_progress


def test_bytes_are_shown_with_a_bar_and_a_few_steps_without() -> None:
    assert [format_progress(0, 1), format_progress(1, 1), format_progress(1, 2), format_progress(5_000_000, None)] == [
        "",
        "",
        "1 of 2",
        "5 MB",
    ]
    assert format_progress(245_700_032, 491_400_064) == "████████░░░░░░░░ 50% of 491 MB"
