"""A snapshot of the folders of a workspace, to find protected names below it, also those that a command made.

A refresh reads only the folders that changed, and costs one `lstat` for each of the others.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import NamedTuple

from steersman.tools.confine.enforcement import Guard, give_rights, open_in_place, restore_guards
from steersman.tools.confine.links import list_links
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

_Stamp = tuple[int, int, int]


class _Folder(NamedTuple):
    """The stamp of a folder when it was read, and the paths of its folders, its protected names, and its links out."""

    stamp: _Stamp | None
    folders: list[str]
    found: list[str]
    links: list[str]


class FolderSnapshot:
    """The folders below a root, nearest first, at most `most`, and without those in `skipped`.

    `is_complete` says after a refresh that there were no more, and `links` are those that lead into one of `skipped`.
    """

    def __init__(self, root: str, *, skipped: Iterable[str] = (), most: int = MAX_FOLDERS) -> None:
        self._root = root
        self._skipped = frozenset(skipped)
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
                    # In any case: there are file systems on which `.GIT` is `.git`.
                    if entry.name.lower() in PROTECTED_NAMES:
                        found.append(entry.path)
                    elif entry.is_dir(follow_symlinks=False) and entry.path not in self._skipped:
                        folders.append(entry.path)
                    elif self._skipped and entry.is_symlink() and self._leads_into_skipped(entry.path):
                        links.append(entry.path)
        except OSError:
            return _Folder(None, folders, found, links)  # deleted, or unreadable for us and so for the command
        if path == self._root:
            found = []  # these are protected in another way, also while a command runs
        if names >= _BARE or names >= _LINKED:
            found.append(os.path.join(path, "HEAD"))
        return _Folder(stamp if is_settled(stamp[1], now) else None, folders, found, links)

    def _leads_into_skipped(self, link: str) -> bool:
        """Whether a link leads into a skipped folder, and not by another link below the root, as the user's may."""
        real = os.path.realpath(link)
        if not any(real == folder or real.startswith(folder + os.sep) for folder in self._skipped):
            return False
        return [step for step in list_links(link) if step.startswith(self._root + os.sep)][-1:] == [link]


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


def remove_links(paths: Iterable[str]) -> list[str]:
    """Remove links that a command has made, by which its temporary folder is in the workspace; return a note for each.

    A repository there is of no concern, until git is used in it by such a link.
    """
    notes: list[str] = []
    for path in paths:
        parent, name = os.path.split(path)
        try:
            place = open_in_place(parent)
        except OSError:
            continue  # it has just been moved or deleted
        try:
            target = os.readlink(name, dir_fd=place)
            os.unlink(name, dir_fd=place)
            notes.append(f"commands may not link to the temporary folder: {path!r}, to {target!r}, has been removed")
        except FileNotFoundError:
            continue  # it has just been set aside
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
