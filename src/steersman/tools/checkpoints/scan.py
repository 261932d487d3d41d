"""Looks at the files of a workspace by file descriptor, and follows no link, so that no TOCTOU race leads outside.

A file is read only if its stamp changed since the last look. Protected names such as `.git` are not looked at. Neither
are folders that `.gitignore` hides, folders with usual names of caches and dependencies, and what is beyond the limits.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from steersman.tools.builtin.gitignore import IgnoreRules, load_outer_rules, read_rules
from steersman.tools.checkpoints.states import Snapshot, State
from steersman.tools.confine.file_versions import digest
from steersman.tools.confine.own_files import list_own_files
from steersman.tools.confine.path_errors import WorkspaceError
from steersman.tools.confine.path_resolution import PathChanged, open_subfolder, stat_entry
from steersman.tools.confine.syscalls import FOLDER, has_openat2, is_pseudo_file, openat2
from steersman.tools.confine.workspace import PROTECTED
from steersman.tools.confine.write_protection import normalize_name

SKIPPED_NAMES = frozenset(
    (
        *("node_modules", "bower_components", ".venv", "venv", ".tox", ".nox", ".eggs", ".bundle", ".direnv"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".parcel-cache", ".turbo"),
        *(".gradle", ".terraform", ".next", ".nuxt", ".hg", ".svn", ".jj"),
    )
)
"""Folders of caches, dependencies and other version control, which are large and can be made again."""

# A file that changed this recently may change again without another time stamp.
_SETTLED_NS = 100_000_000
_MAX_DEPTH = 100
_MAX_ATTEMPTS = 5
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
_REPOSITORIES = (frozenset(("HEAD", "objects", "refs")), frozenset(("HEAD", "commondir")))


@dataclass(frozen=True, slots=True)
class Limits:
    """What is covered at most: bytes of one file, files and folders, and bytes of all contents in the store.

    `matching` is for the rules of `.gitignore`: their characters, times those of each path that they are matched with.
    """

    file_bytes: int = 10_000_000
    entries: int = 50_000
    total_bytes: int = 500_000_000
    matching: int = 20_000_000_000


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder to look at, the rules that apply there, and the characters of those in the workspace."""

    path: str
    rules: IgnoreRules
    characters: int = 0

    def extend(self, text: bytes) -> _Place:
        """Add the rules of its own file."""
        rules = self.rules.extend(self.path, text)
        return _Place(self.path, rules, self.characters + sum(len(rule.regex) for rule in rules.rules.rules))


def is_protected(name: str) -> bool:
    """Whether a name is one that tools cannot write, such as `.git`, also in another spelling of it."""
    if name.isascii() and not name.startswith((".", "g", "G")):
        return False
    return normalize_name(name) in PROTECTED


def open_beneath(root: int, path: str) -> int:
    """Open a folder below an open one as a file descriptor; `PathChanged` if there is none, or a link on the way."""
    if has_openat2():
        try:
            return openat2(root, path or ".")
        except (OSError, ValueError) as error:
            raise PathChanged from error
    folder = os.dup(root)
    for name in path.split("/") if path else ():
        try:
            inner = open_subfolder(folder, name)
        finally:
            os.close(folder)
        folder = inner
    return folder


def split(path: str) -> tuple[str, str]:
    """The folder of a path, and the name in it."""
    folder, _, name = path.rpartition("/")
    return folder, name


