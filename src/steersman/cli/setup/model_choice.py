"""Which model answers, and why, in one line: what was named, what is set, a key, a server on this machine, our own.

Nobody is asked over the network before everything that needs no network has been looked at.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from steersman.cli.exits import UserError, near
from steersman.cli.setup.settings import ProviderSettings, Settings
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL as LOCAL_DEFAULT
from steersman.provider.models.keys import find_key
from steersman.provider.models.presets import PRESETS, Preset, add_preset, find_base_url
from steersman.provider.models.registry import get_model, provider_names
from steersman.types.errors import AuthenticationError
from steersman.types.model import Model, StreamOptions

SERVERS: Mapping[str, str] = {
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
}
"""The providers that are looked for, in this order, and what they are called."""

CONNECT_SECONDS = 0.3
ANSWER_SECONDS = 1.0
_LARGEST = 1024 * 1024
# Models by name that do not chat.
_NO_CHAT = re.compile(r"embed|rerank|whisper|(^|[-_/])(bge|gte|e5|tts|clip)([-_.]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answers: its provider's name, its address, and its models for chats, a loaded one first."""

    provider: str
    base_url: str
    models: tuple[str, ...]

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


async def find_servers() -> list[Found]:
    """The servers that answer now, in the order of `SERVERS`; all are asked at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(find_server(provider)) for provider in SERVERS]
    return [found for task in tasks if (found := task.result()) is not None]


async def find_server(provider: str) -> Found | None:
    """The server of one provider, if it answers as one."""
    base_url = address_of(provider)
    if base_url is None:
        return None
    models = await models_at(base_url)
    if models is None:
        return None
    chats = [name for name in models if not _NO_CHAT.search(name)]
    loaded = [name for name in await _loaded(provider, base_url) if name in chats] if len(chats) > 1 else []
    return Found(provider, base_url, tuple(dict.fromkeys([*loaded, *chats])))


def address_of(provider: str) -> str | None:
    """Where a server is: what the environment says of it, or its usual place."""
    from steersman.provider.models.presets import PRESETS, find_base_url

    host = os.environ.get("OLLAMA_HOST", "").strip()
    preset = PRESETS.get(provider)
    if provider == "ollama" and host and preset is not None and not any(map(os.environ.get, preset.addresses)):
        return _ollama_host(host)
    return find_base_url(provider)


async def models_at(base_url: str, key: str | None = None, *, seconds: float = ANSWER_SECONDS) -> list[str] | None:
    """The ids of the models that a server lists as OpenAI does; `None` where it does not answer like that."""
    found = await _asked(f"{base_url}/models", key, seconds)
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


def shown_address(url: str) -> str:
    """An address without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(not an address)"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}" if parts.scheme else parts.path


async def _loaded(provider: str, base_url: str) -> list[str]:
    """The models that are in memory already, where the server tells."""
    root = base_url.removesuffix("/v1")
    if provider == "ollama":
        return _named(await _asked(f"{root}/api/ps", None, ANSWER_SECONDS), "models", "name")
    if provider == "lmstudio":
        return _named(await _asked(f"{root}/api/v0/models", None, ANSWER_SECONDS), "data", "id", state="loaded")
    return []


def _named(found: Any, key: str, name: str, *, state: str | None = None) -> list[str]:
    listed: Any = cast(dict[str, Any], found).get(key) if isinstance(found, dict) else None
    items = [cast(dict[str, Any], item) for item in cast(list[Any], listed or []) if isinstance(item, dict)]
    named: list[Any] = [item.get(name) for item in items if state is None or item.get("state") == state]
    return [text for text in named if isinstance(text, str)]


async def _asked(url: str, key: str | None, seconds: float) -> Any:
    """The JSON that an address gives, or `None` for anything else that may happen."""
    import aiohttp
    import msgspec

    from steersman.provider.http.pool import get_session

    headers = {"authorization": f"Bearer {key}"} if key else {}
    limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
    try:
        http = await get_session()
        async with http.get(url, headers=headers, timeout=limits, allow_redirects=False) as response:
            if response.status != 200:
                return None
            return msgspec.json.decode(await _body(response.content))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
        return None


