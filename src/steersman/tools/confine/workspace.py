"""`Workspace` confines file access to a root folder: by file descriptor instead of a checked path string (TOCTOU).

Symlinks are followed while they stay inside. Protected names can be read but not written. Only regular files and
folders are opened. What is mounted beneath the root belongs to it, except pseudo file systems such as /proc.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from steersman.tools.confine.atomic_write import WriteResult, write_atomically
from steersman.tools.confine.changed_folders import note_change
from steersman.tools.confine.denied_paths import find_denial
from steersman.tools.confine.file_versions import SeenVersions, lock_file
from steersman.tools.confine.path_errors import (
    DeniedPath,
    MissingPath,
    OutsideWorkspace,
    ProtectedPath,
    StaleFile,
    TooLarge,
    WorkspaceError,
    WrongKind,
    make_outside_error,
    translate_os_error,
)
from steersman.tools.confine.path_resolution import (
    PathChanged,
    ResolvedPath,
    Root,
    open_file,
    raise_missing,
    resolve_path,
    split_path,
)
from steersman.tools.confine.syscalls import FOLDER, has_openat2
from steersman.tools.confine.trusted_imports import keep_imports_out
from steersman.tools.confine.write_protection import Protection

__all__ = [
    "PROTECTED",
    "DeniedPath",
    "Entry",
    "MissingPath",
    "OutsideWorkspace",
    "ProtectedPath",
    "StaleFile",
    "TooLarge",
    "Workspace",
    "WorkspaceError",
    "WriteResult",
    "WrongKind",
]

PROTECTED = (".git", ".steersman", ".mcp.json")
"""Git's hooks and settings, and the files that tell this library which servers to start and what to allow.

A program that can write there decides what other programs will run.
"""

T = TypeVar("T")
Kind: TypeAlias = Literal["file", "folder", "link", "other"]

_MAX_PATH_BYTES = 4_095
_MAX_ATTEMPTS = 100
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHUNK = 1 << 20


class Entry(NamedTuple):
    """An entry of a folder and what it is; a symlink is not followed."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Base:
    """A root folder as it was at the start: its real path, its spellings, and its device and inode."""

    path: Path
    spellings: tuple[tuple[str, ...], ...]
    identity: tuple[int, int]
    writable: bool

    @property
    def parts(self) -> tuple[str, ...]:
        return self.spellings[0]


