"""Keys and addresses: where they come from, and what is said when there is none."""

from __future__ import annotations

from base64 import b64encode
from traceback import TracebackException
from typing import Any

import pytest
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, Retry
from steersman.provider.http.pool import find_proxy, is_loopback
from steersman.provider.models.presets import PRESETS, Preset, add_preset, find_base_url
from steersman.provider.models.registry import find_key, find_known_keys, find_stream_fn
from steersman.testing.clock import run_virtual
from steersman.testing.servers import OpenAIChatServer, Received, Reply
from steersman.types.errors import AuthenticationError, NetworkError
from steersman.types.messages import user_message
from steersman.types.model import Model, Request, StreamOptions

CANARY = "sk-canary-5f1e9c0a7b"
PLAIN = "correct-horse-5f1e9c"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for preset in PRESETS.values():
        for name in (*preset.keys, *preset.addresses):
            monkeypatch.delenv(name, raising=False)


def found(model: Model, options: StreamOptions | None = None) -> str | None:
    return run_virtual(find_key(model, options or StreamOptions()))


def test_a_key_is_taken_from_the_call_then_the_model_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", " from-environment\n")
    model = Model("anthropic", "m", api_key="from-model")

    assert found(model, StreamOptions(api_key="from-call")) == "from-call"
    assert found(model) == "from-model"
    assert found(Model("anthropic", "m", api_key="")) == "from-environment"
    assert found(Model("anthropic", "m")) == "from-environment"


def test_a_key_may_come_from_a_function_of_either_kind() -> None:
    async def later() -> str:
        return "later"

    assert found(Model("anthropic", "m", api_key=lambda: "now")) == "now"
    assert found(Model("anthropic", "m", api_key=later)) == "later"


def test_google_has_two_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "second")
    assert found(Model("google", "m")) == "second"
    monkeypatch.setenv("GEMINI_API_KEY", "first")
    assert found(Model("google", "m")) == "first"


@pytest.mark.parametrize(
    "provider", sorted(name for name, preset in PRESETS.items() if preset.key_required and not preset.sign_in)
)
def test_no_key_is_an_error_that_names_the_provider_the_variable_and_what_to_do(provider: str) -> None:
    with pytest.raises(AuthenticationError) as raised:
        found(Model(provider, "m"))

    text = str(raised.value)
    assert f"No API key for the provider '{provider}' (model '{provider}:m')." in text
    assert f"Set the environment variable {' or '.join(PRESETS[provider].keys)}, or give api_key=..." in text
    assert (raised.value.info.provider, raised.value.info.should_retry) == (provider, False)


def test_a_server_of_ones_own_may_be_asked_without_a_key() -> None:
    assert found(Model("openai-chat", "m", base_url="http://127.0.0.1:8000/v1")) is None
    assert found(Model("ollama", "vertex", "m")) is None
    assert found(Model("somebody", "m")) is None


@pytest.mark.parametrize("key", ["\n", f"{CANARY}\nX: y", f"{CANARY}\0", f"{CANARY}é"])
def test_what_cannot_be_a_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(
        AuthenticationError, match="'anthropic' is empty or has characters that a header cannot"
    ) as raised:
        found(Model("anthropic", "m", api_key=key))
    assert CANARY not in str(raised.value)


def test_a_function_that_fails_is_named_without_its_words() -> None:
    def broken() -> str:
        raise RuntimeError(f"could not decode {CANARY}")

    with pytest.raises(AuthenticationError, match="api_key function of anthropic:m raised RuntimeError") as raised:
        found(Model("anthropic", "m", api_key=broken))
    assert CANARY not in repr(raised.value.info)

    wrong: Any = lambda: 7  # noqa: E731
    with pytest.raises(AuthenticationError, match="returned a int; it must return a string"):
        found(Model("anthropic", "m", api_key=wrong))


def test_an_address_is_given_or_the_environments_or_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_base_url("openai-chat") == find_base_url("openai") == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1/ ")
    assert find_base_url("openai-chat") == find_base_url("openai") == "http://127.0.0.1:8000/v1"
    assert find_base_url("openai", "http://127.0.0.1:9/v1/") == "http://127.0.0.1:9/v1"
    assert find_base_url("anthropic") == "https://api.anthropic.com"
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    assert find_base_url("anthropic") == "http://127.0.0.1:1"
    assert find_base_url("somebody") is None


def test_the_servers_people_use_are_known() -> None:
    wanted = {
        "anthropic", "azure", "azure-chat", "bedrock", "openai", "openai-chat", "google", "openrouter", "deepseek",
        "groq", "mistral", "xai", "together", "fireworks", "ollama", "vllm", "llamacpp", "lmstudio", "cerebras",
    }  # fmt: skip
    assert wanted - PRESETS.keys() == set()
    for name, preset in PRESETS.items():
        if not preset.base_url:
            assert preset.addresses, name  # every customer has a URL of their own
            continue
        local = is_loopback(preset.base_url.split("/")[2].split(":")[0])
        assert preset.base_url.startswith("http://" if local else "https://"), name
        assert preset.key_required is not local, name
        assert preset.keys or local, name


