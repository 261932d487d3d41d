"""`top_p`, `stop` and `seed`: sent where the protocol has them, refused at once where it has not."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from google.genai import types as google_types
from tests.provider.wires.google.test_sdk import client_for
from tests.provider.wires.protocols import SERVERS
from tests.rows import each_row

from steersman import Agent, AgentLoopConfig, get_model
from steersman.provider.models.registry import find_stream_fn
from steersman.provider.streaming.normalize import stream_events
from steersman.testing import ScriptedModel, answer, call
from steersman.testing.servers import AnthropicServer, GoogleServer, OpenAIChatServer, OpenAIResponsesServer
from steersman.types.messages import user_message
from steersman.types.model import Request, StreamOptions
from steersman.types.stream import Failed

pytestmark = pytest.mark.real_time

ALL: dict[str, Any] = {"top_p": 0.9, "stop": ["END", "\nUser:"], "seed": 7}
MODELS = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "bedrock": "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0",
    "google": "google:gemini-3-pro-preview",
    "openai": "openai-chat:gpt-4.1",
    "responses": "openai:gpt-4.1",
}
TAKEN: dict[str, tuple[str, ...]] = {
    "anthropic": ("top_p", "stop"),
    "bedrock": ("top_p", "stop"),
    "google": ("top_p", "stop", "seed"),
    "openai": ("top_p", "stop", "seed"),
    "responses": ("top_p",),
}
SENT: dict[str, dict[str, Any]] = {
    "anthropic": {"top_p": 0.9, "stop_sequences": ["END", "\nUser:"]},
    "bedrock": {"topP": 0.9, "stopSequences": ["END", "\nUser:"]},
    "google": {"topP": 0.9, "stopSequences": ["END", "\nUser:"], "seed": 7},
    "openai": {"top_p": 0.9, "stop": ["END", "\nUser:"], "seed": 7},
    "responses": {"top_p": 0.9},
}
FIELDS = frozenset(("top_p", "topP", "stop", "stop_sequences", "stopSequences", "seed", "random_seed"))


def sampling(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request that choose among tokens."""
    fields: dict[str, Any] = {**body, **body.get("generationConfig", {}), **body.get("inferenceConfig", {})}
    return {name: value for name, value in fields.items() if name in FIELDS}


@pytest.mark.parametrize("protocol", SERVERS)
async def test_the_options_are_sent_by_the_names_of_the_protocol(protocol: str) -> None:
    """api.md: `top_p`, `stop` and `seed` on all four wires."""
    async with SERVERS[protocol]("Hi.", "Hi.") as server:
        options = {name: ALL[name] for name in TAKEN[protocol]}
        agent = Agent(MODELS[protocol], base_url=server.url, api_key="test-key", **options)
        result = await agent.run("Hello")
        assert (result.end_reason, result.text) == ("done", "Hi.")
        assert sampling(server.requests[0]) == SENT[protocol]
        plain = await Agent(MODELS[protocol], base_url=server.url, api_key="test-key").run("Hello")
        assert (plain.end_reason, sampling(server.requests[1])) == ("done", {})