class Workspace:
    """Reads and writes files beneath a root folder.

    `protected` names can be read but not written. `extra_roots` are more folders that can be read, by absolute path.
    `openat2` is for tests: `False` resolves paths step by step even where the kernel has `openat2`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".",
        *,
        protected: Iterable[str] = PROTECTED,
        extra_roots: Iterable[str | os.PathLike[str]] = (),
        openat2: bool | None = None,
    ) -> None:
        if os.open not in os.supports_dir_fd:
            raise NotImplementedError("A workspace needs a system that opens files relative to a folder (openat).")
        self._base = _make_base(root, writable=True)
        self._extra = tuple(_make_base(extra, writable=False) for extra in extra_roots)
        self._protection = Protection(protected, self._base.path)
        self._kernel = has_openat2() if openat2 is None else openat2
        self.root = self._base.path
        keep_imports_out(str(self.root))
        self.seen = SeenVersions()

    def __repr__(self) -> str:
        return f"Workspace({str(self.root)!r})"

    def relative(self, path: str) -> str:
        """The path with symlinks resolved, relative to the root; absolute for an extra root."""
        base, _ = self._find_base(path)
        real = "/".join(self._visit(path, lambda place: place.real_names))
        return real or "." if base is self._base else str(base.path / real)

    def key(self, path: str) -> str:
        """A key that is the same for every name of a file: symlinks, hard links, other spellings. Never raises."""
        try:
            return self._visit(path, _identify)
        except WorkspaceError:
            return f"path:{path}"

    def keys(self, path: str) -> tuple[str, ...]:
        """The keys of a path for `Tool.keys`: which file is there now, and which path it is."""
        try:
            return self.key(path), f"path:{self.relative(path)}"
        except WorkspaceError:
            return (f"path:{path}",)

    def lock(self, path: str) -> AbstractContextManager[Any]:
        """A lock to hold from reading a file to writing it, so that nothing else in this process changes it."""
        return lock_file(str(self.root / self.relative(path)))

    def stat(self, path: str) -> os.stat_result:
        """The stat of a path; symlinks inside the workspace are followed."""

        def ask(place: ResolvedPath) -> os.stat_result:
            return raise_missing(place, path) if place.found is None else place.found

        return self._visit(path, ask)

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """Open a regular file as a file descriptor; never blocks, not even on a named pipe."""
        writing = bool(flags & _WRITE_FLAGS)

        def open_(place: ResolvedPath) -> int:
            return open_file(place, path, flags, mode, writing=writing)

        return self._visit(path, open_, writing=writing)

    def open_folder(self, path: str = ".") -> int:
        """Open a folder as a file descriptor, to list it and to open files in it."""

        def open_(place: ResolvedPath) -> int:
            if place.found is None:
                raise_missing(place, path)
            if place.rest:
                raise WrongKind(f"{path!r} is not a folder.")
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.folder)

        return self._visit(path, open_)

    def scan(self, path: str = ".", *, most: int | None = None) -> list[Entry]:
        """The entries of a folder, sorted by name; with `most`, only so many, those that are found first."""
        folder = self.open_folder(path)
        try:
            with os.scandir(folder) as entries:
                return sorted(Entry(entry.name, _classify(entry)) for entry in islice(entries, most))
        except OSError as error:
            raise translate_os_error(error, path) from error
        finally:
            os.close(folder)

    def read_bytes(self, path: str, *, limit: int) -> bytes:
        """Read a whole file; raise `TooLarge` when it has more than `limit` bytes."""
        descriptor = self.open(path)
        try:
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                data = _read_at_most(file.read, limit + 1)
        except OSError as error:
            raise translate_os_error(error, path) from error
        finally:
            os.close(descriptor)
        if len(data) > limit:
            raise TooLarge(f"{path!r} is too large: more than {limit:,} bytes.")
        return data

    def replace(self, path: str, data: bytes, *, expect: str | None = None) -> WriteResult:
        """Replace the content of a file atomically, or create the file and the folders it needs.

        With `expect`, the `digest` of the content to replace, a file with other content is not changed (`StaleFile`).
        Mode and owner are kept. Other names of the file (hard links) keep the old content.
        """
        with self.lock(path):
            if path.endswith(("/", "/.")):
                raise WrongKind(f"{path!r} names a folder. Give the path of a file.")
            note_change(str(self.root))
            return self._visit(path, lambda place: write_atomically(place, data, path, expect), writing=True)

    def check_writable(self, path: str) -> None:
        """Raise what `replace` would raise for a path that is outside, denied or protected; changes nothing."""
        if path.endswith(("/", "/.")):
            raise WrongKind(f"{path!r} names a folder. Give the path of a file.")
        self._visit(path, lambda _: None, writing=True)

    def _find_base(self, path: str) -> tuple[_Base, list[str]]:
        """Find the root that a path belongs to, and the names from there; raise for an unusable path."""
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError as error:
            raise WorkspaceError(f"{path!r} cannot be the name of a file.") from error
        if size > _MAX_PATH_BYTES:
            raise WorkspaceError(f"The path {path[:60]!r}... is too long ({size:,} bytes). Use a shorter one.")
        if "\0" in path:
            raise WorkspaceError(f"{path!r} has a NUL character, which is not allowed in a path.")
        if path == "~" or (path.startswith("~") and "/" in path):
            path = os.path.expanduser(path)
        names = split_path(path)
        if not path.startswith("/"):
            return self._base, names
        for base in (self._base, *self._extra):
            for parts in base.spellings:
                if tuple(names[: len(parts)]) == parts:
                    return base, names[len(parts) :]
        raise make_outside_error(path, str(self.root))

    def _visit(self, path: str, action: Callable[[ResolvedPath], T], *, writing: bool = False) -> T:
        """Call `action` with the resolved path; start again when another process changes the path meanwhile."""
        base, names = self._find_base(path)
        if writing and not base.writable:
            raise ProtectedPath(f"{path!r} is in a folder that can be read but not written.")
        for _ in range(_MAX_ATTEMPTS):
            try:
                return self._visit_once(base, names, path, action, writing=writing)
            except PathChanged:
                continue
            except OSError as error:
                raise translate_os_error(error, path) from error
        raise WorkspaceError(f"{path!r} kept changing while it was resolved. Try again later.")

    def _visit_once(
        self, base: _Base, names: list[str], path: str, action: Callable[[ResolvedPath], T], *, writing: bool
    ) -> T:
        folder = _open_base(base)
        try:
            root = Root(base.parts, folder, self._kernel)
            place = resolve_path(root, names, path)
            try:
                _check_denied(base, place, path, writing=writing)
                if not writing:
                    return action(place)
                with self._protection.admit(root, place, path):
                    return action(place)
            finally:
                os.close(place.folder)
        finally:
            os.close(folder)


def _check_denied(base: _Base, place: ResolvedPath, shown: str, *, writing: bool) -> None:
    """Raise `DeniedPath` if a rule denies where the path leads; what does not exist cannot be read."""
    if not writing and place.found is None:
        return
    if rule := find_denial(str(base.path.joinpath(*place.real_names)), writing=writing):
        raise DeniedPath(
            f"{shown!r} is denied by the rule {rule!r}. Do not try to reach it in another way. Go on without it, or "
            "tell the user what you wanted to do and why."
        )


def _make_base(path: str | os.PathLike[str], *, writable: bool) -> _Base:
    given = os.path.abspath(os.path.expanduser(path))
    real = os.path.realpath(given, strict=True)
    found = os.stat(real)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "A workspace is a folder", str(path))
    spellings = dict.fromkeys((tuple(split_path(real)), tuple(split_path(given))))
    return _Base(Path(real), tuple(spellings), (found.st_dev, found.st_ino), writable)


def _open_base(base: _Base) -> int:
    try:
        folder = os.open(base.path, FOLDER)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkspaceError(f"The workspace {str(base.path)!r} is gone: its folder was moved or deleted.") from error
    found = os.fstat(folder)
    if (found.st_dev, found.st_ino) != base.identity:
        os.close(folder)
        raise WorkspaceError(f"The workspace {str(base.path)!r} is gone: another folder has taken its place.")
    return folder


def _identify(place: ResolvedPath) -> str:
    if place.found is not None:
        return f"file:{place.found.st_dev}:{place.found.st_ino}"
    folder = os.fstat(place.folder)
    return "/".join((f"file:{folder.st_dev}:{folder.st_ino}", *(name.casefold() for name in place.rest)))


def _classify(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _read_at_most(read: Callable[[int], bytes], most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := read(min(most, _CHUNK))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
