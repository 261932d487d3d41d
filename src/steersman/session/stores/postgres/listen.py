"""Listens for what is queued into sessions and what their writers say: one thread and connection for each database.

A notification about a queue only says that there may be something to read: after a lost connection every session is
woken once. The thread also sends notifications, so that no caller waits for the server.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from psycopg.sql import SQL, Identifier

from steersman.session.stores.postgres.connection import Connection, ServerAddress
from steersman.session.stores.postgres.idle import close_old
from steersman.session.stores.postgres.tables import CHANNEL, NOTIFY
from steersman.session.stores.store import call_wake

Place: TypeAlias = str
"""What a notification says: the table of the records and the number of the session."""
Notice: TypeAlias = tuple[str, str]
"""The channel and the payload of a notification."""

# Seconds between two signs of life, and until the next attempt to connect, which doubles up to the longest.
_ALIVE = 15.0
_RETRY, _LONGEST_RETRY = 0.5, 15.0
# Seconds between two notices that a session is still followed, and after which one is forgotten without them.
_STAY = 10.0
# Seconds between two looks whether the writers of these sessions are still there: a process that dies says nothing.
_LOOK = 2.0
STAY_SECONDS = 25.0
# The most notifications that wait to be sent: a server that does not answer costs so many, and then the oldest.
_MOST_WAITING = 1_000
JOIN, STAY = "join", "stay"
_NO_PLACE = "none"

_log = logging.getLogger("steersman")


@dataclass(eq=False, frozen=True, slots=True)
class _Watch:
    """What is called for a channel: for one payload, or for any. `place` is that of a session that is followed."""

    channel: str
    payload: str | None
    call: Callable[[str | None], None]
    place: Place | None = None

    def concerns(self, notice: Notice) -> bool:
        """Whether it is called for this notification."""
        return self.channel == notice[0] and self.payload in (None, notice[1])


class _Listener:
    """The thread of one database; it ends with the last session that is watched, and is not used again."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self._outbox: deque[Notice] = deque(maxlen=_MOST_WAITING)
        self._inbox: list[Notice] = []
        # Those that follow and are listened for on the present connection, and when the next notice about them is due.
        self._joined: list[_Watch] = []
        self._next_stay = self._next_look = 0.0
        self._held: set[Place] = set()
        # Since when the present connection listens, and when processes that follow a session were heard last.
        self._since = math.inf
        self._asked: dict[Place, float] = {}
        self._is_over = False
        self._is_listening = False
        self._connection: Connection | None = None
        self._poked, self._poke = os.pipe()
        os.set_blocking(self._poked, False)
        os.set_blocking(self._poke, False)

    def start(self) -> None:
        """Start the thread; if none can be started, what is queued is heard when the session is opened again."""
        try:
            threading.Thread(target=self._run, name="steersman-listen", daemon=True).start()
        except RuntimeError as error:
            _log.warning("No thread can be started to listen for what other processes queue: %s.", error)
            self._end()

    def add(self, watch: _Watch) -> Callable[[], None] | None:
        """Add something to watch; returns a function that ends this, or `None` if the thread has ended."""
        with self._lock:
            if self._is_over:
                return None
            self._watches.append(watch)
            # Where the thread listens to the queues already, it has nothing to do for one more.
            if watch.place is not None or not self._is_listening:
                self._poke_thread()
        return lambda: self._remove(watch)

    def may_be_asked(self, place: Place, since: float) -> bool:
        """Whether a process that follows a session has asked since then, or this did not listen all the time."""
        with self._lock:
            return self._is_over or self._since > since or place in self._asked

    def send(self, notices: Iterable[Notice]) -> None:
        """Send notifications, in order, soon."""
        with self._lock:
            if not self._is_over:
                self._outbox.extend(notices)
                self._poke_thread()

    def close_in_child(self) -> None:
        """In a forked child: the connection is the parent's."""
        if self._connection is not None:
            self._connection.disown()

    def _remove(self, watch: _Watch) -> None:
        with self._lock:
            if not self._is_over:  # else its pipe is closed
                self._watches = [other for other in self._watches if other is not watch]
                if watch.place is not None or not self._watches:
                    self._poke_thread()

    def _poke_thread(self) -> None:
        try:
            os.write(self._poke, b"x")
        except BlockingIOError:
            pass  # it is full of pokes already

    def _run(self) -> None:
        retry = _RETRY
        while not self._end_if_unused():
            try:
                with closing(self._address.connect(write=True)) as connection:
                    self._connection = connection
                    self._inbox.clear()
                    connection.add_notify_handler(self._keep)
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._since = time.monotonic()
                    retry = _RETRY
                    self._is_listening = True
                    self._wake_all(self._watches)
                    self._follow(connection)
            except psycopg.Error as error:
                self._is_listening = False
                self._since = math.inf
                _log.debug("%s", self._address.make_error("The queue of the sessions cannot be listened to", error))
                self._wait(None, retry)
                retry = min(_LONGEST_RETRY, retry * 2)

    def _end_if_unused(self) -> bool:
        """End it if no session is watched any more; returns whether it has ended."""
        with self._lock:
            if self._watches:
                return False
        self._end()
        return True

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            os.close(self._poked)
            os.close(self._poke)

    def _follow(self, connection: Connection) -> None:
        """Pass on notifications as they come, and send others, until no session is watched any more."""
        self._joined, self._held = [], set()
        self._next_stay = self._next_look = 0.0
        quiet_since = time.monotonic()
        while self._watches:
            self._listen(connection)
            if sent := self._take_outbox():
                connection.execute(NOTIFY, ([channel for channel, _ in sent], [payload for _, payload in sent]))
                quiet_since = time.monotonic()
            self._look_for_writers(connection)
            self._wait(connection, 0.0 if self._inbox else self._find_patience(quiet_since))
            if time.monotonic() - quiet_since > _ALIVE:
                connection.execute("SELECT 1")  # raises if the connection is dead
                close_old()
                quiet_since = time.monotonic()
            connection.pgconn.consume_input()
            found, self._inbox = self._inbox, []
            while (notice := connection.pgconn.notifies()) is not None:
                found.append((notice.relname.decode(), notice.extra.decode()))
            self._tell(dict.fromkeys(found))

    def _keep(self, notice: psycopg.Notify) -> None:
        """Keep a notification that arrived while a statement was executed."""
        self._inbox.append((notice.channel, notice.payload))

    def _listen(self, connection: Connection) -> None:
        """Listen to the channels of those that follow; one that is new may have missed something, and asks."""
        with self._lock:
            following = [watch for watch in self._watches if watch.place is not None]
        if following == self._joined:
            return
        had, wanted = ({watch.channel for watch in watches} for watches in (self._joined, following))
        for channel in had - wanted:
            connection.execute(SQL("UNLISTEN {}").format(Identifier(channel)))
        for channel in wanted - had:
            connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
        new = [watch for watch in following if watch not in self._joined]
        self._joined = following
        self._outbox.extend((CHANNEL, f"{watch.place} {JOIN}") for watch in new)
        self._wake_all(new)

    def _take_outbox(self) -> list[Notice]:
        """What is to be sent now, with a notice for each session that is followed from time to time."""
        with self._lock:
            if time.monotonic() >= self._next_stay:
                self._next_stay = time.monotonic() + _STAY
                places = dict.fromkeys(watch.place for watch in self._watches if watch.place is not None)
                self._outbox.extend((CHANNEL, f"{place} {STAY}") for place in places)
            sent = list(self._outbox)
            self._outbox.clear()
        return sent

    def _look_for_writers(self, connection: Connection) -> None:
        """Tell those that follow a session whose writer is gone."""
        if not self._joined or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        held = connection.find_held({watch.place for watch in self._joined if watch.place is not None})
        gone, self._held = self._held - held, held
        self._wake_all(watch for watch in self._joined if watch.place in gone)

    def _find_patience(self, quiet_since: float) -> float:
        """Seconds until there is something to do without a notification."""
        until = quiet_since + _ALIVE
        if any(watch.place is not None for watch in self._watches):
            until = min(until, self._next_stay, self._next_look)
        return max(0.0, until - time.monotonic()) + 0.001

    def _wait(self, connection: Connection | None, seconds: float) -> None:
        """Wait for a notification or a poke."""
        files = [self._poked] if connection is None else [self._poked, connection.pgconn.socket]
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN)
        if self._poked in {file for file, _ in poll.poll(1000 * seconds)}:
            os.read(self._poked, 4096)

    def _wake_all(self, watches: Iterable[_Watch]) -> None:
        for watch in list(watches):
            call_wake(lambda watch=watch: watch.call(None))

    def _tell(self, notices: Iterable[Notice]) -> None:
        with self._lock:
            watches = list(self._watches)
            self._note_asked(notices)
        for notice in notices:
            for watch in watches:
                if watch.concerns(notice):
                    call_wake(lambda watch=watch, payload=notice[1]: watch.call(payload))

    def _note_asked(self, notices: Iterable[Notice]) -> None:
        """Note which sessions are followed: the writer may have opened one, and not be watching yet."""
        said = [payload.rpartition(" ") for channel, payload in notices if channel == CHANNEL]
        new = [place for place, _, word in said if word in (JOIN, STAY)]
        if new:
            now = time.monotonic()
            self._asked = {place: at for place, at in self._asked.items() if now - at < STAY_SECONDS}
            self._asked.update(dict.fromkeys(new, now))