@pytest.mark.parametrize(
    ("protocol", "name"),
    [("anthropic", "seed"), ("bedrock", "seed"), ("responses", "stop"), ("responses", "seed")],
)
async def test_an_option_that_the_protocol_lacks_is_refused_when_the_agent_is_made(protocol: str, name: str) -> None:
    """docs/providers.md: an error at once that names the provider, never a silent drop."""
    model = get_model(MODELS[protocol], api_key="test-key")
    expected = rf"'{MODELS[protocol]}' takes no {name}"
    with pytest.raises(ValueError, match=expected):
        Agent(model, **{name: ALL[name]})
    with pytest.raises(ValueError, match=expected):
        AgentLoopConfig(model=model, **{name: ALL[name]})
    with pytest.raises(ValueError, match=expected):
        Agent("openai-chat:gpt-4.1", api_key="test-key", fallbacks=[model], **{name: ALL[name]})
    with pytest.raises(ValueError, match=expected):
        Agent("openai-chat:gpt-4.1", api_key="test-key", **{name: ALL[name]}).variant(model=model)
    # Below the agent the wire itself refuses, before anything is sent.
    asked = StreamOptions(api_key="test-key", **{name: ALL[name]})
    events = stream_events(find_stream_fn(model), model, Request("", [user_message("Hi")]), asked)
    (failed,) = [event async for event in events if isinstance(event, Failed)]
    assert failed.message.error_kind == "invalid_request"
    assert f"takes no {name}" in (failed.message.error_message or "")


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        ("claude-opus-4-7", {"top_p": 0.9}, r"'anthropic:claude-opus-4-7' takes no top_p"),
        ("claude-sonnet-4-5", {"top_p": 0.9, "thinking_level": "low"}, r"from 0.95 to 1 while it thinks, got 0.9"),
        ("claude-sonnet-4-5", {"top_p": 0.9, "temperature": 1.0}, "takes temperature or top_p, not both"),
        ("claude-sonnet-4-5", {"stop": ["\n\n"]}, r"no stop sequence of white space alone, got '\\n\\n'"),
    ],
)
def test_a_claude_model_that_would_refuse_an_option_is_named_at_once(
    model: str, options: dict[str, Any], text: str
) -> None:
    """docs/providers.md, Anthropic"""
    with pytest.raises(ValueError, match=text):
        Agent(f"anthropic:{model}", api_key="test-key", **options)


async def test_what_claude_takes_beside_top_p_is_sent() -> None:
    """docs/providers.md, Anthropic"""
    async with AnthropicServer("Hi.", "Hi.") as server:
        cases: list[tuple[str, dict[str, Any]]] = [
            ("claude-sonnet-4-5", {"thinking_level": "low"}),
            ("claude-3-5-haiku-latest", {"temperature": 1.0}),
        ]
        for model, options in cases:
            agent = Agent(f"anthropic:{model}", base_url=server.url, api_key="test-key", top_p=0.95, **options)
            assert (await agent.run("Hello")).end_reason == "done"
            assert sampling(server.requests[-1]) == {"top_p": 0.95}


async def test_mistral_gets_the_seed_by_its_own_name() -> None:
    """docs/providers.md, Chat Completions: `seed_field`"""
    async with OpenAIChatServer("Hi.", flavour="mistral") as server:
        agent = Agent("mistral:mistral-small", base_url=server.url, api_key="test-key", seed=7)
        assert (await agent.run("Hello")).end_reason == "done"
        assert sampling(server.requests[0]) == {"random_seed": 7}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"top_p": 1.5}, ValueError, "top_p is a number from 0 to 1 or None, got 1.5"),
        ({"top_p": True}, ValueError, "top_p is a number"),
        ({"stop": "END"}, TypeError, r"stop comes as a list of texts, such as stop=\['END'\], got 'END'"),
        ({"stop": ["END", ""]}, ValueError, "stop is a list of texts that are not empty, got ''"),
        ({"stop": [3]}, ValueError, "got 3 in it"),
        ({"seed": 1.5}, TypeError, "seed is a whole number or None, got 1.5"),
        ({"seed": True}, TypeError, "seed is a whole number"),
    ],
)
def test_a_wrong_value_is_refused_when_the_agent_is_made(options: Any, error: type[Exception], text: str) -> None:
    """house.md: a programmer's mistake raises at the call that made it."""
    script = ScriptedModel("Hi.")
    with pytest.raises(error, match=text):
        Agent(script.model, **options)
    with pytest.raises(error, match=text):
        AgentLoopConfig(model=script.model, **options)


