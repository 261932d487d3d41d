"""OpenAI's models on Azure: URLs, versions, keys and errors; judged by the official SDK."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI
from tests.provider.clouds.servers import AZURE, CLASSIC, AzureChatServer, AzureServer

from steersman import Agent, Retry, get_model, tool
from steersman.provider.clouds.azure import build_url
from steersman.provider.models.presets import PRESETS
from steersman.testing import answer, call
from steersman.testing.servers import Reply
from steersman.types.model import Model

ONCE = Retry(max_attempts=1)
KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ0ZXN0In0.c2lnbmF0dXJl"
HOST = "https://acme.openai.azure.com"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_VERSION", *PRESETS["azure"].keys, *PRESETS["azure"].addresses):
        monkeypatch.delenv(name, raising=False)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize("provider", AZURE)
@pytest.mark.parametrize("version", [None, CLASSIC, "preview"])
async def test_a_conversation_with_calls_goes_through(provider: str, version: str | None) -> None:
    """The v1 API needs no version, a dated version goes to the classic URL."""
    settings = {} if version is None else {"api_version": version}
    async with AZURE[provider](answer(call("add", a=2, b=3)), "Five.", key=KEY) as server:
        result = await Agent(server.model("my-gpt", settings=settings), tools=[add], retry=ONCE).run("2 + 3?")
    assert (result.text, result.detail) == ("Five.", "")
    assert server.raw[0].headers["api-key"] == KEY
    assert "authorization" not in server.raw[0].headers
    assert server.requests[0]["model"] == "my-gpt"


@pytest.mark.parametrize("base", [HOST, f"{HOST}/", f"{HOST}/openai", f"{HOST}/openai/v1", f"{HOST}/openai/v1/"])
def test_every_form_of_the_endpoint_means_the_v1_api(base: str) -> None:
    model = Model("azure", "my-gpt", base_url=base)
    assert build_url(model, "responses") == f"{HOST}/openai/v1/responses"
    assert build_url(model, "chat/completions") == f"{HOST}/openai/v1/chat/completions"


@pytest.mark.parametrize(
    ("base", "version", "operation", "url"),
    [
        (HOST, CLASSIC, "responses", f"{HOST}/openai/responses?api-version={CLASSIC}"),
        (
            HOST,
            CLASSIC,
            "chat/completions",
            f"{HOST}/openai/deployments/my%20gpt/chat/completions?api-version={CLASSIC}",
        ),
        (f"{HOST}/openai/v1", CLASSIC, "responses", f"{HOST}/openai/v1/responses"),
        (HOST, "preview", "responses", f"{HOST}/openai/v1/responses?api-version=preview"),
        (
            f"{HOST}/openai/deployments/other",
            CLASSIC,
            "chat/completions",
            f"{HOST}/openai/deployments/other/chat/completions?api-version={CLASSIC}",
        ),
        (f"{HOST}/openai/v1/responses", "", "responses", f"{HOST}/openai/v1/responses"),
        (f"{HOST}?api-version=preview", "", "responses", f"{HOST}/openai/v1/responses?api-version=preview"),
        ("https://gateway.example/team/v1", "", "responses", "https://gateway.example/team/v1/responses"),
    ],
)
def test_the_url_follows_the_base_url_and_the_version(base: str, version: str, operation: str, url: str) -> None:
    model = Model("azure", "my gpt", base_url=base, settings={"api_version": version})
    assert build_url(model, operation) == url


@pytest.mark.parametrize("provider", AZURE)
async def test_endpoint_version_and_key_come_from_the_environment(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AZURE[provider]("Hello.", "Again.", key=KEY) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        agent = Agent(f"{provider}:my-gpt", retry=ONCE)
        assert (await agent.run("Hello?")).text == "Hello."
        monkeypatch.setenv("OPENAI_API_VERSION", CLASSIC)
        assert (await agent.run("Again?")).text == "Again."
    assert [received.query for received in server.raw] == [{}, {"api-version": CLASSIC}]


@pytest.mark.parametrize("provider", AZURE)
async def test_a_token_of_entra_id_is_sent_as_a_bearer(provider: str) -> None:
    """A function is called for every request, as tokens end; a token given as a string works as well."""
    tokens = iter((f"{TOKEN}1", f"{TOKEN}2"))
    async with AZURE[provider]("One.", "Two.", key=None) as server:
        agent = Agent(server.model("my-gpt", api_key=lambda: next(tokens)), retry=ONCE)
        await agent.run("One?")
        await agent.run("Two?")
    assert [received.headers["authorization"] for received in server.raw] == [f"Bearer {TOKEN}1", f"Bearer {TOKEN}2"]
    assert all("api-key" not in received.headers for received in server.raw)


@pytest.mark.parametrize(("settings", "classic"), [({}, False), ({"api_version": CLASSIC}, True)])
async def test_the_official_sdk_sends_the_same_request(settings: dict[str, Any], classic: bool) -> None:
    """Path, query, key header and body of both APIs, as openai.AzureOpenAI sends them."""
    async with AzureServer("Hi.", "Hi.", key=KEY) as server, AzureChatServer("Hi.", "Hi.", key=KEY) as chat:
        for each in (server, chat):
            assert (await Agent(each.model("my-gpt", settings=settings), retry=ONCE).run("Hello?")).text == "Hi."
            sdk: Any
            if classic:
                sdk = AsyncAzureOpenAI(azure_endpoint=each.url, api_key=KEY, api_version=CLASSIC, max_retries=0)
            else:
                headers = {"api-key": KEY}
                sdk = AsyncOpenAI(base_url=f"{each.url}/openai/v1/", api_key=KEY, default_headers=headers)
            async with sdk:
                body = {name: value for name, value in each.requests[0].items() if name != "include"}
                create = sdk.responses.create if each is server else sdk.chat.completions.create
                async for _ in await create(**body):
                    pass
            ours, theirs = each.raw
            assert (ours.path, ours.query) == (theirs.path, theirs.query)
            assert ours.headers["api-key"] == theirs.headers["api-key"] == KEY
            assert each.requests[1] == body


@pytest.mark.parametrize("provider", AZURE)
async def test_what_is_missing_is_named_before_anything_is_sent(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", HOST)
    result = await Agent(f"{provider}:my-gpt").run("Hello?")
    assert result.detail == (
        f"No API key for the provider '{provider}' (model '{provider}:my-gpt'). Set the environment variable "
        "AZURE_OPENAI_API_KEY, or give api_key=..."
    )
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT")
    result = await Agent(f"{provider}:my-gpt", api_key=KEY).run("Hello?")
    assert (result.error_kind, result.detail) == (
        "invalid_request",
        f"No endpoint for '{provider}:my-gpt'. Set AZURE_OPENAI_ENDPOINT, such as https://NAME.openai.azure.com, "
        "or give base_url=...",
    )


REFUSED = {"message": "The response was filtered.", "code": "content_filter", "status": 400, "param": "prompt"}


@pytest.mark.parametrize("provider", AZURE)
@pytest.mark.parametrize(
    ("reply", "kind", "wait"),
    [
        (
            Reply(401, {"error": {"code": "401", "message": "Access denied due to invalid key."}}),
            "authentication",
            None,
        ),
        (Reply(401, {"statusCode": 401, "message": "Unauthorized."}), "authentication", None),
        (Reply(400, {"error": REFUSED}), "refused", None),
        (
            Reply(404, {"error": {"code": "DeploymentNotFound", "message": "No such deployment."}}),
            "invalid_request",
            None,
        ),
        (
            Reply(429, {"error": {"code": "429", "message": "Rate limit. Please retry after 6 seconds."}}),
            "rate_limit",
            6.0,
        ),
        (
            Reply(429, {"error": {"code": "429", "message": "Slow down."}}, {"retry-after-ms": "2500"}),
            "rate_limit",
            2.5,
        ),
    ],
)
async def test_errors_of_azure_have_their_kind(provider: str, reply: Reply, kind: str, wait: float | None) -> None:
    async with AZURE[provider](reply, key=KEY) as server:
        result = await Agent(server.model("my-gpt"), retry=ONCE).run("Hello?")
    assert result.error is not None
    assert (result.error_kind, result.error.retry_after) == (kind, wait)
    if kind == "authentication":
        assert "AZURE_OPENAI_API_KEY" in result.detail


@pytest.mark.parametrize("secret", [KEY, TOKEN])
@pytest.mark.parametrize("provider", AZURE)
async def test_a_key_that_azure_quotes_is_not_shown(provider: str, secret: str) -> None:
    quoted = Reply(401, {"error": {"code": "401", "message": f"Wrong key {secret}."}})
    async with AZURE[provider](quoted, key=None) as server:
        result = await Agent(server.model("my-gpt", api_key=secret), retry=ONCE).run("Hello?")
    assert secret not in repr(result)
    assert "[redacted]" in result.detail


def test_prices_and_windows_are_those_of_the_model_that_the_deployment_is_named_after() -> None:
    """Every endpoint of Azure is one of its own, so the window is known; behind a gateway only the price is."""
    own = get_model("azure:gpt-4o", base_url=HOST)
    assert own.prices is not None
    assert own.context_window == 128_000
    other = get_model("azure-chat:gpt-4o", base_url="https://gateway.example/v1")
    assert (other.prices, other.context_window) == (own.prices, None)
    assert get_model("azure:my-own-name", base_url=HOST).prices is None
