"""Files that grow: written off the event loop, gone on with after a crash, and failing in words a user can act on."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from steersman.provider.local.errors import WeightsError

T = TypeVar("T")

ADVICE = "Another folder can be chosen with XDG_CACHE_HOME, and a file of your own with STEERSMAN_LOCAL_MODEL."
_SIDECAR = 64 * 1024


async def in_thread(work: Callable[[], T]) -> T:
    """Work that may block, off the event loop; who is cancelled waits until the thread has let go of its files."""
    task = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await until_done(task)
        raise


async def until_done(task: asyncio.Future[T]) -> None:
    """Wait for what is about to end, also while we are being cancelled ourselves, once or more often."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            pass  # whoever waits here is on the way out with a cancel already
    if not task.cancelled():
        task.exception()


@contextmanager
def explained(path: Path) -> Generator[None, None, None]:
    """Turn what the file system says into words a user can act on."""
    try:
        yield
    except OSError as error:
        raise WeightsError(disk_words(error, path)) from error


def disk_words(error: OSError, path: Path) -> str:
    """What an error of the file system means for the model's folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        text = (
            f"There is no room left for {str(path)!r} ({error.strerror}). Make some and start again: it goes on there."
        )
    elif error.errno == errno.EROFS:
        text = f"The model cannot be kept at {str(path)!r}: the file system is read-only."
    elif error.errno in (errno.EACCES, errno.EPERM):
        text = f"The model cannot be kept at {str(path)!r}: no permission."
    else:
        text = f"The model cannot be kept at {str(path)!r}: {error.strerror or error}."
    return f"{text} {ADVICE}"


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size:,} bytes"


class Part:
    """The beginning of a file, as long as it has got. Opened anew for each piece, so that nothing is left open."""

    __slots__ = ("path", "state")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path.with_name(f"{path.name}.state")

    def length(self) -> int:
        """How much of it is there."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, data: bytes | bytearray) -> None:
        """Put the next piece behind what is there."""
        with explained(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with open(handle, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]

    def cut(self, length: int) -> None:
        """Keep the first `length` bytes."""
        if self.length() > length:
            with explained(self.path):
                os.truncate(self.path, length)

    def discard(self) -> None:
        """Forget it."""
        with explained(self.path):
            self.path.unlink(missing_ok=True)
            self.state.unlink(missing_ok=True)

    def note(self, words: str) -> None:
        """Remember what it is a part of."""
        with explained(self.state):
            replace(self.state, words.encode())

    def noted(self) -> str | None:
        """What was remembered."""
        found = read_small(self.state)
        return None if found is None else found.decode("utf-8", "replace")


def replace(path: Path, data: bytes) -> None:
    """Write a small file so that it is there whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(data)
    os.replace(new, path)


def read_small(path: Path) -> bytes | None:
    """A small file, or nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_SIDECAR)
    except OSError:
        return None
