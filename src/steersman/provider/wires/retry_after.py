"""How long a server asks to wait, in all the ways servers say it."""

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


def classify_status(status: int) -> ErrorKind:
    """The kind of error; whether it is retried follows from it."""
    return _KINDS.get(status) or ("overloaded" if status >= 500 else "invalid_request")


# Nobody means more than a year: such a number is a mistake, and our own backoff is the better guess.
_MAX_WAIT = 366 * 86_400.0

# A wait in seconds is never this long, a point in time is never this small.
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
    """The seconds to wait, from the headers or else from the words of the body; `None` when nothing usable is said.

    A point in time is held against the server's own `Date`, and where it sent none against `clock`, which gives our
    wall-clock time: a wait must not depend on whether our clock is right. A past one means 0.
    `limited` says that a limit was reached: servers tell with every response, also with one that failed for another
    reason, when their limits begin anew.
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}
    if "date" in given:
        clock = partial(_read_server_clock, given["date"], clock)
    asked = _parse_number(given.get("retry-after-ms"), 0.001)
    if asked is None:
        asked = _parse_wait(given.get("retry-after"), clock)
    if asked is None:
        asked = _find_in_body(body)
    if asked is None and limited:
        asked = _parse_wait(given.get("x-ratelimit-reset-after"), clock)
    if asked is None and limited:
        asked = _parse_reset(given.get("x-ratelimit-reset"), clock)
    return asked


def _check_range(seconds: float) -> float | None:
    return seconds if isfinite(seconds) and 0 <= seconds <= _MAX_WAIT else None


def _parse_number(text: str | None, unit: float) -> float | None:
    return _check_range(float(text) * unit) if text and _NUMBER.fullmatch(text) else None


def _parse_wait(text: str | None, clock: Callable[[], float]) -> float | None:
    """Seconds, a duration such as `6m0s`, or a date."""
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return _parse_number(text, 1.0)
    if _DURATION.fullmatch(text):
        return _parse_duration(text)
    moment = _parse_date(text)
    return None if moment is None else _check_range(max(0.0, moment - clock()))


def _parse_reset(text: str | None, clock: Callable[[], float]) -> float | None:
    """A point in time in seconds or milliseconds, or any of the forms of a wait."""
    if text and _NUMBER.fullmatch(text) and (number := float(text)) >= _EPOCH_SECONDS:
        moment = number / 1000 if number >= _EPOCH_MILLISECONDS else number
        return _check_range(max(0.0, moment - clock()))
    return _parse_wait(text, clock)


def _read_server_clock(date: str, clock: Callable[[], float]) -> float:
    moment = _parse_date(date)
    return clock() if moment is None else moment


def _parse_duration(text: str) -> float | None:
    return _check_range(sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(text)))


def _parse_date(text: str) -> float | None:
    """An HTTP date or an RFC 3339 one, as seconds since the epoch."""
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
            return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


def _find_in_body(body: str) -> float | None:
    """Google's RetryInfo, or words such as `Please retry in 850ms`."""
    if (found := _RETRY_INFO.search(body)) and _DURATION.fullmatch(found[1]):
        return _parse_duration(found[1])
    if not (found := _WORDS.search(body)):
        return None
    if found[1]:
        return _parse_duration(found[1])
    unit = found[3].lower()
    return _check_range(float(found[2]) * _UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]])
