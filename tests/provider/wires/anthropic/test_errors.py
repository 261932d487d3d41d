"""What the errors of the Anthropic Messages API mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.provider.wires.anthropic.kit import FIXTURES, MODEL

from steersman.provider.wires.anthropic.errors import classify_response
from steersman.provider.wires.anthropic.wire import WIRE
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.model import Model

URL = Model("anthropic", "claude-sonnet-4-5", base_url="http://127.0.0.1:1")


def info(status: int, body: Any, **headers: str) -> ErrorInfo:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return WIRE.error(URL, status, given, raw).info


def error(kind: str, message: str = "Something.", **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("status", "name", "kind", "retried"),
    [
        (400, "invalid_request_error", "invalid_request", False),
        (401, "authentication_error", "authentication", False),
        (402, "billing_error", "quota", False),
        (403, "permission_error", "authentication", False),
        (404, "not_found_error", "invalid_request", False),
        (409, "conflict_error", "overloaded", True),
        (413, "request_too_large", "context_overflow", False),
        (429, "rate_limit_error", "rate_limit", True),
        (500, "api_error", "overloaded", True),
        (504, "timeout_error", "overloaded", True),
        (529, "overloaded_error", "overloaded", True),
        (200, "overloaded_error", "overloaded", True),
        (200, "rate_limit_error", "rate_limit", True),
        (418, "new_error", "invalid_request", False),
        (599, "new_error", "overloaded", True),
    ],
)
def test_the_type_of_an_error_says_what_it_is(status: int, name: str, kind: ErrorKind, retried: bool) -> None:
    """failures.md E2, B10: also inside a 200."""
    told = info(status, error(name))
    assert (told.kind, told.should_retry, told.status, told.request_id) == (kind, retried, status, "req_1")
    assert told.message.startswith(f"anthropic:claude-sonnet-4-5: Something. ({name})")


@pytest.mark.parametrize(
    ("status", "retried"),
    [
        *((status, True) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
        *((status, False) for status in (400, 401, 403, 404, 413, 422)),
    ],
)
def test_without_a_type_the_status_says_it(status: int, retried: bool) -> None:
    """failures.md E2."""
    told = info(status, b"<html><h1>Oh no</h1></html>")
    assert told.should_retry is retried
    assert told.message == f"anthropic:claude-sonnet-4-5: HTTP status {status}"


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 196758 + 8192 > 200000",
    ],
)
def test_a_request_that_was_too_long_is_told_apart(words: str) -> None:
    """failures.md E6."""
    assert info(400, error("invalid_request_error", words)).kind == "context_overflow"
    assert info(429, error("rate_limit_error", words)).kind == "rate_limit"


def test_a_spent_limit_is_not_waited_for() -> None:
    told = info(429, error("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}))
    assert (told.kind, told.should_retry) == ("quota", False)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:40 GMT"}, 10.0),
        (
            {"anthropic_ratelimit_tokens_remaining": "0", "anthropic_ratelimit_tokens_reset": "1970-01-01T00:01:00Z"},
            30.0,
        ),
        (
            {"anthropic_ratelimit_tokens_remaining": "9", "anthropic_ratelimit_tokens_reset": "1970-01-01T00:01:00Z"},
            None,
        ),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait: float | None) -> None:
    """failures.md E1."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = msgspec.json.encode(error("rate_limit_error"))
    assert classify_response(MODEL, 429, given, body, clock=lambda: 30.0).info.retry_after == wait


def test_the_servers_word_on_asking_again_wins() -> None:
    """failures.md E4."""
    assert info(400, error("invalid_request_error"), x_should_retry="true").should_retry
    assert not info(500, error("api_error"), x_should_retry="false").should_retry


def test_the_header_names_the_request_best() -> None:
    assert info(500, error("api_error"), request_id="req_2").request_id == "req_2"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"code": 429, "message": "slow down"}}, "rate_limit"),
        ({"error": "busy"}, "overloaded"),
        ({"message": "busy", "status": 503}, "overloaded"),
    ],
)
def test_an_error_inside_a_200_in_other_servers_words(body: Any, kind: ErrorKind) -> None:
    """failures.md B10."""
    told = info(200, body, content_type="application/json")
    assert (told.kind, told.should_retry) == (kind, True)


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"", b'{"type":"message","content":[]}', b"[1]", b"{"])
def test_a_200_that_is_neither_a_stream_nor_an_error_says_what_to_check(body: bytes) -> None:
    """failures.md B10."""
    told = info(200, body, content_type="text/html")
    assert told.kind == "protocol"
    assert "'text/html' instead of a stream of events" in told.message
    assert "Check base_url" in told.message


def test_a_key_that_is_not_ours_is_not_shown_either() -> None:
    """failures.md L13."""
    told = info(401, error("authentication_error", "invalid x-api-key: sk-ant-api03-abcdef"))
    assert "abcdef" not in repr(told)


def test_a_long_body_is_shortened() -> None:
    told = info(500, b"x" * 100_000)
    assert len(told.message) < 700
    assert told.body is not None
    assert len(told.body) < 600


def recorded() -> list[Path]:
    return sorted(FIXTURES.glob("*/anthropic_error_401.json"))


@pytest.mark.parametrize("path", recorded(), ids=lambda path: path.parent.name)
def test_a_recorded_refusal_of_a_key(path: Path) -> None:
    told = WIRE.error(URL, 401, {}, path.read_bytes()).info
    assert told.message == (
        "anthropic:claude-sonnet-4-5: Invalid API Key (authentication_error). "
        "Check the key: api_key=..., or the variable ANTHROPIC_API_KEY."
    )
