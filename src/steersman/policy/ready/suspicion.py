"""Scores how much a text looks like a prompt injection: instructions to a model inside what should be data.

Heuristics, and no more: they find what is written in the usual ways, in a dozen languages and some encodings. The time
is linear in the length of the text, because every gap in a pattern is bounded.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from steersman.policy.patterns import normalize_characters
from steersman.policy.ready.injection_signs import SIGNS

_MAX_PIECES = 50
_MAX_READ = 100_000
# Reading a text backwards or by ROT13 costs as much as reading it once more, so only short texts are read so.
_MAX_SHORT = 20_000
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,4000}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}[ :]?){16,2000}|(?:\\x[0-9a-fA-F]{2}){12,1000}")
_LONG_NUMBER = re.compile("&#[0-9]{8,}")  # no character has it, and Python refuses to read thousands of digits
_TAGS = re.compile("[\U000e0020-\U000e007e]{4,4000}")
_HIDDEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_LOOK_ALIKES = str.maketrans("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u03bf\u03b1", "aeopcyxijsoa")
_MIXED = re.compile("[a-z][\u0370-\u04ff]|[\u0370-\u04ff][a-z]")
_SPACED = re.compile(r"(?:\b\w[ .*_-]){6,400}\w\b")
_LEET = str.maketrans("013457@$", "oieastas")


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The score of a text, from 0 on, and the names of the signs that were found in it."""

    score: int
    signs: tuple[str, ...] = ()


def score_text(text: str) -> Suspicion:
    """Score a text as it is, without hidden characters, and as what its encoded parts say.

    Of a very long text the beginning and the end are read, which is more than a model gets to see in the result.
    """
    if len(text) > 2 * _MAX_READ:
        text = f"{text[:_MAX_READ]}\n{text[-_MAX_READ:]}"
    found: dict[str, int] = {}
    for view in _list_views(text):
        found.update(_find_signs(view))
    decoded: dict[str, int] = {}
    for piece in _decode_pieces(text):
        for view in _list_views(piece):
            decoded.update(_find_signs(view))
    if decoded:
        found.update({**decoded, "encoded": 2})
    if _TAGS.search(text):
        found["hidden text"] = 3
    if _BIDI.search(text):
        found["bidi control"] = 1
    return Suspicion(sum(found.values()), tuple(found))


def _find_signs(text: str) -> dict[str, int]:
    return {name: weight for name, weight, pattern in SIGNS if pattern.search(text)}


def _list_views(text: str) -> Iterator[str]:
    """The text in the forms in which a model may still read it, in lower case."""
    plain = _HIDDEN.sub("", normalize_characters(html.unescape(_LONG_NUMBER.sub("", text)))).casefold()
    yield plain
    if "\n" in plain:
        yield plain.replace("\n", " ")
    if _MIXED.search(plain):
        yield plain.translate(_LOOK_ALIKES)
    if len(plain) <= _MAX_SHORT:
        if _SPACED.search(plain):
            yield _SPACED.sub(lambda match: re.sub(r"[ .*_-]", "", match[0]), plain.replace("  ", "\n"))
        if re.search(r"[a-z][013457@$]|[013457@$][a-z]", plain):
            yield plain.translate(_LEET)


def _decode_pieces(text: str) -> Iterator[str]:
    """What base64, hexadecimal, percent and tag-character parts say; short texts also backwards and by ROT13."""
    for match in _take(_BASE64.finditer(text)):
        yield _decode_base64(match[0])
    for match in _take(_HEX.finditer(text)):
        yield _decode_bytes(re.sub(r"[^0-9a-fA-F]", "", match[0].replace("\\x", "")), bytes.fromhex)
    if text.count("%") >= 3:
        yield re.sub(r"%([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text)
    for match in _take(_TAGS.finditer(text)):
        yield "".join(chr(ord(mark) - 0xE0000) for mark in match[0])
    if len(text) <= _MAX_SHORT:
        yield codecs.encode(text, "rot13")
        yield text[::-1]


def _take(matches: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    return islice(matches, _MAX_PIECES)


def _decode_base64(text: str) -> str:
    body = text.rstrip("=").replace("-", "+").replace("_", "/")
    return _decode_bytes(
        body[: len(body) - (len(body) % 4 == 1)], lambda part: base64.b64decode(part + "=" * (-len(part) % 4))
    )


def _decode_bytes(text: str, decode: Callable[[str], bytes]) -> str:
    """The decoded text, or nothing if it is no text."""
    try:
        return decode(text).decode()
    except (ValueError, binascii.Error):
        return ""
