"""Keys do not show."""

from __future__ import annotations

import pytest

from steersman.types.secrets import hidden

KEY = "gw_live.TOKEN-0123456789"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing here", "nothing here"),
        (f"bad key {KEY}!", "bad key [redacted]!"),
        (f"cut {KEY[:20]}", "cut [redacted]"),
        (f"cut {KEY[:8]}...", "cut [redacted]..."),
        (f"{KEY} and {KEY[:12]}", "[redacted] and [redacted]"),
    ],
)
def test_a_key_and_the_beginning_of_one_are_hidden(text: str, expected: str) -> None:
    """failures.md L13: whoever quotes a key may cut the quotation short."""
    assert hidden(text, KEY) == expected


@pytest.mark.parametrize("word", [None, "", "none"])
def test_a_placeholder_is_a_word_and_stays(word: str | None) -> None:
    """A local server is given `none` for a key."""
    assert hidden("none of this", word) == "none of this"
