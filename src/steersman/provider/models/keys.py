"""Finds the API key of a request: from the call, the model, or the environment, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable
from typing import cast

from steersman.provider.models.presets import PRESETS, Preset
from steersman.types.errors import AuthenticationError
from steersman.types.model import Model, StreamOptions

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
    if preset is not None and preset.key_required and _is_official_server(model, preset):
        raise AuthenticationError(_describe_missing_key(model, preset), provider=model.provider)
    return None


def find_known_keys(*models: Model) -> set[str]:
    """All keys that these models and the environment hold, for any provider; no key function is called."""
    names = {name for preset in PRESETS.values() for name in preset.keys}
    found = {os.environ.get(name, "").strip() for name in names}
    for model in models:
        found.add(model.api_key if isinstance(model.api_key, str) else "")
        found.update(find_secret_headers(model))
    found.discard("")
    return found


def find_secret_headers(model: Model) -> list[str]:
    """The secrets among a model's own headers."""
    sent = (value for name, value in model.headers.items() if _SECRET.search(name))
    return [value.split()[-1] for value in sent if value.strip()]


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


def _is_official_server(model: Model, preset: Preset) -> bool:
    """Whether the request goes to the provider itself; a compatible server elsewhere may need no key."""
    return model.base_url is None or model.base_url.rstrip("/") == preset.base_url


def _describe_missing_key(model: Model, preset: Preset) -> str:
    variables = " or ".join(preset.keys)
    where = f"Set the environment variable {variables}, or give api_key=..." if variables else "Give api_key=..."
    return f"No API key for the provider {model.provider!r} (model {model.name!r}). {where}"
