"""Finds what was replaced while a command ran, of what is mounted read-only for it.

With a file or folder that is deleted or replaced from outside, the kernel takes the mounts away that are on it, in all
namespaces. So the command could write what took its place.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable

_PLACE = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC


class ReadOnlyPaths:
    """The files and folders at these paths when a command begins.

    Each is kept open until `close`: the number of one that is deleted would be that of the next one that is made.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._places: dict[str, int] = {}
        # Also where the call is cancelled before it has this object.
        self._removal = weakref.finalize(self, _close_all, self._places)
        for path in paths:
            try:
                self._places[path] = os.open(path, _PLACE)
            except FileNotFoundError:
                continue  # just deleted

    def list_replaced(self) -> list[str]:
        """List the paths at which there is something else by now."""
        return [path for path, place in self._places.items() if _is_other(path, place)]

    def close(self) -> None:
        """Close the files."""
        self._removal()


def _is_other(path: str, place: int) -> bool:
    try:
        return not os.path.samestat(os.lstat(path), os.fstat(place))
    except OSError:
        return False  # deleted, and nothing took its place


def _close_all(places: dict[str, int]) -> None:
    while places:
        os.close(places.popitem()[1])