async def test_a_stream_fn_of_ones_own_gets_the_options_whatever_the_provider() -> None:
    """api.md: a `StreamFn` replaces the provider, so that only it knows what it can send."""
    script = ScriptedModel(answer(call("nothing")), "Hi.")
    seen: list[StreamOptions] = []

    def ask(model: Any, request: Any, options: StreamOptions) -> Any:
        seen.append(options)
        return script(model, request, options)

    assert (await Agent("anthropic:claude-opus-4-7", stream_fn=ask, **ALL).run("Hello")).end_reason == "done"
    assert [(options.top_p, options.stop, options.seed) for options in seen] == [(0.9, ("END", "\nUser:"), 7)] * 2


@each_row(
    ("protocol", "fields", "words"),
    [
        ("anthropic", {"top_p": 2}, "top_p: range: 0..1"),
        ("anthropic", {"stop_sequences": [" "]}, "must contain non-whitespace"),
        ("anthropic", {"seed": 1}, "seed"),
        ("responses", {"top_p": 2}, "Invalid 'top_p'"),
        ("responses", {"seed": 1}, "seed"),
        ("openai", {"top_p": 2}, "Invalid 'top_p'"),
        ("openai", {"stop": ["a", "b", "c", "d", "e"]}, "array too long"),
        ("openai", {"seed": "x"}, "Invalid type for 'seed'"),
        ("google", {"generationConfig": {"topP": 2}}, "top_p must be in the range"),
        ("google", {"generationConfig": {"stopSequences": list("abcdef")}}, "at most 5"),
        ("google", {"generationConfig": {"seed": 2**40}}, "TYPE_INT32"),
    ],
)
async def test_the_strict_servers_refuse_what_the_real_ones_refuse(
    protocol: str, fields: dict[str, Any], words: str
) -> None:
    """wire.md: `Wire facts of the providers`"""
    async with SERVERS[protocol]("Hi.") as server:
        model = get_model(MODELS[protocol], base_url=server.url, api_key="test-key", settings={"extra_body": fields})
        result = await Agent(model).run("Hello")
        assert (result.end_reason, result.error_kind) == ("error", "invalid_request")
        assert words in result.detail


async def test_the_official_clients_send_the_same() -> None:
    """wire.md: the names are those of the SDKs' types, as far as these still have them."""
    # The SDK takes long to import: only the process that asks it does.
    import anthropic

    async with OpenAIChatServer("Hi.") as server, openai.AsyncOpenAI(base_url=server.url, api_key="test-key") as client:
        said: list[Any] = [{"role": "user", "content": "Hi"}]
        stream = await client.chat.completions.create(model="gpt-4.1", messages=said, stream=True, **ALL)
        assert [chunk async for chunk in stream]
        assert sampling(server.requests[0]) == SENT["openai"]
    async with (
        OpenAIResponsesServer("Hi.") as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="test-key") as client,
    ):
        events = await client.responses.create(model="gpt-4.1", input="Hi", stream=True, top_p=0.9)
        assert [event async for event in events]
        assert sampling(server.requests[0]) == SENT["responses"]
    async with (
        AnthropicServer("Hi.") as server,
        anthropic.AsyncAnthropic(base_url=server.url, api_key="test-key") as asked,
    ):
        messages = await asked.messages.create(
            model="claude-opus-4-6",
            max_tokens=100,
            messages=[{"role": "user", "content": "Hi"}],
            stop_sequences=ALL["stop"],
            extra_body={"top_p": 0.9},
            stream=True,
        )
        assert [event async for event in messages]
        assert sampling(server.requests[0]) == SENT["anthropic"]


def test_googles_client_sends_the_same() -> None:
    """wire.md, as above; it is a plain function because only the client without asyncio closes what it opened."""
    config = google_types.GenerateContentConfig(top_p=0.9, stop_sequences=ALL["stop"], seed=7)
    with GoogleServer("Hi.") as server, client_for(server) as client:
        given: Any = client.models
        assert list(given.generate_content_stream(model="gemini-3-pro-preview", contents="Hi", config=config))
    assert sampling(server.requests[0]) == SENT["google"]
