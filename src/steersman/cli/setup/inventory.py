"""Lists what this machine offers: providers and their keys, model servers, embedded models, optional packages.

Of a key only the name of its environment variable is shown; URLs are shown without passwords.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from steersman.cli.exits import UserError, describe_error
from steersman.cli.setup.model_choice import (
    DEFAULT_MODELS,
    SERVERS,
    FoundServer,
    apply_providers,
    find_key_variable,
    find_server,
    find_server_url,
    redact_base_url,
)
from steersman.cli.setup.settings import Settings, find_config_file
from steersman.cli.setup.settings_parser import read_settings
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS, LocalModel, find_cache_folder
from steersman.provider.local.weights.huggingface import list_hub_models
from steersman.provider.models.presets import PRESETS, Preset, find_base_url
from steersman.types.errors import SteersmanError

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "cli": (("prompt_toolkit", "rich"), "the full chat, and Markdown on a terminal"),
    "local": (("xllamacpp",), "the embedded model, which needs no key and no network"),
    "mcp": (("mcp",), "tools of MCP servers"),
    "prices": (("genai-prices",), "prices and context windows of models"),
    "yaml": (("pyyaml",), "skills and API descriptions in YAML"),
    "bedrock": (("botocore",), "models on Bedrock with profiles, SSO and roles of AWS"),
    "vertex": (("google-auth",), "models on Vertex AI with application default credentials"),
    "postgres": (("psycopg",), "sessions in a PostgreSQL database, for programs"),
}
"""The optional extras: their packages and what they are for."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A known provider; `key` is the environment variable that holds its key, `needed` says whether it needs one.

    `sign_in` names the credentials that are used where there is no key.
    """

    name: str
    address: str
    variables: tuple[str, ...]
    key: str | None
    needed: bool
    sign_in: str | None = None


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that runs on this machine; `ready` says whether its weights are downloaded."""

    model: LocalModel
    path: Path | None
    ready: bool
    usual: bool


def load_user_settings() -> tuple[Settings, str | None]:
    """Loads and applies the user's settings; if they are invalid, returns empty settings and the error."""
    try:
        settings = read_settings(find_config_file())
        apply_providers(settings.providers)
    except UserError as error:
        return Settings(), describe_error(error)
    return settings, None


def list_providers() -> list[Provider]:
    """Lists all known providers, those with a key first."""
    found = [
        Provider(
            name,
            _describe_address(name, preset),
            preset.keys,
            find_key_variable(name),
            preset.key_required,
            preset.sign_in,
        )
        for name, preset in PRESETS.items()
    ]
    return sorted(found, key=lambda provider: (provider.key is None, not provider.needed, provider.name))


def _describe_address(name: str, preset: Preset) -> str:
    """Returns a provider's base URL, or the variable for it where every customer has a URL of their own."""
    url = find_base_url(name)
    return redact_base_url(url) if url else f"from {preset.addresses[-1]}" if preset.addresses else ""


async def find_answering_servers(*, afar: bool = True) -> list[FoundServer]:
    """Finds the model servers that answer; unless `afar`, asks only those on this machine."""
    asked = [name for name in SERVERS if afar or is_local_url(find_server_url(name) or "")]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(find_server(name)) for name in asked]
    return [found for task in tasks if (found := task.result()) is not None]


def find_remote_url(named: str | None, settings: Settings) -> str | None:
    """Returns the remote URL that must be asked to find out which model a run would use, if any."""
    if ":" in (named or settings.model or ""):
        return None
    first = next((name for name in DEFAULT_MODELS if find_key_variable(name) is not None), None)
    if first is not None:
        address = find_base_url("openai-chat") or ""
        elsewhere = first == "openai" and find_base_url("openai") != PRESETS["openai"].base_url
        return redact_base_url(address) if elsewhere and not is_local_url(address) else None
    far = [address for name in SERVERS if not is_local_url(address := find_server_url(name) or "")]
    return redact_base_url(far[0]) if far else None


async def check_connection(url: str, seconds: float = 5.0) -> str | None:
    """Opens a connection to a URL, with TLS for https, and closes it; returns the error, if any."""
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
    except ValueError:
        return "The configured URL is not valid."
    where = f"{parts.hostname}:{port}"
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(
                parts.hostname,
                port,
                ssl=ssl.create_default_context() if secure else None,
            )
            writer.close()
            await writer.wait_closed()
    except TimeoutError:
        return f"{where} did not answer within {seconds:g} seconds."
    except ssl.SSLError as error:
        return f"The TLS certificate of {where} is not accepted: {error.reason or error}."
    except OSError as error:
        # Use the system's text for the error number: asyncio adds its own words.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        return f"Cannot connect to {where}: {why}."
    return None


def is_local_url(url: str) -> bool:
    """Whether a URL is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def list_embedded_models() -> list[EmbeddedModel]:
    """Lists the embedded models, and whether their files are in the cache."""
    try:
        folder = find_cache_folder()
    except SteersmanError:  # no home folder, so there is no cache
        return [
            EmbeddedModel(model, None, ready=False, usual=model.name == DEFAULT_LOCAL_MODEL)
            for model in LOCAL_MODELS.values()
        ]
    return [
        EmbeddedModel(
            model,
            folder / model.file,
            ready=_is_complete(folder / model.file, model),
            usual=model.name == DEFAULT_LOCAL_MODEL,
        )
        for model in (*LOCAL_MODELS.values(), *list_hub_models(folder))
    ]


def find_version(package: str) -> str | None:
    """Returns the version of an installed package, or `None`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _is_complete(path: Path, model: LocalModel) -> bool:
    """Whether the file exists and has the right size; its checksum is verified when it is loaded."""
    try:
        return path.stat().st_size == model.size
    except OSError:
        return False
