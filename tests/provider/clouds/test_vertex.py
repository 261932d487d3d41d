"""Models on Vertex AI: URLs, tokens and keys, errors; judged by the official SDKs of Google and Anthropic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from tests.provider.clouds.google_tokens import TokenServer
from tests.provider.clouds.servers import VERTEX, VertexClaudeServer, VertexServer

from steersman import Agent, Retry, get_model, tool
from steersman.provider.clouds.google_auth import GoogleCredentials
from steersman.provider.clouds.vertex import CLAUDE_VERSION, build_url, stream_vertex
from steersman.provider.models.presets import PRESETS
from steersman.testing import answer, call, thinking
from steersman.testing.servers import Reply
from steersman.types.errors import InvalidRequestError
from steersman.types.model import Model

ONCE = Retry(max_attempts=1)
TOKEN = "ya29.c.test-token-0123456789"
KEY = "AIzaSyTest-0123456789"
AT = {"project": "acme", "location": "europe-west1"}
HERE = "projects/acme/locations/europe-west1"
GEMINI, CLAUDE = VERTEX

# google-auth works in threads.
pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    preset = PRESETS["vertex"]
    places = (
        "GOOGLE_CLOUD_PROJECT",
        "GCLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_REGION",
        "CLOUD_ML_REGION",
    )
    for name in (*preset.keys, *preset.addresses, *places, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    # No credentials of this machine: no file of gcloud, no metadata server.
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize("id", VERTEX)
async def test_a_conversation_with_thinking_and_calls_goes_through(id: str) -> None:
    """Signatures go back as they came, as with the provider of the protocol."""
    turn = answer(thinking("A sum."), call("add", a=2, b=3))
    async with VERTEX[id](turn, "Five.", key=TOKEN) as server:
        agent = Agent(server.model(id, settings=AT), tools=[add], thinking_level="low", retry=ONCE)
        result = await agent.run("2 + 3?")
    assert (result.text, result.detail) == ("Five.", "")
    assert [received.params["project"] for received in server.raw] == ["acme", "acme"]
    assert server.raw[0].params["location"] == "europe-west1"
    assert server.raw[0].params["model"] == id
    assert "x-goog-api-key" not in server.raw[0].headers


@pytest.mark.parametrize(
    ("location", "host"),
    [
        (None, "aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-central1", "us-central1-aiplatform.googleapis.com"),
    ],
)
def test_the_host_follows_the_location(location: str | None, host: str) -> None:
    model = Model("vertex", "gemini-2.5-pro", settings={"project": "acme", "location": location})
    place = f"projects/acme/locations/{location or 'global'}"
    assert build_url(model, TOKEN, "v1") == f"https://{host}/v1/{place}/publishers/google/models/gemini-2.5-pro"


@pytest.mark.parametrize(
    ("id", "path"),
    [
        ("gemini-2.5-pro", f"{HERE}/publishers/google/models/gemini-2.5-pro"),
        ("claude-opus-4@20250514", f"{HERE}/publishers/anthropic/models/claude-opus-4@20250514"),
        ("google/gemini-2.5-pro", f"{HERE}/publishers/google/models/gemini-2.5-pro"),
        ("publishers/google/models/x", f"{HERE}/publishers/google/models/x"),
        ("projects/p/locations/l/endpoints/12", "projects/p/locations/l/endpoints/12"),
    ],
)
def test_a_model_may_be_named_by_its_path(id: str, path: str) -> None:
    model = Model("vertex", id, base_url="https://gateway.example/v1", settings=AT)
    assert build_url(model, TOKEN, "v1") == f"https://gateway.example/v1/{path}"


@pytest.mark.parametrize("name", ["project", "location"])
@pytest.mark.parametrize("value", ["evil.example/", "a/b", "x@evil", "a?b", 7])
def test_a_project_or_location_cannot_change_the_host(name: str, value: object) -> None:
    model = Model("vertex", "gemini-2.5-pro", settings={**AT, name: value})
    with pytest.raises(InvalidRequestError, match=f"The {name} of 'vertex:gemini-2.5-pro'"):
        build_url(model, TOKEN, "v1")


@pytest.mark.parametrize("id", VERTEX)
async def test_project_and_location_come_from_the_environment(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "from-environment")
    async with VERTEX[id]("One.", "Two.", "Three.", key=TOKEN) as server:
        await Agent(server.model(id), retry=ONCE).run("One?")
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
        await Agent(server.model(id), retry=ONCE).run("Two?")
        await Agent(server.model(id, settings={"project": "own"}), retry=ONCE).run("Three?")
    places = [(received.params["project"], received.params["location"]) for received in server.raw]
    assert places == [("from-environment", "global"), ("from-environment", "us-east5"), ("own", "us-east5")]


async def test_an_api_key_means_express_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key stands for the project, also where the environment names one."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "acme")
    monkeypatch.setenv("GOOGLE_CLOUD_API_KEY", KEY)
    async with VertexServer("Hi.", key=KEY) as server:
        result = await Agent(get_model(f"vertex:{GEMINI}", base_url=server.url), retry=ONCE).run("Hello?")
    assert (result.text, result.detail) == ("Hi.", "")
    assert server.raw[0].path == f"/v1beta1/publishers/google/models/{GEMINI}:streamGenerateContent"
    assert "authorization" not in server.raw[0].headers


@pytest.mark.parametrize("express", [False, True])
async def test_googles_own_client_asks_the_same_url(express: bool) -> None:
    # The SDK takes long to import: only the process that asks it does.
    from google.genai import Client
    from google.oauth2.credentials import Credentials

    async with VertexServer("Hi.", "Hi.", key=KEY if express else TOKEN) as server:
        settings = {} if express else AT
        assert (await Agent(server.model("gemini-2.5-pro", settings=settings), retry=ONCE).run("Hello?")).text == "Hi."
        options: Any = {"base_url": server.url}
        if express:
            client: Any = Client(vertexai=True, api_key=KEY, http_options=options)
        else:
            credentials: Any = Credentials(TOKEN)
            place: Any = AT
            client = Client(vertexai=True, **place, credentials=credentials, http_options=options)
        content: Any = [{"role": "user", "parts": [{"text": "Hello?"}]}]
        asked = client.models.generate_content_stream(model="gemini-2.5-pro", contents=content)
        await asyncio.to_thread(list, asked)
    ours, theirs = server.raw
    assert (ours.path, ours.query) == (theirs.path, theirs.query)
    assert ours.headers.get("authorization") == theirs.headers.get("authorization")
    assert ours.headers.get("x-goog-api-key") == theirs.headers.get("x-goog-api-key")
    assert server.requests[0]["contents"] == server.requests[1]["contents"]


async def test_anthropics_own_client_sends_the_same_request() -> None:
    # The SDK takes long to import: only the process that asks it does.
    from anthropic.lib.vertex import AsyncAnthropicVertex

    async with VertexClaudeServer("Hi.", "Hi.", key=TOKEN) as server:
        model = server.model(CLAUDE, settings={**AT, "betas": ["context-1m-2025-08-07"]})
        assert (await Agent(model, retry=ONCE).run("Hello?")).text == "Hi."
        # The SDK would send the newest version of Anthropic's own API; the documentation of Vertex AI names this one.
        version = {"anthropic_version": CLAUDE_VERSION}
        body = {name: value for name, value in server.requests[0].items() if name not in version}
        sdk: Any = AsyncAnthropicVertex(
            region="europe-west1", project_id="acme", access_token=TOKEN, base_url=f"{server.url}/v1", max_retries=0
        )
        async with sdk:
            headers = {"anthropic-beta": "context-1m-2025-08-07"}
            async for _ in await sdk.messages.create(model=CLAUDE, **body, extra_headers=headers, extra_body=version):
                pass
    ours, theirs = server.raw
    assert ours.path == theirs.path
    for name in ("authorization", "anthropic-beta"):
        assert ours.headers[name] == theirs.headers[name]
    assert server.requests[0] == server.requests[1]


async def test_a_missing_project_is_named_before_anything_is_sent() -> None:
    result = await Agent(f"vertex:{GEMINI}", api_key=TOKEN, retry=ONCE).run("Hello?")
    assert (result.error_kind, result.detail) == (
        "invalid_request",
        f"No project for 'vertex:{GEMINI}'. Set GOOGLE_CLOUD_PROJECT, or give get_model settings={{'project': ...}}.",
    )


DENIED = {"code": 403, "message": "Permission 'aiplatform.endpoints.predict' denied.", "status": "PERMISSION_DENIED"}
SPENT = {"code": 429, "message": "Resource exhausted. Please try again later.", "status": "RESOURCE_EXHAUSTED"}
MISSING = {"code": 404, "message": "Publisher Model was not found.", "status": "NOT_FOUND"}


@pytest.mark.parametrize("id", VERTEX)
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(403, {"error": DENIED}), "authentication"),
        (Reply(403, [{"error": DENIED}]), "authentication"),
        (Reply(429, {"error": SPENT}), "rate_limit"),
        (Reply(429, [{"error": SPENT}]), "rate_limit"),
        (Reply(404, [{"error": MISSING}]), "invalid_request"),
        (Reply(503, "upstream connect error"), "overloaded"),
    ],
)
async def test_errors_in_googles_form_have_their_kind(id: str, reply: Reply, kind: str) -> None:
    async with VERTEX[id](reply, key=TOKEN) as server:
        result = await Agent(server.model(id, settings=AT), retry=ONCE).run("Hello?")
    assert result.error_kind == kind
    assert "google:" not in result.detail  # no advice to use another provider
    if isinstance(reply.body, list):
        (words,) = cast(list[Any], reply.body)
        assert words["error"]["message"].rstrip(".") in result.detail
        assert "[{" not in result.detail


async def test_errors_in_anthropics_form_have_their_kind() -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}
    async with VertexClaudeServer(Reply(400, {"type": "error", "error": error}), key=TOKEN) as server:
        agent = Agent(server.model(CLAUDE, settings=AT), retry=ONCE, context_config=None)
        result = await agent.run("Hello?")
    assert result.error_kind == "context_overflow"


@pytest.mark.parametrize("id", VERTEX)
async def test_a_token_that_the_server_quotes_is_not_shown(id: str) -> None:
    quoted = Reply(401, {"error": {"code": 401, "message": f"Invalid {TOKEN}.", "status": "UNAUTHENTICATED"}})
    async with VERTEX[id](quoted, key=TOKEN) as server:
        result = await Agent(server.model(id, settings=AT), retry=ONCE).run("Hello?")
    assert TOKEN not in repr(result)
    assert "application default credentials" in result.detail


def test_an_option_that_claude_lacks_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(ValueError, match="takes no seed"):
        Agent(f"vertex:{CLAUDE}", api_key=TOKEN, seed=7)
    Agent(f"vertex:{GEMINI}", api_key=TOKEN, seed=7)


def test_prices_and_windows_are_known() -> None:
    for name in ("vertex:gemini-2.5-flash", f"vertex:{CLAUDE}"):
        model = get_model(name)
        assert model.prices is not None
        assert model.context_window is not None


# Application default credentials


@pytest.mark.parametrize("id", VERTEX)
async def test_a_token_comes_from_the_application_default_credentials(
    id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One token serves many requests, and the project is that of the credentials."""
    with TokenServer(TOKEN) as tokens:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", tokens.write_key_file(tmp_path, project="from-file"))
        stream = stream_vertex(GoogleCredentials())
        async with VERTEX[id]("One.", "Two.", key=TOKEN) as server:
            agent = Agent(server.model(id, api_key=None), stream_fn=stream, retry=ONCE)
            assert (await agent.run("One?")).detail == ""
            assert (await agent.run("Two?")).text == "Two."
    assert tokens.count == 1
    assert server.raw[0].params["project"] == "from-file"


