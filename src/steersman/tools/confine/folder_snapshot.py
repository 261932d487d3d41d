"""A snapshot of the folders of a workspace, to find protected names below it, also those that a command made.

A refresh reads only the folders that changed, and costs one `lstat` for each of the others.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext, suppress
from typing import NamedTuple

from steersman.tools.confine.enforcement import Guard, give_rights, open_in_place, restore_guards
from steersman.tools.confine.links import MAX_STEPS, find_link_into
from steersman.tools.confine.scratch import list_bases
from steersman.tools.confine.write_protection import repository_writes

MAX_FOLDERS = 20_000

PROTECTED_NAMES = frozenset((".git", ".steersman", ".mcp.json"))
# A folder with these is a git repository without being called `.git`, and so is one with HEAD and commondir.
_BARE = frozenset(("HEAD", "objects", "refs"))
_LINKED = frozenset(("HEAD", "commondir"))
# A folder that changed this recently may change again without another time stamp: with times in small parts of a
# second, and on a file system that has times in whole seconds.
_SETTLED_NS, _SETTLED_COARSE_NS = 100_000_000, 3_000_000_000

_OPEN = 0o500  # the owner may list and enter it
_ALL_RIGHTS = 0o700
_NO_LINKS = "commands may not link to the temporary folder"

_Stamp = tuple[int, int, int]


class _Folder(NamedTuple):
    """The stamp of a folder when it was read, and the paths of its folders, its protected names, and its links out.

    A link that leads out of the workspace now may lead elsewhere as soon as something else has changed, and so may one
    with `..` after a name.
    """

    stamp: _Stamp | None
    folders: list[str]
    found: list[str]
    links: list[str]


class FolderSnapshot:
    """The folders below a root, nearest first, at most `most`, and without those in `skipped`.

    `is_complete` says after a refresh that there were no more, and `links` are those that may lead out of it, or
    to what is around one of `skipped`. Every other link does so only by one of these.
    """

    def __init__(self, root: str, *, skipped: Iterable[str] = (), most: int = MAX_FOLDERS) -> None:
        self._root = root
        self._skipped = frozenset(skipped)
        self._bases = tuple(map(os.path.dirname, self._skipped))
        self._most = most
        self._folders: dict[str, _Folder] = {}
        self.is_complete = True
        self.links: list[str] = []

    def refresh(self, is_new: Callable[[str], bool] | None = None) -> set[str]:
        """Find the protected names below the root's own, and the HEAD of each bare repository, also of the root.

        `is_new` is given after a command, and says which of them it made. These are searched as well: what is in them
        would be found by git once they have another name. Folders that the command has closed to us are opened: a
        repository in them would still be of use. And a `write` that was allowed before the command made the rest of a
        repository comes to its end first.
        """
        with nullcontext() if is_new is None else repository_writes:
            return self._refresh(is_new)

    def _refresh(self, is_new: Callable[[str], bool] | None) -> set[str]:
        known, fresh = self._folders, dict[str, _Folder]()
        found: set[str] = set()
        waiting = deque([self._root])
        while waiting and len(fresh) < self._most:
            path = waiting.popleft()
            try:
                entry_stat = os.lstat(path)
            except OSError:
                continue  # deleted meanwhile
            if path in fresh or not stat.S_ISDIR(entry_stat.st_mode):
                continue  # a protected name may be a file or a link
            stamp = (entry_stat.st_ino, entry_stat.st_ctime_ns, entry_stat.st_dev)
            folder = known.get(path)
            if folder is None or folder.stamp != stamp:
                if is_new is not None and entry_stat.st_mode & _OPEN != _OPEN:
                    open_folder(path)
                folder = self._read(path, stamp)
            fresh[path] = folder
            waiting.extend(folder.folders)
            found.update(folder.found)
            if is_new is not None:
                waiting.extend(filter(is_new, folder.found))
        self._folders = fresh
        self.links = [link for folder in fresh.values() for link in folder.links]
        self.is_complete = not waiting
        return found

    def _read(self, path: str, stamp: _Stamp) -> _Folder:
        folders: list[str] = []
        found: list[str] = []
        links: list[str] = []
        names: set[str] = set()
        now = time.time_ns()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    names.add(entry.name)
                    if entry.is_symlink() and self._may_lead_out(path, entry.path):
                        links.append(entry.path)
                    # In any case: there are file systems on which `.GIT` is `.git`.
                    if entry.name.lower() in PROTECTED_NAMES:
                        found.append(entry.path)
                    elif entry.is_dir(follow_symlinks=False) and entry.path not in self._skipped:
                        folders.append(entry.path)
        except OSError:
            return _Folder(None, folders, found, links)  # deleted, or unreadable for us and so for the command
        if path == self._root:
            found = []  # these are protected in another way, also while a command runs
        if names >= _BARE or names >= _LINKED:
            found.append(os.path.join(path, "HEAD"))
        return _Folder(stamp if is_settled(stamp[1], now) else None, folders, found, links)

    def _may_lead_out(self, folder: str, link: str) -> bool:
        """Whether a link may lead out of the root, or to a skipped folder, by itself and not by another link."""
        try:
            text = os.readlink(link)
        except OSError:
            return False  # deleted meanwhile
        names = [name for name in text.split(os.sep) if name not in ("", os.curdir)]
        ups = 0 if os.path.isabs(text) else next((at for at, name in enumerate(names) if name != os.pardir), len(names))
        if os.pardir in names[ups:]:
            return True  # what is above a name depends on what is there
        target = os.path.normpath(os.path.join(folder, text))
        return not _is_in(target, self._root) or any(_is_in(target, base) for base in self._bases)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def is_settled(changed: int, now: int) -> bool:
    """Whether another change would give a folder another time stamp; both times are in nanoseconds."""
    return now - changed > (_SETTLED_NS if changed % 1_000_000_000 else _SETTLED_COARSE_NS)


def open_folder(path: str) -> None:
    """Let the owner of a folder list and enter it; not where the path leads through a link."""
    try:
        place = open_in_place(path)
    except OSError:
        return  # deleted, or replaced by a link to a folder that is not ours to open
    try:
        give_rights(place, _OPEN)
    except OSError:
        pass  # of another user
    finally:
        os.close(place)


def set_aside(paths: Iterable[str]) -> list[str]:
    """Rename what is at these paths, where a command has made it; return a note for each.

    What is inside of another one comes first: its path is not the same afterwards. The HEAD of one that is set aside
    is renamed with it.
    """
    chosen = {path for path in paths if not is_empty_folder(path)}
    chosen -= {os.path.join(path, "HEAD") for path in chosen}
    guards: list[Guard] = [(path, None, path, False) for path in sorted(chosen, reverse=True)]
    return restore_guards(guards)[::-1]


def remove_links(paths: Collection[str], *, root: str) -> list[str]:
    """Remove links in a workspace that lead to a temporary folder, also of another tool; return a note for each.

    A repository there is of no concern, until git is used in it by such a link. Where links lead changes with others,
    so all are looked at after each command, and those that lead too far to do so are removed as well.
    """
    notes: list[str] = []
    bases = [base for base in list_bases() if not _is_in(root, base)] if paths else []
    found = dict(find_link_into(path, bases, beneath=root) for path in paths)
    for path, is_long in found.items():
        if path is None:
            continue
        parent, name = os.path.split(path)
        try:
            place = open_in_place(parent)
        except OSError:
            continue  # it has just been moved or deleted
        try:
            target = os.readlink(name, dir_fd=place)
            with suppress(OSError):  # of another user; what comes next says what is wrong
                give_rights(place, _ALL_RIGHTS)  # the command may have forbidden its owner to change it
            os.unlink(name, dir_fd=place)
            what = f"links may not lead through more than {MAX_STEPS:,} names" if is_long else _NO_LINKS
            notes.append(f"{what}: {path!r}, to {target!r:.200}, has been removed")
        except FileNotFoundError:
            continue  # it has just been deleted
        except OSError:
            notes.append(f"{path!r} leads to the temporary folder of commands: look at it before you use it")
        finally:
            os.close(place)
    return notes


def is_empty_folder(path: str) -> bool:
    """Whether there is a folder at a path, and nothing in it."""
    try:
        with os.scandir(path) as entries:
            return not os.path.islink(path) and next(entries, None) is None
    except OSError:
        return False


def is_missing_or_empty(path: str) -> bool:
    """Whether there is nothing at a path, or only an empty folder."""
    return not os.path.lexists(path) or is_empty_folder(path)
