"""What Gemini's errors mean, as a response or in the midst of a stream, alone or in a list of one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from steersman.provider.http.errors import is_html_page, not_a_stream_error, suggest_fix
from steersman.provider.http.headers import find_request_id, should_retry
from steersman.provider.wires.overflow import is_overflow, is_throttled
from steersman.provider.wires.retry_after import classify_status, parse_retry_after
from steersman.types.errors import EXCEPTIONS, ErrorKind, ProtocolError, ProviderError
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

# Google's status words, for errors that come with them alone.
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
_SHOWN = 2_000


def classify_response(model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """What a response that is no stream means."""
    text = body.decode("utf-8", "replace")
    given = {name.lower(): value for name, value in headers.items()}
    told = _find_error(body)
    if told is not None:
        return _build_error(model, told, status, given, text)
    if status >= 400:
        plain = "" if is_html_page(text) else text.strip()
        return _build_error(model, {"message": plain}, status, given, text)
    return not_a_stream_error(model, status, given, text)


def classify_event(model: Model, error: Any) -> ProviderError:
    """What an error inside a stream means: its own code counts, since the stream began with 200."""
    told = cast(Mapping[str, Any], error) if isinstance(error, Mapping) else {"message": str(error)}
    return _build_error(model, told, 200, {}, msgspec.json.encode({"error": error}).decode())


def build_malformed_error(provider: str, data: str, error: Exception) -> ProtocolError:
    """A chunk that is no chunk."""
    shown = redact_key_patterns(data, _SHOWN)
    return ProtocolError(
        f"{provider} sent something else than its protocol ({error or type(error).__name__}): {shown[:200]!r}",
        provider=provider,
        body=shown,
    )


def _find_error(body: bytes) -> Mapping[str, Any] | None:
    """The error that a JSON body tells, or `None` when it tells none."""
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
    model: Model, told: Mapping[str, Any], status: int, headers: Mapping[str, str], body: str
) -> ProviderError:
    words = str(told.get("message") or "")
    meant = status if status >= 400 else _find_status(told)
    kind = _classify_kind(words, told, meant)
    shown = f"{model.name}: {redact_key_patterns(words, _SHOWN) or f'HTTP status {meant}'}"
    if kind == "authentication" and (what_to_do := suggest_fix(model.provider, kind, body)):
        shown = f"{shown.rstrip('.')}. {what_to_do}"
    return EXCEPTIONS[kind](
        shown,
        provider=model.provider,
        status=meant,
        request_id=find_request_id(headers),
        retry_after=_find_retry_after(headers, told, words, meant),
        retryable=should_retry(headers),
        body=redact_key_patterns(body, _SHOWN) or None,
    )


def _find_status(told: Mapping[str, Any]) -> int:
    code = told.get("code")
    if isinstance(code, int) and code >= 400:
        return code
    return _STATUS.get(str(told.get("status")), 500)


def _classify_kind(words: str, told: Mapping[str, Any], status: int) -> ErrorKind:
    details = _list_details(told)
    if _WRONG_KEY.search(words) or any(_WRONG_KEY.search(str(detail.get("reason"))) for detail in details):
        return "authentication"
    if status == 429:
        return "quota" if any(_is_daily_quota(detail) for detail in details) else "rate_limit"
    if is_throttled(words):
        return "rate_limit"
    if words and is_overflow(words, status=status):
        return "context_overflow"
    return classify_status(status)


def _is_daily_quota(detail: Mapping[str, Any]) -> bool:
    """Whether a quota of the day is used up: no backoff waits that long."""
    return any("PerDay" in str(violation.get("quotaId")) for violation in _list_mappings(detail.get("violations")))


def _list_details(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _list_mappings(told.get("details"))


def _list_mappings(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        return []
    return [cast(Mapping[str, Any], item) for item in cast(list[Any], value) if isinstance(item, Mapping)]


def _find_retry_after(
    headers: Mapping[str, str], told: Mapping[str, Any], words: str, status: int, clock: Callable[[], float] = time.time
) -> float | None:
    """The delay that RetryInfo asks for, else what headers and words say."""
    for detail in _list_details(told):
        delay = detail.get("retryDelay")
        if isinstance(delay, str):
            body = msgspec.json.encode({"retryDelay": delay}).decode()
            asked = parse_retry_after({}, clock=clock, body=body)
            if asked is not None:
                return asked
    return parse_retry_after(headers, clock=clock, body=words, limited=status == 429)
