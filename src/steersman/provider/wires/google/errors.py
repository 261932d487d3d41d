"""Classifies errors of the Gemini API, as a response or inside a stream, alone or in a list of one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from steersman.provider.http.errors import (
    MAX_BODY,
    build_classified_error,
    build_not_a_stream_error,
    is_html_page,
    suggest_fix,
)
from steersman.provider.wires.overflow import is_overflow, is_throttled
from steersman.provider.wires.retry_after import LONGEST_WORDS, classify_status, parse_retry_after
from steersman.types.errors import ErrorKind, ProviderError
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

# Google's status names, for errors without a code.
_STATUS: dict[str, int] = {
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_WRONG_KEY = re.compile(r"api[ _]key (?:not valid|not found|expired|invalid)|API_KEY_(?:INVALID|SERVICE_BLOCKED)", re.I)


def classify_response(model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Classify a response that is not a stream."""
    text = body.decode("utf-8", "replace")
    given = {name.lower(): value for name, value in headers.items()}
    error = _find_error(body)
    if error is not None:
        return _build_error(model, error, status, given, text)
    if status >= 400:
        plain = "" if is_html_page(text) else text.strip()
        return _build_error(model, {"message": plain}, status, given, text)
    return build_not_a_stream_error(model, status, given, text)


def classify_event(model: Model, error: Any) -> ProviderError:
    """Classify an error inside a stream by its own code, since the HTTP status was 200."""
    fields = cast(Mapping[str, Any], error) if isinstance(error, Mapping) else {"message": str(error)}
    return _build_error(model, fields, 200, {}, msgspec.json.encode({"error": error}).decode())


def _find_error(body: bytes) -> Mapping[str, Any] | None:
    """Find the error in a JSON body, or return `None`."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = cast(list[Any], value)[0]
    if not isinstance(value, Mapping):
        return None
    error = cast(Mapping[str, Any], value).get("error")
    if isinstance(error, str):
        return {"message": error}
    return cast(Mapping[str, Any], error) if isinstance(error, Mapping) else None


def _build_error(
    model: Model, error: Mapping[str, Any], status: int, headers: Mapping[str, str], body: str
) -> ProviderError:
    message = str(error.get("message") or "")
    known = status if status >= 400 else _find_status(error)
    kind = _classify_kind(message or body, error, known)
    shown = f"{model.name}: {redact_key_patterns(message, MAX_BODY) or f'HTTP status {known}'}"
    if kind == "authentication" and (what_to_do := suggest_fix(model.provider, kind, body)):
        shown = f"{shown.rstrip('.')}. {what_to_do}"
    wait = _find_retry_after(headers, error, message, known)
    return build_classified_error(model, kind, shown, status=known, headers=headers, retry_after=wait, body=body)


def _find_status(error: Mapping[str, Any]) -> int:
    code = error.get("code")
    if isinstance(code, int) and code >= 400:
        return code
    return _STATUS.get(str(error.get("status")), 500)


def _classify_kind(words: str, error: Mapping[str, Any], status: int) -> ErrorKind:
    details, words = _list_details(error), words[:LONGEST_WORDS]
    if _WRONG_KEY.search(words) or any(_WRONG_KEY.search(str(detail.get("reason"))) for detail in details):
        return "authentication"
    if status == 429:
        return "quota" if any(_is_daily_quota(detail) for detail in details) else "rate_limit"
    if is_throttled(words):
        return "rate_limit"
    if is_overflow(words, status=status):
        return "context_overflow"
    return classify_status(status)


def _is_daily_quota(detail: Mapping[str, Any]) -> bool:
    """Whether a daily quota is used up: a backoff never waits that long."""
    return any("PerDay" in str(violation.get("quotaId")) for violation in _list_mappings(detail.get("violations")))


def _list_details(error: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _list_mappings(error.get("details"))


def _list_mappings(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        return []
    return [cast(Mapping[str, Any], item) for item in cast(list[Any], value) if isinstance(item, Mapping)]


def _find_retry_after(
    headers: Mapping[str, str],
    error: Mapping[str, Any],
    message: str,
    status: int,
    clock: Callable[[], float] = time.time,
) -> float | None:
    """Return the delay in RetryInfo, else the one in the headers or the message."""
    for detail in _list_details(error):
        delay = detail.get("retryDelay")
        if isinstance(delay, str):
            body = msgspec.json.encode({"retryDelay": delay}).decode()
            asked = parse_retry_after({}, clock=clock, body=body)
            if asked is not None:
                return asked
    return parse_retry_after(headers, clock=clock, body=message, limited=status == 429)


def describe_stop(reason: str, kind: ErrorKind, note: str | None, *, blocked: bool) -> str:
    """Describe why an answer has not ended well; `note` is what Gemini says about it."""
    if blocked:
        words = f"Gemini blocked the prompt: {reason}."
    elif kind == "refused":
        words = f"Gemini's filter stopped the answer: {reason}."
    elif kind == "incomplete":
        words = f"Gemini ended the answer early: {reason}."
    else:
        words = f"Gemini ended the answer with {reason!r}, which does not mean success."
    return f"{words} {note}" if note else words
