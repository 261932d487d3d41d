"""The cases of an evaluation: what an agent is asked, what is expected of it, and the files it finds in its folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from steersman.types.errors import SteersmanError
from steersman.types.guards import is_instance

if TYPE_CHECKING:
    from steersman.evals.scorers import ScorerLike

LONGEST_ID = 100
"""The most characters of a case's id."""

Files: TypeAlias = "Mapping[str, str] | str | os.PathLike[str]"


class DatasetError(SteersmanError, ValueError):
    """The cases of an evaluation cannot be used; the message names the file, the line and what to do."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to ask an agent.

    `expected` is for scorers, and so is `metadata`. `files` are the texts of files by their paths, or a folder to copy.
    Without an `id` a dataset numbers it: `case-1`. Give ids if you mean to compare reports after adding cases.
    """

    prompt: str
    expected: Any = field(default=None, kw_only=True)
    files: Files | None = field(default=None, kw_only=True)
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    id: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not is_instance(self.prompt, str) or not self.prompt.strip():
            raise DatasetError(f"The prompt of a case is a text that is not empty, got {self.prompt!r:.100}.")
        if not is_instance(self.id, str) or len(self.id) > LONGEST_ID or not (self.id or "x").isprintable():
            raise DatasetError(
                f"The id of a case is a line of at most {LONGEST_ID} printable characters, got {self.id!r:.150}."
            )
        if not is_instance(self.metadata, Mapping):
            raise DatasetError(f"The metadata of a case is a dict, got {self.metadata!r:.100}.")
        if self.files is not None:
            _check_files(self.files)

    @property
    def digest(self) -> str:
        """A hash of what the agent is given: the prompt and the files."""
        found = hashlib.sha256(self.prompt.encode("utf-8", "surrogatepass"))
        for path, content in _read_files(self.files):
            found.update(b"\0" + os.fsencode(path) + b"\0" + hashlib.sha256(content).digest())
        return found.hexdigest()

    def write_files(self, folder: Path) -> None:
        """Write the files into a folder."""
        if isinstance(self.files, Mapping):
            for path, content in _read_files(self.files):
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        elif self.files is not None:
            root = Path(os.fspath(self.files))
            shutil.copytree(root, folder, symlinks=True, dirs_exist_ok=True)
            for path in filter(_leads_out(root), root.rglob("*")):
                target = folder / path.relative_to(root)
                target.unlink()
                shutil.copy2(path, target)


def _check_files(files: object) -> None:
    if isinstance(files, str | os.PathLike):
        if not Path(cast(str, files)).is_dir():
            raise DatasetError(
                f"The files of a case are a folder or texts by path, and {os.fspath(cast(str, files))!r} is no folder."
            )
        return
    if not isinstance(files, Mapping):
        raise DatasetError(f"The files of a case are texts by path, or a folder to copy, got {files!r:.100}.")
    for path, text in cast(Mapping[Any, Any], files).items():
        if not isinstance(path, str) or not isinstance(text, str):
            raise DatasetError(f"The files of a case are texts by path, got {path!r:.100}: {text!r:.100}.")
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
            raise DatasetError(f"The path of a file stays inside the folder of its case, got {path!r:.200}.")


def _read_files(files: Files | None) -> Iterator[tuple[str, bytes]]:
    """The paths and contents of the files, sorted."""
    if isinstance(files, Mapping):
        for path, text in sorted(files.items()):
            yield path, text.encode("utf-8", "surrogatepass")
    elif files is not None:
        root = Path(os.fspath(files))
        leads_out = _leads_out(root)
        for path in sorted(root.rglob("*")):
            if path.is_symlink() or path.is_file():
                is_link = path.is_symlink() and not leads_out(path)
                content = os.fsencode(os.readlink(path)) if is_link else path.read_bytes()
                yield path.relative_to(root).as_posix(), content


def _leads_out(root: Path) -> Callable[[Path], bool]:
    """Tells of a path below a folder whether it is a link to a file that is not in a copy of the folder.

    An agent that wrote to such a link would change the file for all others. Raises `DatasetError` for a link to a
    folder that is not in the copy either.
    """
    inside = root.resolve()

    def judge(path: Path) -> bool:
        if not path.is_symlink() or not path.exists():
            return False
        if not os.path.isabs(os.readlink(path)) and path.resolve().is_relative_to(inside):
            return False
        if path.is_dir():
            raise DatasetError(
                f"The files of a case link to a folder outside: {os.fspath(path)!r}. Put the folder itself there."
            )
        return True

    return judge


@dataclass(frozen=True, slots=True)
class Dataset:
    """Cases under one name. A file may also say by which scorers, how often and with which models they are evaluated.

    Raises `DatasetError` for an id that two cases have.
    """

    cases: Sequence[Case]
    name: str = field(default="cases", kw_only=True)
    scorers: Sequence[ScorerLike] = field(default=(), kw_only=True)
    repeat: int = field(default=1, kw_only=True)
    models: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cases", number_cases(self.cases))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a dataset from a `.jsonl`, `.yaml` or `.yml` file."""
        from steersman.evals.dataset_file import read_dataset  # only files need it

        return cast(Self, read_dataset(Path(path)))

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)


def number_cases(cases: Iterable[Case]) -> tuple[Case, ...]:
    """The cases, each with an id; raises `DatasetError` if there are none, or two with one id."""
    found = tuple(case if case.id else replace(case, id=f"case-{number}") for number, case in enumerate(cases, 1))
    if not found:
        raise DatasetError("A dataset needs at least one case.")
    first: dict[str, int] = {}
    for number, case in enumerate(found, 1):
        if case.id in first:
            raise DatasetError(
                f"The cases {first[case.id]} and {number} have the same id {case.id!r}. Give each case its own."
            )
        first[case.id] = number
    return found
