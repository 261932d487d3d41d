from __future__ import annotations

from typing import Any, cast

import pytest
from tests.provider.streaming.streams import HELLO, REQUEST, Attempts, said

from steersman.provider.models.presets import PRESETS
from steersman.provider.models.registry import (
    Context,
    SimpleStreamOptions,
    find_stream_fn,
    get_model,
    list_provider_names,
    register_provider,
    stream_simple,
)
from steersman.testing.clock import run_virtual
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamEvent
from steersman.types.usage import Prices


def test_a_model_is_named_by_its_provider_and_its_id() -> None:
    assert get_model("openai-chat:qwen3:8b", base_url="http://127.0.0.1:8000/v1", api_key="none") == Model(
        "openai-chat", "qwen3:8b", base_url="http://127.0.0.1:8000/v1", api_key="none"
    )


def test_what_is_given_goes_over_what_a_model_says() -> None:
    model = Model("lab", "rat", base_url="http://a", context_window=10)
    prices = Prices(1, 2)

    assert get_model(model) is model
    assert get_model(model, base_url="http://b", prices=prices) == Model(
        "lab", "rat", base_url="http://b", context_window=10, prices=prices
    )


@pytest.mark.parametrize("name", ["claude", "", ":", "anthropic:", ":claude", "  :  ", "anthropic: "])
def test_a_name_without_both_parts_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(ValueError, match=r"'provider:model-id', such as 'anthropic:claude-sonnet-4-5', got "):
        get_model(name)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'provider:model-id' or a Model, got None"):
        get_model(cast(Any, None))
    with pytest.raises(TypeError, match=r"A model has no 'temperature'; it has base_url, api_key, context_window"):
        get_model("lab:rat", temperature=1)


@pytest.mark.parametrize("provider", ["nobody", "elsewhere"])
def test_a_provider_that_is_not_there_says_what_to_do(provider: str) -> None:
    with pytest.raises(NotImplementedError) as raised:
        find_stream_fn(Model(provider, "m"))

    text = str(raised.value)
    assert f"No provider named '{provider}' for the model '{provider}:m'. " in text
    assert f"Known providers: {', '.join(list_provider_names())}. " in text
    assert "'openai-chat:m' with base_url=" in text
    assert "stream_fn=" in text
    assert f"register_provider('{provider}', loader)" in text


def test_a_slip_in_a_providers_name_is_seen() -> None:
    with pytest.raises(NotImplementedError, match=r"No provider named 'antropic' .* Did you mean 'anthropic'\?"):
        find_stream_fn(Model("antropic", "m"))


@pytest.mark.parametrize("provider", sorted(PRESETS))
def test_a_known_provider_can_be_asked(provider: str) -> None:
    assert provider in list_provider_names()
    assert find_stream_fn(Model(provider, "m")) is find_stream_fn(Model(provider, "other"))


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost/v1", "ftp://host", ""])
def test_an_address_without_http_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"base_url must be a URL such as 'http://127.0.0.1:8000/v1', got "):
        get_model("openai-chat:m", base_url=url)


@pytest.mark.parametrize("url", ["http://user:hunter2@host/v1", "https://hunter2@host", "user:hunter2@host/v1"])
def test_an_address_with_a_password_is_refused_and_the_password_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="base_url ") as caught:
        get_model("openai-chat:m", base_url=url)
    assert "'host" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_scripted_provider_is_known() -> None:
    from steersman.provider.scripted.model import stream_scripted

    assert "scripted" in list_provider_names()
    assert find_stream_fn(Model("scripted", "echo")) is stream_scripted


def test_a_registered_provider_is_loaded_once_when_first_asked_and_can_be_replaced() -> None:
    loads: list[str] = []
    first, second = Attempts(), Attempts()

    def load_first() -> Attempts:
        loads.append("first")
        return first

    register_provider("test-models-lab", load_first)
    model = Model("test-models-lab", "rat")
    assert loads == []
    assert [find_stream_fn(model), find_stream_fn(model)] == [first, first]
    register_provider("test-models-lab", lambda: second)

    assert (find_stream_fn(model), loads) == (second, ["first"])
    assert list_provider_names() == tuple(sorted(list_provider_names()))


@pytest.mark.parametrize("name", ["", " ", "a:b", None])
def test_a_provider_name_that_could_not_be_asked_for_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="a word without a colon, got "):
        register_provider(name, Attempts)


def test_a_loader_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="a function without arguments that returns a StreamFn, got 3"):
        register_provider("test-models-lab", cast(Any, 3))


def test_stream_simple_asks_the_models_own_provider() -> None:
    source = Attempts([*said("hello"), Done(HELLO)])
    register_provider("test-models-lab", lambda: source)

    async def collect() -> list[StreamEvent]:
        return [event async for event in await stream_simple("test-models-lab:rat", REQUEST)]

    assert run_virtual(collect()) == [*said("hello"), Done(HELLO)]
    assert source.asked == [(Model("test-models-lab", "rat"), REQUEST, StreamOptions())]


def test_stream_simple_raises_where_there_is_no_provider() -> None:
    with pytest.raises(NotImplementedError, match="No provider named 'nobody'"):
        run_virtual(stream_simple(Model("nobody", "m"), Context("", ()), SimpleStreamOptions()))


def test_the_seeds_names_are_the_same_types() -> None:
    assert (Context, SimpleStreamOptions) == (Request, StreamOptions)


def test_agents_of_one_model_share_it() -> None:
    assert get_model("openai:some", api_key="x") is get_model("openai:some", api_key="x")
    assert get_model("openai:some", api_key="x") is not get_model("openai:some", api_key="y")


def test_functions_that_give_keys_are_not_shared() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

        def __call__(self) -> str:
            return "key"

    first, second = Equal(), Equal()
    assert get_model("openai:some", api_key=first).api_key is first
    assert get_model("openai:some", api_key=second).api_key is second
