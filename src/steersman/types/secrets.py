"""Redaction: remove keys from text, whole or truncated. Servers quote keys in their errors, and cut the quotation."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

REDACTED = "[redacted]"
# A shorter value is a word such as "none" and no secret; redacting it would spoil the text.
_MIN_SECRET_LENGTH = 6
# The beginning of a key is redacted too when it has at least this many characters.
_MIN_PREFIX_LENGTH = 8
_MAX_KEY_LENGTH = 4_000
_SCHEMES = ("basic", "bearer", "digest", "token")
# How values begin that are alike in nothing else: a URL, or a header with the name of a scheme.
_COMMON_BEGINNING = re.compile(rf"(?:[a-z][a-z0-9+.-]{{0,15}}://|(?:{'|'.join(_SCHEMES)})\s+)?", re.IGNORECASE)
# How a text may quote characters of a key: escapes of JSON, or those of Python in the `repr` of texts and bytes,
# percent-encoding, references of HTML, each also twice over.
# Encoders differ in what they escape: .NET writes "+" as an escape in JSON, PHP "/", templates of Go "+" in HTML. Each
# escape is one character, which may have several parts in UTF-8 or UTF-16.
_NEXT = "%(?:25)*[89ab][0-9a-f]"
_NEXT_BYTE = r"\\++x[89ab][0-9a-f]"
_BYTES = rf"x(?:[cd][0-9a-f]{_NEXT_BYTE}|e[0-9a-f](?:{_NEXT_BYTE}){{2}}|f[0-7](?:{_NEXT_BYTE}){{3}}|[0-9a-f]{{2}})"
_UNITS = r"u(?:d[89ab][0-9a-f]{2}\\++ud[c-f][0-9a-f]{2}|[0-9a-f]{4})"
_ESCAPE = re.compile(
    r"[\\%&](?:"  # what all begin with comes first, so that the search is fast
    rf"(?<=\\)(?<!\\\\)(?:\\*+(?:[\"'/bfnrt]|{_UNITS}|{_BYTES})|\\(?:\\\\)?(?!\\))"
    rf"|(?<=%)(?:25)*(?:[cd][0-9a-f]{_NEXT}|e[0-9a-f](?:{_NEXT}){{2}}|f[0-7](?:{_NEXT}){{3}}|[0-9a-f]{{2}})"
    r"|(?<=&)(?:amp;)*(?:amp|lt|gt|quot|apos|#0{0,6}[0-9]{1,6}|#x0{0,6}[1-9a-f][0-9a-f]{0,4});)",
    re.IGNORECASE,
)
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NEVER_ESCAPED = re.compile(r"[A-Za-z0-9_.-]*")
_SIGNS = ("\\", "%", "&", "+")

_Place: TypeAlias = tuple[int, int]


def redact(text: str, *secrets: str | None) -> str:
    """Redact the secrets, and the beginning of a secret that a truncated text may hold.

    Pass all secrets in one call: keys of one provider begin alike, and after the beginning of one key is redacted, the
    rest of another key would no longer be recognized. What is not redacted stays as it is, with its escapes.
    """
    given = [secret for secret in secrets if secret is not None]
    if REDACTED in text:
        given += [rest for key in given for rest in _list_rests(key)]
    # A cookie may have escapes of its own, and be quoted without them.
    plain_keys = [_ESCAPE.sub(_unescape, key) for key in given if not _NEVER_ESCAPED.fullmatch(key)]
    keys = [key for key in dict.fromkeys((*given, *plain_keys)) if len(key) >= _MIN_SECRET_LENGTH]
    places = _find_places(text, keys)
    if plain_keys and any([sign in text for sign in _SIGNS]):
        # In a form, "+" stands for a blank.
        found = _find_places(_ESCAPE.sub(_unescape, text).replace("+", " "), [key.replace("+", " ") for key in keys])
        places = sorted((*places, *_locate_in_original(text, found)))
    pieces, done = list[str](), 0
    for start, end in places:
        if start >= done:
            pieces += (text[done:start], REDACTED)
        done = max(done, end)
    return "".join((*pieces, text[done:])) if places else text


def _list_rests(key: str) -> list[str]:
    """List what `redact_key_patterns` leaves of a key that only in part looks like one, such as `sk-id:secret`."""
    return [
        rest
        for quoted in (key, f"Bearer {key}")
        if REDACTED in (rest := re.sub(_KEY_PATTERN, REDACTED, quoted)) and rest != REDACTED
    ]


def _find_places(text: str, keys: Sequence[str]) -> list[_Place]:
    """Find where a text has keys, or the beginning of one."""
    begun = [(key, beginning) for key in keys if (beginning := _read_beginning(key)) in text]
    found = [(start, key, len(part)) for key, part in begun for start in _find_all(text, part)]
    return [(start, start + _measure_begun(text, start, key, known)) for start, key, known in sorted(found)]


def _read_beginning(key: str) -> str:
    """Read the part of a key by which it is recognized where it was cut."""
    common = _COMMON_BEGINNING.match(key)
    return key[: _MIN_PREFIX_LENGTH + (common.end() if common else 0)]


def _unescape(found: re.Match[str]) -> str:
    """The one character that an escape stands for."""
    escape = found[0].lower()
    if (mark := "%" if escape[0] == "%" else "x") in escape and escape[0] != "&":
        codes = bytes([int(part[-2:] if mark == "%" else part[:2], 16) for part in escape.split(mark)[1:]])
        try:
            return codes.decode()
        except UnicodeDecodeError:  # older programs write Latin-1
            return chr(codes[0])
    if escape[0] == "\\":
        units = [int(part[:4], 16).to_bytes(2, "big") for part in escape.split("u")[1:]]
        return b"".join(units).decode("utf-16-be", "surrogatepass") or _CONTROLS.get(escape[-1], escape[-1])
    name = escape[1:-1].rpartition(";")[2]
    return _NAMED.get(name) or chr(int(name[2:], 16) if name[1] == "x" else int(name[1:]))


def _locate_in_original(text: str, places: Sequence[_Place]) -> list[_Place]:
    """Find the places of a text whose escapes were replaced in the text as it was."""
    if not places:
        return []
    bounds, moved = dict[int, int](), 0
    escapes = _ESCAPE.finditer(text)
    escape = next(escapes, None)
    for bound in sorted({bound for place in places for bound in place}):
        while escape is not None and escape.start() - moved < bound:
            moved += len(escape[0]) - 1
            escape = next(escapes, None)
        bounds[bound] = bound + moved
    return [(bounds[start], bounds[end]) for start, end in places]


def list_secret_parts(header: str) -> list[str]:
    """List what to redact of a header: all of it, its words without that for a scheme, and what it names."""
    words = [word for word in header.split() if word.lower() not in _SCHEMES]
    return [header, *words, *list_secret_words(header)]


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


def _measure_begun(text: str, start: int, key: str, known: int) -> int:
    """Measure how much of a key is at a place of the text where it begins: a page may begin one a million times."""
    step = 1
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
