"""`ToolArtifacts`: the artifacts of a conversation for one tool call, which tells subscribers about each save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from steersman.types.artifacts import Artifact, Artifacts

SAVED = "artifact_saved"
"""The name of the `custom` event of a save; its data are the fields of the `Artifact`."""


class ToolArtifacts:
    """The files that the conversation keeps, as a tool has them in `ctx.artifacts`."""

    __slots__ = ("_emit", "_kept")

    def __init__(self, kept: Artifacts, emit: Callable[[str, Any], None]) -> None:
        self._kept = kept
        self._emit = emit

    def save(self, name: str, data: bytes | str, mime_type: str | None = None) -> int:
        """Save a file, text as UTF-8, as the next version of this name; returns the number of the version.

        Without a media type the ending of the name decides. Raises `ValueError` for a name that is no plain file name,
        and for more than 16 MiB.
        """
        version = self._kept.save(name, data, mime_type)
        with suppress(RuntimeError):  # the run of an abandoned tool has ended, and the file is saved all the same
            self._emit(SAVED, msgspec.to_builtins(self._kept.find(name, version)))
        return version

    def load(self, name: str, version: int | None = None) -> bytes:
        """The content of a version, of the last one by default; raises `ArtifactNotFound`. It blocks."""
        return self._kept.load(name, version)

    def find(self, name: str, version: int | None = None) -> Artifact:
        """A version, by default the last one; raises `ArtifactNotFound`."""
        return self._kept.find(name, version)

    def list(self) -> Sequence[Artifact]:
        """The last version of each name; the name that was saved first comes first."""
        return self._kept.list()

    def versions(self, name: str) -> Sequence[Artifact]:
        """All versions of a name, in order; empty if there is no such artifact."""
        return self._kept.versions(name)
