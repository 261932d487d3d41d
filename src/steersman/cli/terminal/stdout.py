"""Writes to standard output in a thread, so that a slow reader blocks neither the event loop nor signals.

Everything written in one step of the event loop leaves in one piece. `wait_for_space` bounds the memory. A reader
that closes the pipe is noticed at once, even while there is nothing to write.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import select
import sys
import threading
from collections.abc import Callable

import msgspec

from steersman.cli.terminal.sanitize import escape_json

MAX_BYTES = 1 << 20
_PIECE = 1 << 16
_GONE = select.POLLERR | select.POLLHUP


class OutputWriter:
    """Writes to a file descriptor from an event loop; `failure` is the error after which nothing is written."""

    def __init__(
        self, descriptor: int, *, on_failure: Callable[[OSError], None] | None = None, max_bytes: int = MAX_BYTES
    ) -> None:
        self.failure: OSError | None = None
        self._descriptor = descriptor
        self._on_failure = on_failure
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._fresh: list[bytes] = []
        self._lock = threading.Lock()
        self._handed: list[bytes] = []
        self._unwritten = 0
        self._written = 0
        self._closing = False
        self._broken = False
        self._waiting: list[tuple[asyncio.Future[None], int]] = []
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run_thread, name="steersman-writer", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether more than `max_bytes` wait to be written."""
        return self._unwritten > self._max_bytes

    def write(self, data: bytes) -> None:
        """Queues data to be written; never waits."""
        if self.failure is not None:
            return
        with self._lock:
            self._unwritten += len(data)
        if not self._fresh:
            self._loop.call_soon(self._hand_over)
        self._fresh.append(data)

    async def wait_for_space(self) -> None:
        """Waits until half of the buffer is free, or writing has failed."""
        await self._wait_until(self._max_bytes // 2)

    async def drain(self) -> None:
        """Waits until everything is written, or writing has failed."""
        self._hand_over()
        await self._wait_until(0)

    def drop_if_stalled(self, seconds: float) -> None:
        """From now on, drops the rest once the reader takes nothing for this many seconds."""
        self._loop.call_later(seconds, self._check_stall, seconds, self._written if self._unwritten else None)

    def close(self) -> None:
        """Stops the thread; what cannot be written at once is dropped."""
        if self._closing:
            return
        self._hand_over()
        self._closing = True
        os.write(self._wake_write, b".")
        self._thread.join(1.0 if self.failure is None else 0.1)
        if not self._thread.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)

    async def _wait_until(self, most: int) -> None:
        with self._lock:
            if self._unwritten <= most or self.failure is not None:
                return
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((waiter, most))
        await waiter

    def _hand_over(self) -> None:
        if not self._fresh:
            return
        fresh, self._fresh = b"".join(self._fresh), []
        with self._lock:
            idle = not self._handed
            self._handed.append(fresh)
        if idle:
            os.write(self._wake_write, b".")

    # In the thread

    def _run_thread(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._descriptor, 0)
        while not self._broken:
            signs = dict(poll.poll())
            if self._wake_read in signs:
                os.read(self._wake_read, 512)
                try:
                    self._write_all()
                except OSError as error:
                    self._report_failure(error)
            elif signs.get(self._descriptor, 0) & _GONE:
                self._report_failure(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
            else:
                poll.unregister(self._descriptor)  # it cannot be polled; a write will show the error
            if self._closing and not self._handed:
                return

    def _write_all(self) -> None:
        while not self._broken:
            with self._lock:
                if not self._handed:
                    return
                data = memoryview(b"".join(self._handed))
                # An empty entry stays while we write, so that `_hand_over` need not wake this thread.
                self._handed[:] = [b""]
            while data and not self._broken:
                data = data[self._write(data[:_PIECE]) :]
            with self._lock:
                del self._handed[0]

    def _write(self, piece: memoryview) -> int:
        try:
            written = os.write(self._descriptor, piece)
        except BlockingIOError:  # another process made the shared descriptor non-blocking
            ready = select.poll()
            ready.register(self._descriptor, select.POLLOUT)
            ready.poll()
            return 0
        with self._lock:
            self._unwritten -= written
            self._written += written
            relieved = any(self._unwritten <= most for _, most in self._waiting)
        if relieved:
            self._call_in_loop(self._wake_waiters)
        return written

    def _report_failure(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            self._call_in_loop(self._fail, error)

    def _call_in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the event loop is closed
            return

    # In the event loop

    def _check_stall(self, seconds: float, before: int | None) -> None:
        if self._written == before:
            self._fail(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), notify=False)
        elif not self._closing:
            self.drop_if_stalled(seconds)

    def _wake_waiters(self) -> None:
        with self._lock:
            relieved = [waiter for waiter, most in self._waiting if self._unwritten <= most]
            self._waiting = [(waiter, most) for waiter, most in self._waiting if waiter not in relieved]
        for waiter in relieved:
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: OSError, *, notify: bool = True) -> None:
        self.failure = self.failure or error
        self._broken = True
        with self._lock:
            self._unwritten = 0
        self._wake_waiters()
        if notify and self._on_failure is not None:
            self._on_failure(error)


def print_json(value: object) -> None:
    """Prints a value as indented JSON. Parts of file names that are not UTF-8 become question marks."""
    text = json.dumps(msgspec.to_builtins(value, enc_hook=repr), ensure_ascii=False, indent=2)
    print(escape_json(text) if sys.stdout.isatty() else text.encode(errors="replace").decode())
