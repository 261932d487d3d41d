"""Models on Bedrock: keys, credentials, regions and URLs; botocore reads the same server and judges signatures."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth  # pyright: ignore[reportMissingTypeStubs]
from botocore.awsrequest import AWSRequest  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from botocore.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from botocore.session import Session  # pyright: ignore[reportMissingTypeStubs]
from tests.provider.wires.bedrock.kit import begun, called, ended, said

from steersman import Agent, Retry, get_model, tool
from steersman.provider.clouds.aws_auth import AwsChain
from steersman.provider.clouds.bedrock import stream_bedrock
from steersman.provider.models.presets import PRESETS
from steersman.provider.models.registry import find_known_keys
from steersman.testing import answer, call, thinking
from steersman.testing.servers import AnthropicServer, BedrockServer, Received, Reply
from steersman.types.model import Model

# botocore works in threads.
pytestmark = pytest.mark.real_time

ONCE = Retry(max_attempts=1)
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
KEY = "bedrock-api-key-0123456789"
ACCESS, SECRET, TOKEN = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEXAMPLETOKEN0"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    preset = PRESETS["bedrock"]
    names = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")
    for name in (*preset.keys, *preset.addresses, *preset.secrets, *names):
        monkeypatch.delenv(name, raising=False)
    # No configuration of this machine, and no metadata service.
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def check_signature(received: Received, url: str, credentials: Any, region: str) -> None:
    """The signature is the one that botocore computes for the request as it came."""
    headers = received.headers
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request: Any = AWSRequest("POST", url, data=received.body, headers={name: headers[name] for name in names})
    request.context["timestamp"] = headers["x-amz-date"]
    signer: Any = SigV4Auth(credentials, "bedrock", region)
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert headers["authorization"].endswith(f"Signature={signature}")
    assert (
        f"Credential={credentials.access_key}/{headers['x-amz-date'][:8]}/{region}/bedrock/" in headers["authorization"]
    )


class RawServer(BedrockServer):
    """Keeps the path of a request byte by byte."""

    paths: list[str]

    async def _receive(self, request: Any) -> Received:
        self.paths = [*getattr(self, "paths", []), request.raw_path]
        return await super()._receive(request)


async def test_a_conversation_with_reasoning_and_calls_goes_through() -> None:
    """Reasoning and its signature go back as they came; the key is a bearer."""
    async with BedrockServer(answer(thinking("A sum."), call("add", a=2, b=3)), "Five.", key=KEY) as server:
        agent = Agent(server.model(CLAUDE, settings={"region": "us-east-1"}), tools=[add], thinking_level="low")
        result = await agent.run("2 + 3?")
    assert (result.text, result.detail) == ("Five.", "")
    sent = server.requests[1]["messages"][1]["content"]
    assert sent[0]["reasoningContent"]["reasoningText"]["text"] == "A sum."
    assert server.raw[0].params["model"] == CLAUDE
    assert server.raw[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("id", [CLAUDE, ARN])
@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.usefixtures("signed_in")
async def test_a_signed_request_has_the_signature_of_botocore(
    id: str, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the bytes that arrive: colons and slashes of the id are percent-encoded once in the path."""
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    async with RawServer("Hi.", key=None) as server:
        result = await Agent(server.model(id, api_key=None), retry=ONCE).run("Hello?")
    assert (result.text, result.detail) == ("Hi.", "")
    (path,) = server.paths
    assert path == f"/model/{id.replace(':', '%3A').replace('/', '%2F')}/converse-stream"
    region = "eu-west-1" if id == ARN else "us-east-1"
    check_signature(server.raw[0], f"{server.url}{path}", Credentials(ACCESS, SECRET, token), region)


async def test_boto3_sends_the_same_request_and_reads_the_same_answer() -> None:
    """The official client against the same server: path, body and what it makes of our frames."""
    async with RawServer("Hi.", answer(thinking("Hm."), "Hi."), key=KEY) as server:
        model = server.model(CLAUDE, settings={"region": "us-east-1"})
        asked = Agent(model, tools=[], retry=ONCE, system_prompt="Be kind.")
        await asked.run("Hello?")
        body = server.requests[0]

        def ask() -> list[Any]:
            config: Any = Config(retries={"max_attempts": 0}, parameter_validation=True)
            session: Any = Session()
            client = session.create_client(
                "bedrock-runtime", "us-east-1", endpoint_url=server.url, aws_access_key_id="a",
                aws_secret_access_key="b", config=config,
            )  # fmt: skip
            return list(client.converse_stream(modelId=CLAUDE, **body)["stream"])

        server.key = None
        events = await asyncio.to_thread(ask)
    assert server.paths[0] == server.paths[1]
    assert server.requests[1] == body
    assert [next(iter(event)) for event in events][:2] == ["messageStart", "contentBlockDelta"]
    assert "metadata" in events[-1]


