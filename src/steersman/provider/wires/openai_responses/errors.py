"""Classifies errors of the OpenAI Responses API: an error status, an error event, or a failed response."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from steersman.provider.http.errors import (
    MAX_BODY,
    build_classified_error,
    build_not_a_stream_error,
    is_html_page,
    suggest_fix,
)
from steersman.provider.wires.openai_chat.errors import find_upstream_error, join_words
from steersman.provider.wires.overflow import is_overflow, is_throttled
from steersman.provider.wires.retry_after import classify_status, may_refine, parse_retry_after
from steersman.types.errors import ErrorKind, ProtocolError, ProviderError
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

# Values of `code` and `type`; for all others the status decides.
_KINDS: dict[str, ErrorKind] = {
    "authentication_error": "authentication",
    "invalid_api_key": "authentication",
    "permission_error": "authentication",
    "billing_hard_limit_reached": "quota",
    "insufficient_quota": "quota",
    "quota_exceeded": "quota",
    "usage_limit_reached": "quota",
    "usage_not_included": "quota",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "slow_down": "overloaded",
    "overloaded_error": "overloaded",
    "server_error": "overloaded",
    "server_is_overloaded": "overloaded",
    "vector_store_timeout": "overloaded",
    "internal_server_error": "overloaded",
    "bio_policy": "refused",
    "content_filter": "refused",
    "content_policy_violation": "refused",
    "cyber_policy_violation": "refused",
    "image_content_policy_violation": "refused",
    "invalid_prompt": "refused",
    "misalignment_policy_violation": "refused",
    "data_residency_mismatch": "invalid_request",
    "invalid_request_error": "invalid_request",
    "model_not_found": "invalid_request",
    "tool_use_failed": "incomplete",
    "previous_response_not_found": "invalid_request",
}


class ErrorFields(msgspec.Struct):
    """The fields of an error; compatible servers put a status into `code`."""

    message: Any = None
    type: Any = None
    code: Any = None
    param: Any = None
    metadata: Any = None


class _Body(msgspec.Struct):
    error: Any = None
    detail: Any = None
    message: Any = None


_bodies: msgspec.json.Decoder[_Body] = msgspec.json.Decoder(_Body)


def parse_error(value: object) -> ErrorFields:
    """Parse an error object, or a string in its place."""
    if isinstance(value, str):
        return ErrorFields(message=value)
    if not isinstance(value, Mapping):
        return ErrorFields()
    return msgspec.convert(value, ErrorFields)


def classify_response(
    model: Model, status: int, headers: Mapping[str, str], body: bytes, *, clock: Callable[[], float] = time.time
) -> ProviderError:
    """Classify a response that is not a stream: an error status, a JSON error with status 200, an HTML page."""
    text = body.decode("utf-8", "replace").strip()
    given = {name.lower(): value for name, value in headers.items()}
    error = _find_error(body)
    if error is None and status < 400:
        return build_not_a_stream_error(model, status, given, text)
    if error is None:
        error = ErrorFields(message="" if is_html_page(text) else text)
    embedded = _find_status(error)
    if status < 400 and embedded is not None:
        status = embedded
    wait = parse_retry_after(given, clock=clock, body=text, limited=status == 429)
    return _build_error(model, error, status=status, headers=given, body=text, wait=wait)


def classify_event(model: Model, error: ErrorFields, *, body: str) -> ProviderError:
    """Classify an error event of a stream, whose status was 200."""
    wait = parse_retry_after({}, clock=time.time, body=error.message if isinstance(error.message, str) else "")
    return _build_error(model, error, status=_find_status(error), headers={}, body=body, wait=wait)


def build_malformed_error(model: Model, what: str, data: str) -> ProtocolError:
    """Build a protocol error that shows the beginning of the malformed data."""
    shown = redact_key_patterns(data, MAX_BODY)
    return ProtocolError(
        f"{model.name} sent {what} that does not match its protocol: {shown[:200]!r}.",
        provider=model.provider,
        body=shown or None,
    )


def _find_error(body: bytes) -> ErrorFields | None:
    """Find the error in a JSON body, or return `None`."""
    try:
        read = _bodies.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    found = read.error or read.detail or read.message
    return parse_error(found) if found else None


def _find_status(error: ErrorFields) -> int | None:
    return error.code if isinstance(error.code, int) and 400 <= error.code < 600 else None


def _build_error(
    model: Model, error: ErrorFields, *, status: int | None, headers: Mapping[str, str], body: str, wait: float | None
) -> ProviderError:
    upstream = find_upstream_error(error.metadata)
    words = join_words(error.message.strip() if isinstance(error.message, str) else "", upstream)
    codes = [word for word in (error.code, upstream.get("code")) if isinstance(word, str) and word]
    types = [word for word in (error.type, upstream.get("type")) if isinstance(word, str) and word]
    kind = _classify_kind(words or body, codes, types, status)
    codes += types
    shown = redact_key_patterns(words, MAX_BODY) or (
        f"HTTP status {status}" if status else "an error without a message"
    )
    text = f"{model.name}: {shown}" + (f" ({codes[0]})" if codes else "")
    if what_to_do := suggest_fix(model.provider, kind, body):
        text = f"{text}. {what_to_do}"
    return build_classified_error(model, kind, text, status=status, headers=headers, retry_after=wait, body=body)


def _classify_kind(words: str, codes: Sequence[str], types: Sequence[str], status: int | None) -> ErrorKind:
    """Classify an error: a code says more than the status, a type less, and a status of 200 says nothing."""
    status = status if status is not None and status >= 400 else None
    known: list[ErrorKind] = [_KINDS[code.lower()] for code in codes if code.lower() in _KINDS]
    known.extend(kind for name in types if (kind := _KINDS.get(name.lower())) and may_refine(status, kind))
    if "quota" in known:
        return "quota"
    if is_throttled(words):
        return "rate_limit"
    if any(is_overflow(words, status=status, code=code) for code in (*codes, *types, "")):
        return "context_overflow"
    for kind in known:
        # `invalid_request_error` is also the type of errors whose status says more.
        if kind != "invalid_request" or status is None:
            return kind
    if status is not None:
        return classify_status(status, words)
    # An error in a stream, or behind a status of 200, without a code is a failure of the server.
    return "invalid_request" if codes or types else "overloaded"
