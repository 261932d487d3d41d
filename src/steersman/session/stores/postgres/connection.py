"""One connection to a PostgreSQL server, opened when it is needed, and again after it broke; every wait has a deadline.

No error text contains a password. A forked child does not use its parent's connections.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import LockNotAvailable

from steersman.session.stores.postgres.deadline import ServerTimeout, limit_time
from steersman.session.stores.postgres.idle import IdleConnections, disown_idle_connections
from steersman.session.stores.postgres.sent import SentStatement, SocketWatch
from steersman.session.stores.postgres.tables import (
    CONFIGURE,
    FIND_AND_READ,
    FIND_TABLES,
    HOLDERS,
    LOCK_AND_OWN,
    LOCK_TIMEOUT,
    NEXT_NUMBER,
    PREPARE_APPEND,
    PREPARED_APPEND,
    TABLES,
    TERMINATE_HOLDER,
    hash_to_int64,
    make_lock_key,
)
from steersman.session.stores.store import StoreFailed

_T = TypeVar("_T")
Row: TypeAlias = tuple[Any, ...]

_OLDEST = 140_000
_CONNECT = 10
_PATIENCE = "200ms"
_DAMAGED = ("XX001", "XX002")
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
# What notices a server that is gone without a word, on both sides.
_ALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class DataCorrupted(StoreFailed):
    """The server says that its data is damaged."""


class Connection(psycopg.Connection[Row]):
    """A connection whose every wait has a deadline."""

    timeout: float = math.inf
    token: str = ""
    tables: int | None = None
    """What the server calls the table of the records; `None` where it has none yet."""
    has_queue: bool = False
    """Whether there is a queue, which the first versions did not make."""
    takes_writes: bool = False
    takes_appends: bool = False
    """Whether the statement that appends records is prepared."""
    sent: SentStatement | None = None
    """What was sent from an event loop and is not answered yet."""
    _watch: SocketWatch | None = None
    next_number: tuple[int, int] | None = None
    """The number of the next session that is made for others, and the counter that it was taken from."""

    def configure(self, timeout: float) -> None:
        """Set what makes a commit durable, and what keeps the server from closing an idle connection."""
        self.timeout = timeout + 1  # the server may give up first, and say why
        if self.info.server_version < _OLDEST:
            raise psycopg.NotSupportedError(
                f"PostgreSQL 14 or newer is needed, and this is {self.info.server_version / 10_000:.2g}"
            )
        self.token = f" {secrets.token_hex(8)}"
        settings = {"token": self.token, "timeout": str(max(1, round(timeout * 1000)))}
        (self.tables, self.has_queue, *_) = self.execute(CONFIGURE, settings).fetchone() or (None, False)

    def make_tables(self) -> None:
        """Create the tables if they are missing; an advisory lock lets only one of several processes do it."""
        with self.transaction():
            self.execute("SELECT pg_advisory_xact_lock(%s)", (hash_to_int64("steersman tables"),))
            (self.tables, has_queue) = self.execute(FIND_TABLES).fetchone() or (None, False)
            if not has_queue:  # else another one has just made them, and what changes tables waits for all who use them
                for table in TABLES:
                    self.execute(table)
                (self.tables, _) = self.execute(FIND_TABLES).fetchone() or (None, False)
        self.has_queue = True

    def prepare_append(self) -> None:
        """Prepare the statement that appends records, for event loops."""
        if not self.takes_appends:
            self.execute(PREPARE_APPEND)
            self.takes_appends = True

    def watch(self) -> None:
        """Have the running event loop read the answer to what was sent."""
        loop = asyncio.get_running_loop()
        if self._watch is None or self._watch.loop is not loop:
            self._stop_watching()
            self._watch = SocketWatch(loop, self.pgconn.socket, self._look)
        self._watch.start()

    def close(self) -> None:
        """Close it; closing twice does nothing."""
        self._stop_watching()
        super().close()

    def take_number(self) -> tuple[int, int]:
        """The number of a new session, and the counter it is from."""
        taken, self.next_number = self.next_number, None
        return taken or self.execute(NEXT_NUMBER).fetchone() or (0, 0)

    def find_and_read(self, wanted: Mapping[str, object]) -> Sequence[Row] | None:
        """A session with its first records; `None` if it cannot be read so, because one of them is damaged."""
        try:
            return self.execute(FIND_AND_READ, wanted, binary=True).fetchall()
        except psycopg.Error as error:
            if error.sqlstate in _DAMAGED:
                return None
            raise

    def lock_session(self, number: int, former: str | None = None) -> bool:
        """Take the advisory lock of a session if it is free, or held by the connection that this one replaces."""
        if self._try_lock(number) or self._wait_for_lock(number):
            return True
        if former is not None:
            # A server can take long to see that a client is gone.
            self.execute(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE right(application_name, %s) = %s",
                (len(former), former),
            )
            return self._wait_for_lock(number)
        return False

    def lock_and_own(self, number: int, session_id: str) -> tuple[bool, int | None, int, int]:
        """Take the lock if it is free, and if so the next epoch: whether, the number of the session, last, epoch."""
        values = {"key": self._make_lock_key(number), "id": session_id, "tables": str(self.tables)}
        had, number_found, last, epoch, _ = self.execute(LOCK_AND_OWN, values).fetchone() or (False, None, 0, 0, None)
        return had, number_found, last, epoch

    def make_place(self, number: int) -> str:
        """What a notification about a session says; another schema of the same database has other tables."""
        return f"{self.tables} {number}"

    def find_held(self, places: Iterable[str]) -> set[str]:
        """Those of these sessions, each as `make_place` says it, whose lock a connection holds."""
        keys = {make_lock_key(place): place for place in places}
        return {keys[key] for (key,) in self.execute(HOLDERS, (list(keys),))}

    def terminate_holder(self, number: int) -> None:
        """End the connection that holds the lock of a session, and with it what it has not committed."""
        self.execute(TERMINATE_HOLDER, (self._make_lock_key(number),))

    def unlock_all(self) -> None:
        """Release the locks of this connection."""
        self.execute("SELECT pg_advisory_unlock_all()")

    def disown(self) -> None:
        """In a forked child: the connection is the parent's, and must neither be used nor kept from ending with it."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.disown()
        if not self.closed:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self.pgconn.socket)
            os.close(nothing)
            self.close()

    def _look(self) -> bool:
        return self.sent is not None and self.sent.look()

    def _stop_watching(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _try_lock(self, number: int) -> bool:
        (had,) = self.execute("SELECT pg_try_advisory_lock(%s)", (self._make_lock_key(number),)).fetchone() or (False,)
        return had

    def _wait_for_lock(self, number: int) -> bool:
        """Wait a moment for the lock: the server may not have noticed yet that its holder is dead."""
        try:
            with self.transaction():
                self.execute(LOCK_TIMEOUT, (_PATIENCE,))
                self.execute("SELECT pg_advisory_lock(%s)", (self._make_lock_key(number),))
        except LockNotAvailable:
            return False
        return True

    def _make_lock_key(self, number: int) -> int:
        return make_lock_key(self.make_place(number))

    if not TYPE_CHECKING:  # between its versions the driver adds parameters

        def wait(self, gen, *args, **named):
            try:
                return super().wait(limit_time(gen, time.monotonic() + self.timeout), *args, **named)
            except ServerTimeout:
                self.close()
                raise


class ServerAddress:
    """The address of a server, from a connection string as libpq takes it."""

    def __init__(self, dsn: str, timeout: float) -> None:
        given = _parse_dsn(dsn)
        if given is None:
            # The driver's own words would quote what it stumbled over, which may be the password.
            raise ValueError(
                "The connection string cannot be read. It is postgresql://user:password@host:port/database, where "
                "'@', ':', '/', '?' and '%' in a name or password are percent-encoded, or key=value pairs."
            )
        self.timeout = timeout
        self.idle = IdleConnections()
        self.dsn = make_conninfo(**given)
        self._given = given
        self._secrets = [str(given[name]) for name in _SECRETS if given.get(name)]
        host = f"{given.get('host') or given.get('hostaddr') or ''}"
        port = f":{given['port']}" if given.get("port") else ""
        self.name = self._redact(f"{host}{port}/{given.get('dbname') or ''}")

    def connect(self, *, write: bool) -> Connection:
        """A new connection; for a writer to a server that takes writes."""
        defaults: dict[str, Any] = {
            **_ALIVE,
            "connect_timeout": max(2, min(_CONNECT, math.ceil(self.timeout))),
            "tcp_user_timeout": round(self.timeout * 1000),
            "application_name": "steersman",
            "target_session_attrs": "read-write" if write else "any",
        }
        parameters = {**defaults, **self._given, "client_encoding": "utf8"}
        connection = Connection.connect(make_conninfo(**parameters), autocommit=True)
        try:
            connection.configure(self.timeout)
        except BaseException:
            connection.close()
            raise
        connection.takes_writes = write
        return connection

    def make_error(self, what: str, error: psycopg.Error) -> StoreFailed:
        """An error of the driver as one of a store, on one line and without secrets."""
        text = " ".join((error.diag.message_primary or str(error)).split()).rstrip(".") or type(error).__name__
        kind = DataCorrupted if error.sqlstate in _DAMAGED else StoreFailed
        return kind(f"{what}: {self._redact(text)}{'' if text.endswith('?') else '.'}")

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _parse_dsn(dsn: str) -> dict[str, Any] | None:
    """The parts of a connection string; `None` if it is malformed, or if a password spills into other parts."""
    try:
        given = dict(conninfo_to_dict(dsn))
    except psycopg.Error:
        return None
    if re.fullmatch(r"[0-9,]*", f"{given.get('port') or ''}") is None:
        return None
    scheme, found, rest = dsn.partition("://")
    server, _, rest = rest.partition("/")
    if found and scheme in ("postgres", "postgresql") and (server.count("@") > 1 or "@" in rest.partition("?")[0]):
        return None
    return given


class ReconnectingConnection:
    """A connection that reconnects. Several threads may use it, one at a time."""

    def __init__(self, address: ServerAddress, *, write: bool) -> None:
        self.address = address
        self.write = write
        self.closed = False
        self.forked = False
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        _alive.add(self)

    def run(self, what: str, work: Callable[[Connection], _T]) -> _T:
        """Call `work`; if the connection broke since its last use, call it once more on a new one.

        So `work` must be idempotent. A failure is `StoreFailed` with a text that begins with `what`.
        """
        with self._lock:
            if self.closed:
                raise StoreFailed(f"{what}: it is closed.")  # by another thread, and must not connect again
            self._finish_sent()
            if self._connection is None and not self.forked:
                self._connection = self.address.idle.take(write=self.write)
            tried = self._connection
            try:
                try:
                    return self._run_once(work)
                except psycopg.Error as error:
                    if tried is None or self._connection is not None or isinstance(error, ServerTimeout):
                        raise
                    return self._run_once(work)
            except psycopg.Error as error:
                failure = self.address.make_error(what, error)
        # Outside of the handler: the cause would show the driver's text, with the secrets in it.
        raise failure

    def send(self, token: str, values: Sequence[bytes], take: Callable[[int], None]) -> SentStatement | None:
        """Send the statement that appends from the running event loop; `take` is called as by `SentStatement`.

        `None` if that cannot be done without waiting, or if this connection is not the one that this token is of.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            connection = self._connection
            if connection is None or connection.token != token or not connection.takes_appends or connection.sent:
                return None
            sent = SentStatement(connection, self._lock, take)
            try:
                connection.watch()
            except NotImplementedError:
                return None  # an event loop that watches no sockets
            return sent if sent.send(PREPARED_APPEND, values) else None
        finally:
            self._lock.release()

    def close(self, *, has_locks: bool = False, last: Callable[[Connection], object] | None = None) -> None:
        """Close it: a connection that still works is kept for another one, without its locks.

        `last` is called once it has no locks any more, unless it is broken.
        """
        with self._lock:
            self._finish_sent()
            self.closed = True
            connection, self._connection = self._connection, None
        if connection is None:
            return
        works = False
        try:
            if has_locks and not connection.broken:
                connection.unlock_all()
            if last is not None and not connection.broken:
                last(connection)
            works = not connection.broken and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        except psycopg.Error:
            pass  # the connection ends, and with it all it held
        finally:
            if works:
                self.address.idle.keep(connection)
            else:
                connection.close()

    def _finish_sent(self) -> None:
        if self._connection is not None and self._connection.sent is not None:
            self._connection.sent.finish()

    def disown(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._lock = threading.RLock()
        self.forked = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disown()

    def _run_once(self, work: Callable[[Connection], _T]) -> _T:
        connection = self._connection
        if connection is None:
            connection = self._connection = self.address.connect(write=self.write)
        try:
            return work(connection)
        except BaseException:
            if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self._connection = None
                connection.close()
            raise


_alive: WeakSet[ReconnectingConnection] = WeakSet()


def _disown_all() -> None:
    for each in tuple(_alive):
        each.disown()
    disown_idle_connections()


os.register_at_fork(after_in_child=_disown_all)
