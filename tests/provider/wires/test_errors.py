"""What a response that is no stream means, in every protocol; no sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.provider.wires.protocols import READINGS, SERVERS
from tests.rows import each_row

from steersman.types.errors import ErrorInfo, ErrorKind

FIXTURES = Path(__file__).parents[2] / "fixtures"
JSON = {"content-type": "application/json"}
# Kinds that are asked again where the server does not say otherwise.
PASSING = ("rate_limit", "overloaded", "stalled", "incomplete")


def bedrock(name: str | None = None, message: str = "No.") -> Any:
    """An error of Bedrock; its name is in a header as well, which these tests leave out."""
    return {"message": message} if name is None else {"__type": name, "message": message}


def anthropic(type: str, message: str = "Something.", **more: Any) -> Any:
    return {"type": "error", "error": {"type": type, "message": message, **more}, "request_id": "req_1"}


def google(code: int, message: str = "It failed.", *details: Any) -> Any:
    return {"error": {"code": code, "message": message, "status": "X", "details": list(details)}}


def openai(message: str | None, type: str | None = None, code: Any = None) -> Any:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


# What a status means, whatever the protocol.
STATUSES: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "quota",
    403: "authentication",
    404: "invalid_request",
    408: "stalled",
    409: "overloaded",
    413: "context_overflow",
    418: "invalid_request",
    422: "invalid_request",
    429: "rate_limit",
    500: "overloaded",
    502: "overloaded",
    503: "overloaded",
    504: "overloaded",
    529: "overloaded",
    599: "overloaded",
}
# An error that says nothing of its own kind, in the form of each protocol.
VAGUE = {
    "anthropic": anthropic("new_error"),
    "bedrock": bedrock(),
    "google": google(0, "No."),
    "openai": openai("No."),
    "responses": openai("No."),
}


@each_row("form", ["error", "page", "words", "nothing"])
@each_row("status", STATUSES)
@each_row("name", SERVERS)
def test_a_status_says_what_kind_of_error_it_is(name: str, status: int, form: str) -> None:
    """failures.md E2, E9: with an error of the protocol, a page of a proxy, mere words, or nothing in the body."""
    bodies = {"error": VAGUE[name], "page": b"<html>Oh no</html>", "words": b"upstream went away", "nothing": b""}
    info = READINGS[name].error_of(status, bodies[form])
    # Without a word about it, a bad request is most likely one that was too long (E6).
    too_long = (status, form) == (400, "nothing")
    kind = "context_overflow" if too_long else STATUSES[status]
    assert (info.kind, info.should_retry, info.status) == (kind, kind in PASSING, status)
    model = READINGS[name].model
    vague = VAGUE[name]
    shown = {"error": vague.get("error", vague)["message"], "words": ""}.get(form, f"HTTP status {status}")
    assert info.message.startswith(f"{model.provider}:{model.id}: {shown}")
    assert info.provider == model.provider
    assert ("Check the key" in info.message) is (kind == "authentication" and form != "page")


@each_row("body", [{"error": "busy"}, {"error": {"message": "busy"}}])
@each_row("name", SERVERS)
def test_an_error_inside_a_200_that_says_nothing_of_its_kind_is_a_failure_of_the_server(name: str, body: Any) -> None:
    """failures.md E2: whatever the protocol; the request was accepted, so it may succeed later."""
    info = READINGS[name].error_of(200, body)
    assert (info.kind, info.should_retry) == ("overloaded", True)


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}
WRONG_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


def per(time: str) -> Any:
    """Which quota was spent, in the form of Gemini."""
    violations = [{"quotaMetric": "m", "quotaId": f"GenerateRequestsPer{time}PerProjectPerModel-FreeTier"}]
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}


INVALID, SPENT = "invalid_request_error", "insufficient_quota"
TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
NO_ROOM = "input length and `max_tokens` exceed context limit: 196758 + 8192 > 200000"
TOO_MANY = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
MAXIMUM = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
QUOTA = "You exceeded your current quota"
LIMIT = "Rate limit reached on tokens per min (TPM)"
FLAGGED = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
INCORRECT_KEY = "Incorrect API key provided. You can obtain an API key from https://example.com."
# What the type, the code, the details and the words of an error add to its status.
TOLD: dict[str, list[tuple[int, Any, ErrorKind]]] = {
    "bedrock": [
        (400, bedrock("ValidationException"), "invalid_request"),
        (400, bedrock("ValidationException", "Input is too long for requested model."), "context_overflow"),
        (400, bedrock("ServiceQuotaExceededException"), "quota"),
        (400, bedrock("ExpiredTokenException"), "authentication"),
        (400, bedrock("com.amazon.coral.service#UnrecognizedClientException"), "authentication"),
        (403, bedrock("AccessDeniedException"), "authentication"),
        (403, bedrock("InvalidSignatureException"), "authentication"),
        (404, bedrock("ResourceNotFoundException"), "invalid_request"),
        (408, bedrock("ModelTimeoutException"), "stalled"),
        (424, bedrock("ModelErrorException"), "overloaded"),
        (429, bedrock("ModelNotReadyException"), "overloaded"),
        (429, bedrock("ThrottlingException", "Too many tokens, please wait before trying again."), "rate_limit"),
        (429, bedrock("ThrottlingException", "Too many tokens per day, please wait."), "quota"),
        (500, bedrock("InternalServerException"), "overloaded"),
        (503, bedrock("ServiceUnavailableException"), "overloaded"),
    ],
    "anthropic": [
        (400, anthropic("invalid_request_error"), "invalid_request"),
        (401, anthropic("authentication_error"), "authentication"),
        (402, anthropic("billing_error"), "quota"),
        (403, anthropic("permission_error"), "authentication"),
        (404, anthropic("not_found_error"), "invalid_request"),
        (409, anthropic("conflict_error"), "overloaded"),
        (413, anthropic("request_too_large"), "context_overflow"),
        (429, anthropic("rate_limit_error"), "rate_limit"),
        (500, anthropic("api_error"), "overloaded"),
        (504, anthropic("timeout_error"), "overloaded"),
        (529, anthropic("overloaded_error"), "overloaded"),
        (400, anthropic("invalid_request_error", TOO_LONG), "context_overflow"),
        (400, anthropic("invalid_request_error", NO_ROOM), "context_overflow"),
        (429, anthropic("rate_limit_error", TOO_LONG), "rate_limit"),
        (429, anthropic("rate_limit_error", NO_ROOM), "rate_limit"),
        (429, anthropic("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}), "quota"),
        (400, anthropic("overloaded_error"), "invalid_request"),
        (401, anthropic("api_error"), "authentication"),
        (403, anthropic("rate_limit_error"), "authentication"),
        (404, anthropic("api_error"), "invalid_request"),
        (429, anthropic("api_error"), "rate_limit"),
        (400, anthropic("invalid_request_error", INCORRECT_KEY), "authentication"),
    ],
    "google": [
        (400, google(400, "Invalid value at 'contents'"), "invalid_request"),
        (400, google(400, "API key not valid. Please pass a valid API key.", WRONG_KEY), "authentication"),
        (400, google(400, "API key expired. Please renew the API key."), "authentication"),
        (400, google(400, "Bad Request", WRONG_KEY), "authentication"),
        (401, google(401), "authentication"),
        (403, google(403, "Method doesn't allow unregistered callers"), "authentication"),
        (404, google(404, "models/x is not found for API version v1beta"), "invalid_request"),
        (400, google(400, "User location is not supported for the API use."), "invalid_request"),
        (400, google(400, TOO_MANY), "context_overflow"),
        (413, google(413, "Request payload size exceeds the limit"), "context_overflow"),
        (429, google(429, QUOTA, RETRY_INFO, per("Minute")), "rate_limit"),
        (429, google(429, QUOTA, RETRY_INFO, per("Day")), "quota"),
        (429, google(429, "Quota exceeded for quota metric 'input token count exceeds'"), "rate_limit"),
        (500, google(500, "An internal error has occurred."), "overloaded"),
        (503, google(503, "The model is overloaded. Please try again later."), "overloaded"),
    ],
    "openai": [
        (400, openai("Invalid value", INVALID), "invalid_request"),
        (400, openai("too long", INVALID, "context_length_exceeded"), "context_overflow"),
        (400, openai(MAXIMUM), "context_overflow"),
        (400, openai("filtered", code="content_filter"), "refused"),
        (401, openai("Incorrect API key provided", code="invalid_api_key"), "authentication"),
        (402, openai("Insufficient Balance"), "quota"),
        (404, openai("The model does not exist", code="model_not_found"), "invalid_request"),
        (422, {"detail": [{"loc": ["body", "x"], "msg": "extra"}]}, "invalid_request"),
        (422, {"object": "error", "message": "bad", "type": INVALID, "code": 422}, "invalid_request"),
        (429, openai("Rate limit reached", "requests", "rate_limit_exceeded"), "rate_limit"),
        (429, openai("Request too large: tokens per min", "tokens", "rate_limit_exceeded"), "rate_limit"),
        (429, openai(QUOTA, SPENT, SPENT), "quota"),
        (500, openai("oops", "server_error"), "overloaded"),
        (503, {"error": "loading"}, "overloaded"),
        (400, openai("No.", "overloaded_error"), "invalid_request"),
        (401, openai("Unauthorized", "api_error"), "authentication"),
        (404, openai("No.", "server_overloaded"), "invalid_request"),
        (400, {"code": "invalid-argument", "error": INCORRECT_KEY}, "authentication"),
        (400, openai(INCORRECT_KEY), "authentication"),
        (400, openai(QUOTA, "INSUFFICIENT_QUOTA"), "quota"),
        (400, openai("Failed to call a function. See 'failed_generation'.", INVALID, "tool_use_failed"), "incomplete"),
    ],
    "responses": [
        (401, openai("Incorrect API key provided: sk-ab****cd", INVALID, "invalid_api_key"), "authentication"),
        (403, openai("Country, region, or territory not supported", INVALID), "authentication"),
        (404, openai("The model 'gpt-9' does not exist.", INVALID, "model_not_found"), "invalid_request"),
        (400, openai("No tool output found for function call call_1.", INVALID), "invalid_request"),
        (400, openai(FLAGGED, INVALID, "invalid_prompt"), "refused"),
        (400, openai(MAXIMUM, INVALID, "context_length_exceeded"), "context_overflow"),
        (400, openai(MAXIMUM, INVALID), "context_overflow"),
        (400, {"detail": "Unsupported parameter"}, "invalid_request"),
        (409, openai("Conflict", INVALID), "overloaded"),
        (422, openai("Unprocessable", INVALID), "invalid_request"),
        (429, openai(LIMIT, "tokens", "rate_limit_exceeded"), "rate_limit"),
        (429, openai(QUOTA, SPENT, SPENT), "quota"),
        (500, openai("The server had an error while processing your request.", "server_error"), "overloaded"),
        (503, openai("Slow down", "server_error", "slow_down"), "overloaded"),
        (400, openai("No.", "server_error"), "invalid_request"),
        (401, openai("No.", "server_error"), "authentication"),
        (404, openai("No.", "rate_limit_error"), "invalid_request"),
        (400, {"code": "invalid-argument", "error": INCORRECT_KEY}, "authentication"),
        (400, openai("Failed to call a function.", INVALID, "tool_use_failed"), "incomplete"),
    ],
}
# Errors that come with status 200: the status that they mean stands in them, or can be told from their words.
INSIDE: dict[str, list[tuple[int, Any, ErrorKind]]] = {
    "bedrock": [
        (429, bedrock("ThrottlingException"), "rate_limit"),
        (503, bedrock("ServiceUnavailableException"), "overloaded"),
        (400, bedrock("ValidationException"), "invalid_request"),
    ],
    "anthropic": [
        (200, anthropic("overloaded_error"), "overloaded"),
        (200, anthropic("rate_limit_error"), "rate_limit"),
        (429, {"error": {"code": 429, "message": "slow down"}}, "rate_limit"),
        (200, {"error": "busy"}, "overloaded"),
        (503, {"message": "busy", "status": 503}, "overloaded"),
    ],
    "google": [
        (429, google(429, "No."), "rate_limit"),
        (503, google(503, "No."), "overloaded"),
        (400, google(400, "No."), "invalid_request"),
        (503, {"error": {"status": "UNAVAILABLE", "message": "No."}}, "overloaded"),
        (429, [google(429, "No.")], "rate_limit"),
    ],
    "openai": [
        (429, openai("slow down", code=429), "rate_limit"),
        (200, openai("slow down", "requests", "rate_limit_exceeded"), "rate_limit"),
        (200, openai("busy"), "overloaded"),
        (200, {"error": "busy"}, "overloaded"),
        (503, [openai("busy", code=503)], "overloaded"),
    ],
    "responses": [
        (429, openai("Rate limit", INVALID, 429), "rate_limit"),
        (500, openai("Oops", "server_error", 500), "overloaded"),
    ],
}


def rows(table: dict[str, list[Any]]) -> list[Any]:
    """The rows of a table by protocol, as cases with the name of the protocol in front."""
    return [
        pytest.param(name, *row, id=f"{name}-{at}-{row[0]}-{row[-1]}")
        for name, of_name in table.items()
        for at, row in enumerate(of_name)
    ]


@each_row(("name", "status", "body", "kind"), rows(TOLD))
def test_what_an_error_says_of_itself_tells_it_from_others_of_its_status(
    name: str, status: int, body: Any, kind: ErrorKind
) -> None:
    """failures.md E2, E5, E6, E9."""
    info = READINGS[name].error_of(status, body, JSON)
    assert (info.kind, info.should_retry, info.status) == (kind, kind in PASSING, status)
    words = body["error"]["message"] if isinstance(body.get("error"), dict) else ""
    model = READINGS[name].model
    words = words.removesuffix(".").replace("sk-ab****cd", "[redacted]")
    assert info.message.startswith(f"{model.provider}:{model.id}: {words}")
    assert ("Check the key" in info.message) is (kind == "authentication")


@each_row(("name", "status", "body", "kind"), rows({name: TOLD[name] for name in ("google", "openai")}))
def test_an_error_may_come_in_a_list_of_one(name: str, status: int, body: Any, kind: ErrorKind) -> None:
    """As Gemini sends it when it was asked for a stream, and its gateways with it."""
    info = READINGS[name].error_of(status, body)
    assert READINGS[name].error_of(status, [body]) == msgspec.structs.replace(info, body=f"[{info.body}]")
    assert info.kind == kind


@each_row(("name", "status", "body", "kind"), rows(INSIDE))
def test_an_error_inside_a_200_is_what_it_says(name: str, status: int, body: Any, kind: ErrorKind) -> None:
    """failures.md B10."""
    info = READINGS[name].error_of(200, body, JSON)
    assert (info.kind, info.should_retry, info.status) == (kind, kind in PASSING, status)


def quoted(raw: Any, code: int = 400, **more: Any) -> Any:
    """The error of a gateway that quotes the server behind it, as OpenRouter does."""
    return {"error": {"message": "Provider returned error", "code": code, "metadata": {"raw": raw, **more}}}


# What a gateway quotes: the status, the raw error, its kind, and what is shown of it.
BEHIND: dict[str, tuple[int, Any, ErrorKind, str]] = {
    "JSON in a text": (400, msgspec.json.encode(anthropic(INVALID, TOO_LONG)).decode(), "context_overflow", TOO_LONG),
    "an object": (400, openai("No.", INVALID, "context_length_exceeded"), "context_overflow", "No."),
    "words": (400, "ValidationException: Input is too long for requested model.", "context_overflow", "Input is too"),
    "an event": (400, f'event: error\ndata: {{"error":{{"message":"{TOO_LONG}"}}}}', "context_overflow", TOO_LONG),
    "a bad request": (400, '{"error":{"message":"messages.1: Field required"}}', "invalid_request", "Field required"),
    "a rate limit": (429, '{"error":{"message":"m is temporarily rate-limited"}}', "rate_limit", "temporarily"),
    "a quota": (429, openai("Spent.", SPENT, SPENT), "quota", "Spent."),
    "a server that failed": (502, '{"error":{"type":"overloaded_error","message":"Busy"}}', "overloaded", "Busy"),
}


@each_row("form", BEHIND)
@each_row("name", ["openai", "responses"])
def test_the_error_of_a_server_behind_a_gateway_is_shown_and_judged(name: str, form: str) -> None:
    """failures.md E6, E11."""
    status, raw, kind, words = BEHIND[form]
    info = READINGS[name].error_of(status, quoted(raw, status, provider_name="Anthropic"), JSON)
    assert (info.kind, info.should_retry, info.status) == (kind, kind in PASSING, status)
    assert "Provider returned error. Anthropic: " in info.message
    assert words in info.message


@each_row("raw", ["", "  ", None, {}, [], 7, "<html>Bad gateway</html>", "[" * 10_000])
@each_row("name", ["openai", "responses"])
def test_a_gateway_that_quotes_nothing_of_use_is_told_by_its_own_words(name: str, raw: Any) -> None:
    info = READINGS[name].error_of(502, quoted(raw, 502), JSON)
    assert (info.kind, info.status) == ("overloaded", 502)
    assert "Provider returned error" in info.message


NO_ANSWERS = {
    "page": b"<html>Sign in</html>",
    "doctype": b"<!doctype html><title>Log in</title>",
    "long": b"<html>" + b"x" * 10_000,
    "nothing": b"",
    "words": b"hello",
    "half": b"{",
    "list": b"[1]",
    "other": b'{"hello": 1}',
    "message": b'{"type":"message","content":[]}',
    "completion": b'{"id":"x","object":"chat.completion","choices":[{"message":{"content":"Hi"}}]}',
    "response": b'{"object":"response","status":"completed"}',
}


@each_row("status", [200, 204])
@each_row("body", NO_ANSWERS)
@each_row("name", SERVERS)
def test_what_is_neither_a_stream_nor_an_error_says_what_to_check(name: str, body: str, status: int) -> None:
    """failures.md B10."""
    info = READINGS[name].error_of(status, NO_ANSWERS[body], {"content-type": "text/html"})
    assert (info.kind, info.status, info.should_retry) == ("protocol", status, False)
    assert f"answered {status} with 'text/html' instead of a stream of events" in info.message
    assert "Check base_url" in info.message
    assert len(info.message) < 600


# How much is shown of a body.
SHOWN = {"anthropic": 500, "bedrock": 2_000, "google": 2_000, "openai": 500, "responses": 2_000}
ODD = [
    b"[]",
    b"[1]",
    b"null",
    b'{"error": null}',
    b'{"error": "no"}',
    b'{"error": {"message": [], "type": {}, "code": [], "details": {"error_code": []}}}',
    b'{"choices": [{"error": [], "finish_reason": []}]}',
    b"\xff",
    b"[" * 100_000,
    b"x" * 100_000,
]


@each_row("body", ODD, ids=lambda body: str(body[:20]))
@each_row("name", SERVERS)
def test_an_odd_or_long_body_is_an_error_of_its_status(name: str, body: bytes) -> None:
    info = READINGS[name].error_of(500, body)
    assert (info.kind, info.status) == ("overloaded", 500)
    assert len(info.message) < SHOWN[name] + 100
    assert len(info.body or "") <= SHOWN[name]


SOON = "Please try again in 850ms."
# An error with a wait in its words.
LIMITED = {
    "anthropic": anthropic("rate_limit_error", SOON),
    "bedrock": bedrock("ThrottlingException", SOON),
    "google": google(429, SOON),
    "openai": openai(SOON, "requests", "rate_limit_exceeded"),
    "responses": openai(SOON, "tokens", "rate_limit_exceeded"),
}


@each_row("header", ["request-id", "x-request-id", "X-Request-ID"])
@each_row("name", SERVERS)
def test_an_error_is_told_in_full(name: str, header: str) -> None:
    """failures.md E1: the header names the request better than the body."""
    body = LIMITED[name]
    code = {
        "anthropic": " (rate_limit_error)",
        "bedrock": " (ThrottlingException)",
        "responses": " (rate_limit_exceeded)",
    }.get(name, "")
    model = READINGS[name].model
    assert READINGS[name].error_of(429, body, {header: "req_2"}) == ErrorInfo(
        "rate_limit",
        f"{model.provider}:{model.id}: {SOON}{code}",
        model.provider,
        429,
        "req_2",
        0.85,
        None,
        msgspec.json.encode(body).decode(),
    )


WAITS: list[tuple[dict[str, str], float]] = [
    ({"retry-after-ms": "250"}, 0.25),
    ({"retry-after": "7"}, 7.0),
    ({"Retry-After": "5"}, 5.0),
    ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
    ({}, 0.85),
]


@each_row(("headers", "wait"), WAITS)
@each_row("name", SERVERS)
def test_how_long_to_wait_is_read_from_the_headers_or_the_words(
    name: str, headers: dict[str, str], wait: float
) -> None:
    """failures.md E1."""
    assert READINGS[name].error_of(429, LIMITED[name], headers).retry_after == wait
    assert READINGS[name].error_of(429, VAGUE[name]).retry_after is None


@each_row(("status", "word", "retryable"), [(400, "true", True), (500, "false", False), (400, "maybe", None)])
@each_row("name", SERVERS)
def test_the_servers_own_word_on_asking_again_wins(name: str, status: int, word: str, retryable: bool | None) -> None:
    """failures.md E4."""
    for header in ("x-should-retry", "X-Should-Retry"):
        info = READINGS[name].error_of(status, VAGUE[name], {header: word})
        assert (info.retryable, info.should_retry) == (retryable, bool(retryable))


# An error that quotes keys, the parts of them that may not be seen, and the variable that it says to check.
QUOTED: dict[str, tuple[int, Any, list[str], str]] = {
    "bedrock": (
        403,
        bedrock("AccessDeniedException", "The key Bearer bedrock-api-key-abcdefghijk is not valid."),
        ["abcdefghijk"],
        "AWS_BEARER_TOKEN_BEDROCK",
    ),
    "anthropic": (
        401,
        anthropic("authentication_error", "invalid x-api-key: sk-ant-api03-abcdef. Bearer abcdefghijk"),
        ["abcdef"],
        "ANTHROPIC_API_KEY",
    ),
    "google": (
        403,
        google(403, "Key AIzaSyD-0123456789abcdefghijklmnopqrstu is not allowed; Bearer ya29.a0123456789_abc"),
        ["AIzaSyD", "ya29"],
        "GEMINI_API_KEY or GOOGLE_API_KEY",
    ),
    "openai": (
        401,
        openai("Incorrect API key provided: sk-proj-abcdef123456. Bearer sk-other-secret99"),
        ["abcdef", "secret99"],
        "",
    ),
    "responses": (
        401,
        openai("Incorrect API key provided: sk-proj-abcdef123. See Bearer abcdefghijk.", INVALID),
        ["abcdef123", "abcdefghijk"],
        "OPENAI_API_KEY",
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_key_that_the_server_quotes_is_not_shown(name: str) -> None:
    """failures.md L13."""
    status, body, secrets, variable = QUOTED[name]
    info = READINGS[name].error_of(status, body)
    assert [secret for secret in secrets if secret in repr(info)] == []
    assert "[redacted]" in info.message
    assert "Check the key: api_key=..." in info.message
    assert variable in info.message


RECORDED: list[tuple[str, str, int, ErrorKind, str]] = [
    ("anthropic", "anthropic_error_401", 401, "authentication", "Invalid API Key (authentication_error). Check"),
    ("openai", "openai_error_400_bad_json", 400, "invalid_request", ""),
    ("openai", "openai_error_400_no_messages", 400, "invalid_request", ""),
    ("openai", "openai_error_401", 401, "authentication", ""),
    ("openai", "openai_error_404", 404, "invalid_request", ""),
    ("openai", "openai_error_context_exceeded", 400, "context_overflow", ""),
    ("responses", "responses_error_400", 400, "invalid_request", "'input' is required (invalid_request_error)"),
    ("responses", "openai_error_context_exceeded", 400, "context_overflow", ""),
]  # fmt: skip


@each_row("server", ["llamacpp-qwen0.5b", "llamacpp-smollm2"])
@each_row(("name", "file", "status", "kind", "words"), RECORDED)
def test_a_recorded_error_is_read(name: str, file: str, status: int, kind: ErrorKind, words: str, server: str) -> None:
    model = READINGS[name].model
    info = READINGS[name].error_of(status, (FIXTURES / server / f"{file}.json").read_bytes())
    assert (info.kind, info.status) == (kind, status)
    assert info.message.startswith(f"{model.provider}:{model.id}: {words}")
