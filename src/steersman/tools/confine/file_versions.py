"""Per-file locks, and which version of a file each conversation has seen (by digest), so that no change is lost.

A tool that writes compares the digest the conversation knows with the file: an unknown change is a `StaleFile`.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Generator
from dataclasses import dataclass
from hashlib import blake2b

from steersman.tools.output import ToolContext

DIGEST_SIZE = 20
_CHUNK = 1 << 20
_MAX_FILES = 10_000
_MAX_READERS = 1_000
_STRIPES = 256


class _ThreadState(threading.local):
    holds_lock = False


_locks = [threading.Lock() for _ in range(_STRIPES)]
_thread = _ThreadState()


@contextlib.contextmanager
def lock_file(path: str) -> Generator[None]:
    """Hold the lock of a file, by its real path. Two files may share a lock; names that differ only in case always do.

    A thread that holds a lock takes no second one, so a symlink that changes meanwhile cannot cause a deadlock.
    """
    if _thread.holds_lock:
        yield
        return
    with _locks[hash(path.casefold()) % _STRIPES]:
        _thread.holds_lock = True
        try:
            yield
        finally:
            _thread.holds_lock = False


def _reset_locks() -> None:
    """Make new locks in a forked child: the threads that held the old ones do not exist there."""
    _locks[:] = [threading.Lock() for _ in range(_STRIPES)]


os.register_at_fork(after_in_child=_reset_locks)


def digest(data: bytes) -> str:
    """Compute the digest of a content: two files with the same digest have the same content."""
    return digest_stream(io.BytesIO(data))


def digest_stream(file: io.RawIOBase | io.BytesIO) -> str:
    """Compute the digest of what is left to read of an open file."""
    whole = blake2b(digest_size=DIGEST_SIZE)
    while piece := file.read(_CHUNK):
        whole.update(piece)
    return whole.hexdigest()


def identify_reader(ctx: ToolContext | None) -> str:
    """Identify the conversation of a call: what one has seen, another has not."""
    return "" if ctx is None else ctx.idempotency_key.removesuffix(f":{ctx.tool_call_id}")


@dataclass(slots=True)
class KnownVersion:
    """What one conversation knows of one file, as digests.

    `content` is what it has read or written itself. `edited` is that content after edits by other conversations of
    this process, which each changed a passage: enough for another edit, not enough to write the whole file.
    """

    content: str
    edited: str


class SeenVersions:
    """What each conversation knows of each file; the oldest entries are dropped when there are very many."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, KnownVersion]] = {}
        self._lock = threading.Lock()

    def remember(self, reader: str, path: str, content: str | None) -> None:
        """Record the content that a reader has seen; `None` forgets it."""
        with self._lock:
            readers = self._known.pop(path, {})
            readers.pop(reader, None)
            if content is not None:
                readers[reader] = KnownVersion(content, content)
            if readers:
                self._known[path] = readers
            if len(readers) > _MAX_READERS:
                del readers[next(iter(readers))]
            if len(self._known) > _MAX_FILES:
                del self._known[next(iter(self._known))]

    def record_edit(self, reader: str, path: str, before: str, after: str) -> None:
        """Record an edit by a reader; readers that knew the content before can go on from the new one."""
        with self._lock:
            for known in self._known.get(path, {}).values():
                if known.edited == before:
                    known.edited = after
        self.remember(reader, path, after)

    def look_up(self, reader: str, path: str) -> KnownVersion | None:
        """Look up what a reader knows of a file; `None` where it has not seen it."""
        with self._lock:
            return self._known.get(path, {}).get(reader)
