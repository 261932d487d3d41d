"""What has been seen of files: who knows which content, so that nobody writes over a change they do not know of."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Generator
from dataclasses import dataclass
from hashlib import blake2b

from steersman.tools.context import ToolContext

_STRIPES = 256
_locks = [threading.Lock() for _ in range(_STRIPES)]


class _Here(threading.local):
    held = False


_here = _Here()


@contextlib.contextmanager
def lock_file(path: str) -> Generator[None]:
    """Hold a file, by its real path. Two files may share a lock; two spellings that differ by case alone always do.

    A thread that holds one already gets no second: a link that is turned round in between cannot make two threads wait
    for each other.
    """
    if _here.held:
        yield
        return
    with _locks[hash(path.casefold()) % _STRIPES]:
        _here.held = True
        try:
            yield
        finally:
            _here.held = False


def _reset_locks() -> None:
    """In a forked child the threads that held a lock are gone, and would hold it for ever."""
    _locks[:] = [threading.Lock() for _ in range(_STRIPES)]


os.register_at_fork(after_in_child=_reset_locks)


DIGEST_SIZE = 20
_CHUNK = 1 << 20
_MOST = 10_000
_MOST_READERS = 1_000


def digest(data: bytes) -> str:
    """A content in short: two files with the same digest have the same content."""
    return digest_stream(io.BytesIO(data))


def digest_stream(file: io.RawIOBase | io.BytesIO) -> str:
    """The digest of what is left to read of an open file."""
    whole = blake2b(digest_size=DIGEST_SIZE)
    while piece := file.read(_CHUNK):
        whole.update(piece)
    return whole.hexdigest()


def identify_reader(ctx: ToolContext | None) -> str:
    """Whose call it is: what one conversation has seen, another has not."""
    return "" if ctx is None else ctx.idempotency_key.removesuffix(f":{ctx.tool_call_id}")


@dataclass(slots=True)
class KnownVersion:
    """What one reader knows of one file, as digests.

    `content` is what it has seen or written itself. `edited` is what that has become by the edits of others here, who
    each changed a passage and left the rest: enough for another edit, and not enough to write the whole file.
    """

    content: str
    edited: str


class SeenVersions:
    """What each reader knows of each file. What was seen longest ago is forgotten when there is very much."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, KnownVersion]] = {}
        self._lock = threading.Lock()

    def remember(self, reader: str, path: str, content: str | None) -> None:
        """The reader now knows this content of the file, or with `None` knows nothing of it any more."""
        with self._lock:
            readers = self._known.pop(path, {})
            readers.pop(reader, None)
            if content is not None:
                readers[reader] = KnownVersion(content, content)
            if readers:
                self._known[path] = readers
            if len(readers) > _MOST_READERS:
                del readers[next(iter(readers))]
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]

    def record_edit(self, reader: str, path: str, before: str, after: str) -> None:
        """The reader has edited the file; whoever knew what it was can go on from what it is."""
        with self._lock:
            for known in self._known.get(path, {}).values():
                if known.edited == before:
                    known.edited = after
        self.remember(reader, path, after)

    def look_up(self, reader: str, path: str) -> KnownVersion | None:
        """What a reader knows of a file, if it has seen it."""
        with self._lock:
            return self._known.get(path, {}).get(reader)