async def _body(stream: Any) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in stream.iter_chunked(65_536):
        size += len(piece)
        if size > _LARGEST:
            raise ValueError("too long to be a list of models")
        pieces.append(piece)
    return b"".join(pieces)


def _ollama_host(host: str) -> str:
    """`OLLAMA_HOST` as an address: it may be a bare host, a port, or where the server listens on all interfaces."""
    try:
        parts = urlsplit(host if "://" in host else f"http://{host}")
    except ValueError:  # brackets that do not match
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
"""The model of each provider that is taken when only its key is there, in the order in which keys are looked for."""

# How the names of models begin, for whoever leaves the provider out.
_MAKERS = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "gemini": "google",
           "deepseek": "deepseek", "mistral": "mistral", "devstral": "mistral", "kimi": "moonshot", "grok": "xai",
           "glm": "zai", "qwen": "ollama", "llama": "ollama", "gemma": "ollama", "phi": "ollama"}  # fmt: skip
_LIST_SECONDS = 3.0
LOCAL_FILE = "STEERSMAN_LOCAL_MODEL"
"""The variable that names a file to be run instead of the usual embedded model."""

SMALL = "It is small: a key of a provider or a bigger local model gives a far better agent."
"""What is said with the embedded model."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The model and why it is this one."""

    model: Model
    why: str


async def choose(named: str | None, settings: Settings) -> Choice:
    """The model to use: the one named, else the settings', else what this machine has; `UserError` if there is none."""
    apply_providers(settings.providers)
    if named is not None:
        return _chosen(await named_model(named), "--model")
    if settings.model is not None:
        where = "config.toml" if settings.model_from is None else _at_home(settings.model_from)
        return _chosen(await named_model(settings.model), f"from {where}")
    return await _by_key() or await _by_server() or _embedded()


async def named_model(name: str) -> Model:
    """The model that `provider:model-id`, or a provider's name alone, means; `UserError` with what may be meant."""
    provider, colon, model_id = (part.strip() for part in name.strip().partition(":"))
    if not colon and provider not in provider_names():
        raise UserError(_no_provider_in(provider), code=2)
    if provider not in provider_names():
        known = ", ".join(provider_names())
        raise UserError(
            f"There is no provider {provider!r:.100}.{near(provider, provider_names())} There are {known}.", code=2
        )
    if not model_id:
        return await _usual_model(provider)
    model = _at_its_address(provider, model_id)
    await _check_key(model)
    return model


def apply_providers(providers: Mapping[str, ProviderSettings]) -> None:
    """Make the user's own addresses, key variables and providers known by name."""
    for name, given in providers.items():
        known = PRESETS.get(name)
        if known is None:
            if given.base_url is None:
                raise UserError(
                    f"The settings have a provider {name!r} that is not known by name, so it needs a base_url."
                    f"{near(name, PRESETS)}",
                    code=2,
                )
            known = Preset("openai-chat", given.base_url, key_required=False)
        keys = known.keys if given.api_key_env is None else (given.api_key_env,)
        elsewhere = given.base_url is not None
        add_preset(
            name,
            replace(
                known,
                protocol=given.protocol or known.protocol,
                base_url=given.base_url or known.base_url,
                keys=keys,
                # A server of the user's own may well need no key, unless a variable for it is named.
                key_required=given.api_key_env is not None or (known.key_required and not elsewhere),
            ),
        )


def key_variable(provider: str) -> str | None:
    """The variable that has a provider's key, where one is set."""
    preset = PRESETS.get(provider)
    names = () if preset is None else preset.keys
    return next((name for name in names if os.environ.get(name, "").strip()), None)


async def _by_key() -> Choice | None:
    for provider, model_id in DEFAULT_MODELS.items():
        variable = key_variable(provider)
        if variable is None:
            continue
        if provider == "openai" and find_base_url("openai") != PRESETS["openai"].base_url:
            return await _at_own_openai()
        return _chosen(_at_its_address(provider, model_id), f"{variable} is set")
    return None


