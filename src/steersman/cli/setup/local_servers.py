"""Model servers on this machine, found where they usually listen. What does not answer as one of them is none.

Only loopback is asked, and what the environment names (`OLLAMA_HOST`, `OLLAMA_BASE_URL`, `LMSTUDIO_BASE_URL`, ...).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

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
    from steersman.provider.models.presets import PRESETS, base_url_of

    host = os.environ.get("OLLAMA_HOST", "").strip()
    preset = PRESETS.get(provider)
    if provider == "ollama" and host and preset is not None and not any(map(os.environ.get, preset.addresses)):
        return _ollama_host(host)
    return base_url_of(provider)


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

    from steersman.provider.http.pool import session

    headers = {"authorization": f"Bearer {key}"} if key else {}
    limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
    try:
        http = await session()
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
