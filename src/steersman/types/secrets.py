"""Redaction: remove keys from text, whole or truncated. Servers quote keys in their errors, and cut the quotation."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterator
from contextlib import suppress

REDACTED = "[redacted]"
# A shorter value is a word such as "none" and no secret; redacting it would spoil the text.
_MIN_SECRET_LENGTH = 6
# The beginning of a key is redacted too when it has at least this many characters.
_MIN_PREFIX_LENGTH = 8
_MAX_KEY_LENGTH = 4_000
# What JSON need not escape and some encoders do: .NET writes "+" as an escape, Gson "=", PHP "/". JSON may be quoted in
# JSON, with more backslashes. What has to be escaped stays, so JSON stays JSON.
_ESCAPE = re.compile(r"(?<!\\)\\++(?:/|u00(?:2[0-13-9a-f]|[3467][0-9a-f]|5[0-9abd-f]))", re.IGNORECASE)


def redact(text: str, *secrets: str | None) -> str:
    """Redact the secrets, and the beginning of a secret that a truncated text may hold.

    Pass all secrets in one call: keys of one provider begin alike, and after the beginning of one key is redacted, the
    rest of another key would no longer be recognized.
    """
    keys = [secret for secret in secrets if secret is not None and len(secret) >= _MIN_SECRET_LENGTH]
    if "\\" in text and keys:
        plain = _ESCAPE.sub(_unescape, text)
        text = plain if any([key[:_MIN_PREFIX_LENGTH] in plain for key in keys]) else text
    begun = [key for key in keys if key[:_MIN_PREFIX_LENGTH] in text]
    pieces, done = list[str](), 0
    places = [(start, key) for key in begun for start in _find_all(text, key[:_MIN_PREFIX_LENGTH])]
    for start, key in sorted(places):
        end = start + _measure_begun(text, start, key)
        if start >= done:
            pieces += (text[done:start], REDACTED)
        done = max(done, end)
    return "".join((*pieces, text[done:])) if begun else text


def _unescape(found: re.Match[str]) -> str:
    escape = found[0]
    return "/" if escape.endswith("/") else chr(int(escape[-2:], 16))


def list_secret_words(header: str) -> list[str]:
    """List what a server may quote of a header: its last word, the texts that it names, the password of a Basic one.

    Cookies and signatures name them, as in `session=...; id=...`.
    """
    last = next(iter(header.split()[-1:]), "")
    words = [last, *[pair.partition("=")[2].strip('"') for pair in re.split(r"[\s;,]+", header)]]
    if header.lower().lstrip().startswith("basic "):
        with suppress(ValueError):  # a server may quote it decoded
            words.append(a2b_base64(last, strict_mode=True).decode().partition(":")[2])
    return [word for word in words if word.strip("=")]  # what ends with "=" may be padded, and names nothing


def _find_all(text: str, part: str) -> Iterator[int]:
    """Find where a part begins, also inside of itself."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _measure_begun(text: str, start: int, key: str) -> int:
    """Measure how much of a key is at a place of the text where it begins: a page may begin one a million times."""
    known, step = min(_MIN_PREFIX_LENGTH, len(key)), 1
    while step and known < len(key):
        more = key[known : known + step]
        if text.startswith(more, start + known):
            known += len(more)
            step *= 2
        else:
            step //= 2
    return known


# Keys of known providers by their prefix, and the token after "Bearer". Servers mask some of them with stars.
_KEY_PATTERN = (
    r"\b(?:sk|sess|pk|rk)-[\w*.-]{3,}"
    r"|\b(?:sk|gsk|xai|key|or|pk)[-_][\w*.-]{6,}"
    r"|\bAIza[\w-]{10,}|\bAQ\.[\w-]{10,}|\bya29\.[\w.-]{10,}"
    r"|(?i:\bbearer)\s+[\w*.~+/=-]{6,}"
)


def redact_key_patterns(text: str, limit: int) -> str:
    """Redact everything that looks like a key, and truncate the text to `limit` characters."""
    # Truncate after redaction: a truncated key does not match the pattern.
    shown = re.sub(_KEY_PATTERN, REDACTED, text[: limit + _MAX_KEY_LENGTH])
    return shown if len(shown) <= limit and len(text) <= limit + _MAX_KEY_LENGTH else f"{shown[: limit - 3]}..."
