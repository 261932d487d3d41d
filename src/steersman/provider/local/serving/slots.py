"""Saves the prompt cache of the model's slots to files: a later process loads the file instead of reading the prompt.

A file only saves time. One that is missing, damaged or of another version is made again; old ones are deleted.
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
"""How many files are kept; each has a few megabytes."""

_STALE = 3600.0

ChatMessage = Mapping[str, str]
"""A chat message as the server takes it: role and content."""


async def ensure_prefix(server: Server, slot: int, prefix: Sequence[ChatMessage]) -> None:
    """Make sure that the slot has read the prefix: already, from a file, or now; then a file is saved."""
    key = compute_key(server.settings, prefix)
    if server.held.get(slot) == key:
        return
    # Until it is certain again: a concurrent call does the same work, which only costs time.
    server.held.pop(slot, None)
    if not await _restore(server, slot, key):
        await _read_prefix(server, slot, prefix)
        await _save(server, slot, key)
    server.held[slot] = key


def compute_key(settings: Settings, prefix: Sequence[ChatMessage]) -> str:
    """The hash of a prompt together with the model file, the engine version and the settings."""
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
        # This file may have crashed the child: it is not tried twice.
        found.unlink(missing_ok=True)
        raise
    if status == 200 and isinstance(answer, dict) and cast(dict[str, Any], answer).get("n_restored"):
        return True
    found.unlink(missing_ok=True)
    return False


async def _read_prefix(server: Server, slot: int, prefix: Sequence[ChatMessage]) -> None:
    """Let the model read the prefix without an answer."""
    body = {"messages": list(prefix), "id_slot": slot, "cache_prompt": True, "max_tokens": 1, "stream": False}
    status, answer = await server.post("/v1/chat/completions", body)
    if status != 200:
        raise ProviderError(f"The local model did not accept its own prompt: {answer!r:.300}.", provider="local")


async def _save(server: Server, slot: int, key: str) -> None:
    """Save what the slot has read; if that fails, the next process reads it again."""
    folder = server.settings.slots
    name = f"{secrets.token_hex(8)}.part"
    try:
        status, _ = await server.post(f"/slots/{slot}?action=save", {"filename": name})
        if status == 200:
            await asyncio.to_thread(_store, folder, name, key)
    except OSError:
        pass  # a full disk or a deleted folder only costs time
    finally:
        (folder / name).unlink(missing_ok=True)


def _find_intact(folder: Path, key: str) -> Path | None:
    """The intact file of this key, or `None`; damaged ones are deleted."""
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
    """Rename the file so that its name holds its checksum, and delete the oldest files."""
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
