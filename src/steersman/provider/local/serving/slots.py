"""Prompts that the model has read already, kept as files: a later process reads the file instead of the prompt.

A file is only a saving. One that is missing, damaged or of another version is made anew, and old ones go.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.provider.local.serving.server import Server, Settings
from steersman.types.errors import ProviderError

MAX_FILES = 8
"""How many files stay; each is a few megabytes."""

_STALE = 3600.0

ChatMessage = Mapping[str, str]
"""A message as the server takes it: role and content."""


async def ensure_prefix(server: Server, slot: int, prefix: Sequence[ChatMessage]) -> None:
    """See to it that the slot has read the prefix: it has, or a file has, or it does now and the file is made."""
    key = compute_key(server.settings, prefix)
    if server.held.get(slot) == key:
        return
    # Until it is known again: whoever comes in between sees to it as well, which costs time and nothing else.
    server.held.pop(slot, None)
    if not await _restore(server, slot, key):
        await _read_prefix(server, slot, prefix)
        await _save(server, slot, key)
    server.held[slot] = key


def compute_key(settings: Settings, prefix: Sequence[ChatMessage]) -> str:
    """The name of a prompt as this model, this version and these settings have it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        engine = version("xllamacpp")
    except PackageNotFoundError:
        engine = ""
    file = os.stat(settings.path)
    parts = (
        [file.st_size, file.st_mtime_ns],
        [engine, settings.context, settings.parallel, settings.gpu_layers],
        [[said["role"], said["content"]] for said in prefix],
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


async def _restore(server: Server, slot: int, key: str) -> bool:
    folder = server.settings.slots
    found = await asyncio.to_thread(_find_intact, folder, key)
    if found is None:
        return False
    try:
        status, answer = await server.post(f"/slots/{slot}?action=restore", {"filename": found.name})
    except ProviderError:
        # It may have been this file that ended the child: it is not tried twice.
        found.unlink(missing_ok=True)
        raise
    if status == 200 and isinstance(answer, dict) and cast(dict[str, Any], answer).get("n_restored"):
        return True
    found.unlink(missing_ok=True)
    return False


async def _read_prefix(server: Server, slot: int, prefix: Sequence[ChatMessage]) -> None:
    """Have the prefix read, and nothing said to it."""
    body = {"messages": list(prefix), "id_slot": slot, "cache_prompt": True, "max_tokens": 1, "stream": False}
    status, answer = await server.post("/v1/chat/completions", body)
    if status != 200:
        raise ProviderError(f"The local model did not take its own prompt: {answer!r:.300}.", provider="local")


async def _save(server: Server, slot: int, key: str) -> None:
    """Keep what the slot has read; where that fails, the next process reads it again."""
    folder = server.settings.slots
    name = f"{secrets.token_hex(8)}.part"
    try:
        status, _ = await server.post(f"/slots/{slot}?action=save", {"filename": name})
        if status == 200:
            await asyncio.to_thread(_store, folder, name, key)
    except OSError:
        pass  # a full disk, or a folder that went away, costs the saving alone
    finally:
        (folder / name).unlink(missing_ok=True)


def _find_intact(folder: Path, key: str) -> Path | None:
    """The file of this key whose content is what was written; what is not goes."""
    for file in sorted(folder.glob(f"{key}-*.slot")):
        try:
            if file.stem.rpartition("-")[2] == _hash_file(file):
                os.utime(file)
                return file
            file.unlink(missing_ok=True)
        except OSError:
            continue
    return None


def _store(folder: Path, name: str, key: str) -> None:
    """Give the file its name, which holds a hash of its content, and let the oldest go."""
    made = folder / name
    made.chmod(0o600)
    made.replace(folder / f"{key}-{_hash_file(made)}.slot")
    files = sorted(folder.glob("*.slot"), key=lambda file: file.stat().st_mtime, reverse=True)
    newest = files[0].stat().st_mtime
    stale = [part for part in folder.glob("*.part") if newest - part.stat().st_mtime > _STALE]
    for file in (*files[MAX_FILES:], *stale):
        file.unlink(missing_ok=True)


def _hash_file(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:32]
