"""The registry: from a model's name to its `Model`, its API key, and the `StreamFn` of its provider.

Base URLs and the variables for keys are in `presets`, context windows and prices in `catalogue`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from functools import lru_cache
from sys import intern
from typing import Any, TypeAlias, cast

from steersman.provider.models.presets import CREDENTIALS_ADVICE, PRESETS, Preset, find_base_url
from steersman.types.errors import AuthenticationError
from steersman.types.guards import is_instance
from steersman.types.model import Model, Request, StreamFn, StreamOptions, StreamResponse
from steersman.types.secrets import list_secret_words

_SECRET = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def get_given_key(model: Model, options: StreamOptions) -> str | None:
    """The key that came with the call, if one did; then no key function is called."""
    return _clean_key(options.api_key, model) if options.api_key else None


async def find_key(model: Model, options: StreamOptions) -> str | None:
    """The key for a request; `None` if the provider works without one, else raises `AuthenticationError`."""
    key = options.api_key or await _get_own_key(model)
    preset = PRESETS.get(model.provider)
    if not key and preset is not None:
        key = next((value for name in preset.keys if (value := os.environ.get(name, "").strip())), None)
    if key:
        return _clean_key(key, model)
    if preset is None or preset.sign_in:
        return None
    if preset.key_required and preset.is_own_url(model.base_url):
        raise AuthenticationError(_describe_missing_key(model, preset), provider=model.provider)
    return None


def find_known_keys(*models: Model) -> set[str]:
    """All keys that these models and the environment hold, for any provider; no key function is called."""
    names = {name for preset in PRESETS.values() for name in (*preset.keys, *preset.secrets)}
    found = {os.environ.get(name, "").strip() for name in names}
    for model in models:
        found.add(model.api_key if isinstance(model.api_key, str) else "")
        found.update(find_secret_headers(model))
    found.discard("")
    return found


def find_secret_headers(model: Model) -> list[str]:
    """The secrets among a model's own headers."""
    sent = [value for name, value in model.headers.items() if _SECRET.search(name)]
    return [word for value in sent for word in list_secret_words(value)]


async def _get_own_key(model: Model) -> str | None:
    key = model.api_key
    if key is None or isinstance(key, str):
        return key
    try:
        given = key()
        found = cast(object, await given if isinstance(given, Awaitable) else given)
    except Exception as error:
        # Only the type is named: the message of a key store may hold the key.
        text = f"The api_key function of {model.name} raised {type(error).__name__}; it must return the key."
        raise AuthenticationError(text, provider=model.provider) from error
    if found is not None and not isinstance(found, str):
        text = f"The api_key function of {model.name} returned a {type(found).__name__}; it must return a string."
        raise AuthenticationError(text, provider=model.provider)
    return found


def _clean_key(key: str, model: Model) -> str:
    """The key without the white space that files and shells leave; never shown, not even if it is malformed."""
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        text = (
            f"The key for {model.provider!r} is empty or has characters that a header cannot hold, such as a line "
            "break; copy it again."
        )
        raise AuthenticationError(text, provider=model.provider)
    return key


def _describe_missing_key(model: Model, preset: Preset) -> str:
    variables = " or ".join(preset.keys)
    where = f"Set the environment variable {variables}, or give api_key=..." if variables else "Give api_key=..."
    return f"No API key for the provider {model.provider!r} (model {model.name!r}). {where}"


Context: TypeAlias = Request
SimpleStreamOptions: TypeAlias = StreamOptions

_OVERRIDABLE = tuple(field.name for field in fields(Model) if field.name not in ("provider", "id"))


def _load_scripted() -> StreamFn:
    from steersman.provider.scripted.model import stream_scripted

    return stream_scripted


def _load_local() -> StreamFn:
    from steersman.provider.local import stream_local

    return stream_local()


def _load_azure() -> StreamFn:
    from steersman.provider.clouds.azure import stream_azure

    return stream_azure()


def _load_azure_chat() -> StreamFn:
    from steersman.provider.clouds.azure import stream_azure_chat

    return stream_azure_chat()


def _load_bedrock() -> StreamFn:
    from steersman.provider.clouds.bedrock import stream_bedrock

    return stream_bedrock()


