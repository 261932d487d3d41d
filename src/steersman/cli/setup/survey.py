"""What there is on this machine to ask: providers and their keys, servers, embedded models, optional packages.

Of a key only the name of its variable is told, of an address only the part that no password can be in.
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

from steersman.cli.exits import UserError, line_of
from steersman.cli.setup.model_choice import (
    DEFAULT_MODELS,
    SERVERS,
    Found,
    address_of,
    apply_providers,
    find_server,
    key_variable,
    shown_address,
)
from steersman.cli.setup.settings import Settings, config_file, read_settings
from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS, LocalModel, cache_folder
from steersman.provider.models.presets import PRESETS, find_base_url
from steersman.types.errors import SteersmanError

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "cli": (("prompt_toolkit", "rich"), "the chat, and answers with their Markdown on a terminal"),
    "local": (("xllamacpp",), "the embedded model, which needs no key and no network"),
    "mcp": (("mcp",), "tools of MCP servers"),
    "prices": (("genai-prices",), "what a run costs, and how long a context a model has"),
    "yaml": (("pyyaml",), "skills and API descriptions that are written in YAML"),
    "postgres": (("psycopg",), "sessions in a PostgreSQL database, for programs"),
}
"""The optional parts: their packages, and what they are for."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Who can be asked, and where; `key` is the variable that has a key, `needed` says whether there has to be one."""

    name: str
    address: str
    variables: tuple[str, ...]
    key: str | None
    needed: bool


@dataclass(frozen=True, slots=True)
class Embedded:
    """A model that can run in a process of ours; `ready` says whether its bytes are here already."""

    model: LocalModel
    path: Path | None
    ready: bool
    usual: bool


def user_settings() -> tuple[Settings, str | None]:
    """The user's settings, in force from here on; where they are wrong, none of them and what is wrong."""
    try:
        settings = read_settings(config_file())
        apply_providers(settings.providers)
    except UserError as error:
        return Settings(), line_of(error)
    return settings, None


def providers() -> list[Provider]:
    """Everybody who is known by name, those with a key first."""
    found = [
        Provider(name, shown_address(find_base_url(name) or ""), preset.keys, key_variable(name), preset.key_required)
        for name, preset in PRESETS.items()
    ]
    return sorted(found, key=lambda provider: (provider.key is None, not provider.needed, provider.name))


async def servers(*, afar: bool = True) -> list[Found]:
    """The model servers that answer; without `afar` only those on this machine are asked."""
    asked = [name for name in SERVERS if afar or is_near(address_of(name) or "")]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(find_server(name)) for name in asked]
    return [found for task in tasks if (found := task.result()) is not None]


def asked_afar(named: str | None, settings: Settings) -> str | None:
    """The address beyond this machine that has to be asked to know which model a run would have, if there is one."""
    if ":" in (named or settings.model or ""):
        return None
    first = next((name for name in DEFAULT_MODELS if key_variable(name) is not None), None)
    if first is not None:
        address = find_base_url("openai-chat") or ""
        elsewhere = first == "openai" and find_base_url("openai") != PRESETS["openai"].base_url
        return shown_address(address) if elsewhere and not is_near(address) else None
    far = [address for name in SERVERS if not is_near(address := address_of(name) or "")]
    return shown_address(far[0]) if far else None


async def reached(url: str, seconds: float = 5.0) -> str | None:
    """Open a connection to an address, with TLS where it has it, and close it; what went wrong, if anything did."""
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
    except ValueError:
        return "What is set is not an address."
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
        return f"{where} answers, and its certificate is not accepted: {error.reason or error}."
    except OSError as error:
        # Some of its words are Python's own, around the same number.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        return f"{where} cannot be reached: {why}."
    return None


def is_near(url: str) -> bool:
    """Whether an address is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def embedded() -> list[Embedded]:
    """The models of the manifest, and whether their files are in the cache."""
    try:
        folder = cache_folder()
    except SteersmanError:  # no home folder: nothing can be kept, so nothing is
        return [
            Embedded(model, None, ready=False, usual=model.name == DEFAULT_LOCAL_MODEL)
            for model in LOCAL_MODELS.values()
        ]
    return [
        Embedded(
            model,
            folder / model.file,
            ready=_whole(folder / model.file, model),
            usual=model.name == DEFAULT_LOCAL_MODEL,
        )
        for model in LOCAL_MODELS.values()
    ]


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _whole(path: Path, model: LocalModel) -> bool:
    """Whether the file is there and has its size; its hash is checked when it is used."""
    try:
        return path.stat().st_size == model.size
    except OSError:
        return False
