"""Classifies errors of Bedrock: a response whose header names the exception, or an exception inside a stream."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from steersman.provider.http.errors import (
    MAX_BODY,
    build_classified_error,
    build_not_a_stream_error,
    is_html_page,
    suggest_fix,
)
from steersman.provider.wires.overflow import is_overflow
from steersman.provider.wires.retry_after import LONGEST_WORDS, classify_status, parse_retry_after
from steersman.types.errors import ErrorKind, ProviderError
from steersman.types.model import Model
from steersman.types.secrets import redact_key_patterns

# The status of an exception inside a stream, and of one that says more than its status.
_STATUS: dict[str, int] = {
    "AccessDeniedException": 403,
    "ExpiredTokenException": 403,
    "InternalServerException": 500,
    "ModelErrorException": 424,
    "ModelNotReadyException": 429,
    "ModelStreamErrorException": 424,
    "ModelTimeoutException": 408,
    "ResourceNotFoundException": 404,
    "ServiceQuotaExceededException": 400,
    "ServiceUnavailableException": 503,
    "ThrottlingException": 429,
    "ValidationException": 400,
}
_KINDS: dict[str, ErrorKind] = {
    "AccessDeniedException": "authentication",
    "ExpiredTokenException": "authentication",
    "IncompleteSignature": "authentication",
    "IncompleteSignatureException": "authentication",
    "InvalidClientTokenId": "authentication",
    "InvalidSignatureException": "authentication",
    "MissingAuthenticationTokenException": "authentication",
    "SignatureDoesNotMatch": "authentication",
    "UnrecognizedClientException": "authentication",
    "ServiceQuotaExceededException": "quota",
    "ModelErrorException": "overloaded",
    "ModelNotReadyException": "overloaded",
    "ModelStreamErrorException": "overloaded",
    "ModelTimeoutException": "stalled",
    "ThrottlingException": "rate_limit",
}
# A limit that time alone lifts, but not within a backoff.
_DAILY = re.compile(r"(?:tokens|requests) per day|daily (?:token )?(?:limit|quota)", re.IGNORECASE)


def classify_response(model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Classify a response that is not a stream."""
    text = body.decode("utf-8", "replace")
    given = {name.lower(): value for name, value in headers.items()}
    fields = _parse(text)
    name = _find_name(given, fields)
    if status < 400 and not name and not fields.get("error"):
        return build_not_a_stream_error(model, status, given, text)
    known = status if status >= 400 else _STATUS.get(name, 500)
    words = _find_message(fields) or ("" if fields or is_html_page(text) else text.strip())
    return _build_error(model, name, words, known, given, text)


def classify_exception(model: Model, name: str, data: str) -> ProviderError:
    """Classify an exception inside a stream, whose status was 200; `name` is its type."""
    name = name[:1].upper() + name[1:]
    fields = _parse(data)
    words = _find_message(fields) or ("" if fields else data.strip())
    original = fields.get("originalStatusCode")
    known = _STATUS.get(name, 500)
    if known == 424 and isinstance(original, int) and 400 <= original < 500 and is_overflow(words, status=original):
        known = original
    return _build_error(model, name, words, known, {}, data)


def _build_error(
    model: Model, name: str, words: str, status: int, headers: Mapping[str, str], body: str
) -> ProviderError:
    kind = _classify_kind(name, words or body, status)
    said = redact_key_patterns(words, MAX_BODY) or f"HTTP status {status}"
    text = f"{model.name}: {said}" + (f" ({name})" if name else "")
    if what_to_do := suggest_fix(model.provider, kind, body):
        text = f"{text.rstrip('.')}. {what_to_do}"
    wait = parse_retry_after(headers, clock=time.time, body=body, limited=status == 429)
    return build_classified_error(model, kind, text, status=status, headers=headers, retry_after=wait, body=body)


def _classify_kind(name: str, words: str, status: int) -> ErrorKind:
    kind = _KINDS.get(name) or classify_status(status)
    if kind == "rate_limit" and _DAILY.search(words[:LONGEST_WORDS]):
        return "quota"
    if kind in ("invalid_request", "overloaded") and status < 500 and is_overflow(words, status=status):
        return "context_overflow"
    return kind


def _parse(text: str) -> dict[str, Any]:
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _find_name(headers: Mapping[str, str], fields: Mapping[str, Any]) -> str:
    """The name of the exception, such as ThrottlingException; AWS adds a URL or a namespace to it in places."""
    given: Any = headers.get("x-amzn-errortype") or fields.get("__type") or fields.get("code") or ""
    return str(given).partition(":")[0].rpartition("#")[2].strip() if isinstance(given, str) else ""


def _find_message(fields: Mapping[str, Any]) -> str:
    """The words of an error; a gateway may wrap it in an object of its own."""
    error: Any = fields.get("error")
    inner = cast(Mapping[str, Any], error) if isinstance(error, Mapping) else {"message": error}
    for words in (fields.get("message"), fields.get("Message"), fields.get("originalMessage"), inner.get("message")):
        if isinstance(words, str) and words.strip():
            return words.strip()
    return ""
