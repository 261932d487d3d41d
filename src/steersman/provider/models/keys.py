"""Where the key of a request comes from: the call, the model, or the environment, in this order."""

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
    """The key that came with the call, if one did: then nobody has to be asked for it."""
    return _clean_key(options.api_key, model) if options.api_key else None


async def find_key(model: Model, options: StreamOptions) -> str | None:
    """The key to ask with; `None` where the provider may be asked without one, else `AuthenticationError`."""
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
    """The keys that these models and the environment hold, whoever they are for, without asking anybody for one."""
    names = {name for preset in PRESETS.values() for name in preset.keys}
    found = {os.environ.get(name, "").strip() for name in names}
    for model in models:
        found.add(model.api_key if isinstance(model.api_key, str) else "")
        found.update(find_secret_headers(model))
    found.discard("")
    return found


def find_secret_headers(model: Model) -> list[str]:
    """What the headers of a model's own hold that is as good as a key."""
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
        # Only the type is told: the words of a key store may hold the key.
        text = f"The api_key function of {model.name} raised {type(error).__name__}; it should give the key."
        raise AuthenticationError(text, provider=model.provider) from error
    if found is not None and not isinstance(found, str):
        text = f"The api_key function of {model.name} gave a {type(found).__name__}; it should give a string."
        raise AuthenticationError(text, provider=model.provider)
    return found


def _clean_key(key: str, model: Model) -> str:
    """The key without white space around it, which files and shells leave; never shown, not even when it is no key."""
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        text = (
            f"The key for {model.provider!r} is empty or has characters that no header can carry, such as a line break "
            "inside it; copy it again."
        )
        raise AuthenticationError(text, provider=model.provider)
    return key


def _is_official_server(model: Model, preset: Preset) -> bool:
    """Whether the provider itself is asked: a compatible server elsewhere may well need no key."""
    return model.base_url is None or model.base_url.rstrip("/") == preset.base_url


def _describe_missing_key(model: Model, preset: Preset) -> str:
    variables = " or ".join(preset.keys)
    where = f"Set the environment variable {variables}, or give api_key=..." if variables else "Give api_key=..."
    return f"No API key for the provider {model.provider!r} (model {model.name!r}). {where}"
