"""What a response that is not a stream means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.provider.wires.openai_chat.chat import FIXTURES

from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.types.errors import ErrorInfo, ProviderError
from steersman.types.model import Model

MODEL = Model("openai-chat", "m", base_url="http://127.0.0.1:8000/v1")
JSON = {"content-type": "application/json"}


def error(status: int, body: Any, **headers: str) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WIRE.error(MODEL, status, JSON | {name.replace("_", "-"): value for name, value in headers.items()}, raw)


def said(message: str, type: str | None = None, code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, said("Invalid value", "invalid_request_error"), "invalid_request"),
        (400, said("too long", "invalid_request_error", "context_length_exceeded"), "context_overflow"),
        (400, said("This model's maximum context length is 128000 tokens."), "context_overflow"),
        (400, b"", "context_overflow"),
        (400, said("filtered", code="content_filter"), "refused"),
        (401, said("Incorrect API key provided", code="invalid_api_key"), "authentication"),
        (402, said("Insufficient Balance"), "quota"),
        (403, said("no"), "authentication"),
        (404, said("The model does not exist", code="model_not_found"), "invalid_request"),
        (408, said("timeout"), "stalled"),
        (409, said("conflict"), "overloaded"),
        (413, b"<html>too large</html>", "context_overflow"),
        (422, {"detail": [{"loc": ["body", "x"], "msg": "extra"}]}, "invalid_request"),
        (422, {"object": "error", "message": "bad", "type": "invalid_request_error", "code": 422}, "invalid_request"),
        (429, said("Rate limit reached", "requests", "rate_limit_exceeded"), "rate_limit"),
        (429, said("Request too large: tokens per min", "tokens", "rate_limit_exceeded"), "rate_limit"),
        (429, said("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), "quota"),
        (500, said("oops", "server_error"), "overloaded"),
        (502, b"<html>Bad Gateway</html>", "overloaded"),
        (503, {"error": "loading"}, "overloaded"),
        (504, b"", "overloaded"),
        (529, b"", "overloaded"),
        (200, said("slow down", code=429), "rate_limit"),
        (200, said("slow down", "requests", "rate_limit_exceeded"), "rate_limit"),
        (200, said("busy"), "overloaded"),
        (200, {"error": "busy"}, "overloaded"),
        (200, [said("busy", code=503)], "overloaded"),
        (200, b"<!doctype html><title>Log in</title>", "protocol"),
        (200, b"hello", "protocol"),
        (200, {"type": "message", "content": []}, "protocol"),
        (200, {"id": "x", "object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]}, "protocol"),
        (200, b"", "protocol"),
        (204, b"", "protocol"),
    ],
    ids=range(33),
)
def test_a_response_is_classified(status: int, body: Any, kind: str) -> None:
    """failures.md B10, E2, E6."""
    info = error(status, body).info
    assert (info.kind, info.provider) == (kind, "openai-chat")


def test_an_error_is_told_in_full() -> None:
    body = said("Rate limit reached for m. Please try again in 850ms.", "requests", "rate_limit_exceeded")
    assert error(429, body, x_request_id="req_1").info == ErrorInfo(
        "rate_limit",
        "openai-chat:m: Rate limit reached for m. Please try again in 850ms.",
        "openai-chat",
        429,
        "req_1",
        0.85,
        None,
        json.dumps(body),
    )


@pytest.mark.parametrize(("word", "retryable"), [("true", True), ("false", False), ("maybe", None)])
def test_the_servers_own_word_on_retrying_is_kept(word: str, retryable: bool | None) -> None:
    """failures.md E4."""
    assert error(400, said("x"), x_should_retry=word).info.retryable is retryable


def test_retry_after_is_read_from_the_headers() -> None:
    """failures.md E1."""
    assert error(429, said("x"), retry_after="7").info.retry_after == 7
    assert error(429, said("x"), retry_after_ms="1500", retry_after="7").info.retry_after == 1.5


def test_a_page_instead_of_a_stream_says_what_to_check() -> None:
    text = str(error(200, b"<html>Log in</html>", content_type="text/html"))
    assert "'text/html'" in text
    assert "Check base_url" in text


def test_no_key_is_shown_even_if_the_server_quotes_it() -> None:
    """failures.md L13."""
    problem = error(401, said("Incorrect API key provided: sk-proj-abcdef123456. Bearer sk-other-secret99"))
    assert "abcdef" not in f"{problem}{problem.info}"
    assert "secret99" not in f"{problem}{problem.info}"


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("openai_error_400_bad_json", 400, "invalid_request"),
        ("openai_error_400_no_messages", 400, "invalid_request"),
        ("openai_error_401", 401, "authentication"),
        ("openai_error_404", 404, "invalid_request"),
        ("openai_error_context_exceeded", 400, "context_overflow"),
    ],
)
@pytest.mark.parametrize("model", ["llamacpp-qwen0.5b", "llamacpp-smollm2"])
def test_a_recorded_error_is_classified(model: str, name: str, status: int, kind: str) -> None:
    assert error(status, (FIXTURES / model / f"{name}.json").read_bytes()).info.kind == kind
