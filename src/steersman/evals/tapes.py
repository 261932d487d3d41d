"""Cassettes for an evaluation: a file for each run of a case, and for each judge of it, so that replay is exact."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.types.model import StreamFn

if TYPE_CHECKING:
    from steersman.testing.replay.cassette import Mode


@dataclass(frozen=True, slots=True)
class Cassettes:
    """A folder of cassettes. "once" records a run that has no file yet, "replay" asks no model, "record" always asks.

    `scrub` is applied to every text before it is written or compared; the folder of a case is always scrubbed.
    """

    folder: str | os.PathLike[str]
    mode: Mode = field(default="once", kw_only=True)
    scrub: Callable[[str], str] | None = field(default=None, kw_only=True)

    def has(self, name: str) -> bool:
        """Whether there is a cassette for a run."""
        return self._find(name).exists()

    @contextmanager
    def play(self, name: str, stream_fn: StreamFn | None, workspace: Path | None) -> Generator[StreamFn]:
        """Play or record the cassette of a run; raises `CassetteMismatch` where it does not fit."""
        from steersman.testing.replay.cassette import cassette  # it brings the whole test kit

        path = self._find(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with cassette(path, stream_fn, mode=self.mode, scrub=self._make_scrub(workspace)) as tape:
            yield tape

    def _find(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.jsonl"

    def _make_scrub(self, workspace: Path | None) -> Callable[[str], str]:
        own, folder = self.scrub, None if workspace is None else str(workspace)

        def scrub(text: str) -> str:
            text = text if folder is None else text.replace(folder, "<workspace>")
            return text if own is None else own(text)

        return scrub
