"""What a failure of a `StreamFn` means: its kind, its status, when to try again."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import cast

import msgspec

from steersman.provider.wires.retry_after import classify_status, parse_retry_after
from steersman.types.errors import ErrorInfo, ProviderError, describe_exception
from steersman.types.stream import Failed
from steersman.types.usage import Usage

# The exceptions of HTTP clients for a broken connection; by name, so that no client has to be imported.
_CONNECTION_ERRORS = frozenset(("ClientConnectionError", "ClientPayloadError", "TransportError", "APIConnectionError"))
_LIMITED = 429


def to_error_info(error: BaseException) -> ErrorInfo:
    """What an exception of a `StreamFn` means: by its kind, else its status, else its class name."""
    words = describe_exception(error)
    if isinstance(error, ProviderError):
        info = error.info if error.info.message else msgspec.structs.replace(error.info, message=words)
        if info.kind == "internal" and info.status is not None:
            return msgspec.structs.replace(info, kind=classify_status(info.status))
        return info
    status: object = getattr(error, "status", getattr(error, "status_code", None))
    if isinstance(status, int):
        return ErrorInfo(classify_status(status), words, status=status, retry_after=_find_retry_after(error, status))
    if isinstance(error, TimeoutError):
        return ErrorInfo("stalled", words)
    if isinstance(error, OSError) or not _CONNECTION_ERRORS.isdisjoint(base.__name__ for base in type(error).__mro__):
        return ErrorInfo("network", words)
    if isinstance(error, EOFError):
        return ErrorInfo("incomplete", words)
    return ErrorInfo("internal", words)


def _find_retry_after(error: BaseException, status: int) -> float | None:
    """The Retry-After of another client's exception, if it holds the headers of the response."""
    headers: object = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    return parse_retry_after(cast(Mapping[str, str], headers), clock=time, limited=status == _LIMITED)


def recognize_overflow(info: ErrorInfo) -> ErrorInfo:
    """Recognize a context overflow that only the message tells."""
    from steersman.provider.wires.overflow import is_overflow  # only a failure pays for it

    if info.kind in ("invalid_request", "internal") and is_overflow(info.message, status=info.status):
        return msgspec.structs.replace(info, kind="context_overflow")
    return info


def get_error_info(failed: Failed) -> ErrorInfo:
    """The error of a failure, from the event or else from its message."""
    if failed.error is not None:
        return failed.error
    message = failed.message
    kind = message.error_kind or ("refused" if message.stop_reason == "refusal" else "internal")
    return ErrorInfo(kind, message.error_message or "The model's answer failed without saying why.")


def get_usage(failed: Failed) -> Usage | None:
    """The usage of the failed attempt, if the provider reported it."""
    return failed.message.usage if failed.message.usage.known else None
