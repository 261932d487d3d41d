"""How much is read of a project before it is trusted: one bound for all files that are looked for at a start."""

from __future__ import annotations

from steersman.tools.confine.path_errors import TooLarge, WorkspaceError
from steersman.tools.confine.workspace import Entry, Workspace

MAX_FILES = 1_000
"""The most files and folders that are opened."""

MAX_BYTES = 8_000_000
"""The most bytes of all of them."""

MAX_NAMES = 20_000
"""The most names in all folders."""


class BudgetSpent(WorkspaceError):
    """So much was read that this is left out."""


class ReadBudget:
    """Reads regular files and lists folders, as long as something is left; raises `BudgetSpent` after that."""

    def __init__(self, *, files: int = MAX_FILES, size: int = MAX_BYTES, names: int = MAX_NAMES) -> None:
        self._files, self._all_files = files, files
        self._size, self._all_size = size, size
        self._names, self._all_names = names, names

    def scan(self, home: Workspace, path: str) -> list[Entry]:
        """The entries of a folder, sorted by name."""
        self._count_file()
        entries = home.scan(path, most=self._names + 1)
        if len(entries) > self._names:
            self._names = 0
            raise BudgetSpent(f"there are too many files; at most {self._all_names:,} names are looked at.")
        self._names -= len(entries)
        return entries

    def read(self, home: Workspace, path: str, *, limit: int) -> bytes:
        """The content of a file; raises `TooLarge` if it has more than `limit` bytes."""
        self._count_file()
        most = min(limit, self._size)
        try:
            data = home.read_bytes(path, limit=most)
        except TooLarge as error:
            self._size -= most
            if most < limit:
                raise BudgetSpent(f"at most {self._all_size:,} bytes are read of all such files.") from error
            raise
        self._size -= len(data)
        return data

    def _count_file(self) -> None:
        if self._files <= 0:
            raise BudgetSpent(f"at most {self._all_files:,} files and folders are opened.")
        self._files -= 1
