"""What the OpenAI API answers instead of a stream, and what it means."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.provider.wires.openai_responses.kit import FIXTURES, MODEL

from steersman.provider.wires.openai_responses.wire import WIRE
from steersman.types.errors import ErrorKind

FLAGGED = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
OVERFLOW = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."


def body(message: str | None, type: str = "invalid_request_error", code: Any = None) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": type, "param": None, "code": code}})


CASES: list[tuple[int, bytes, ErrorKind, bool]] = [
    (401, body("Incorrect API key provided: sk-ab****cd.", code="invalid_api_key"), "authentication", False),
    (403, body("Country, region, or territory not supported"), "authentication", False),
    (404, body("The model 'gpt-9' does not exist.", code="model_not_found"), "invalid_request", False),
    (400, body("No tool output found for function call call_1."), "invalid_request", False),
    (400, body(FLAGGED, code="invalid_prompt"), "refused", False),
    (400, body(OVERFLOW, code="context_length_exceeded"), "context_overflow", False),
    (400, body(OVERFLOW), "context_overflow", False),
    (413, b"", "context_overflow", False),
    (408, b"", "stalled", True),
    (409, body("Conflict"), "overloaded", True),
    (422, body("Unprocessable"), "invalid_request", False),
    (429, body("Rate limit reached on tokens per min (TPM)", "tokens", "rate_limit_exceeded"), "rate_limit", True),
    (429, body("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), "quota", False),
    (500, body("The server had an error while processing your request.", "server_error"), "overloaded", True),
    (502, b"<html><body>Bad gateway</body></html>", "overloaded", True),
    (503, body("Slow down", "server_error", "slow_down"), "overloaded", True),
    (504, b"", "overloaded", True),
    (529, b"busy", "overloaded", True),
    (200, body("Rate limit", code=429), "rate_limit", True),
    (200, body("Oops", "server_error", 500), "overloaded", True),
    (200, b"<html>Sign in</html>", "protocol", False),
    (200, b'{"object":"response","status":"completed"}', "protocol", False),
    (200, b"", "protocol", False),
    (400, b'{"detail":"Unsupported parameter"}', "invalid_request", False),
]  # fmt: skip


@pytest.mark.parametrize(("status", "content", "kind", "retried"), CASES)
def test_a_response_says_what_kind_of_failure_it_is(
    status: int, content: bytes, kind: ErrorKind, retried: bool
) -> None:
    """failures.md E2, E5, E6, E9, B10."""
    info = WIRE.error(MODEL, status, {}, content).info
    assert (info.kind, info.should_retry, info.provider) == (kind, retried, "openai")
    assert "openai:gpt-5" in info.message


def test_a_recorded_error_is_read_too() -> None:
    for folder in ("llamacpp-qwen0.5b", "llamacpp-smollm2"):
        info = WIRE.error(MODEL, 400, {}, (FIXTURES / folder / "responses_error_400.json").read_bytes()).info
        assert (info.kind, info.message) == (
            "invalid_request",
            "openai:gpt-5: 'input' is required (invalid_request_error)",
        )
    overflow = (FIXTURES / "llamacpp-qwen0.5b" / "openai_error_context_exceeded.json").read_bytes()
    assert WIRE.error(MODEL, 400, {}, overflow).info.kind == "context_overflow"


def test_the_headers_say_when_and_whether_to_ask_again() -> None:
    """failures.md E1, E4."""
    info = WIRE.error(MODEL, 429, {"Retry-After": "7", "x-request-id": "req_1"}, body("slow", "requests")).info
    assert (info.retry_after, info.request_id, info.status) == (7.0, "req_1", 429)
    assert WIRE.error(MODEL, 400, {"X-Should-Retry": "true"}, body("x")).info.should_retry
    assert not WIRE.error(MODEL, 500, {"x-should-retry": "false"}, body("x", "server_error")).info.should_retry
    words = body("Rate limit reached. Please try again in 850ms.", "tokens", "rate_limit_exceeded")
    assert WIRE.error(MODEL, 429, {}, words).info.retry_after == 0.85


def test_a_key_that_the_server_quotes_is_not_shown() -> None:
    """failures.md L13."""
    info = WIRE.error(
        MODEL, 401, {}, body("Incorrect API key provided: sk-proj-abcdef123. See Bearer abcdefghijk.")
    ).info
    assert "abcdef123" not in f"{info.message}{info.body}"
    assert "abcdefghijk" not in f"{info.message}{info.body}"
    assert "OPENAI_API_KEY" in info.message


def test_a_page_instead_of_a_stream_says_what_to_check() -> None:
    info = WIRE.error(MODEL, 200, {"content-type": "text/html"}, b"<html>" + b"x" * 10_000).info
    assert "text/html" in info.message
    assert "Check base_url" in info.message
    assert len(info.message) < 600
