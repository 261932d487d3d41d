"""What Gemini's errors mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from steersman.provider.wires.google.wire import WIRE
from steersman.types.errors import ErrorInfo
from steersman.types.model import Model

MODEL = Model("google", "gemini-2.5-flash")
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}
PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaMetric": "m", "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
PER_MINUTE = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaMetric": "m", "quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}],
}
WRONG_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


def error(
    status: int, message: str = "It failed.", *, code: int | None = None, details: Any = None, **more: Any
) -> tuple[int, Any]:
    body: Any = {"error": {"code": code or status, "message": message, "status": "X", "details": details or [], **more}}
    return status, body


def read(status: int, body: Any, headers: dict[str, str] | None = None) -> ErrorInfo:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return WIRE.error(MODEL, status, headers or {}, raw).info


TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
CASES: list[tuple[Any, str, bool]] = [
    (error(400, "Invalid value at 'contents'"), "invalid_request", False),
    (error(400, "API key not valid. Please pass a valid API key.", details=[WRONG_KEY]), "authentication", False),
    (error(400, "API key expired. Please renew the API key."), "authentication", False),
    (error(400, "Bad Request", details=[WRONG_KEY]), "authentication", False),
    (error(401), "authentication", False),
    (error(403, "Method doesn't allow unregistered callers"), "authentication", False),
    (error(404, "models/x is not found for API version v1beta"), "invalid_request", False),
    (error(400, "User location is not supported for the API use."), "invalid_request", False),
    (error(400, TOO_LONG), "context_overflow", False),
    (error(413, "Request payload size exceeds the limit"), "context_overflow", False),
    (error(429, "You exceeded your current quota", details=[RETRY_INFO, PER_MINUTE]), "rate_limit", True),
    (error(429, "You exceeded your current quota", details=[RETRY_INFO, PER_DAY]), "quota", False),
    (error(429, "Quota exceeded for quota metric 'input token count exceeds'"), "rate_limit", True),
    (error(408), "stalled", True),
    (error(409), "overloaded", True),
    (error(500, "An internal error has occurred."), "overloaded", True),
    (error(502), "overloaded", True),
    (error(503, "The model is overloaded. Please try again later."), "overloaded", True),
    (error(504), "overloaded", True),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "retried"), CASES, ids=lambda case: str(case)[:60])
def test_an_error_is_told_apart_by_status_and_words(given: Any, kind: str, retried: bool) -> None:
    """failures.md E2 and E6."""
    status, body = given
    info = read(status, body)
    assert (info.kind, info.should_retry, info.status, info.provider) == (kind, retried, status, "google")
    assert info.message.startswith(f"google:gemini-2.5-flash: {body['error']['message']}".rstrip("."))
    assert ("Check the key" in info.message) is (kind == "authentication")
    # The same error in a list of one, as the API sends it when it was asked for a stream.
    assert read(status, [body]) == msgspec.structs.replace(info, body=f"[{info.body}]")


@pytest.mark.parametrize(("code", "kind"), [(429, "rate_limit"), (503, "overloaded"), (400, "invalid_request")])
def test_an_error_inside_a_200_is_what_it_says(code: int, kind: str) -> None:
    """failures.md B10."""
    info = read(200, {"error": {"code": code, "message": "No."}}, {"content-type": "application/json"})
    assert (info.kind, info.status) == (kind, code)
    worded = read(200, {"error": {"status": "UNAVAILABLE", "message": "No."}})
    assert (worded.kind, worded.status) == ("overloaded", 503)


DELAYS: list[tuple[Any, dict[str, str], float | None]] = [
    (error(429, details=[RETRY_INFO]), {}, 34.074824224),
    (error(429, details=[RETRY_INFO]), {"retry-after": "5"}, 34.074824224),
    (error(429), {"Retry-After": "5"}, 5.0),
    (error(429, "Please retry in 850ms."), {}, 0.85),
    (error(429, "Please retry in 21.5s."), {}, 21.5),
    (error(429, details=[{"retryDelay": "soon"}]), {}, None),
    (error(429, details=[{"retryDelay": 5}, "x"]), {}, None),
    (error(429), {}, None),
]


@pytest.mark.parametrize(("given", "headers", "delay"), DELAYS)
def test_the_delay_is_read_in_all_its_forms(given: Any, headers: dict[str, str], delay: float | None) -> None:
    """failures.md E1."""
    status, body = given
    assert read(status, body, headers).retry_after == delay


def test_the_servers_own_word_on_retrying_wins() -> None:
    """failures.md E4."""
    assert read(*error(400), {"x-should-retry": "true"}).should_retry
    assert not read(*error(500), {"X-Should-Retry": "false"}).should_retry


def test_a_page_or_another_json_is_no_answer() -> None:
    """failures.md B10."""
    page = read(200, b"<html><body>Sign in</body></html>", {"content-type": "text/html"})
    assert (page.kind, page.status) == ("protocol", 200)
    assert page.message == (
        "google:gemini-2.5-flash answered 200 with 'text/html' instead of a stream of events: "
        "'<html><body>Sign in</body></html>'. Check base_url, and any proxy on the way."
    )
    assert read(200, b'{"hello": 1}', {"content-type": "application/json"}).kind == "protocol"
    assert read(200, b"", {}).kind == "protocol"
    gateway = read(502, b"<html>Bad Gateway</html>", {"content-type": "text/html", "x-request-id": "r1"})
    assert (gateway.kind, gateway.request_id, gateway.message) == (
        "overloaded",
        "r1",
        "google:gemini-2.5-flash: HTTP status 502",
    )
    assert read(503, b"upstream connect error").message == "google:gemini-2.5-flash: upstream connect error"


@pytest.mark.parametrize(
    "body", [b"[]", b"[1]", b"null", b'{"error": null}', b'{"error": "no"}', b"\xff", b"[" * 100_000]
)
def test_odd_bodies_are_errors_of_their_status(body: bytes) -> None:
    assert read(500, body).kind == "overloaded"
    assert len(read(500, body).body or "") <= 2_000


def test_what_looks_like_a_key_is_not_shown() -> None:
    """failures.md L13."""
    key = "AIzaSyD-0123456789abcdefghijklmnopqrstu"
    info = read(*error(403, f"Key {key} is not allowed; Bearer ya29.a0123456789_abc"))
    assert key not in repr(info)
    assert "ya29" not in repr(info)
    assert info.message == (
        "google:gemini-2.5-flash: Key [redacted] is not allowed; [redacted]. "
        "Check the key: api_key=..., or the variable GEMINI_API_KEY or GOOGLE_API_KEY."
    )
