"""Keys do not show."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from itertools import permutations
from time import process_time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.types.secrets import redact, redact_key_patterns

KEY = "gw_live.TOKEN-0123456789"
ESCAPES: dict[str, Callable[[str], str]] = {
    "PHP": lambda text: text.replace("/", r"\/"),
    ".NET": lambda text: text.replace("+", r"\u002B"),
    "Gson": lambda text: text.replace("=", r"\u003d"),
}
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


SIGNED = "AbC9+T/8uQ+zz17Lmn=Kp/Q2w+3456789=="


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("encode", ESCAPES.values(), ids=ESCAPES)
def test_a_key_that_json_quotes_with_escapes_is_hidden_whole(encode: Callable[[str], str], times: int) -> None:
    """failures.md L13: encoders escape more than they must, and a gateway quotes the JSON of another server."""
    text = f'bad key {SIGNED} in "C:\\dir"'
    quoted, shown = text, text.replace(SIGNED, "[redacted]")
    for _ in range(times):
        quoted, shown = encode(json.dumps(quoted)), json.dumps(shown)
    assert redact(quoted, SIGNED) == shown


QUOTATIONS: dict[str, Callable[[str], str]] = {
    "URL": lambda text: quote(text, safe=""),
    "URL whose slashes stay": quote,
    "URL in lower case": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    "URL in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "HTML": html.escape,
    "HTML of Go": lambda text: html.escape(text, quote=False).replace("+", "&#43;").replace('"', "&#34;"),
    "HTML of ASP.NET": lambda text: text.replace("+", "&#x2B;").replace("/", "&#x2F;").replace("&", "&amp;"),
}


@pytest.mark.parametrize("encode", QUOTATIONS.values(), ids=QUOTATIONS)
@pytest.mark.parametrize("key", [SIGNED, "me&you<12>'34\"56%2B78"])
def test_a_key_that_a_page_or_url_quotes_with_escapes_is_hidden_whole(key: str, encode: Callable[[str], str]) -> None:
    """failures.md L13: only the part before the first escape was hidden."""
    shown = redact(f"no access: {encode(key)} (again: {encode(key)[:-1]})", key)
    assert re.fullmatch(r"no access: \[redacted\] \(again: \[redacted\][%&#\w]{0,8}\)", shown)


WRITTEN: dict[str, Callable[[str], str]] = {
    "JSON": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in ASCII": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "URL": lambda text: quote(text, safe=""),
    "URL in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "URL of Java": lambda text: quote_plus(text).replace("~", "%7E"),
    "HTML": lambda text: text.encode("ascii", "xmlcharrefreplace").decode(),
}


@pytest.mark.parametrize("encode", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize(
    "key",
    [
        "-----BEGIN KEY-----\r\nMII/E+vQ=\t\n-----END KEY-----\n",
        "pässwört, 😀 and more",
        "abc8Q~dsf.qwe123",
        "a+b c+d~",
    ],
)
def test_a_key_of_several_lines_or_with_any_letter_is_hidden_whole(key: str, encode: Callable[[str], str]) -> None:
    """failures.md L13: the lines of a private key, and a password in any language."""
    for text in (f"bad {key}, 2 + 2 \N{EURO SIGN}", f"{key}{key}\\n"):
        assert redact(encode(text), key) == encode(text).replace(encode(key).strip('"\\'), "[redacted]")


def test_a_text_that_begins_as_many_keys_do_stays() -> None:
    """A value may be a URL, or a header with a token: others begin with the same words."""
    text = 'See https://docs.example.com: Bearer error="invalid_token", Basic authentication.'
    assert redact(text, "https://api.example.com/v1", "Bearer eyJhbGciOi", "Basic aGVsbG86") == text
    assert redact("at https://api.example.com/v1 and https://api.exam", "https://api.example.com/v1") == (
        "at [redacted] and [redacted]"
    )
    assert redact("no Bearer eyJhbGciOi, Bearer eyJhbGci", "Bearer eyJhbGciOi") == "no [redacted], [redacted]"


def test_a_key_in_latin_1_is_hidden_whole() -> None:
    key = "pässwört"
    assert redact(f"?key={quote(key, encoding='latin-1')}&more=%C3%A4", key) == "?key=[redacted]&more=%C3%A4"


def test_a_text_with_escapes_and_no_key_stays_as_it_is() -> None:
    text = r'{"path": "a\/b\u002Bc", "more": "\\u0041"}'
    assert redact(text, SIGNED) == text


def test_what_is_beside_a_key_keeps_its_escapes() -> None:
    """A saved file or call that names a key is not changed where it does not."""
    around = r"s/\/usr\/bin/\u0026 C:\\dir %2F&amp;\" {}; %41 &lt;br&gt; \\/"
    for key in (SIGNED, SIGNED[:9], SIGNED.replace("/", r"\/")):
        assert redact(around.replace("{}", key), SIGNED) == around.replace("{}", "[redacted]")


@pytest.mark.parametrize("keys", [*permutations(ALIKE)])
def test_keys_that_begin_alike_are_hidden_whole_in_any_order(keys: tuple[str, ...]) -> None:
    """failures.md L13: those of one provider do, and the beginning of one must not be all that is hidden of another."""
    for key in keys:
        assert redact(f"your {key}!", *keys) == "your [redacted]!"
        for length in range(8, len(key)):
            assert redact(f"your {key[:length]}", *keys) == "your [redacted]"


@given(
    st.lists(st.text("ab", min_size=6, max_size=20), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.text("abc", max_size=5))),
)
def test_no_beginning_of_any_key_is_left(keys: list[str], pieces: list[tuple[int, int, str]]) -> None:
    text = "".join(keys[number % len(keys)][:length] + between for number, length, between in pieces)
    kept = redact(text, *keys).split("[redacted]")
    assert not [part for part in kept for key in keys if key[:8] in part]


def test_a_long_key_is_looked_for_in_a_long_text_in_few_passes() -> None:
    """Many tokens begin alike, as all of the form of a JWT do, and a page may be full of their beginning."""
    key = "eyJhbGciOiJIUzI1NiJ9." + "".join(f"{number:x}" for number in range(1_200))
    began = process_time()
    for text in ("x" * 4_000_000 + "eyJhbGci", "eyJhbGciX" * 100_000, (key[:2_000] + " ") * 1_000):
        redact(text, key)
    for begun in ("\\", "%25", "&amp;", "&#00", "\\\\ ", "\\/"):
        redact(begun * 200_000, SIGNED)
    assert process_time() - began < 2


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


@pytest.mark.parametrize("key", ["pa\"ss'word-0123", "schl\u00fcssel-0123", "\u20ac0123456789", "key-\U0001f511-0123"])
def test_a_key_is_found_as_python_quotes_texts_and_bytes(key: str) -> None:
    """failures.md L13: libraries quote the bytes of headers, and exceptions their values."""
    for quoted in (
        repr(key)[1:-1],
        ascii(key)[1:-1].replace("\\U0001f511", "\\ud83d\\udd11"),
        repr(key.encode())[2:-1],
    ):
        assert redact(f"no {quoted}, no", key) == "no [redacted], no"


@pytest.mark.parametrize("key", ["sk-proj/abc+defghi=", "acme:sk-abcdef:ghijklm", "acmeco:abcdefghi"])
def test_a_key_that_only_in_part_looks_like_one_is_not_shown(key: str) -> None:
    """failures.md L13: what servers send in a stream is searched for what looks like a key before that key is known."""
    quoted = ("no: {}", "no: Bearer {}", "no: {}, {}")
    for words in (*quoted, *[text.replace("{}", key.replace("/", "%2F")) for text in quoted]):
        shown = redact(redact_key_patterns(words.replace("{}", key), 100), key)
        assert shown.replace("Bearer ", "").replace("[redacted]", "") in ("no: ", "no: , ")
    assert redact("[redacted], a, [redacted]", key) == "[redacted], a, [redacted]"


def test_a_long_text_is_cut_where_it_is_told_to_be() -> None:
    assert redact_key_patterns("x" * 10, 10) == "x" * 10
    assert redact_key_patterns("x" * 11, 10) == "x" * 7 + "..."
    assert redact_key_patterns("x" * 100_000, 10) == "x" * 7 + "..."
    assert redact_key_patterns("", 10) == ""
