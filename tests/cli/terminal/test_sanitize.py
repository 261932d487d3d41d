"""Text from elsewhere cannot do anything to a terminal (failures.md L15), nor forge a line (L23), nor hide (L17)."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from tests.cli.render.attacks import ANY_TEXT, ATTACKS, check_lines
from tests.rows import each_row

from steersman.cli.terminal.sanitize import escape_json, sanitize, sanitize_line
from steersman.types.visible import escape_invisible


@each_row("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_form_of_attack_survives(attack: str) -> None:
    check_lines(sanitize(attack).replace("\t", " "), color=False)
    check_lines(sanitize_line(attack), color=False)
    check_lines(escape_invisible(attack).replace("\t", " "), color=False)


@given(ANY_TEXT)
def test_any_text_comes_out_without_controls(text: str) -> None:
    check_lines(sanitize(text).replace("\t", " "), color=False)
    check_lines(escape_invisible(text).replace("\t", " "), color=False)
    assert "\n" not in sanitize_line(text)
    assert "\t" not in sanitize_line(text)


@given(ANY_TEXT, ANY_TEXT)
def test_pieces_come_out_as_the_whole_does(left: str, right: str) -> None:
    assert sanitize(left) + sanitize(right) == sanitize(left + right)
    assert sanitize_line(left) + sanitize_line(right) == sanitize_line(left + right)


@given(ANY_TEXT)
def test_what_is_safe_stays_as_it_is(text: str) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)
    assert sanitize(escape_invisible(text)) == escape_invisible(text)


def test_ordinary_text_is_not_touched() -> None:
    text = "Grüße, 漢字, कि, é, 👩‍👩‍👧 and ❤️:\n\tx = 1\n"
    assert sanitize(text) == text


def test_controls_are_shown_by_their_signs() -> None:
    assert sanitize("a\x1b[2J\r\x07\x7f\x9b\u202e\ud800b") == "a␛[2J␍␇␡\\u{9b}\\u{202e}\\u{d800}b"
    assert sanitize_line("a\nb\tc") == "a␊b␉c"


def test_exact_text_shows_what_cannot_be_seen() -> None:
    hidden = "rm\u200b -rf\u00a0~\u2060 \u3164x \u2800 \ufeff \ufe0f \U000e0041 \u00ad \ue000 \u034f"
    assert escape_invisible(hidden) == (
        "rm\\u{200b} -rf\\u{a0}~\\u{2060} \\u{3164}x \\u{2800} "
        "\\u{feff} \\u{fe0f} \\u{e0041} \\u{ad} \\u{e000} \\u{34f}"
    )


def test_exact_text_keeps_accents_on_their_letters_and_writes_out_the_others() -> None:
    assert (
        escape_invisible("e\u0301 \u0301 -\u0338 n\u0303\u0301\u0308")
        == "e\u0301 \\u{301} -\\u{338} n\u0303\u0301\\u{308}"
    )
    assert escape_invisible("नमस्ते ไทย Việt") == "नमस्ते ไทย Việt"


def test_exact_text_keeps_line_breaks_and_tabs() -> None:
    assert escape_invisible("all:\n\tmake — “x”\n") == "all:\n\tmake — “x”\n"


@given(ANY_TEXT)
def test_every_character_of_exact_text_can_be_seen(text: str) -> None:
    for character in escape_invisible(text):
        assert character in "\n\t " or unicodedata.category(character)[0] not in "CZ"


def test_json_means_the_same_after_its_escapes() -> None:
    value = {"a\u202e": ["\x9b\x7f\x1b", "\U000e0041\ufffe", "plain é 漢 \U0001f600"]}
    text = json.dumps(value, ensure_ascii=False, indent=2)
    assert json.loads(escape_json(text)) == value
    assert sanitize(escape_json(text)) == escape_json(text)
    assert escape_json('"\ud800"') == '"\\ud800"'
    assert escape_json('"\u200b\u3164\ufe0f\u00a0 e\u0301"') == '"\\u200b\\u3164\\ufe0f\\u00a0 e\u0301"'
