"""A private folder for temporary files: nobody can guess its name or look in, and it goes when its owner goes."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path


class Scratch:
    """Folders made when they are first asked for, removed with this object or at the end of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base: Path | None = None

    def folder(self, name: str) -> str:
        """The folder of that name, which only its owner can enter."""
        with self._lock:
            if self._base is None or not self._base.is_dir():
                self._base = _made(self)
            path = self._base / name
            path.mkdir(mode=0o700, exist_ok=True)
            return str(path)


def _made(owner: Scratch) -> Path:
    # Only a call that needs a folder pays for this import.
    import tempfile

    base = os.path.realpath(tempfile.mkdtemp(prefix="steersman-"))
    weakref.finalize(owner, _remove, base, os.getpid())
    return Path(base)


def _remove(base: str, process: int) -> None:
    import shutil

    # A forked child takes its parent's folder for its own.
    if os.getpid() == process:
        shutil.rmtree(base, ignore_errors=True)
