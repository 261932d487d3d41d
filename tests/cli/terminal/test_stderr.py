"""What the command says beside its answer: how far a piece of work is, in `cli/telling.py`."""

from __future__ import annotations

from steersman.cli.terminal.stderr import amount


def test_bytes_are_shown_with_a_bar_and_a_few_steps_without() -> None:
    assert [amount(0, 1), amount(1, 1), amount(1, 2), amount(5_000_000, None)] == ["", "", "1 of 2", "5 MB"]
    assert amount(245_700_032, 491_400_064) == "████████░░░░░░░░ 50% of 491 MB"