def test_a_provider_of_ones_own_can_be_added() -> None:
    add_preset("test-keys-acme", Preset("openai-chat", "https://llm.acme.invalid/v1", ("ACME_API_KEY",)))
    try:
        assert find_base_url("test-keys-acme") == "https://llm.acme.invalid/v1"
        assert find_stream_fn(Model("test-keys-acme", "m")) is not None
        with pytest.raises(AuthenticationError, match="ACME_API_KEY"):
            found(Model("test-keys-acme", "m"))
    finally:
        del PRESETS["test-keys-acme"]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True), ("a.localhost", True), ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True),
        ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("example.com", False), ("127.evil.com", False),
        ("localhost.evil.com", False), ("", False), ("1", False),
    ],
)  # fmt: skip
def test_loopback_is_this_machine_and_nothing_that_looks_like_it(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_proxies_come_from_the_environment_but_never_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L26."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert find_proxy("https://api.anthropic.com/v1") is None

    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("all_proxy", "other.invalid:1")
    monkeypatch.setenv("no_proxy", "internal.invalid")
    assert find_proxy("https://api.anthropic.com/v1") == "http://proxy.invalid:3128"
    assert find_proxy("http://api.anthropic.com/v1") == "http://other.invalid:1"
    assert find_proxy("https://llm.internal.invalid:8443/v1") is None
    assert find_proxy("https://localhost/v1") is None
    assert find_proxy("http://127.0.0.1:8000/v1") is None
    assert find_proxy("http://[::1]:8000/v1") is None


@pytest.mark.real_time
@pytest.mark.parametrize("name", SERVERS)
async def test_a_wrong_key_is_told_with_the_variable_it_may_have_come_from(name: str) -> None:
    async with SERVERS[name]("Never.", key="the right one") as server:
        model = server.model(api_key=CANARY)
        result = await Agent(model).run("Hi")
    assert result.detail.startswith(f"{model.name}: ")
    preset = PRESETS[model.provider]
    where = " or ".join(preset.keys) + (f", or the {preset.sign_in}" if preset.sign_in else "")
    assert result.detail.endswith(f". Check the key: api_key=..., or the variable {where}.")


@pytest.mark.real_time
async def test_a_wrong_key_of_a_compatible_server_is_told_with_its_own_variable() -> None:
    async with OpenAIChatServer("Never.", key="the right one") as server:
        result = await Agent("groq:m", base_url=server.url, api_key=CANARY).run("Hi")
    assert result.detail.endswith("Check the key: api_key=..., or the variable GROQ_API_KEY.")


@pytest.mark.real_time
@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-chat", "google"])
async def test_a_traceback_that_shows_the_variables_does_not_show_the_key(provider: str) -> None:
    """failures.md L13: what error reporters send away."""
    model = Model(provider, "m", base_url="http://127.0.0.1:9/v1", api_key=CANARY)
    stream: Any = find_stream_fn(model)(model, Request("", [user_message("Hi")]), StreamOptions())
    with pytest.raises(NetworkError) as caught:
        await anext(stream)
    shown = TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in shown.stack if "steersman" in frame.filename and "tests" not in frame.filename]
    assert len(ours) > 2
    assert CANARY not in repr([frame.locals for frame in ours])


@pytest.mark.real_time
@pytest.mark.parametrize("header", ["authorization", "api-key", "x-gateway-token"])
@pytest.mark.parametrize("name", SERVERS)
async def test_a_key_in_a_header_of_ones_own_is_not_shown_where_a_server_quotes_it(name: str, header: str) -> None:
    """failures.md L13."""

    def quoting(received: Received) -> Reply:
        return Reply(503, f"Busy: {dict(received.headers)}")

    async with SERVERS[name](quoting, quoting, key=None, strict=False) as server:
        model = server.model(api_key=None, headers={header: f"Basic {CANARY}"})
        agent = Agent(model, retry=Retry(max_attempts=2, base_delay=0))
        told: list[str] = []
        agent.subscribe(lambda event: told.append(repr(event)))
        result = await agent.run("Hi")
    assert len(server.raw) == 2
    assert f"'{header}': 'Basic [redacted]'" in result.detail
    assert CANARY not in "".join((*told, repr(result)))


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("header", "value", "quoted"),
    [
        ("authorization", f"Basic {b64encode(f'user:{PLAIN}'.encode()).decode()}", f"user and {PLAIN}"),
        ("cookie", f"session={PLAIN}; theme=dark-and-plain", f"session={PLAIN}"),
        ("authorization", f'Digest username="someone", response="{PLAIN}", algorithm=SHA-256', f"'{PLAIN}'"),
    ],
)
async def test_a_key_in_a_part_of_a_header_is_not_shown_where_a_server_quotes_it(
    header: str, value: str, quoted: str
) -> None:
    """docs/providers.md: a key is never shown in an error, also if a server quotes it."""
    async with OpenAIChatServer(Reply(503, f"Busy: {quoted}"), key=None, strict=False) as server:
        result = await Agent(server.model(api_key=None, headers={header: value}), retry=Retry(max_attempts=1)).run("Hi")
    assert "Busy: " in result.detail
    assert PLAIN not in repr(result)


def test_no_word_before_a_key_in_a_header_is_taken_for_a_key() -> None:
    model = Model("openai", "m", headers={"authorization": f"Bearer {CANARY}", "cookie": "session-id=first-key; b=2"})
    assert {"Bearer", "session-id=first-key;"}.isdisjoint(found := find_known_keys(model))
    assert {CANARY, "first-key"} <= found
