"""What belongs to this program and its own tools must not change, because it decides about permissions.

These are session stores, because a process that can write to one can answer questions in it, also those about its own
calls; the lists of trusted files and tools; and the folders with the user's settings, trust and sessions, which may be
in a workspace that is a home folder.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice

from steersman.tools.confine.links import list_links

# What SQLite and a store keep beside the file.
_COMPANIONS = ("", "-wal", "-shm", "-lock", "-journal")
_FOLDERS = (("XDG_CONFIG_HOME", ".config"), ("XDG_STATE_HOME", ".local/state"))
_MOST_NAMES = 1_000
_databases: set[str] = set()
_files: set[str] = set()
_lock = threading.Lock()


def protect_database(path: str | os.PathLike[str]) -> None:
    """Protect a SQLite file, and what belongs to it, from the tools of this program."""
    with _lock:
        _databases.add(os.path.abspath(path))


def protect_file(path: str | os.PathLike[str]) -> None:
    """Protect a file from the tools of this program."""
    with _lock:
        _files.add(os.path.abspath(path))


def list_own_files() -> list[str]:
    """List the real paths of the protected files and folders; not all of them exist."""
    with _lock:
        databases = list(_databases)
    stores = [os.path.realpath(path) + ending for path in databases for ending in _COMPANIONS]
    return [*stores, *list_trust_files(), *list_own_folders(), *list_linked_settings()]


def list_trust_files() -> list[str]:
    """List the real paths of the files that say what is trusted, except for those in the folders below."""
    folders = [folder + os.sep for folder in list_own_folders()]
    with _lock:
        files = [os.path.realpath(path) for path in _files]
    return [path for path in files if not path.startswith(tuple(folders))]


def list_own_folders() -> list[str]:
    """List the real paths of the folders with the user's settings, trust and sessions; not all of them exist."""
    return [os.path.realpath(folder) for folder in _list_places()]


def list_linked_settings() -> list[str]:
    """List the real paths of what links in these folders lead to, as to a repository with all settings of the user."""
    folders = list_own_folders()
    found = [os.path.realpath(path) for folder in folders for path in _find_links(folder)]
    # A link to a folder around the settings would make of all that is in it a setting.
    return [path for path in found if not _is_around_any(path, folders)]


def list_own_links() -> list[str]:
    """List the links by which the protected files and the settings are found: what replaces one has replaced those."""
    with _lock:
        places = [*_databases, *_files]
    places += [*_list_places(), *(path for folder in list_own_folders() for path in _find_links(folder))]
    return list(dict.fromkeys(link for path in places for link in list_links(path)))


def _list_places() -> list[str]:
    home = os.path.expanduser("~")
    given = [os.environ.get(variable, "") for variable, _ in _FOLDERS]
    usual = [os.path.join(home, path) for _, path in _FOLDERS]
    found = [place if os.path.isabs(place) else other for place, other in zip(given, usual, strict=True)]
    return [os.path.join(folder, "steersman") for folder in found if os.path.isabs(folder)]


def _find_links(folder: str) -> list[str]:
    """The links in a folder, in the folders in it, and in those that links lead to, of the first names there."""
    return [entry.path for entry in islice(_walk(folder), _MOST_NAMES) if entry.is_symlink()]


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder and in the folders in it, then what is in the folders that links lead to.

    Unlike `os.walk`, with what is known without another look.
    """
    seen, waiting, own = set[str](), deque([folder]), list_own_folders()
    while waiting:
        real = os.path.realpath(waiting.popleft())
        # Links may lead in a circle, and one to a folder around the settings leads to what is none.
        if real in seen or (seen and _is_around_any(real, own)):
            continue
        seen.add(real)
        for entry in _list_entries(real):
            yield entry
            if entry.is_symlink():
                waiting.append(entry.path)  # a link to a file is a folder that cannot be read
            elif entry.is_dir(follow_symlinks=False):
                waiting.appendleft(entry.path)


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(islice(found, _MOST_NAMES))
    except OSError:
        return []  # missing, not readable, or a file


def _is_around_any(path: str, folders: list[str]) -> bool:
    return any(folder.startswith(path.rstrip(os.sep) + os.sep) for folder in folders)
