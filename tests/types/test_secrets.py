"""Keys do not show."""

from __future__ import annotations

from itertools import permutations

import pytest

from steersman.types.secrets import redact, redact_key_patterns

KEY = "gw_live.TOKEN-0123456789"
ALIKE = ("sk-proj-first-0123", "sk-proj-second-4567", "sk-proj-second-4567-89")


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
    """failures.md L13: a quoted key may be cut short."""
    assert redact(text, KEY) == expected


@pytest.mark.parametrize("keys", [*permutations(ALIKE)])
def test_keys_that_begin_alike_are_hidden_whole_in_any_order(keys: tuple[str, ...]) -> None:
    """failures.md L13: those of one provider do, and the beginning of one must not be all that is hidden of another."""
    for key in keys:
        assert redact(f"your {key}!", *keys) == "your [redacted]!"
        for length in range(8, len(key)):
            assert redact(f"your {key[:length]}", *keys) == "your [redacted]"


@pytest.mark.parametrize("word", [None, "", "none"])
def test_a_placeholder_is_a_word_and_stays(word: str | None) -> None:
    """A local server is given `none` for a key."""
    assert redact("none of this", word) == "none of this"


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-api03-abcdef",
        "sk-ab****cd",
        "gsk_abcdef123456",
        "xai-abcdef123456",
        "AIzaSyD-0123456789abcdefghijklmnopqrstu",
        "ya29.a0123456789_abc",
        "Bearer abcdef.123456",
    ],
)
def test_what_looks_like_a_key_is_not_shown_not_even_half_of_it(key: str) -> None:
    """failures.md L13."""
    assert redact_key_patterns(f"wrong key: {key}, sorry", 100) == "wrong key: [redacted], sorry"
    for most in range(11, 60):
        assert "ab" not in redact_key_patterns(f"no: {key} {'x' * 100}", most).replace("redacted", "")
        assert "01" not in redact_key_patterns(f"no: {key} {'x' * 100}", most)


def test_a_long_text_is_cut_where_it_is_told_to_be() -> None:
    assert redact_key_patterns("x" * 10, 10) == "x" * 10
    assert redact_key_patterns("x" * 11, 10) == "x" * 7 + "..."
    assert redact_key_patterns("x" * 100_000, 10) == "x" * 7 + "..."
    assert redact_key_patterns("", 10) == ""
