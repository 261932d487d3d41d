"""Classifies errors of the Anthropic Messages API, by their `type` rather than by their message, which may change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from steersman.provider.http.errors import build_not_a_stream_error, is_html_page, suggest_fix
from steersman.provider.http.headers import find_request_id as named
from steersman.provider.http.headers import should_retry
from steersman.provider.wires.overflow import is_overflow, is_throttled
from steersman.provider.wires.retry_after import classify_status, may_refine, parse_retry_after
from steersman.types.errors import (
    EXCEPTIONS,
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    QuotaError,
    RateLimitError,
)
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

_SHOWN = 500

_BY_TYPE: dict[str, type[ProviderError]] = {
    "invalid_request_error": InvalidRequestError,
    "authentication_error": AuthenticationError,
    "billing_error": QuotaError,
    "permission_error": AuthenticationError,
    "not_found_error": InvalidRequestError,
    "conflict_error": OverloadedError,
    "request_too_large": ContextOverflowError,
    "rate_limit_error": RateLimitError,
    "api_error": OverloadedError,
    "timeout_error": OverloadedError,
    "overloaded_error": OverloadedError,
}

# A spend limit set by the account owner: the status is 429, but waiting does not help.
_SPENT = "enforced_spend_limit_reached"


def classify_response(
    model: Model, status: int, headers: Mapping[str, str], body: bytes, *, clock: Callable[[], float] = time.time
) -> ProviderError:
    """Classify a response that is not a stream: an error status, a JSON error with status 200, an HTML page."""
    given = {name.lower(): value for name, value in headers.items()}
    text = body.decode("utf-8", "replace").strip()
    found = _find_error(text)
    if found is None and status < 400:
        return build_not_a_stream_error(model, status, given, text)
    plain = "" if is_html_page(text) or not text else f"HTTP status {status}: {redact_key_patterns(text, _SHOWN)}"
    error, request_id = found or ({"message": plain}, None)
    status = _find_status(status, error)
    wait = parse_retry_after(_add_reset_header(given), clock=clock, body=text, limited=status == 429)
    return _build_error(
        model,
        error,
        status=status,
        request_id=named(given) or request_id,
        retry_after=wait,
        retryable=should_retry(given),
        body=redact_key_patterns(text, _SHOWN),
    )


def classify_event(model: Model, data: str) -> ProviderError:
    """Classify an error event of a stream, whose status was 200."""
    error, request_id = _find_error(data) or ({"message": data}, None)
    if not error.get("type") and not isinstance(error.get("code"), int):
        error = {**error, "type": "api_error"}
    wait = parse_retry_after({}, clock=time.time, body=data)
    status = _find_status(200, error)
    return _build_error(
        model,
        error,
        status=None if status == 200 else status,
        request_id=request_id,
        retry_after=wait,
        retryable=None,
        body=redact_key_patterns(data, _SHOWN),
    )


def build_malformed_error(model: Model, data: str | bytes, error: Exception) -> ProtocolError:
    """Build the error for an event that is not JSON or does not match its type."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    shown = redact_key_patterns(text, _SHOWN)
    return ProtocolError(
        f"{model.name} sent an event that does not match its protocol ({error}): {shown!r}.",
        provider=model.provider,
        body=shown,
    )


def _build_error(
    model: Model,
    error: dict[str, Any],
    *,
    status: int | None,
    request_id: str | None,
    retry_after: float | None,
    retryable: bool | None,
    body: str,
) -> ProviderError:
    words = str(error.get("message") or "").strip()
    kind = _classify_kind(error, words or body, status)
    said = redact_key_patterns(words, _SHOWN) or (f"HTTP status {status}" if status else "an error without a message")
    name = error.get("type")
    text = f"{model.name}: {said}" + (f" ({name})" if isinstance(name, str) and name else "")
    if what_to_do := suggest_fix(model.provider, kind.kind, body):
        text = f"{text}. {what_to_do}"
    return kind(
        text,
        provider=model.provider,
        status=status,
        request_id=request_id,
        retry_after=retry_after,
        retryable=retryable,
        body=body,
    )


_VAGUE = (InvalidRequestError, ContextOverflowError, OverloadedError)


def _classify_kind(error: dict[str, Any], words: str, status: int | None) -> type[ProviderError]:
    details = error.get("details")
    if isinstance(details, dict) and cast(dict[str, Any], details).get("error_code") == _SPENT:
        return QuotaError
    name = error.get("type")
    code = name if isinstance(name, str) else None
    kind = _BY_TYPE.get(code or "")
    told = status if status and status >= 400 else None
    if kind is None or not may_refine(told, kind.kind) or (kind is InvalidRequestError and told):
        # A proxy uses `invalid_request_error` for everything; its status says more.
        kind = EXCEPTIONS[classify_status(told or 500, words)]
    if kind not in _VAGUE:
        return kind
    # The type does not distinguish throttling and context overflow; the message does.
    if is_throttled(words):
        return RateLimitError
    codes = (code, error.get("code"))
    too_long = any(
        is_overflow(words, status=status, code=word) for word in codes if word is None or isinstance(word, str)
    )
    return ContextOverflowError if too_long else kind


def _find_error(text: str) -> tuple[dict[str, Any], str | None] | None:
    """Find the error object of a body and its request id; the error may also be the body itself, or a string."""
    try:
        body: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    fields = cast(dict[str, Any], body)
    error, request_id = fields.get("error"), fields.get("request_id")
    if isinstance(error, str):
        error = {"message": error}
    elif not isinstance(error, dict):
        if not ("message" in fields and fields.get("type") != "message"):
            return None
        error = fields
    return cast(dict[str, Any], error), request_id if isinstance(request_id, str) else None


def _find_status(status: int, error: dict[str, Any]) -> int:
    """Return the status that an error with HTTP status 200 names, if any."""
    for name in ("status", "code", "status_code"):
        code = error.get(name)
        if status < 400 and isinstance(code, int) and 400 <= code < 600:
            return code
    return status


def _add_reset_header(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Add the latest reset time of the limits that are used up; Anthropic sends one for each limit."""
    resets = [
        headers[f"anthropic-ratelimit-{limit}-reset"]
        for limit in ("requests", "tokens", "input-tokens", "output-tokens")
        if headers.get(f"anthropic-ratelimit-{limit}-remaining") == "0"
        and f"anthropic-ratelimit-{limit}-reset" in headers
    ]
    return {**headers, "x-ratelimit-reset-after": max(resets)} if resets else headers
