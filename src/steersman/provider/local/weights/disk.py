"""Partial downloads on disk, progress reports, and file system errors in words that a user can act on."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from steersman.types.errors import ProviderError


class WeightsError(ProviderError):
    """There is no usable file for a model; the message says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, provider="local")


class SourceError(Exception):
    """One source does not have the file; the next one may."""


_REPORT_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """What is being done, and how much of it; `total` is `None` if it is unknown.

    A `notice` is not work but a sentence that should stay on the screen.
    """

    what: str
    done: int
    total: int | None
    notice: bool = False


Report: TypeAlias = Callable[[Progress], None]


class Reporter:
    """Calls `report` with the progress, at most ten times a second. The start and the end are always reported."""

    __slots__ = ("_clock", "_last", "_report", "_reported_at")

    def __init__(self, report: Report | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._reported_at = 0.0
        self._last: Progress | None = None

    def report(self, what: str, done: int, total: int | None) -> None:
        """Report it, unless the same work was reported a moment ago and is not finished."""
        if self._report is None:
            return
        now = Progress(what, done, total)
        if now == self._last:
            return
        last, moment = self._last, self._clock()
        if last is not None and last.what == what and done != total and moment - self._reported_at < _REPORT_INTERVAL:
            return
        self._last, self._reported_at = now, moment
        self._report(now)

    def notify(self, words: str) -> None:
        """Report a sentence that should stay on the screen."""
        if self._report is not None:
            self._report(Progress(words, 0, None, notice=True))


T = TypeVar("T")

ADVICE = "Another folder can be chosen with XDG_CACHE_HOME, and a file of your own with STEERSMAN_LOCAL_MODEL."
_SIDECAR = 64 * 1024


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread; after a cancel, wait until the thread has closed its files."""
    task = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await wait_until_done(task)
        raise


async def wait_until_done(task: asyncio.Future[T]) -> None:
    """Wait for a future that is about to end; cancels of the waiting task are ignored meanwhile."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            pass  # the caller is already handling a cancel
    if not task.cancelled():
        task.exception()


@contextmanager
def explain_os_errors(path: Path) -> Generator[None, None, None]:
    """Raise an `OSError` as a `WeightsError` that a user can act on."""
    try:
        yield
    except OSError as error:
        raise WeightsError(describe_os_error(error, path)) from error


def describe_os_error(error: OSError, path: Path) -> str:
    """The message for an error of the file system in the model's folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        text = f"There is no space left for {str(path)!r} ({error.strerror}). Free some and start again: it resumes."
    elif error.errno == errno.EROFS:
        text = f"The model cannot be saved at {str(path)!r}: the file system is read-only."
    elif error.errno in (errno.EACCES, errno.EPERM):
        text = f"The model cannot be saved at {str(path)!r}: no permission."
    else:
        text = f"The model cannot be saved at {str(path)!r}: {error.strerror or error}."
    return f"{text} {ADVICE}"


def format_size(size: int) -> str:
    """A size in words for people."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size:,} bytes"


class Part:
    """A partial download. It is opened again for each piece, so that no file descriptor stays open."""

    __slots__ = ("path", "state")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path.with_name(f"{path.name}.state")

    def get_length(self) -> int:
        """Its length in bytes, 0 if it does not exist."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, data: bytes | bytearray) -> None:
        """Append the next piece."""
        with explain_os_errors(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with open(handle, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]

    def truncate(self, length: int) -> None:
        """Keep the first `length` bytes."""
        if self.get_length() > length:
            with explain_os_errors(self.path):
                os.truncate(self.path, length)

    def discard(self) -> None:
        """Delete it."""
        with explain_os_errors(self.path):
            self.path.unlink(missing_ok=True)
            self.state.unlink(missing_ok=True)

    def save_state(self, words: str) -> None:
        """Save what it is a part of, such as an ETag."""
        with explain_os_errors(self.state):
            write_atomically(self.state, words.encode())

    def load_state(self) -> str | None:
        """What was saved, or `None`."""
        found = read_small_file(self.state)
        return None if found is None else found.decode("utf-8", "replace")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file atomically."""
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(data)
    os.replace(new, path)


def read_small_file(path: Path) -> bytes | None:
    """The content of a small file, or `None` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_SIDECAR)
    except OSError:
        return None
