"""Where output leaves: a thread writes it, so that a reader who stalls holds up who has more to say, and nobody else.

What is written in one step of the event loop leaves in one piece. Memory is bounded for whoever waits for `room`. A
reader that has gone is noticed at once, also while there is nothing to write.
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

from steersman.cli.terminal.sanitize import safe

MAX_BYTES = 1 << 20
_PIECE = 1 << 16
_GONE = select.POLLERR | select.POLLHUP


class Outlet:
    """A descriptor to write to from an event loop. `failure` says why it takes nothing any more, once it does not."""

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
        self._bell, self._ring = os.pipe()
        self._thread = threading.Thread(target=self._work, name="steersman-outlet", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether more is waiting to be written than should be."""
        return self._unwritten > self._max_bytes

    def write(self, data: bytes) -> None:
        """Have it written soon; nothing waits here."""
        if self.failure is not None:
            return
        with self._lock:
            self._unwritten += len(data)
        if not self._fresh:
            self._loop.call_soon(self._hand_over)
        self._fresh.append(data)

    async def room(self) -> None:
        """Wait until much of it is written, or nothing will be any more."""
        await self._until(self._max_bytes // 2)

    async def drained(self) -> None:
        """Wait until all of it is written, or nothing will be any more."""
        self._hand_over()
        await self._until(0)

    def hurry(self, seconds: float) -> None:
        """From now on drop the rest as soon as the reader has taken nothing of it for so many seconds."""
        self._loop.call_later(seconds, self._look, seconds, self._written if self._unwritten else None)

    def close(self) -> None:
        """No more will be written; what cannot be written at once is left behind."""
        if self._closing:
            return
        self._hand_over()
        self._closing = True
        os.write(self._ring, b".")
        self._thread.join(1.0 if self.failure is None else 0.1)
        if not self._thread.is_alive():
            os.close(self._bell)
            os.close(self._ring)

    async def _until(self, most: int) -> None:
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
            os.write(self._ring, b".")

    # In the thread

    def _work(self) -> None:
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        poll.register(self._descriptor, 0)
        while not self._broken:
            signs = dict(poll.poll())
            if self._bell in signs:
                os.read(self._bell, 512)
                try:
                    self._write_all()
                except OSError as error:
                    self._tell(error)
            elif signs.get(self._descriptor, 0) & _GONE:
                self._tell(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
            else:
                poll.unregister(self._descriptor)  # one that cannot be watched tells when it is written to
            if self._closing and not self._handed:
                return

    def _write_all(self) -> None:
        while not self._broken:
            with self._lock:
                if not self._handed:
                    return
                data = memoryview(b"".join(self._handed))
                # One stays until it is written: whoever adds to it need not ring.
                self._handed[:] = [b""]
            while data and not self._broken:
                data = data[self._write(data[:_PIECE]) :]
            with self._lock:
                del self._handed[0]

    def _write(self, piece: memoryview) -> int:
        try:
            written = os.write(self._descriptor, piece)
        except BlockingIOError:  # somebody who shares it made it so
            ready = select.poll()
            ready.register(self._descriptor, select.POLLOUT)
            ready.poll()
            return 0
        with self._lock:
            self._unwritten -= written
            self._written += written
            relieved = any(self._unwritten <= most for _, most in self._waiting)
        if relieved:
            self._call(self._relieve)
        return written

    def _tell(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            self._call(self._fail, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            return

    # In the event loop

    def _look(self, seconds: float, before: int | None) -> None:
        if self._written == before:
            self._fail(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), tell=False)
        elif not self._closing:
            self.hurry(seconds)

    def _relieve(self) -> None:
        with self._lock:
            relieved = [waiter for waiter, most in self._waiting if self._unwritten <= most]
            self._waiting = [(waiter, most) for waiter, most in self._waiting if waiter not in relieved]
        for waiter in relieved:
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: OSError, *, tell: bool = True) -> None:
        self.failure = self.failure or error
        self._broken = True
        with self._lock:
            self._unwritten = 0
        self._relieve()
        if tell and self._on_failure is not None:
            self._on_failure(error)


def print_json(value: object) -> None:
    """Print a value, indented. File names need not be UTF-8: what is not becomes a question mark."""
    text = json.dumps(msgspec.to_builtins(value, enc_hook=repr), ensure_ascii=False, indent=2)
    print(safe(text) if sys.stdout.isatty() else text.encode(errors="replace").decode())
