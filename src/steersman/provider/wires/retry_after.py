"""The kind of error for an HTTP status, and how long a server asks to wait (Retry-After and its variants)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite

from steersman.types.errors import ErrorKind

_KINDS: dict[int, ErrorKind] = {
    401: "authentication",
    402: "quota",
    403: "authentication",
    408: "stalled",
    409: "overloaded",
    413: "context_overflow",
    429: "rate_limit",
}


LONGEST_WORDS = 100_000
"""What an error says is looked for in so many of its first characters: an event may have millions of them."""

# xAI and others answer a wrong key with 400.
_WRONG_KEY = re.compile(
    r"\b(?:incorrect|invalid|wrong|expired|revoked|missing) (?:x-)?api[ _-]?key"
    r"|\bno api[ _-]?key (?:was )?(?:provided|found)"
    r"|\bapi[ _-]?key (?:is )?(?:not valid|invalid|incorrect|expired|missing|not found|revoked)",
    re.IGNORECASE,
)


def classify_status(status: int, words: str = "") -> ErrorKind:
    """Return the kind of error for an HTTP status; the kind decides whether the request is retried.

    `words` are those of the server, if it said anything: a wrong key may come with 400.
    """
    if status == 400 and _WRONG_KEY.search(words[:LONGEST_WORDS]):
        return "authentication"
    return _KINDS.get(status) or ("overloaded" if status >= 500 else "invalid_request")


def may_refine(status: int | None, kind: ErrorKind) -> bool:
    """Whether the `type` in an error's body may decide its kind: of a 4xx the status is right, and the type adds to it.

    Servers and gateways put `api_error` or `invalid_request_error` on everything.
    """
    if status is None or not 400 <= status < 500:
        return True
    return kind in ("quota", "refused", "context_overflow") or kind == classify_status(status)


# More than a year is a mistake of the server: our own backoff is the better guess.
_MAX_WAIT = 366 * 86_400.0

# A number this large is a point in time (seconds or milliseconds since the epoch), not a duration.
_EPOCH_SECONDS = 1e9
_EPOCH_MILLISECONDS = 1e11

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+", re.ASCII)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", re.IGNORECASE | re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.IGNORECASE | re.ASCII)
_RETRY_INFO = re.compile(r'"retryDelay"\s*:\s*"([^"]+)"')
_WORDS = re.compile(
    r"(?:retry|try again|wait)(?: after| in| for)?:?\s+"
    r"(?:((?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+)\b|(\d+(?:\.\d+)?)\s*(milliseconds?|ms|seconds?|secs?|minutes?|mins?|hours?))",
    re.IGNORECASE | re.ASCII,
)


def parse_retry_after(
    headers: Mapping[str, str], *, clock: Callable[[], float], body: str = "", limited: bool = True
) -> float | None:
    """Return the seconds to wait, from the headers or else from the text of the body; `None` if neither says.

    A point in time is compared with the server's own `Date` header, because our clock may be wrong; without that header
    `clock` gives the wall-clock time. A time in the past means 0.
    `limited` says that a rate limit was reached. Servers send the reset times of their limits with every response, so
    those headers count only then.
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}
    if "date" in given:
        clock = partial(_read_server_clock, given["date"], clock)
    seconds = _parse_number(given.get("retry-after-ms"), 0.001)
    if seconds is None:
        seconds = _parse_wait(given.get("retry-after"), clock)
    if seconds is None:
        seconds = _find_in_body(body)
    if seconds is None and limited:
        seconds = _parse_wait(given.get("x-ratelimit-reset-after"), clock)
    if seconds is None and limited:
        seconds = _parse_reset(given.get("x-ratelimit-reset"), clock)
    return seconds


def _check_range(seconds: float) -> float | None:
    return seconds if isfinite(seconds) and 0 <= seconds <= _MAX_WAIT else None


def _parse_number(text: str | None, unit: float) -> float | None:
    return _check_range(float(text) * unit) if text and _NUMBER.fullmatch(text) else None


def _parse_wait(text: str | None, clock: Callable[[], float]) -> float | None:
    """Parse seconds, a duration such as `6m0s`, or a date."""
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return _parse_number(text, 1.0)
    if _DURATION.fullmatch(text):
        return _parse_duration(text)
    timestamp = _parse_date(text)
    return None if timestamp is None else _check_range(max(0.0, timestamp - clock()))


def _parse_reset(text: str | None, clock: Callable[[], float]) -> float | None:
    """Parse a point in time in seconds or milliseconds, or anything that `_parse_wait` takes."""
    if text and _NUMBER.fullmatch(text) and (number := float(text)) >= _EPOCH_SECONDS:
        timestamp = number / 1000 if number >= _EPOCH_MILLISECONDS else number
        return _check_range(max(0.0, timestamp - clock()))
    return _parse_wait(text, clock)


def _read_server_clock(date: str, clock: Callable[[], float]) -> float:
    timestamp = _parse_date(date)
    return clock() if timestamp is None else timestamp


def _parse_duration(text: str) -> float | None:
    return _check_range(sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(text)))


def _parse_date(text: str) -> float | None:
    """Parse an HTTP date or an RFC 3339 date to seconds since the epoch."""
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            timestamp = parse(text)
            return (timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


def _find_in_body(body: str) -> float | None:
    """Find Google's RetryInfo, or text such as `Please retry in 850ms`."""
    body = body[:LONGEST_WORDS]
    if (found := _RETRY_INFO.search(body)) and _DURATION.fullmatch(found[1]):
        return _parse_duration(found[1])
    if not (found := _WORDS.search(body)):
        return None
    if found[1]:
        return _parse_duration(found[1])
    unit = found[3].lower()
    return _check_range(float(found[2]) * _UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]])
