"""Wakes the writer of a session in another process, and lets it speak to those that follow it: no file, no polling.

The writer listens on a datagram socket in Linux's abstract namespace, whose name follows from the file, the session and
the epoch. The kernel frees it when the process ends, however it ends, so none is ever stale. A datagram only says that
there may be something to read: a false or a lost one does no harm. Where no datagram can come, as on other systems or
between two network namespaces, the thread looks once in a while whether the file has changed.

A process that follows the session sends the writer one end of a socket pair. The other end tells at once when the
writer is gone. Any user may use these names, so only processes of the same user are heard.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from steersman.session.stores.sqlite.sockets import (
    FOLLOW,
    IS_LINUX,
    WAKE,
    bind_writer,
    connect_to_writer,
    make_address,
    open_received,
    receive_message,
)
from steersman.session.stores.store import call_wake

MOST_BYTES: Final = 128 << 10
"""The most bytes of one message to those that follow a session."""
# Seconds between two looks at a file: with a socket they are only the fall-back.
_SLOW, _QUICK = 1.0, 0.2
_NAME = "steersman-wake"
_ASK = b"?"


class _Watch(Protocol):
    """Something that the thread looks after."""

    @property
    def is_linked(self) -> bool:
        """Whether its sockets tell everything, so that a look now and then is enough."""
        ...

    def open(self) -> None:
        """Open the sockets that are missing."""
        ...

    def list_files(self) -> Iterable[tuple[socket.socket, Callable[[], None]]]:
        """The sockets, and what to call when one can be read."""
        ...

    def look(self) -> None:
        """Look whether there is something that no socket has told."""
        ...

    def close(self) -> None:
        """Close the sockets."""
        ...


@dataclass(eq=False, slots=True)
class WriterWatch:
    """A session that this process writes: `wake` is called for a datagram, and when `has_changed` says so."""

    address: str
    wake: Callable[[], None]
    has_changed: Callable[[], bool]
    came: Callable[[], None] | None = None
    bound: socket.socket | None = None
    followers: list[socket.socket] = field(default_factory=list[socket.socket])
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_linked(self) -> bool:
        """Whether there is a socket."""
        return self.bound is not None

    def open(self) -> None:
        """Bind the socket if there is none yet."""
        if self.bound is None:
            self.bound = bind_writer(self.address)
            if self.bound is not None:
                call_wake(self.wake)  # what was queued before has sent no datagram

    def list_files(self) -> Iterable[tuple[socket.socket, Callable[[], None]]]:
        """The socket of the writer, and one for each process that follows."""
        for follower in list(self.followers):
            yield follower, lambda follower=follower: self._read_follower(follower)
        if self.bound is not None:
            yield self.bound, self._read

    def look(self) -> None:
        """Wake the writer if the file has changed."""
        if self.has_changed():
            self.wake()

    def send(self, data: bytes) -> bool:
        """Send data to all that follow; returns whether there is any."""
        followers = list(self.followers)
        if len(data) <= MOST_BYTES:
            for follower in followers:
                try:
                    follower.send(data)
                except OSError:
                    pass  # it reads too slowly, and will ask; or it is gone, which the thread sees
        return bool(followers)

    def close(self) -> None:
        """Close all sockets: those that follow learn that this writer is gone."""
        with self.lock:
            followers, self.followers = self.followers, []
        for one in (*followers, *([] if self.bound is None else [self.bound])):
            one.close()
        self.bound = None

    def _read(self) -> None:
        """Read all datagrams, so that the next one wakes again."""
        is_woken = False
        try:
            while self.bound is not None:
                data, user, files = receive_message(self.bound, 16)
                is_woken = is_woken or data == WAKE
                for file in files:
                    if data != FOLLOW or user != os.getuid():
                        os.close(file)
                    elif (follower := open_received(file)) is not None:
                        self._admit(follower)
        except BlockingIOError:
            pass
        if is_woken:
            self.wake()

    def _admit(self, follower: socket.socket) -> None:
        follower.setblocking(False)
        with self.lock:
            self.followers.append(follower)
        if self.came is not None:
            self.came()

    def _read_follower(self, follower: socket.socket) -> None:
        try:
            if follower.recv(16) == _ASK:
                if self.came is not None:
                    self.came()
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        with self.lock:
            self.followers = [other for other in self.followers if other is not follower]
        follower.close()


@dataclass(eq=False, slots=True)
class FollowerWatch:
    """A session that another process writes: `hear` is called with what that one says."""

    file_id: tuple[int, int]
    number: int
    hear: Callable[[bytes | None], None]
    read_epoch: Callable[[], int | None]
    has_changed: Callable[[], bool]
    link: socket.socket | None = None
    epoch: int | None = None
    is_due: bool = True

    @property
    def is_linked(self) -> bool:
        """Whether a writer speaks to this process."""
        return self.link is not None

    def open(self) -> None:
        """Connect to the writer, if there is one."""
        if self.link is not None or not self.is_due:
            return
        self.is_due = False
        self.epoch = self.read_epoch()
        if IS_LINUX and self.epoch is not None:
            self.link = connect_to_writer(make_address(self.file_id, self.number, self.epoch))
        if self.link is not None:
            call_wake(lambda: self.hear(None))

    def list_files(self) -> Iterable[tuple[socket.socket, Callable[[], None]]]:
        """The connection to the writer."""
        return [] if self.link is None else [(self.link, self._read)]

    def look(self) -> None:
        """Look for another writer, and for what came without one."""
        if self.link is not None:
            if self.read_epoch() != self.epoch:
                self._drop()
            return
        self.is_due = True
        if self.has_changed():
            self.hear(None)

    def ask(self) -> None:
        """Ask the writer where it is."""
        link = self.link
        try:
            if link is not None:
                link.send(_ASK)
        except OSError:
            pass  # it is gone, which the thread sees

    def close(self) -> None:
        """Close the connection."""
        link, self.link = self.link, None
        if link is not None:
            link.close()

    def _read(self) -> None:
        try:
            while self.link is not None:
                data, user, files = receive_message(self.link, MOST_BYTES + 1)
                for file in files:
                    os.close(file)
                if not data or self.read_epoch() != self.epoch:
                    self._drop()  # the writer is gone, or is the writer no more
                elif user == os.getuid() and len(data) <= MOST_BYTES:
                    self.hear(data)
        except BlockingIOError:
            pass
        except OSError:
            self._drop()

    def _drop(self) -> None:
        self.close()
        self.is_due = True
        self.hear(None)


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
        """Watch a session no more; the thread closes its sockets, and may be waiting for them now."""
        with self._lock:
            self._watches = [other for other in self._watches if other is not watch]
        self._poke_thread()

    def close_in_child(self) -> None:
        """In a forked child: let go of the sockets, whose names the parent's next writer needs."""
        for watch in self._watches:
            for one, _ in watch.list_files():
                one.close()
        os.close(self._poked)
        os.close(self._poke)

    def _poke_thread(self) -> None:
        try:
            os.write(self._poke, b"x")
        except BlockingIOError:
            pass  # it is full of pokes already

    def _run(self) -> None:
        watched: list[_Watch] = []
        looked = time.monotonic()
        while True:
            with self._lock:
                gone, watched = [watch for watch in watched if watch not in self._watches], list(self._watches)
                if not watched:
                    self._thread = None
            # Closed before others are bound: the same session may have been closed and opened again.
            for watch in gone:
                watch.close()
            if not watched:
                return
            for watch in watched:
                call_wake(watch.open)
            pause = _SLOW if all(watch.is_linked for watch in watched) else _QUICK
            self._wait(watched, looked + pause - time.monotonic())
            if time.monotonic() >= looked + pause:
                looked = time.monotonic()
                for watch in watched:
                    call_wake(watch.look)

    def _wait(self, watched: list[_Watch], seconds: float) -> None:
        """Wait for sockets that can be read, and read them."""
        poll = select.poll()
        poll.register(self._poked, select.POLLIN)
        found = {one.fileno(): read for watch in watched for one, read in watch.list_files()}
        for file in found:
            poll.register(file, select.POLLIN)
        for file, _ in poll.poll(max(0.0, 1000 * seconds)):
            if file == self._poked:
                os.read(self._poked, 4096)
            else:
                call_wake(found[file])


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


def start_watch(watch: WriterWatch | FollowerWatch) -> Callable[[], None]:
    """Look after a session in a thread; returns a function that ends this."""
    thread = _registry.get_thread()
    thread.add(watch)
    return lambda: thread.remove(watch)
