"""Wakes the writer of a session in another process, without a file and without polling.

The writer listens on a datagram socket in Linux's abstract namespace, whose name follows from the file, the session and
the epoch. The kernel frees it when the process ends, however it ends, so none is ever stale. A datagram only says that
there may be something to read: a false or a lost one does no harm. Where no datagram can come, as on other systems or
between two network namespaces, the thread looks once in a while whether the file has changed.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from steersman.session.stores.store import call_wake

# Seconds between two looks at a file: with a socket they are only the fall-back.
_SLOW, _QUICK = 1.0, 0.2
_NAME = "steersman-wake"


@dataclass(eq=False, slots=True)
class _Watch:
    """One session that is watched: `wake` is called for a datagram, and when `has_changed` says so."""

    address: str
    wake: Callable[[], None]
    has_changed: Callable[[], bool]
    socket: socket.socket | None = None

    def listen(self) -> bool:
        """Bind a socket if there is none yet; whether there is a new one."""
        if self.socket is None:
            self.socket = _bind(self.address)
            return self.socket is not None
        return False


class _WakeThread:
    """One thread for all sessions that this process watches; it ends with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._poked, self._poke = os.pipe()
        os.set_blocking(self._poked, False)
        os.set_blocking(self._poke, False)

    def add(self, watch: _Watch) -> None:
        """Watch a session."""
        with self._lock:
            self._watches.append(watch)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return  # no thread can be started: what is queued is heard when the session is opened again
                self._thread = thread
        self._poke_thread()

    def remove(self, watch: _Watch) -> None:
        """Watch a session no more; the thread closes its socket, and may be waiting for it now."""
        with self._lock:
            self._watches = [other for other in self._watches if other is not watch]
        self._poke_thread()

    def close_in_child(self) -> None:
        """In a forked child: let go of the sockets, whose names the parent's next writer needs."""
        for watch in self._watches:
            if watch.socket is not None:
                watch.socket.close()
        os.close(self._poked)
        os.close(self._poke)

    def _poke_thread(self) -> None:
        try:
            os.write(self._poke, b"x")
        except BlockingIOError:
            pass  # it is full of pokes already

    def _run(self) -> None:
        watched: list[_Watch] = []
        while True:
            with self._lock:
                gone, watched = [watch for watch in watched if watch not in self._watches], list(self._watches)
                if not watched:
                    self._thread = None
            # Closed before others are bound: the same session may have been closed and opened again.
            for watch in gone:
                if watch.socket is not None:
                    watch.socket.close()
            if not watched:
                return
            # What was queued before a socket was there has sent no datagram.
            new = [watch for watch in watched if watch.listen()]
            for watch in new or self._wait(watched):
                call_wake(watch.wake)

    def _wait(self, watched: list[_Watch]) -> list[_Watch]:
        """The sessions to wake: those with a datagram, or after a while those whose file has changed."""
        poll = select.poll()
        poll.register(self._poked, select.POLLIN)
        sockets = {watch.socket.fileno(): watch for watch in watched if watch.socket is not None}
        for file in sockets:
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(1000 * (_SLOW if len(sockets) == len(watched) else _QUICK))}
        if not ready:
            return [watch for watch in watched if watch.has_changed()]
        if self._poked in ready:
            os.read(self._poked, 4096)
        found = [watch for file, watch in sockets.items() if file in ready]
        for watch in found:
            _drain(watch.socket)
        return found


def _drain(source: socket.socket | None) -> None:
    """Read all datagrams, so that the next one wakes again."""
    try:
        while source is not None and source.recv(16):
            pass
    except BlockingIOError:
        pass


class _Registry:
    """The thread of this process, made for its first session; a forked child has one of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _WakeThread | None = None

    def get_thread(self) -> _WakeThread:
        """The thread, with its pipe."""
        with self._lock:
            if self._thread is None:
                self._thread = _WakeThread()
            return self._thread

    def renew(self) -> None:
        """In a forked child: begin anew."""
        if self._thread is not None:
            self._thread.close_in_child()
        self._lock = threading.Lock()
        self._thread = None


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.renew)


def watch_session(
    file_id: tuple[int, int], number: int, epoch: int, wake: Callable[[], None], has_changed: Callable[[], bool]
) -> Callable[[], None]:
    """Call `wake` in a thread when another process calls `wake_writer`; returns a function that ends this."""
    watch = _Watch(make_address(file_id, number, epoch), wake, has_changed)
    thread = _registry.get_thread()
    thread.add(watch)
    return lambda: thread.remove(watch)


def wake_writer(file_id: tuple[int, int], number: int, epoch: int) -> None:
    """Wake the writer of a session that has this epoch, if there is one."""
    if not sys.platform.startswith("linux"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(b"x", make_address(file_id, number, epoch))
        except OSError:
            pass  # there is no writer, or it has more than enough datagrams to read already


def make_address(file_id: tuple[int, int], number: int, epoch: int) -> str:
    """The name of the socket of a writer."""
    name = sha256(f"{file_id} {number} {epoch}".encode()).hexdigest()[:32]
    return f"\0steersman-{name}"


def _bind(address: str) -> socket.socket | None:
    """A socket with this name; `None` where there can be none."""
    if not sys.platform.startswith("linux"):
        return None
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        listening.setblocking(False)
        listening.bind(address)
    except OSError:
        listening.close()
        return None
    return listening
