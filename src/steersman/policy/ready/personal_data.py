"""Finds personal data in text: each kind has a pattern for its shape and a check of what the pattern found.

No pattern has an unbounded repetition, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Literal, TypeAlias, get_args

from steersman.policy.ready import checksums

PiiKind: TypeAlias = Literal["email", "phone", "iban", "card", "national_id", "ip"]
PII_KINDS: tuple[PiiKind, ...] = get_args(PiiKind)

_GAP = "[ \\-\u00a0\u2009\u202f\u2010\u2011\u2013]"
_GAPS = re.compile("[^0-9A-Za-z]")
_GAP_MARK = re.compile(_GAP)
_IBAN_START = re.compile(r"(?<!\w)[A-Za-z]{2}[0-9]{2}(?=[0-9A-Za-z]|" + _GAP + ")")
_CARD_START = re.compile(rf"(?<![\w.,:/#=-])[0-9](?:{_GAP}?[0-9]){{12,18}}")
_BEFORE, _AFTER = r"(?<![\w.,:/#=-])", r"(?!\w|[.,:/=-]\w)"
# How far before a number a word such as "phone" may stand.
_REACH = 24


@dataclass(frozen=True, slots=True)
class Found:
    """Personal data in a text: its kind and where it stands."""

    kind: PiiKind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Shape:
    kind: PiiKind
    pattern: re.Pattern[str]
    is_valid: Callable[[str], bool] | None = None
    """Checks what was found, without separators; addresses are checked as they are."""
    word: re.Pattern[str] | None = None
    """Words of which one must stand shortly before it, where the shape alone says too little."""


def _compile(pattern: str, before: str = _BEFORE, after: str = _AFTER) -> re.Pattern[str]:
    return re.compile(f"{before}(?:{pattern.replace('~', f'{_GAP}?')}){after}")


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return any(mark in "0123456789" for mark in text)


def _is_international(text: str) -> bool:
    return 8 <= len(text.removeprefix("00")) <= 15


_PHONE_WORD = _words(
    r"phone|mobile|cell|\bcall|\btel\b|\btel[.:e]|t[ée]l[ée]|tlf|handy|mobil|fax|whatsapp|\bsms\b|\btext me|\bring\b|"
    r"anruf|erreich|appel|llám|m[óo]vil|celular|contatt|chiam|\bbel\b|телефон|звон|电话|手机|電話|携帯|전화|هاتف|फ़ोन"
)
_ID: PiiKind = "national_id"
_SHAPES = (
    _Shape(
        "email",
        re.compile(
            r"(?<![\w.%+-])\w[\w.%+'-]{0,63}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,6}[^\W\d_][^\W_]{1,23}(?![\w-]|\.\w)"
        ),
    ),
    _Shape(_ID, _compile(r"[0-9]{3}[ -][0-9]{2}[ -][0-9]{4}"), checksums.is_us_ssn),
    _Shape(_ID, _compile(r"[0-9]{2} [0-9]{3} [0-9]{3} [0-9]{3}"), checksums.is_german_tax_id),
    _Shape(_ID, _compile(r"[0-9]{11}"), checksums.is_german_tax_id, _words(r"steuer|tax id|\btin\b|\bidnr")),
    _Shape(
        _ID,
        _compile(r"[1-478]~[0-9]{2}~[0-9]{2}~(?:[0-9]{2}|2[AB])~[0-9]{3}~[0-9]{3}~[0-9]{2}"),
        checksums.is_french_nir,
    ),
    _Shape(_ID, _compile(r"(?:[0-9]{8}|[XYZ]~[0-9]{7})~[A-HJ-NP-TV-Z]"), checksums.is_spanish_dni),
    _Shape(
        _ID,
        _compile(r"[A-Z]{6}[0-9LMNP-V]{2}[A-EHLMPRST][0-9LMNP-V]{2}[A-Z][0-9LMNP-V]{3}[A-Z]"),
        checksums.is_codice_fiscale,
    ),
    _Shape(_ID, _compile(r"[0-9]{9}"), checksums.is_dutch_bsn, _words(r"\bbsn\b|burgerservice|sofi")),
    _Shape(_ID, _compile(r"[0-9]{11}"), checksums.is_pesel),
    _Shape(_ID, _compile(r"(?:19|20)?[0-9]{6}[-+][0-9]{4}"), checksums.is_personnummer),
    _Shape(_ID, _compile(r"756[.]?[0-9]{4}[.]?[0-9]{4}[.]?[0-9]{2}"), checksums.is_ahv),
    _Shape(_ID, _compile(r"[0-9]{2}[.][0-9]{2}[.][0-9]{2}-[0-9]{3}[.][0-9]{2}"), checksums.is_belgian_number),
    _Shape(_ID, _compile(r"[0-9]{3}[.][0-9]{3}[.][0-9]{3}-[0-9]{2}"), checksums.is_cpf),
    _Shape(_ID, _compile(r"[0-9]{11}"), checksums.is_cpf, _words(r"\bcpf\b")),
    _Shape(_ID, _compile(r"[0-9]{3}-[0-9]{3}-[0-9]{3}"), checksums.is_canadian_sin),
    _Shape(
        _ID, _compile(r"[0-9]{3} ?[0-9]{3} ?[0-9]{3}"), checksums.is_canadian_sin, _words(r"\bsin\b|insurance|\bnas\b")
    ),
    _Shape(_ID, _compile(r"[2-9][0-9]{3}[ -][0-9]{4}[ -][0-9]{4}"), checksums.is_aadhaar),
    _Shape(_ID, _compile(r"[2-9][0-9]{11}"), checksums.is_aadhaar, _words(r"aadha|uidai|आधार")),
    _Shape(_ID, _compile(r"[1-9][0-9]{16}[0-9Xx]"), lambda text: checksums.is_chinese_id(text.upper())),
    _Shape(_ID, _compile(r"[0-9]{6}[-+ABCDEFUVWXY][0-9]{3}[0-9A-Y]"), checksums.is_hetu),
    _Shape(_ID, _compile(r"[0-9]{6} ?[0-9]{5}"), checksums.is_fodselsnummer),
    _Shape(_ID, _compile(r"[0-9]{13}"), checksums.is_south_african_id),
    _Shape(_ID, _compile(r"[0-9]{3}~[0-9]{3}~[0-9]{4}"), checksums.is_nhs_number, _words(r"\bnhs\b")),
    _Shape(
        _ID,
        _compile(r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]"),
        checksums.is_nino,
    ),
    _Shape(
        "phone",
        _compile(r"\+[1-9](?:[ ()./\u00a0-]{0,2}[0-9]){7,14}", before=r"(?<![\w+=])", after=r"(?!\w|[.,]\d)"),
        _is_international,
    ),
    _Shape("phone", _compile(r"00[ ]?[1-9][0-9]?[ ]?[0-9]{0,3}(?:[ /-][0-9]{2,5}){2,5}"), _is_international),
    _Shape("phone", _compile(r"(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}")),
    _Shape("phone", _compile(r"\(?0[1-9][0-9]{0,4}\)?(?:[ /.-][0-9]{2,8}){1,5}"), lambda text: 9 <= len(text) <= 12),
    _Shape("phone", _compile(r"\([1-9][0-9]\) ?9?[0-9]{4}-[0-9]{4}")),
    _Shape(
        "phone",
        _compile(r"(?!\d{4}[-.]\d\d[-.]\d\d)\(?[0-9]{2,5}\)?(?:[ /.-]?[0-9]{2,5}){1,5}"),
        lambda text: 8 <= len(text) <= 13,
        _PHONE_WORD,
    ),
    _Shape(
        "ip",
        _compile(r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)", r"(?<![\w.])", r"(?!\w|\.\d)"),
    ),
    _Shape("ip", _compile(r"[0-9A-Fa-f:]{2,39}(?:\.[0-9.]{5,11})?", r"(?<![\w:.])", r"(?![\w:])"), _is_ipv6),
)


def find_personal_data(text: str, kinds: Iterable[PiiKind] = PII_KINDS) -> list[Found]:
    """Find personal data of these kinds, in order and without overlaps; a kind with a checksum comes first."""
    wanted = set(kinds)
    taken = bytearray(len(text))
    kept: list[Found] = []
    for found in _find_candidates(text, wanted):
        if 1 not in taken[found.start : found.end]:
            taken[found.start : found.end] = b"\1" * (found.end - found.start)
            kept.append(found)
    return sorted(kept, key=lambda found: found.start)


def _find_candidates(text: str, wanted: set[PiiKind]) -> Iterator[Found]:
    if "iban" in wanted:
        yield from _find_ibans(text)
    if "card" in wanted:
        yield from _find_cards(text)
    for shape in _SHAPES:
        if shape.kind in wanted:
            yield from _find_shape(shape, text)


def _find_shape(shape: _Shape, text: str) -> Iterator[Found]:
    for match in shape.pattern.finditer(text):
        value = match[0] if shape.kind in ("ip", "email") else _GAPS.sub("", match[0])
        if shape.is_valid is not None and not shape.is_valid(value):
            continue
        start, end = match.span()
        if shape.word is None or shape.word.search(text, max(0, start - _REACH), start):
            yield Found(shape.kind, start, end)


def _find_ibans(text: str) -> Iterator[Found]:
    """An account is as long as its country says; what stands after it may look like one more group."""
    for match in _IBAN_START.finditer(text):
        length = checksums.IBAN_LENGTHS.get(match[0][:2].upper())
        end = None if length is None else _find_end(text, match.start(), length)
        if end is not None and checksums.is_iban(_GAPS.sub("", text[match.start() : end]).upper()):
            yield Found("iban", match.start(), end)


def _find_end(text: str, start: int, length: int) -> int | None:
    """Where so many letters and digits end, with at most one separator between two; `None` if there are not as many."""
    count, place, gap = 0, start, False
    while place < len(text) and count < length:
        is_mark = text[place].isascii() and text[place].isalnum()
        if not is_mark and (gap or not _GAP_MARK.match(text[place])):
            return None
        count, gap, place = count + is_mark, not is_mark, place + 1
    return place if count == length and not text[place : place + 1].isalnum() else None


def _find_cards(text: str) -> Iterator[Found]:
    """A security code or a date may stand after the number, so the end of each group may be its end."""
    for match in _CARD_START.finditer(text):
        start, end = match.span()
        while end > start and (text[end : end + 1].isalnum() or not _is_card_text(text[start:end])):
            end -= 1
        if end > start:
            yield Found("card", start, end)


def _is_card_text(text: str) -> bool:
    digits = _GAPS.sub("", text)
    return text[-1].isdigit() and len(digits) >= 13 and checksums.is_card(digits)
