"""What OpenAI's errors mean, whether they come as a status, as an event, or as a failed response."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from steersman.provider.http.errors import is_html_page, not_a_stream_error, suggest_fix
from steersman.provider.http.headers import find_request_id, should_retry
from steersman.provider.wires.overflow import is_overflow, is_throttled
from steersman.provider.wires.retry_after import classify_status, parse_retry_after
from steersman.types.errors import EXCEPTIONS, ErrorKind, ProtocolError, ProviderError
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

# Codes and types of errors, wherever they stand; the status decides about the rest.
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
    "previous_response_not_found": "invalid_request",
}

_SHOWN = 2_000


class ErrorFields(msgspec.Struct):
    """An error as servers tell it; compatible ones put a status where OpenAI has a word."""

    message: Any = None
    type: Any = None
    code: Any = None
    param: Any = None


class _Body(msgspec.Struct):
    error: Any = None
    detail: Any = None
    message: Any = None


_bodies: msgspec.json.Decoder[_Body] = msgspec.json.Decoder(_Body)


def parse_error(value: object) -> ErrorFields:
    """An error out of whatever stands where one should."""
    if isinstance(value, str):
        return ErrorFields(message=value)
    if not isinstance(value, Mapping):
        return ErrorFields()
    return msgspec.convert(value, ErrorFields)


def classify_response(
    model: Model, status: int, headers: Mapping[str, str], body: bytes, *, clock: Callable[[], float] = time.time
) -> ProviderError:
    """What a response that is no stream means: an error status, a JSON error inside a 200, a page of HTML."""
    text = body.decode("utf-8", "replace").strip()
    given = {name.lower(): value for name, value in headers.items()}
    said = _find_error(body)
    if said is None and status < 400:
        return not_a_stream_error(model, status, given, text)
    if said is None:
        said = ErrorFields(message="" if is_html_page(text) else text)
    embedded = _find_status(said)
    if status < 400 and embedded is not None:
        status = embedded
    wait = parse_retry_after(given, clock=clock, body=text, limited=status == 429)
    return _build_error(model, said, status=status, headers=given, body=text, wait=wait)


def classify_event(model: Model, said: ErrorFields, *, body: str) -> ProviderError:
    """What an error inside a stream means: the stream's own status is 200 and says nothing."""
    wait = parse_retry_after({}, clock=time.time, body=said.message if isinstance(said.message, str) else "")
    return _build_error(model, said, status=_find_status(said), headers={}, body=body, wait=wait)


def build_malformed_error(model: Model, what: str, text: str) -> ProtocolError:
    """An error that shows the beginning of what came instead."""
    shown = redact_key_patterns(text, _SHOWN)
    return ProtocolError(f"{model.name} {what}: {shown[:200]!r}.", provider=model.provider, body=shown or None)


def _find_error(body: bytes) -> ErrorFields | None:
    """The error that a JSON body tells, or `None` when it tells none."""
    try:
        read = _bodies.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    found = read.error or read.detail or read.message
    return parse_error(found) if found else None


def _find_status(said: ErrorFields) -> int | None:
    return said.code if isinstance(said.code, int) and 400 <= said.code < 600 else None


def _build_error(
    model: Model, said: ErrorFields, *, status: int | None, headers: Mapping[str, str], body: str, wait: float | None
) -> ProviderError:
    words = said.message.strip() if isinstance(said.message, str) else ""
    codes = [word for word in (said.code, said.type) if isinstance(word, str) and word]
    kind = _classify_kind(words or body, codes, status)
    shown = redact_key_patterns(words, _SHOWN) or (f"HTTP status {status}" if status else "an error without words")
    text = f"{model.name}: {shown}" + (f" ({codes[0]})" if codes else "")
    if what_to_do := suggest_fix(model.provider, kind, body):
        text = f"{text}. {what_to_do}"
    return EXCEPTIONS[kind](
        text,
        provider=model.provider,
        status=status,
        request_id=find_request_id(headers),
        retry_after=wait,
        retryable=should_retry(headers),
        body=redact_key_patterns(body, _SHOWN) or None,
    )


def _classify_kind(words: str, codes: Sequence[str], status: int | None) -> ErrorKind:
    known: list[ErrorKind] = [_KINDS[code] for code in codes if code in _KINDS]
    if "quota" in known:
        return "quota"
    if is_throttled(words):
        return "rate_limit"
    if any(is_overflow(words, status=status, code=code) for code in codes or [""]):
        return "context_overflow"
    for kind in known:
        # `invalid_request_error` is also the type of errors whose status says more.
        if kind != "invalid_request" or status is None:
            return kind
    if status is not None:
        return classify_status(status)
    # Without a code or a status a failure inside a stream is the server's.
    return "invalid_request" if codes else "overloaded"
