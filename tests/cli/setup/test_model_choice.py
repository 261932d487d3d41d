"""Which model is taken, in which order, and what the line says about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.lists import listing, model_list
from tests.rows import each_row

from steersman.cli.exits import UserError
from steersman.cli.setup.model_choice import DEFAULT_MODELS, SERVERS, SMALL_MODEL_NOTE, choose_model, resolve_model
from steersman.cli.setup.settings import ProviderSettings, Settings
from steersman.provider.models.presets import PRESETS

pytestmark = pytest.mark.real_time
NONE = Settings()


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key, no address, no server, and the providers as they are known."""
    known = dict(PRESETS)
    for preset in known.values():
        for variable in (*preset.keys, *preset.addresses, "OLLAMA_HOST"):
            monkeypatch.delenv(variable, raising=False)
    for provider in SERVERS:
        monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "http://127.0.0.1:1/v1")
    yield
    PRESETS.clear()
    PRESETS.update(known)


async def test_a_named_model_comes_before_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    found = await choose_model("openai:gpt-5", Settings(model="groq:x"))
    assert (found.model.name, found.why) == ("openai:gpt-5", "Using openai:gpt-5 (--model).")


async def test_the_settings_come_before_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("GROQ_API_KEY", "k")
    found = await choose_model(None, Settings(model="groq:x", model_from=tmp_path / ".config/steersman/config.toml"))
    assert found.why == "Using groq:x (from ~/.config/steersman/config.toml)."


async def test_keys_are_looked_for_in_a_fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order = [*DEFAULT_MODELS]
    assert order == ["anthropic", "openai", "google", *sorted(order[3:])]
    for provider in reversed(order):
        variable = PRESETS[provider].keys[-1]
        monkeypatch.setenv(variable, "k")
        found = await choose_model(None, NONE)
        assert found.why == f"Using {provider}:{DEFAULT_MODELS[provider]} ({variable} is set)."


async def test_a_key_that_is_meant_for_something_else_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token for downloads is no wish to send one's files there."""
    monkeypatch.setenv("HF_TOKEN", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    assert (await choose_model(None, NONE)).model.provider == "local"


async def test_an_own_server_behind_openais_variables_is_asked_for_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    with listing({"/v1/models": model_list("own-model")}) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server}/v1")
        assert (await choose_model(None, NONE)).why == "Using openai-chat:own-model (OPENAI_BASE_URL is set)."
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server}/v2")
        with pytest.raises(UserError, match="Name one: --model openai-chat:MODEL"):
            await choose_model(None, NONE)


async def test_a_server_on_this_machine_comes_after_keys_and_before_the_embedded_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listing({"/v1/models": model_list("nomic-embed-text", "qwen3:8b")}) as server:
        monkeypatch.setenv("LMSTUDIO_BASE_URL", f"{server}/v1")
        found = await choose_model(None, NONE)
        place = server.removeprefix("http://")
        assert found.why == f"Using lmstudio:qwen3:8b (LM Studio answers on {place})."
        assert found.model.base_url == f"{server}/v1"
        assert (await resolve_model("lmstudio")).name == "lmstudio:qwen3:8b"
        monkeypatch.setenv("ZAI_API_KEY", "k")
        assert (await choose_model(None, NONE)).model.provider == "zai"


async def test_the_embedded_model_is_last_and_says_what_would_be_better() -> None:
    found = await choose_model(None, NONE)
    assert (
        found.why == f"Using {found.model.name} (no key is set and no local model server answers). {SMALL_MODEL_NOTE}"
    )
    assert found.model == await resolve_model("local")
    assert found.model.provider == "local"


async def test_a_server_that_is_named_and_not_there_is_told() -> None:
    with pytest.raises(UserError, match=r"Ollama does not answer at 'http://127\.0\.0\.1:1/v1'"):
        await resolve_model("ollama")
    with listing({"/v1/models": model_list("bge-m3")}) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_BASE_URL", f"{server}/v1")
        with pytest.raises(UserError, match="Ollama has no chat model"):
            await resolve_model("ollama")


async def test_ollamas_own_variable_holds_for_a_named_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL")
    assert (await resolve_model("ollama:x:8b")).base_url is None
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:5")
    assert (await resolve_model("ollama:x:8b")).base_url == "http://127.0.0.1:5/v1"


@each_row(
    ("name", "says"),
    [
        ("gpt-5", "'gpt-5' has no provider. Did you mean 'openai:gpt-5'?"),
        ("claude-x", "Did you mean 'anthropic:claude-x'?"),
        ("antropic", "'antropic' is not a model: write 'provider:model-id', such as 'anthropic:"),
        ("antropic", "Did you mean 'anthropic'?"),
        ("grok:x", "No provider is named 'grok'. Did you mean 'groq'? Providers: anthropic, "),
        ("", "'' is not a model"),
        ("perplexity", "Which model of 'perplexity'? Name it: --model perplexity:MODEL."),
        ("anthropic:x", "No key for anthropic:x: set the environment variable ANTHROPIC_API_KEY."),
        (
            "google",
            f"No key for google:{DEFAULT_MODELS['google']}: set the environment variable GEMINI_API_KEY or GOOGLE",
        ),
    ],
)
async def test_a_wrong_name_is_told_with_what_may_be_meant(name: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        await resolve_model(name)
    assert says in str(caught.value)


async def test_a_broken_key_is_told_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L13."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-se\ncret")
    with pytest.raises(UserError, match="characters that a header cannot hold") as caught:
        await resolve_model("anthropic")
    assert "cret" not in str(caught.value)


async def test_the_settings_name_addresses_and_variables_of_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = {
        "acme": ProviderSettings("https://llm.acme.example/v1", "ACME_KEY", "anthropic"),
        "groq": ProviderSettings(api_key_env="OTHER_KEY"),
        "openai": ProviderSettings("http://127.0.0.1:5/v1"),
    }
    with pytest.raises(UserError, match="No key for acme:x: set the environment variable ACME_KEY"):
        await choose_model("acme:x", Settings(providers=providers))
    monkeypatch.setenv("ACME_KEY", "k")
    monkeypatch.setenv("OTHER_KEY", "k")
    assert (await choose_model("acme:x", NONE)).model.name == "acme:x"
    assert PRESETS["acme"].protocol == "anthropic"
    assert (await choose_model(None, NONE)).why == f"Using groq:{DEFAULT_MODELS['groq']} (OTHER_KEY is set)."
    assert (await choose_model("openai:x", NONE)).model.name == "openai:x"  # an own server, so no key is needed
    with pytest.raises(UserError, match=r"needs a base_url\. Did you mean 'groq'"):
        await choose_model("groq:x", Settings(providers={"grok": ProviderSettings(api_key_env="X")}))