async def test_a_token_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """google-auth calls a token old some minutes before its end; two minutes are not enough for a long answer."""
    with TokenServer("ya29.first", "ya29.second", seconds=120) as tokens:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", tokens.write_key_file(tmp_path))
        credentials = GoogleCredentials()
        assert [(await credentials.get_token())[0] for _ in range(2)] == ["ya29.first", "ya29.second"]


async def test_agents_that_start_together_share_one_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with TokenServer(TOKEN) as tokens:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", tokens.write_key_file(tmp_path))
        credentials = GoogleCredentials()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(credentials.get_token()) for _ in range(40)]
    assert {task.result()[0] for task in asked} == {TOKEN}
    assert tokens.count == 1


async def test_missing_credentials_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "acme")
    stream = stream_vertex(GoogleCredentials())
    result = await Agent(f"vertex:{GEMINI}", stream_fn=stream, retry=ONCE).run("Hello?")
    assert result.error_kind == "authentication"
    assert "gcloud auth application-default login" in result.detail
    assert "api_key=..." in result.detail


async def test_a_server_of_your_own_may_need_no_credentials() -> None:
    async with VertexServer("Hi.", key=None, strict=False) as server:
        stream = stream_vertex(GoogleCredentials())
        agent = Agent(server.model(GEMINI, api_key=None, settings=AT), stream_fn=stream, retry=ONCE)
        assert (await agent.run("Hello?")).text == "Hi."
    assert "authorization" not in server.raw[0].headers


async def test_refused_credentials_are_an_error_without_their_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with TokenServer(refusal="invalid_grant") as tokens:
        path = tokens.write_key_file(tmp_path, project="acme")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
        stream = stream_vertex(GoogleCredentials())
        async with VertexServer("Hi.", key=None) as server:
            agent = Agent(server.model(GEMINI, api_key=None), stream_fn=stream, retry=ONCE)
            result = await agent.run("Hello?")
    assert result.error_kind == "authentication"
    assert "gave no token: RefreshError" in result.detail
    assert "invalid_grant" in result.detail
    assert "PRIVATE KEY" not in repr(result)
    assert server.raw == []