@pytest.mark.parametrize(
    ("settings", "variables", "id", "host"),
    [
        ({"region": "eu-central-1"}, {"AWS_REGION": "us-east-1"}, CLAUDE, "eu-central-1.amazonaws.com"),
        ({}, {"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "us-east-1"}, CLAUDE, "us-west-2.amazonaws.com"),
        ({}, {"AWS_DEFAULT_REGION": "ap-south-1"}, CLAUDE, "ap-south-1.amazonaws.com"),
        ({}, {"AWS_REGION": "us-east-1"}, ARN, "eu-west-1.amazonaws.com"),
        ({"region": "cn-north-1"}, {}, CLAUDE, "cn-north-1.amazonaws.com.cn"),
    ],
)
@pytest.mark.usefixtures("signed_in")
async def test_the_host_follows_the_region(
    settings: dict[str, Any], variables: dict[str, str], id: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a proxy that refuses everything, so that nothing leaves this machine."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    model = get_model(f"bedrock:{id}", settings={**settings, "proxy": "http://127.0.0.1:9"})
    result = await Agent(model, retry=ONCE).run("Hello?")
    assert f"https://bedrock-runtime.{host}/model/" in result.detail


@pytest.mark.usefixtures("signed_in")
@pytest.mark.parametrize("region", ["evil.example/", "us-east-1@evil", "", 7])
async def test_a_region_cannot_change_the_host(region: Any) -> None:
    result = await Agent(Model("bedrock", CLAUDE, settings={"region": region}), retry=ONCE).run("Hello?")
    assert result.error_kind == "invalid_request"
    assert "region" in result.detail


async def test_what_is_missing_is_named_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_bedrock(AwsChain())
    result = await Agent(f"bedrock:{CLAUDE}", stream_fn=stream, retry=ONCE).run("Hello?")
    assert "No region for" in result.detail
    assert "Set AWS_REGION" in result.detail
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    result = await Agent(f"bedrock:{CLAUDE}", stream_fn=stream, retry=ONCE).run("Hello?")
    assert result.error_kind == "authentication"
    assert "AWS_BEARER_TOKEN_BEDROCK" in result.detail
    assert "AWS_ACCESS_KEY_ID" in result.detail


async def test_a_profile_gives_credentials_and_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """botocore's chain: the default profile, and one by name, which comes before the environment."""
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = {SECRET}\n"
        f"[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = {SECRET}\naws_session_token = {TOKEN}\n"
    )
    (tmp_path / "config").write_text("[default]\nregion = us-west-2\n[profile work]\nregion = eu-north-1\n")
    stream = stream_bedrock(AwsChain())
    async with BedrockServer("Hi.", "Hi.", key=None) as server:
        await Agent(server.model(CLAUDE, api_key=None), stream_fn=stream, retry=ONCE).run("Hello?")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        work = server.model(CLAUDE, api_key=None, settings={"profile": "work"})
        await Agent(work, stream_fn=stream, retry=ONCE).run("Hello?")
    first, second = (received.headers for received in server.raw)
    assert "Credential=AKIADEFAULT/" in first["authorization"]
    assert "/us-west-2/bedrock/" in first["authorization"]
    assert "Credential=AKIAWORK/" in second["authorization"]
    assert "/eu-north-1/bedrock/" in second["authorization"]
    assert second["x-amz-security-token"] == TOKEN


async def test_credentials_that_are_about_to_end_are_renewed(tmp_path: Path) -> None:
    """botocore asks the program of a profile again before its credentials end; each call here gives another key."""
    program = tmp_path / "give-credentials"
    count = tmp_path / "count"
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    program.write_text(
        f"#!/bin/sh\necho x >> {count}\n"
        f'echo \'{{"Version": 1, "AccessKeyId": "AKIA\'$(wc -l < {count} | tr -d \' \')\'", '
        f'"SecretAccessKey": "{SECRET}", "SessionToken": "t", "Expiration": "{soon}"}}\'\n'
    )
    program.chmod(0o700)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    chain = AwsChain()
    first, second = await chain.get_credentials(None), await chain.get_credentials(None)
    assert (first.secret_key, second.session_token) == (SECRET, "t")
    assert int(second.access_key.removeprefix("AKIA")) > int(first.access_key.removeprefix("AKIA"))


async def test_a_profile_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = us-west-2\n")
    model = Model("bedrock", CLAUDE, settings={"profile": "nobody"})
    result = await Agent(model, stream_fn=stream_bedrock(AwsChain()), retry=ONCE).run("Hello?")
    assert "nobody" in result.detail or "No region" in result.detail
    assert result.end_reason == "error"


async def test_a_server_of_your_own_may_need_no_credentials() -> None:
    async with BedrockServer("Hi.", key=None) as server:
        agent = Agent(server.model(CLAUDE, api_key=None), stream_fn=stream_bedrock(AwsChain()), retry=ONCE)
        assert (await agent.run("Hello?")).text == "Hi."
    assert "authorization" not in server.raw[0].headers


@pytest.mark.usefixtures("signed_in")
async def test_secrets_that_aws_quotes_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS quotes the canonical request, and with it the session token, when a signature is wrong."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    words = f"The signature does not match. Canonical: x-amz-security-token:{TOKEN} {SECRET} {ACCESS}"
    named = {"x-amzn-errortype": "InvalidSignatureException"}
    async with BedrockServer(Reply(403, {"message": words}, named), key=None) as server:
        result = await Agent(server.model(CLAUDE, api_key=None), retry=ONCE).run("Hello?")
    assert result.error_kind == "authentication"
    assert "[redacted]" in result.detail
    assert [secret for secret in (TOKEN, SECRET, ACCESS) if secret in repr(result)] == []
    assert {SECRET, TOKEN} <= find_known_keys()


async def test_a_server_of_another_protocol_is_recognised() -> None:
    async with AnthropicServer(key=None) as server:
        model = Model("bedrock", "m", base_url=server.url, api_key=KEY)
        result = await Agent(model, retry=ONCE).run("Hello?")
    assert "It looks like Anthropic Messages: use 'anthropic:m'" in result.detail


async def test_an_answer_in_bytes_of_any_pieces_is_the_same() -> None:
    """failures.md B1: over a socket, byte by byte."""
    stream = begun() + said(0, "Größe ", "🙂") + called(1, "c1", "add", '{"a": 1, ', '"b": 2}') + ended("tool_use")
    for chunk in (1, 5, None):
        async with BedrockServer(stream, "Three.", key=KEY, chunk=chunk) as server:
            result = await Agent(server.model(CLAUDE), tools=[add], retry=ONCE).run("Go.")
        assert (result.text, result.detail, result.messages[1].text) == ("Three.", "", "Größe 🙂")


@pytest.mark.parametrize(
    ("id", "window"),
    [
        (CLAUDE, 200_000),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", 200_000),
        (ARN, 200_000),
        ("us.amazon.nova-lite-v1:0", 300_000),
    ],
)
def test_prices_and_windows_are_those_of_the_base_model(id: str, window: int) -> None:
    model = get_model(f"bedrock:{id}")
    assert model.id == id
    assert model.prices is not None
    assert model.context_window == window


def test_an_option_that_the_api_lacks_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(ValueError, match="takes no seed"):
        Agent(f"bedrock:{CLAUDE}", seed=7)
    with pytest.raises(ValueError, match="takes temperature or top_p"):
        Agent(f"bedrock:{CLAUDE}", temperature=0.5, top_p=0.5)


async def test_the_environment_of_a_command_has_no_credentials(
    signed_in: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Child processes get the variables of a list, and no key is on it."""
    from steersman.tools.confine.launch import build_child_environment

    del signed_in
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AZURE_OPENAI_API_KEY", "GOOGLE_CLOUD_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    shown = json.dumps(build_child_environment())
    assert "AWS_" not in shown
    assert "AZURE_" not in shown
    assert "GOOGLE_" not in shown


async def test_a_second_turn_begins_with_the_bytes_of_the_first() -> None:
    """The prompt cache finds them again."""
    async with BedrockServer("One.", "Two.", key=KEY) as server:
        agent = Agent(server.model("meta.llama3-3-70b-instruct-v1:0"), retry=ONCE)
        await agent.run("First?")
        await agent.run("Second?")
    first = server.raw[0].body.partition(b'"messages":[')[2].removesuffix(b"]}")
    assert server.raw[1].body.partition(b'"messages":[')[2].startswith(first)


WITHOUT = """
import asyncio, sys
sys.modules[{module!r}] = None
from steersman import Agent
print(asyncio.run(Agent({model!r}).run("Hi")).detail)
"""


@pytest.mark.parametrize(
    ("module", "model", "extra"),
    [("botocore", "bedrock:m", "bedrock"), ("google.auth", "vertex:gemini-2.5-pro", "vertex")],
)
def test_without_its_package_a_sign_in_names_the_extra(
    module: str, model: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own that cannot import the package."""
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "acme")
    code = WITHOUT.format(module=module, model=model)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert f"pip install 'steersman[{extra}]'" in done.stdout
    assert done.stderr == ""


def test_a_key_needs_neither_package() -> None:
    """Nothing of them is loaded for a request with a key."""
    code = "import asyncio, sys\nfrom steersman import Agent, Retry\n"
    for name in ("bedrock:m", "vertex:gemini-2.5-pro", "azure:m"):
        code += (
            f"agent = Agent({name!r}, api_key='AIza-key', base_url='http://127.0.0.1:9', retry=Retry(max_attempts=1))\n"
            "assert 'Could not reach' in asyncio.run(agent.run('Hi')).detail\n"
        )
    code += "print([name for name in sys.modules if name.split('.')[0] in ('botocore', 'google')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"AWS_REGION": "us-east-1", "PATH": ""},
    )
    assert done.stdout.strip() == "[]"
