"""What belongs to this program and its own tools must not change, because it decides about permissions.

These are session stores, because a process that can write to one can answer questions in it, also those about its own
calls; the lists of trusted files and tools; and the folders with the user's settings, trust and sessions, which may be
in a workspace that is a home folder.
"""

from __future__ import annotations

import os
import threading

# What SQLite and a store keep beside the file.
_COMPANIONS = ("", "-wal", "-shm", "-lock", "-journal")
_FOLDERS = (("XDG_CONFIG_HOME", ".config"), ("XDG_STATE_HOME", ".local/state"))
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
    return [*stores, *list_trust_files(), *list_own_folders()]


def list_trust_files() -> list[str]:
    """List the real paths of the files that say what is trusted, except for those in the folders below."""
    folders = [folder + os.sep for folder in list_own_folders()]
    with _lock:
        files = [os.path.realpath(path) for path in _files]
    return [path for path in files if not path.startswith(tuple(folders))]


def list_own_folders() -> list[str]:
    """List the real paths of the folders with the user's settings, trust and sessions; not all of them exist."""
    home = os.path.expanduser("~")
    places = [os.environ.get(variable, "") for variable, _ in _FOLDERS]
    usual = [os.path.join(home, path) for _, path in _FOLDERS]
    found = [place if os.path.isabs(place) else other for place, other in zip(places, usual, strict=True)]
    return [os.path.realpath(os.path.join(folder, "steersman")) for folder in found if os.path.isabs(folder)]