def _load_vertex() -> StreamFn:
    from steersman.provider.clouds.vertex import stream_vertex

    return stream_vertex()


_loaders: dict[str, Callable[[], StreamFn]] = {
    "azure": _load_azure,
    "azure-chat": _load_azure_chat,
    "bedrock": _load_bedrock,
    "local": _load_local,
    "vertex": _load_vertex,
    "scripted": _load_scripted,
}
_loaded: dict[str, StreamFn] = {}


def get_model(
    name: str | Model,
    *,
    base_url: str | None = None,
    api_key: str | Callable[[], str | Awaitable[str]] | None = None,
    **overrides: Any,
) -> Model:
    """A model from `"provider:model-id"` or a `Model`; the arguments replace what is known about it.

    A name is looked up in the catalogue; a `Model` stays as it is, and an agent looks up what it does not say.
    """
    if isinstance(name, Model) and base_url is None and api_key is None and not overrides:
        return name
    provider, model_id = (name.provider, name.id) if isinstance(name, Model) else _parse_name(name)
    unknown = sorted(overrides.keys() - _OVERRIDABLE)
    if unknown:
        raise TypeError(f"A model has no {', '.join(map(repr, unknown))}; it has {', '.join(_OVERRIDABLE)}.")
    if base_url is not None and not is_instance(base_url, str):
        raise TypeError(f"base_url must be a URL such as 'http://127.0.0.1:8000/v1', got {base_url!r}.")
    if base_url is not None:
        _check_base_url(base_url)
    if api_key is not None and not isinstance(api_key, str) and not callable(api_key):
        raise TypeError(f"api_key must be a string or a function that returns one, got a {type(api_key).__name__}.")
    given: dict[str, Any] = {"base_url": base_url, "api_key": api_key, **overrides}
    changes = {key: value for key, value in given.items() if value is not None}
    if isinstance(name, Model):
        return replace(name, **changes) if changes else name
    known = {**_find_known_facts(provider, model_id, base_url), **changes}
    if overrides or callable(api_key):  # two functions may be equal and give other keys
        return Model(provider, model_id, **known)
    return _share_model(provider, model_id, tuple(known.items()))


@lru_cache(maxsize=256)
def _share_model(provider: str, model_id: str, known: tuple[tuple[str, Any], ...]) -> Model:
    """The same model for the same fields: agents share it, and with it what is worked out once for a model."""
    return Model(provider, model_id, **dict(known))


def complete_model(model: Model) -> Model:
    """The model with what the catalogue knows about its id, where the model itself says nothing."""
    if model.prices is not None and model.context_window is not None and model.max_output_tokens is not None:
        return model
    known = _find_known_facts(model.provider, model.id, model.base_url)
    missing = {name: value for name, value in known.items() if getattr(model, name) is None}
    return replace(model, **missing) if missing else model


def register_provider(name: str, loader: Callable[[], StreamFn]) -> None:
    """Make `name:...` models use the `StreamFn` that `loader()` returns; it is called once, on first use."""
    _check_provider_name(name)
    if not callable(loader):
        raise TypeError(f"loader must be a function without arguments that returns a StreamFn, got {loader!r}.")
    _loaders[name] = loader
    _loaded.pop(name, None)


def list_provider_names() -> tuple[str, ...]:
    """The names of all providers, sorted."""
    from steersman.provider.models.presets import PRESETS

    return tuple(sorted({*_loaders, *PRESETS}))


def find_stream_fn(model: Model) -> StreamFn:
    """The `StreamFn` of the model's provider; raises `NotImplementedError` for an unknown provider."""
    name = model.provider
    stream_fn = _loaded.get(name)
    if stream_fn is not None:
        return stream_fn
    check_provider(model)
    stream_fn = _loaded[name] = (_loaders.get(name) or _PROTOCOLS[PRESETS[name].protocol])()
    return stream_fn


def check_provider(model: Model) -> None:
    """Raise `NotImplementedError` if the model's provider is not known; nothing is loaded for it."""
    name = model.provider
    if name not in _loaders and name not in PRESETS:
        raise NotImplementedError(
            f"No provider named {name!r} for the model {model.name!r}.{_suggest_provider(name)} "
            f"Known providers: {', '.join(list_provider_names())}. For a compatible server, use "
            f"'openai-chat:{model.id}' with base_url=... "
            f"Give a function of your own as stream_fn=..., or register one with register_provider({name!r}, loader)."
        )


