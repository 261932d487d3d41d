"""What only Gemini's errors say."""

from __future__ import annotations

from typing import Any

from tests.provider.wires.protocols import READINGS
from tests.rows import each_row

RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}


@each_row(
    ("message", "details", "headers", "delay"),
    [
        ("It failed.", [RETRY_INFO], {}, 34.074824224),
        ("It failed.", [RETRY_INFO], {"retry-after": "5"}, 34.074824224),
        ("It failed.", [], {"Retry-After": "5"}, 5.0),
        ("Please retry in 850ms.", [], {}, 0.85),
        ("Please retry in 21.5s.", [], {}, 21.5),
        ("It failed.", [{"retryDelay": "soon"}], {}, None),
        ("It failed.", [{"retryDelay": 5}, "x"], {}, None),
        ("It failed.", [], {}, None),
    ],
)
def test_the_delay_is_read_in_all_its_forms(
    message: str, details: list[Any], headers: dict[str, str], delay: float | None
) -> None:
    """failures.md E1."""
    body = {"error": {"code": 429, "message": message, "details": details}}
    assert READINGS["google"].error_of(429, body, headers).retry_after == delay
