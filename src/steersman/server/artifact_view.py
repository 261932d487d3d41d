"""The artifacts of a session, for clients: a list, and a file to download."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from steersman.session.session import Session
from steersman.session.stores.store import Store
from steersman.types.artifacts import Artifact

# What a browser shows without running anything of it. All others are told as bytes, though each is an attachment.
_HARMLESS: Final = frozenset(
    (
        "application/json",
        "application/pdf",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/markdown",
        "text/plain",
    )
)


def list_artifacts(store: Store, session_id: str) -> list[dict[str, Any]]:
    """The last version of each artifact of the current branch, with the numbers of all. It blocks."""
    with Session.open(store, session_id, write=False) as session:
        kept = session.artifacts
        return [
            {**msgspec.to_builtins(one), "versions": [known.version for known in kept.versions(one.name)]}
            for one in kept.list()
        ]


def load_artifact(store: Store, session_id: str, name: str, version: int | None) -> tuple[Artifact, bytes]:
    """A version of an artifact of the current branch, and its content. It blocks."""
    with Session.open(store, session_id, write=False) as session:
        found = session.artifacts.find(name, version)
        return found, session.artifacts.load(name, found.version)


def make_headers(artifact: Artifact) -> dict[str, str]:
    """The headers of a download: it is always saved and never shown as a page of this server."""
    plain = "".join(letter if letter.isascii() and letter not in '"%;' else "_" for letter in artifact.name)
    return {
        "Content-Type": artifact.mime_type if artifact.mime_type in _HARMLESS else "application/octet-stream",
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(artifact.name, safe='')}",
        "Cache-Control": "private, no-cache",
    }
