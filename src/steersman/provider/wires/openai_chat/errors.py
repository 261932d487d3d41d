"""Classifies errors of Chat Completions servers: an error status, an error in a stream, a 200 with JSON or HTML."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from steersman.provider.http.errors import build_not_a_stream_error, is_html_page, suggest_fix
from steersman.provider.http.headers import find_request_id, should_retry
from steersman.provider.wires.overflow import is_overflow, is_throttled
from steersman.provider.wires.retry_after import classify_status, may_refine, parse_retry_after
from steersman.types.errors import EXCEPTIONS, ErrorKind, ProviderError
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

# Values of `code` and `type` that say more than the status; those in `_TYPES` count only without a status.
_CODES: dict[str, ErrorKind] = {
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "insufficient_quota": "quota",
    "insufficient_balance": "quota",
    "content_filter": "refused",
    "content_policy_violation": "refused",
    "invalid_api_key": "authentication",
    "rate_limit_exceeded": "rate_limit",
    "insufficient_system_resource": "overloaded",
    "overloaded_error": "overloaded",
    "server_overloaded": "overloaded",
    "tool_use_failed": "incomplete",  # Groq could not parse the call that the model wrote: another attempt may succeed
}
_TYPES: dict[str, ErrorKind] = {
    "authentication_error": "authentication",
    "invalid_request_error": "invalid_request",
    "not_found_error": "invalid_request",
    "permission_error": "authentication",
    "rate_limit_error": "rate_limit",
    "requests": "rate_limit",
    "tokens": "rate_limit",
    "network_error": "network",
}

IN_STREAM = frozenset(("insufficient_system_resource", "network_error"))
"""The finish reasons that are errors of the server; a retry may succeed."""

_SHOWN = 500


def classify_response(
    model: Model, status: int, headers: Mapping[str, str], body: bytes, *, clock: Callable[[], float] = time.time
) -> ProviderError:
    """Classify a response that is not a stream."""
    given = {name.lower(): value for name, value in headers.items()}
    text = body.decode("utf-8", "replace").strip()
    error = _find_error(text)
    if error is None and status < 400:
        return build_not_a_stream_error(model, status, given, text)
    if error is None:
        error = {} if is_html_page(text) else {"message": text}
    if status < 400:
        status = _find_status(error) or status
    return _build_error(
        model,
        error,
        text,
        status=status,
        headers=given,
        retry_after=parse_retry_after(given, clock=clock, body=text, limited=status == 429),
    )


def classify_event(model: Model, data: str) -> ProviderError:
    """Classify an error inside a stream, whose status was 200; without a reason it counts as temporary."""
    error = _find_error(data) or {"message": data}
    return _build_error(
        model, error, data, status=_find_status(error), retry_after=parse_retry_after({}, clock=time.time, body=data)
    )


def _build_error(
    model: Model,
    error: Mapping[str, Any],
    text: str,
    *,
    status: int | None,
    headers: Mapping[str, str] | None = None,
    retry_after: float | None = None,
) -> ProviderError:
    upstream = find_upstream_error(error.get("metadata"))
    words = join_words(_find_message(error), upstream)
    reason = words or (f"HTTP status {status}" if status else "an error without a message")
    kind = _classify_kind((error, upstream), words or text, status)
    shown = f"{model.name}: {redact_key_patterns(reason, _SHOWN)}"
    if what_to_do := suggest_fix(model.provider, kind, text):
        shown = f"{shown.rstrip('.')}. {what_to_do}"
    return EXCEPTIONS[kind](
        shown,
        provider=model.provider,
        status=status,
        request_id=find_request_id(headers or {}),
        retry_after=retry_after,
        retryable=should_retry(headers or {}),
        body=redact_key_patterns(text, _SHOWN) or None,
    )


def _classify_kind(errors: Sequence[Mapping[str, Any]], words: str, status: int | None) -> ErrorKind:
    """Classify an error and the error of the server behind it: a code says more than the status, a type less."""
    codes = [code.lower() for error in errors if isinstance(code := error.get("code"), str)]
    types = [name.lower() for error in errors if isinstance(name := error.get("type"), str)]
    known: list[ErrorKind] = [_CODES[code] for code in codes if code in _CODES]
    known.extend(_CODES[name] for name in types if name in _CODES and may_refine(status, _CODES[name]))
    if known:
        return known[0]
    if is_throttled(words):
        return "rate_limit"
    if any(is_overflow(words, status=status, code=word) for word in (*codes, *types, None)):
        return "context_overflow"
    if status is not None and status >= 400:
        return classify_status(status, words)
    for name in types:
        if name in _TYPES:
            return _TYPES[name]
    return "overloaded"


def find_upstream_error(metadata: object) -> Mapping[str, Any]:
    """Find the error of the server behind a gateway: OpenRouter quotes it in `metadata.raw`, as JSON or as words."""
    fields: Mapping[str, Any] = cast(Mapping[str, Any], metadata) if isinstance(metadata, Mapping) else {}
    raw: object = fields.get("raw")
    if isinstance(raw, Mapping | list):
        raw = msgspec.json.encode(cast(object, raw)).decode()
    if not isinstance(raw, str) or not raw.strip():
        return {}
    # Some quote a server-sent event, with its JSON behind the name of a field.
    found = _find_error(raw) or _find_error(raw[raw.find("{") :])
    return {**(found or ({} if is_html_page(raw) else {"message": raw})), "server": fields.get("provider_name")}


def join_words(words: str, upstream: Mapping[str, Any]) -> str:
    """Join the words of a gateway with those of the server behind it, and that server's name."""
    more, server = _find_message(upstream), upstream.get("server")
    if not more or more in words:
        return words
    said = f"{server}: {more}" if isinstance(server, str) and server else more
    return f"{words.rstrip('.')}. {said}" if words else said


def _find_error(text: str) -> dict[str, Any] | None:
    """Find the error in a body or an event, in any of the forms that servers use; `None` if there is none."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = cast(list[object], value)[0]
    if not isinstance(value, dict):
        return None
    fields = cast(dict[str, Any], value)
    choices = fields.get("choices")
    if isinstance(choices, list) and choices and not fields.get("error"):
        return _find_choice_error(cast(list[Any], choices)[0])
    error: object = fields.get("error")
    if isinstance(error, dict):
        return cast(dict[str, Any], error)
    if isinstance(error, str) and error:
        return {**fields, "message": error}
    if "detail" in fields and "message" not in fields:
        return {"message": fields["detail"]}
    return fields if "message" in fields and "choices" not in fields else None


def _find_choice_error(choice: Any) -> dict[str, Any] | None:
    if not isinstance(choice, dict):
        return None
    fields = cast(dict[str, Any], choice)
    error: object = fields.get("error")
    if isinstance(error, dict):
        return cast(dict[str, Any], error)
    reason = fields.get("finish_reason")
    if isinstance(reason, str) and reason in IN_STREAM:
        return {"message": f"the server ended the answer early (finish_reason {reason!r})", "type": reason}
    return None


def _find_message(error: Mapping[str, Any]) -> str:
    message = error.get("message")
    if isinstance(message, str):
        return message.strip()
    return "" if message is None else msgspec.json.encode(message).decode()


def _find_status(error: Mapping[str, Any]) -> int | None:
    """Return the status that the error itself names."""
    for name in ("code", "status", "status_code"):
        value = error.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return None