class Scanner:
    """Looks at a workspace at its real `path`. `keep(digest, data)` stores a content, or says that there is no room."""

    def __init__(self, root: Path, limits: Limits, keep: Callable[[str, bytes], bool]) -> None:
        self.path = os.path.realpath(root)
        found = os.stat(self.path)
        self._identity = (found.st_dev, found.st_ino)
        self._limits = limits
        self._keep = keep
        self._matched = 0

    def open_root(self) -> int:
        """Open the workspace as a file descriptor; raise `WorkspaceError` if it was moved or replaced."""
        try:
            root = os.open(self.path, FOLDER)
        except OSError as error:
            raise WorkspaceError(f"The workspace {self.path!r} is gone: its folder was moved or deleted.") from error
        found = os.fstat(root)
        if (found.st_dev, found.st_ino) != self._identity:
            os.close(root)
            raise WorkspaceError(f"The workspace {self.path!r} is gone: another folder has taken its place.")
        return root

    def look(self, path: str) -> State | None:
        """What is at a path now; `None` if nothing is."""
        root = self.open_root()
        try:
            return self.look_beneath(root, path)
        finally:
            os.close(root)

    def look_beneath(self, root: int, path: str) -> State | None:
        """What is at a path below an open root now; `None` if nothing is."""
        folder, name = split(path)
        try:
            parent = open_beneath(root, folder)
        except PathChanged:
            return None
        try:
            for _ in range(_MAX_ATTEMPTS):
                found = stat_entry(parent, name)
                if found is None:
                    return None
                with suppress(PathChanged):
                    return self._read_state(parent, name, found)
        finally:
            os.close(parent)
        raise WorkspaceError(f"{path!r} kept changing while it was read. Try again later.")

    def list_names(self, path: str) -> list[str]:
        """The names in a folder, also those that are not looked at; empty if it cannot be listed."""
        root = self.open_root()
        try:
            folder = _open_to_list(root, path)
        except (PathChanged, OSError):
            return []
        finally:
            os.close(root)
        try:
            return os.listdir(folder)
        finally:
            os.close(folder)

    def scan(self, known: Snapshot) -> Snapshot:
        """Look at the whole workspace; only files whose stamps differ from the known ones are read."""
        now, own = time.time_ns(), _list_own_paths(self.path)
        fresh, root, self._matched = Snapshot(), self.open_root(), 0
        waiting = deque([_Place("", load_outer_rules(Path(self.path)))])
        try:
            while waiting:
                place = waiting.popleft()
                try:
                    folder = _open_to_list(root, place.path)
                except (PathChanged, OSError):
                    fresh.skipped[place.path] = "unreadable"
                    continue
                try:
                    waiting += self._scan_folder(folder, place, known, fresh, now, own)
                finally:
                    os.close(folder)
        finally:
            os.close(root)
        return fresh

    def _scan_folder(
        self,
        folder: int,
        place: _Place,
        known: Snapshot,
        fresh: Snapshot,
        now: int,
        own: frozenset[str],
    ) -> list[_Place]:
        """Look at one folder; return the folders in it to look at."""
        path, inside = place.path, list[_Place]()
        names = sorted(os.listdir(folder))
        if is_pseudo_file(folder) or any(parts.issubset(names) for parts in _REPOSITORIES):
            fresh.skipped[path] = "made by the kernel, or a git repository"
            return []
        if len(fresh.states) + len(names) > self._limits.entries or path.count("/") > _MAX_DEPTH:
            fresh.skipped[path] = str(os.fstat(folder).st_ctime_ns)
            return []
        text = read_rules(folder) if ".gitignore" in names else None
        place = place if text is None else place.extend(text)
        for name in names:
            full = f"{path}/{name}" if path else name
            found = None if is_protected(name) or full in own else stat_entry(folder, name)
            if found is None:
                continue
            if stat.S_ISDIR(found.st_mode):
                if name in SKIPPED_NAMES or self._is_hidden(full, place):
                    fresh.skipped[full] = str(found.st_ctime_ns)
                    continue
                inside.append(replace(place, path=full))
            self._add(fresh, full, folder, found, known, now)
        return inside

    def _is_hidden(self, folder: str, place: _Place) -> bool:
        """Whether rules hide a folder; so is every other one once so many were matched that it takes seconds."""
        self._matched += place.characters * len(folder)
        return self._matched > self._limits.matching or place.rules.hides(folder, folder=True)

    def _add(self, fresh: Snapshot, path: str, folder: int, found: os.stat_result, known: Snapshot, now: int) -> None:
        stamp = _stamp(found)
        if known.stamps.get(path) == stamp and path in known.states:
            fresh.states[path], fresh.stamps[path] = known.states[path], stamp
            return
        name = split(path)[1]
        for _ in range(_MAX_ATTEMPTS):
            with suppress(PathChanged):
                fresh.states[path] = self._read_state(folder, name, found)
                if now - max(found.st_ctime_ns, found.st_mtime_ns) > _SETTLED_NS:
                    fresh.stamps[path] = _stamp(found)
                return
            again = stat_entry(folder, name)
            if again is None:
                return
            found = again
        fresh.states[path] = State("unkept", 0, f"changing {now}")

    def _read_state(self, folder: int, name: str, found: os.stat_result) -> State:
        """Read what is at a name, and store its content; `PathChanged` if it changes meanwhile."""
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if stat.S_ISDIR(found.st_mode):
            return State("folder", mode)
        if stat.S_ISLNK(found.st_mode):
            try:
                data = os.fsencode(os.readlink(name, dir_fd=folder))
            except OSError as error:
                raise PathChanged from error
            return self._make_state("link", 0, data, found)
        if not stat.S_ISREG(found.st_mode) or found.st_size > self._limits.file_bytes:
            return State("unkept", mode, _stamp(found), found.st_size)
        try:
            data = _read_file(folder, name, found)
        except PermissionError:
            return State("unkept", mode, _stamp(found), found.st_size)
        except FileNotFoundError as error:
            raise PathChanged from error
        return self._make_state("file", mode, data, found)

    def _make_state(self, kind: str, mode: int, data: bytes, found: os.stat_result) -> State:
        name = digest(data)
        if not self._keep(name, data):
            return State("unkept", mode, _stamp(found), found.st_size)
        return State("link" if kind == "link" else "file", mode, name, len(data))


def _open_to_list(root: int, path: str) -> int:
    place = open_beneath(root, path)
    try:
        return os.open(".", _LIST, dir_fd=place)
    finally:
        os.close(place)


def _read_file(folder: int, name: str, found: os.stat_result) -> bytes:
    """Read a regular file as a whole; `PathChanged` if it is another one by now, or changes while it is read."""
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except PermissionError:
        raise
    except OSError as error:
        raise PathChanged from error
    try:
        if _stamp(os.fstat(descriptor)) != _stamp(found):
            raise PathChanged
        pieces: list[bytes] = []
        while piece := os.read(descriptor, _CHUNK):
            pieces.append(piece)
            if len(pieces) * _CHUNK > found.st_size + 2 * _CHUNK:
                raise PathChanged  # it grows faster than it can be read
        if _stamp(os.fstat(descriptor)) != _stamp(found):
            raise PathChanged
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _stamp(found: os.stat_result) -> str:
    """What changes whenever a file does. The time of access does not count, nor does the number of its names."""
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}:{found.st_mode}"


def _list_own_paths(root: str) -> frozenset[str]:
    """The files of this program that are in the workspace, such as sessions and these checkpoints."""
    return frozenset(os.path.relpath(path, root) for path in list_own_files() if path.startswith(f"{root}{os.sep}"))
