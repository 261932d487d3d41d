"""What only the errors of the Anthropic Messages API say."""

from __future__ import annotations

import pytest
from tests.provider.wires.anthropic.kit import MODEL

from steersman.provider.wires.anthropic.errors import classify_response


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:40 GMT"}, 10.0),
        ({"remaining": "0", "reset": "1970-01-01T00:01:00Z"}, 30.0),
        ({"remaining": "9", "reset": "1970-01-01T00:01:00Z"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait: float | None) -> None:
    """failures.md E1: the API says of each limit what is left of it, and when it begins anew."""
    given = {name if "-" in name else f"anthropic-ratelimit-tokens-{name}": value for name, value in headers.items()}
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"Something."}}'
    assert classify_response(MODEL, 429, given, body, clock=lambda: 30.0).info.retry_after == wait
