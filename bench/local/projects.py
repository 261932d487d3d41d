"""Small projects to ask questions about: trees written from texts, and packages that are installed here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tree:
    """A project on disk, from which a question takes its right answer."""

    folder: Path

    def count_files(self, pattern: str = "*") -> int:
        """How many files match."""
        return sum(path.is_file() for path in self.folder.rglob(pattern))

    def count_lines(self, name: str) -> int:
        """How many lines a file has."""
        return len((self.folder / name).read_text(encoding="utf-8").splitlines())

    def count_matches(self, pattern: str, files: str = "*") -> int:
        """How many lines of all these files match a pattern."""
        lines = [line for path in self._list_texts(files) for line in path.read_text(encoding="utf-8").splitlines()]
        return sum(re.search(pattern, line) is not None for line in lines)

    def count_files_with(self, pattern: str) -> int:
        """How many files have a line that matches."""
        return sum(re.search(pattern, path.read_text(encoding="utf-8")) is not None for path in self._list_texts("*"))

    def find(self, pattern: str) -> str:
        """The first group of a pattern in the project's text; an error if it is nowhere."""
        for path in self._list_texts("*"):
            if found := re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE):
                return found[1]
        raise LookupError(f"nothing in {self.folder} matches {pattern!r}")

    def find_file(self, text: str) -> str:
        """A pattern for the names of the files that have a text."""
        names = [path.name for path in self._list_texts("*") if text in path.read_text(encoding="utf-8")]
        return f"({'|'.join(map(re.escape, names))})$"

    def _list_texts(self, pattern: str) -> list[Path]:
        return sorted(path for path in self.folder.rglob(pattern) if path.is_file())


@dataclass(frozen=True, slots=True)
class Project:
    """A project with a name and a way to put it into a folder."""

    name: str
    put: Callable[[Path], None]

    def make(self, folder: Path) -> Tree:
        """Put it into the folder."""
        self.put(folder)
        return Tree(folder)


def write_project(name: str, files: Mapping[str, str]) -> Project:
    """A project made of these texts."""

    def put(folder: Path) -> None:
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    return Project(name, put)


def copy_package(name: str) -> Project:
    """A project that is a copy of an installed package of pure Python."""

    def put(folder: Path) -> None:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise LookupError(f"the package {name} is not installed")
        source = Path(spec.origin).parent
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))

    return Project(name, put)