class _Registry:
    """The listeners of this process by their databases; a forked child has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, _Listener] = {}

    def watch(self, address: ServerAddress, watch: _Watch) -> Callable[[], None]:
        """Add a watch to the listener of its database; returns a function that ends this."""
        with self._lock:
            listener = self._listeners.get(address.dsn)
            stop = None if listener is None else listener.add(watch)
            if stop is None:
                listener = self._listeners[address.dsn] = _Listener(address)
                stop = listener.add(watch)
                listener.start()
            assert stop is not None
            return stop

    def may_be_asked(self, address: ServerAddress, place: Place, since: float) -> bool:
        """Whether a process that follows a session may have asked since then."""
        listener = self._listeners.get(address.dsn)
        return listener is None or listener.may_be_asked(place, since)

    def send(self, address: ServerAddress, notices: Iterable[Notice]) -> None:
        """Send notifications through the listener of a database; without one they are lost."""
        if (listener := self._listeners.get(address.dsn)) is not None:
            listener.send(notices)

    def renew(self) -> None:
        """In a forked child: begin anew."""
        for listener in self._listeners.values():
            listener.close_in_child()
        self._lock = threading.Lock()
        self._listeners = {}


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.renew)


def watch_session(address: ServerAddress, place: Place, wake: Callable[[], None]) -> Callable[[], None]:
    """Call `wake` in a thread when something was queued into a session; returns a function that ends this."""
    return _registry.watch(address, _Watch(CHANNEL, place, lambda _: wake()))


def watch_payload(address: ServerAddress, payload: str, call: Callable[[str | None], None]) -> Callable[[], None]:
    """Call a function in a thread for each notification with this payload, and with `None` after a lost connection."""
    return _registry.watch(address, _Watch(CHANNEL, payload, call))


def listen_always(address: ServerAddress) -> Callable[[], None]:
    """Listen also while no session is watched; returns a function that ends this."""
    return _registry.watch(address, _Watch(CHANNEL, _NO_PLACE, lambda _: None))


def follow_channel(
    address: ServerAddress, channel: str, place: Place, hear: Callable[[str | None], None]
) -> Callable[[], None]:
    """Call `hear` in a thread with each payload of a channel, and tell the writer of the session that it is followed.

    `None` says that some may be lost. Returns a function that ends this.
    """
    return _registry.watch(address, _Watch(channel, None, hear, place))


def may_be_asked(address: ServerAddress, place: Place, since: float) -> bool:
    """Whether a process that follows a session may have asked since then; false only if that is sure."""
    return _registry.may_be_asked(address, place, since)


def send_notices(address: ServerAddress, notices: Iterable[Notice]) -> None:
    """Send notifications to a database in which this process watches a session."""
    _registry.send(address, notices)
