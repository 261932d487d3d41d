"""What an HTTP status means, where the server's error body does not say it better."""

from __future__ import annotations

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


def kind_of_status(status: int) -> ErrorKind:
    """The kind of error; whether it is retried follows from it."""
    return _KINDS.get(status) or ("overloaded" if status >= 500 else "invalid_request")
