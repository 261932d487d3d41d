"""Widths of text: ordinary text is measured as it is usually drawn, text in questions as it is drawn at most."""

from __future__ import annotations

import pytest
from wcwidth import wcswidth

from steersman.cli.terminal.columns import measure_cells, measure_widest, split_cells, wrap
from steersman.types.visible import escape_invisible

FLAGS = range(0x1F1E6, 0x1F200)
"""Letters of which two are drawn as one flag, in two columns; one alone is drawn in one or two."""


def test_no_visible_character_is_drawn_wider_than_a_question_counts_it() -> None:
    """The tables of Python are older than those of terminals, in which some characters became double width."""
    drawn = [
        text for code in range(0x110000) for text in (chr(code), f"a{chr(code)}") if escape_invisible(text) == text
    ]
    assert [text for text in drawn if measure_widest(text) < wcswidth(text)] == []
    narrow = {text for text in drawn if measure_cells(text) < wcswidth(text) and ord(text[-1]) not in FLAGS}
    assert narrow <= {"a\U0001171e"}  # a mark that was drawn on its letter until Unicode 15


@pytest.mark.parametrize(
    "text",
    [
        "\u4dc0\u2630\u268a",  # wide since Unicode 16
        "\u263a\ufe0f",  # an emoji by its variation selector
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # one emoji, or three where they are not joined
        "\U0001f1e9\U0001f1ea",
        "\u1112\u1161\u11ab",  # one syllable, or three letters of it
        "\u0430\u03b1\u00b7\u2502",  # wide in terminals that draw ambiguous characters wide
    ],
)
def test_a_question_counts_two_columns_for_each_character_that_is_not_ascii(text: str) -> None:
    assert measure_widest(f"a{text}b") == 2 + 2 * len(text)
    shown = escape_invisible(text)
    for pieces in (split_cells(shown * 9, 7, measure_widest), wrap(shown * 9, 7, measure=measure_widest)):
        assert "".join(pieces) == shown * 9
        assert all(measure_widest(piece) <= 7 for piece in pieces)


def test_accents_stay_on_their_letter_where_a_line_is_split() -> None:
    assert split_cells("e\u0301" * 3, 7, measure_widest) == ["e\u0301e\u0301", "e\u0301"]
    assert split_cells("e\u0301" * 3, 2) == ["e\u0301e\u0301", "e\u0301"]
    assert split_cells("e\u0301", 1, measure_widest) == ["e", "\u0301"]