async def stream_simple(
    model: Model | str, context: Context, options: SimpleStreamOptions | None = None
) -> StreamResponse:
    """The events of one answer from the model's provider, in normal form."""
    from steersman.provider.streaming.normalize import stream_events  # a loop asks the model in its own way

    asked = complete_model(get_model(model))
    return stream_events(find_stream_fn(asked), asked, context, StreamOptions() if options is None else options)


def _load_anthropic() -> StreamFn:
    from steersman.provider.wires.anthropic.wire import stream_anthropic

    return stream_anthropic()


def _load_openai() -> StreamFn:
    from steersman.provider.http.client import http_stream
    from steersman.provider.streaming.output_tool import with_output_tool
    from steersman.provider.wires.openai_responses.schema import choose_output_mode
    from steersman.provider.wires.openai_responses.wire import OpenAIResponsesWire

    return with_output_tool(http_stream(OpenAIResponsesWire()), choose_output_mode)


def _load_openai_chat() -> StreamFn:
    from steersman.provider.http.client import http_stream
    from steersman.provider.streaming.output_tool import with_output_tool
    from steersman.provider.wires.openai_chat.quirks import choose_output_mode
    from steersman.provider.wires.openai_chat.wire import WIRE

    return with_output_tool(http_stream(WIRE), choose_output_mode)


def _load_google() -> StreamFn:
    from steersman.provider.http.client import http_stream
    from steersman.provider.streaming.output_tool import with_output_tool
    from steersman.provider.wires.google.encode import choose_output_mode
    from steersman.provider.wires.google.wire import GoogleWire

    return with_output_tool(http_stream(GoogleWire()), choose_output_mode)


_PROTOCOLS: dict[str, Callable[[], StreamFn]] = {
    "anthropic": _load_anthropic,
    "bedrock": _load_bedrock,
    "openai": _load_openai,
    "openai-chat": _load_openai_chat,
    "google": _load_google,
}


def _find_known_facts(provider: str, model_id: str, base_url: str | None) -> dict[str, Any]:
    """What the catalogue knows about a model; behind another base URL only its list prices, for an estimate."""
    from steersman.provider.models.catalogue import find_facts

    facts = find_facts(provider, model_id)
    preset = PRESETS.get(provider)
    url = base_url or find_base_url(provider)
    if url is not None and (preset is None or not preset.is_own_url(url)):
        # Another server may have another context window for the same model.
        return {} if facts.prices is None else {"prices": facts.prices}
    known = {
        "context_window": facts.context_window,
        "max_output_tokens": facts.max_output_tokens,
        "prices": facts.prices,
    }
    return {name: value for name, value in known.items() if value is not None}


def _suggest_provider(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list_provider_names(), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _parse_name(name: object) -> tuple[str, str]:
    """The provider and the id of a model."""
    if not isinstance(name, str):
        raise TypeError(f"A model is 'provider:model-id' or a Model, got {name!r}.")
    provider, colon, model_id = name.strip().partition(":")
    if not (colon and provider.strip() and model_id.strip()):
        raise ValueError(
            f"A model is named 'provider:model-id', such as 'anthropic:claude-sonnet-4-5', got {name!r}. "
            f"Known providers: {', '.join(list_provider_names())}."
        )
    return intern(provider.strip()), intern(model_id.strip())  # agents of one model share its name


def _check_base_url(url: str) -> None:
    """Check a base URL without showing what may be a password."""
    shown = url.rpartition("@")[2]
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"base_url must be a URL such as 'http://127.0.0.1:8000/v1', got {shown!r}.")
    if "@" not in url:
        return
    from steersman.provider.http.errors import has_credentials  # only errors need it

    if has_credentials(url):
        raise ValueError(f"base_url has a user name or a password before {shown!r}. {CREDENTIALS_ADVICE}")


def _check_provider_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or ":" in name:
        raise ValueError(f"A provider's name must be a word without a colon, got {name!r}.")