async def _at_own_openai() -> Choice:
    """A server that `OPENAI_BASE_URL` names has models of its own, so it is asked for them."""
    base_url = find_base_url("openai-chat") or ""
    variable = key_variable("openai-chat")
    models = await models_at(base_url, os.environ.get(variable or "", "").strip() or None, seconds=_LIST_SECONDS)
    if not models:
        raise UserError(
            "OPENAI_BASE_URL is set, and the server there does not say which models it has. "
            "Name one: --model openai-chat:MODEL."
        )
    return _chosen(get_model(f"openai-chat:{models[0]}"), "OPENAI_BASE_URL is set")


async def _by_server() -> Choice | None:
    for found in await find_servers():
        if found.models:
            return _chosen(_served(found), f"{SERVERS[found.provider]} answers on {found.place}")
    return None


def _embedded() -> Choice:
    from importlib.util import find_spec

    if "local" not in provider_names() or find_spec("xllamacpp") is None:
        raise UserError(
            "There is no model to ask: no provider's key is set, no model server answers on this machine, and the "
            "embedded model is not installed. Set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, start Ollama, "
            "or run: pip install 'steersman[local]'"
        )
    return _chosen(_default_local(), "no key is set and no model server answers here", more=SMALL)


def _default_local() -> Model:
    return get_model(f"local:{LOCAL_DEFAULT}")


async def _usual_model(provider: str) -> Model:
    """The model of a provider that was named alone."""
    if provider == "local":
        return _default_local()
    if provider in SERVERS:
        found = await find_server(provider)
        if found is None or not found.models:
            what = "does not answer" if found is None else "has no model for a chat"
            place = shown_address(address_of(provider) or "")
            raise UserError(f"{SERVERS[provider]} {what} at {place!r}. Start it, or name another model.")
        return _served(found)
    if provider not in DEFAULT_MODELS:
        raise UserError(f"Which model of {provider!r}? Name it: --model {provider}:MODEL.", code=2)
    model = _at_its_address(provider, DEFAULT_MODELS[provider])
    await _check_key(model)
    return model


def _served(found: Found) -> Model:
    return get_model(f"{found.provider}:{found.models[0]}", base_url=found.base_url)


def _at_its_address(provider: str, model_id: str) -> Model:
    """A model by name; Ollama's own variable for its address counts too."""
    address = address_of(provider)
    return get_model(f"{provider}:{model_id}", base_url=address if address != find_base_url(provider) else None)


async def _check_key(model: Model) -> None:
    """A missing key is told before anything begins, in words for this command."""
    try:
        await find_key(model, StreamOptions())
    except AuthenticationError as error:
        preset = PRESETS.get(model.provider)
        if preset is None or key_variable(model.provider) is not None:
            raise UserError(str(error)) from error
        variables = " or ".join(preset.keys)
        raise UserError(f"There is no key for {model.name}: set the variable {variables}.") from error


def _chosen(model: Model, why: str, *, more: str = "") -> Choice:
    own = os.environ.get(LOCAL_FILE, "").strip()
    if own and model.provider == "local" and model.id == LOCAL_DEFAULT:
        return Choice(model, f"Using local:{own} ({LOCAL_FILE} is set; {why}).")
    return Choice(model, f"Using {model.name} ({why}).{f' {more}' if more else ''}")


def _no_provider_in(name: str) -> str:
    maker = next((maker for begin, maker in _MAKERS.items() if name.lower().startswith(begin)), None)
    if maker is not None:
        return f"{name!r:.100} has no provider in front of it. Did you mean '{maker}:{name:.100}'?"
    near_to = near(name, provider_names()) or near(f"x:{name}", [f"{p}:{m}" for p, m in DEFAULT_MODELS.items()])
    return (
        f"{name!r:.100} is no model: a model is named 'provider:model-id', such as "
        f"'anthropic:{DEFAULT_MODELS['anthropic']}'.{near_to} `steersman models` lists the providers."
    )


def _at_home(path: Path) -> str:
    """A path as people write it."""
    text, home = str(path), os.path.expanduser("~")
    return f"~{text.removeprefix(home)}" if home != "/" and text.startswith(f"{home}/") else text
