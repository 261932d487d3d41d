"""The paths of a sandboxed command: an allow-list of what it sees, and what it must not change in the workspace.

Programs can be read, the workspace written, the rest is hidden. Home folders and /etc hold secrets, so only the named
parts of them are visible. In the workspace, git repositories, `.steersman`, `.mcp.json` and the Python we run from are
protected, because other programs run what is there. A file or folder becomes a read-only bind mount, which also fixes
the names of the folders above it. A name that is missing or a symlink cannot be a mount point: it is guarded instead,
which means it is checked and restored after the command. Where the root has no `.git`, this name and `HEAD` are held:
empty folders are there as long as the command runs, so that it makes no repository of the root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

from steersman.tools.confine.changed_folders import list_command_folders
from steersman.tools.confine.enforcement import Guard
from steersman.tools.confine.folder_snapshot import FolderSnapshot, is_missing_or_empty
from steersman.tools.confine.links import leads_through, list_links, list_steps
from steersman.tools.confine.own_files import (
    list_linked_settings,
    list_own_files,
    list_own_folders,
    list_own_links,
    list_trust_files,
)
from steersman.tools.confine.program_folders import find_program_folders, find_system_folders
from steersman.tools.confine.python_folders import list_links_to_python, list_python_paths
from steersman.tools.confine.syscalls import list_pseudo_mounts
from steersman.types.errors import ToolError

MAX_PROTECTED = 200

Git: TypeAlias = Literal["read-only", "read-write"]
GIT: tuple[Git, ...] = get_args(Git)

_MAX_POINTER_BYTES = 4_096
OWN_NAMES = (".steersman", ".mcp.json")
# What git runs, or reads to find out what to run. Protected even where the repository can be written.
_SETTINGS = ("commondir", "config", "config.worktree", "hooks", "info")


def select_nested(root: str, found: Iterable[str], git: Git, *, most: int = MAX_PROTECTED) -> list[str]:
    """Select what to protect of the names that a snapshot found; `ToolError` where that is more than `most`."""
    chosen = sorted(path for path in found if git == "read-only" or os.path.basename(path).lower() in OWN_NAMES)
    if len(chosen) > most:
        raise ToolError(
            f"There are more than {most} repositories, .steersman and .mcp.json in the workspace {root!r}, too many to "
            "protect. Only the user can change that: with a smaller workspace, or with bash_tool(git='read-write') "
            "where they are repositories."
        )
    return chosen


def resolve_git_folders(path: str) -> list[str]:
    """Resolve a `.git`: its real path, the folder that a `gitdir:` file names, and the common folder of worktrees."""
    return [os.path.realpath(place) for place in _list_git_folders(path)]


def _list_git_folders(path: str) -> list[str]:
    """List a `.git` and what it leads to, by the paths with which it is found, which may lead through links."""
    found = [path]
    if target := _read_pointer(os.path.realpath(path), "gitdir:", os.path.dirname(path)):
        found.append(target)
    real = os.path.realpath(found[-1])
    if common := _read_pointer(os.path.join(real, "commondir"), "", real):
        found.append(common)
    return found


def _read_pointer(path: str, word: str, base: str) -> str | None:
    """Read the path that a small file names after a word, with its links; `None` for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        text = os.fsdecode(os.read(descriptor, _MAX_POINTER_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    target = text.removeprefix(word).strip()
    if not text.startswith(word) or not target or "\0" in target:
        return None
    return os.path.join(base, target)


def record_guard(path: str) -> Guard | None:
    """Record what is at a path, to check it again; `None` for a file or a folder, which a bind mount protects."""
    try:
        text = os.readlink(path)
    except FileNotFoundError:
        text = None
    except OSError:
        return None
    return path, text, os.path.realpath(path), os.path.exists(path)


@dataclass(frozen=True, slots=True)
class ProtectedPaths:
    """`pinned` are paths to bind mount, outer ones first, each with whether it stays writable; `guarded` the rest.

    `held` are names at which an empty folder is made and mounted while the command runs.
    """

    pinned: tuple[tuple[str, bool], ...] = ()
    guarded: tuple[Guard, ...] = ()
    held: tuple[str, ...] = ()


@dataclass(slots=True)
class _ProtectionBuilder:
    """Collects the protected paths beneath one root."""

    root: str
    read_only: set[str] = field(default_factory=set[str])
    writable: set[str] = field(default_factory=set[str])
    guards: dict[str, Guard] = field(default_factory=dict[str, Guard])
    held: set[str] = field(default_factory=set[str])
    passing: Collection[str] = ()

    def protect(self, path: str) -> None:
        """Protect a name and its target."""
        if path in self.passing:
            self.guards[path] = (path, None, path, False)
            return
        self.guard_links(path)
        if (found := record_guard(path)) is not None:
            self.guards[path] = found
        self.make_read_only(os.path.realpath(path))

    def guard_links(self, path: str) -> None:
        """Guard the links beneath the root that a path leads through: whatever replaces one of them has replaced it.

        The last one first: the others are as they were only when it is.
        """
        for link in reversed(list_links(path)):
            if is_beneath(self.root, link) and (found := record_guard(link)) is not None:
                self.guards[link] = found

    def hold(self, path: str) -> None:
        """Hold a name at which there is nothing, or only the folder with which another command holds it."""
        self.guards[path] = (path, None, path, False)
        self.held.add(path)
        self.read_only.discard(path)

    def hold_missing(self, path: str) -> None:
        """Hold the first name on the way to a folder, beneath the root, at which there is nothing."""
        steps = [step for step in (path, *_list_parents(path, self.root)) if is_missing_or_empty(step)]
        if steps and is_beneath(self.root, path):
            self.hold(steps[-1])

    def make_read_only(self, real: str) -> None:
        """Make a path read-only, if it exists beneath the root."""
        if is_beneath(self.root, real) and (os.path.isdir(real) or os.path.isfile(real)):
            self.read_only.add(real)

    def protect_repository(self, path: str) -> None:
        """Protect all of a `.git`, wherever its folders are."""
        self.protect(path)
        if os.path.lexists(path):
            self.guard_git_folders(path)
            for place in resolve_git_folders(path):
                self.make_read_only(place)
                self.guard_missing(place)

    def guard_git_folders(self, path: str) -> None:
        """Guard the links by which the folders of a `.git` are found."""
        for place in reversed(_list_git_folders(path)):
            self.guard_way(place)

    def guard_way(self, path: str) -> None:
        """Guard the links that a path leads through, and keep the folders in place, above which it may go with `..`."""
        self.guard_links(path)
        try:
            steps = list(list_steps(path))
        except OSError:
            return  # in a circle
        # The next step is the folder above only where it goes up.
        folders = {step for step, after in pairwise(steps) if after == os.path.dirname(step)}
        self.writable.update(step for step in folders if is_beneath(self.root, step) and os.path.isdir(step))

    def protect_nested(self, path: str, git: Git) -> None:
        """Protect a name that a snapshot found: the HEAD of a bare repository stands for all of it."""
        name = os.path.basename(path).lower()
        if name in OWN_NAMES:
            self.protect(path)
        elif git == "read-only" and name == ".git":
            self.protect_repository(path)
        elif git == "read-only":
            self.protect_bare(os.path.dirname(path))

    def protect_bare(self, folder: str) -> None:
        """Protect a bare repository; of one that is the root itself, what names programs to run."""
        if folder == self.root:
            for name in ("HEAD", *_SETTINGS):
                self.protect(os.path.join(folder, name))
        else:
            self.make_read_only(folder)
        if common := _read_pointer(os.path.join(folder, "commondir"), "", folder):
            self.guard_way(common)
            self.make_read_only(os.path.realpath(common))
            self.guard_missing(os.path.realpath(common))

    def protect_own(self, own: Iterable[str]) -> None:
        """Protect what belongs to us, also what is not there yet."""
        settings = (*list_own_folders(), *list_linked_settings())
        if any(path == self.root or is_beneath(path, self.root) for path in settings):
            self.read_only.add(self.root)
        for path in own:
            self.make_read_only(os.path.realpath(path))
            # SQLite would take this file for changes to undo. It makes none itself while it writes ahead (WAL).
            if path.endswith("-journal") and is_beneath(self.root, path) and (found := record_guard(path)) is not None:
                self.guards[path] = found
        for path in (*list_trust_files(), *list_linked_settings(), *list_python_paths(self.root)):
            self.guard_missing(path)
        for path in (*list_own_links(), *list_links_to_python()):
            if is_beneath(self.root, path) and (found := record_guard(path)) is not None:
                self.guards[path] = found
        for path in list_own_folders():
            self.hold_missing(path)

    def protect_git_settings(self, path: str) -> None:
        """Protect the parts of a `.git` that name programs to run, and leave the rest writable."""
        if os.path.islink(path) or os.path.isfile(path):
            self.protect(path)
            self.guard_git_folders(path)
        for place in resolve_git_folders(path) if os.path.lexists(path) else ():
            self.guard_missing(place)
            if os.path.isdir(place) and is_beneath(self.root, place):
                self.read_only.discard(place)
                self.writable.add(place)
                for name in _SETTINGS:
                    self.protect(os.path.join(place, name))

    def guard_missing(self, place: str) -> None:
        """Guard the first missing name on the way to a path that does not exist."""
        if not is_beneath(self.root, place) or os.path.lexists(place):
            return
        while not os.path.lexists(parent := os.path.dirname(place)):
            place = parent
        if (found := record_guard(place)) is not None:
            self.guards[place] = found

    def build(self, allowed: set[str]) -> ProtectedPaths:
        guards = {path: each for path, each in self.guards.items() if path not in allowed}
        fixed = {path for path in self.read_only if allowed.isdisjoint((path, *_list_parents(path, self.root)))}
        if self.root in fixed:
            return ProtectedPaths(((self.root, False),))
        fixed = {path for path in fixed if fixed.isdisjoint(_list_parents(path, self.root))}
        opened = self.writable - allowed
        pins = dict.fromkeys(opened, True)
        # A mount point cannot be renamed: mounting the folders above fixes the path of what is in them.
        pins |= {folder: True for path in (*fixed, *opened, *guards) for folder in _list_parents(path, self.root)}
        pins |= dict.fromkeys(fixed, False)
        pins = {
            path: writable
            for path, writable in pins.items()
            if writable is False or fixed.isdisjoint(_list_parents(path, self.root))
        }
        return ProtectedPaths(
            tuple(sorted(pins.items(), key=lambda pin: pin[0].split(os.sep))),
            tuple(guards.values()),
            tuple(self.held - allowed),
        )


def protect_paths(
    root: str,
    *,
    nested: Iterable[str],
    own: Iterable[str],
    allowed: Iterable[str],
    git: Git,
    passing: Collection[str] = (),
) -> ProtectedPaths:
    """Find what a command in the workspace `root` must not change, except paths that are listed in `allowed`.

    `own` are the folders of the Python we run from, and what else belongs to us. `nested` are the protected names below
    the root's own, and the HEAD of each bare repository. `passing` are the root's own names at which there is only what
    another command has made: what is there at the end is set aside.
    """
    keeping = _ProtectionBuilder(root, passing=passing)
    for name in OWN_NAMES:
        keeping.protect(os.path.join(root, name))
    keeping.protect_own(own)
    # Through /proc/sys, a command of root could make the kernel run a program of its choice.
    keeping.read_only.update(list_pseudo_mounts(root))
    for path in nested:
        keeping.protect_nested(path, git)
    top = os.path.join(root, ".git")
    if git == "read-write":
        keeping.protect_git_settings(top)
    elif top in passing:
        keeping.protect(top)
    elif is_missing_or_empty(top):
        keeping.hold(top)
        # Without a file HEAD, git takes no folder for a bare repository.
        if is_missing_or_empty(head := os.path.join(root, "HEAD")):
            keeping.held.add(head)
        elif os.path.islink(head) or os.path.isfile(head):
            keeping.protect(head)
    else:
        keeping.protect_repository(top)
    return keeping.build(set(allowed))


def is_beneath(root: str, path: str) -> bool:
    """Whether a real path is below a root and not the root itself."""
    return path.startswith(root.rstrip(os.sep) + os.sep) and path != root


def _list_parents(path: str, root: str) -> list[str]:
    """The folders between a root and a path below it."""
    found: list[str] = []
    while is_beneath(root, path := os.path.dirname(path)):
        found.append(path)
    return found


_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class SandboxPaths:
    """The paths that a command may read, write and use as devices, and those it must not change (`protected`).

    `movable` are those of `readable` that a command in another workspace could replace.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...] = _DEVICES
    protected: ProtectedPaths = field(default_factory=ProtectedPaths)
    movable: tuple[str, ...] = ()

    def list_real(self) -> list[str]:
        """List the paths that are mounted or held, which are real: where one leads through a link, it was replaced."""
        return [*self.writable, *self.movable, *(path for path, _ in self.protected.pinned), *self.protected.held]


def find_sandbox_paths(
    root: str,
    scratch: Iterable[str],
    environment: Mapping[str, str],
    *,
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
    own: Iterable[str] | None = None,
    git: Git = "read-only",
    nested: Iterable[str] | None = None,
    passing: Collection[str] = (),
) -> SandboxPaths:
    """Find the paths for a command in the workspace `root`, with its own temporary folders (`scratch`).

    `own` are the folders of the Python we run from (`None` finds them); inside the workspace they are protected unless
    `writable` lists them. `nested` are the protected names below the root's own; `None` searches for them. `passing`
    are names of the root that another command has made.
    """
    write = _drop_inner(path for path in (root, *scratch, *writable) if os.path.exists(path))
    # A folder of PATH in the workspace can be read anyway, and a command may have made it a link to anywhere.
    more = [path for path in (*find_program_folders(environment), *readable) if not leads_through(path, write)]
    # One in another workspace may be of use here, but a command there may have made it a link to anywhere.
    changed = set(list_command_folders()) - set(write)
    shared = {path for path in more if changed and leads_through(path, changed)}
    movable = {path for path in shared if os.path.exists(path) and os.path.realpath(path) == path}
    more = [path for path in more if path not in shared - movable]
    if nested is None:
        nested = select_nested(root, FolderSnapshot(root).refresh(), git)
    allowed = [os.path.realpath(path) for path in writable]
    own = list_python_paths(root) if own is None else own
    return SandboxPaths(
        tuple(sorted({path for path in (*find_system_folders(), *more) if os.path.exists(path)})),
        write,
        tuple(path for path in _DEVICES if os.path.exists(path)),
        protect_paths(root, nested=nested, own=(*own, *list_own_files()), allowed=allowed, git=git, passing=passing),
        tuple(sorted(movable)),
    )


def _drop_inner(paths: Iterable[str]) -> tuple[str, ...]:
    """Drop the folders that are in another one: a mount of their own adds nothing, and a command can move them."""
    found = tuple(dict.fromkeys(paths))
    return tuple(path for path in found if not any(is_beneath(other, path) for other in found))
