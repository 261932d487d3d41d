"""A part of a PostgreSQL server for one test, what others do there, and a way to it that can be cut."""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.sql import SQL, Identifier

from steersman.session.stores.postgres.store import PostgresStore

_GOODBYE = b"X\0\0\0\4"


@dataclass(frozen=True, slots=True)
class Database:
    """A place for tables of its own on a server."""

    server: str
    name: str

    @classmethod
    def made(cls, server: str) -> Database:
        """A new one, which is empty."""
        database = cls(server, f"place_{secrets.token_hex(8)}")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(database.name)))
        return database

    @property
    def dsn(self) -> str:
        """How to reach it."""
        return f"{self.server} application_name={self.name} options=-csearch_path={self.name}"

    def store(self, **options: Any) -> PostgresStore:
        """What is tested."""
        return PostgresStore(self.dsn, **options)

    def ask(self, question: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """What the server says to another client."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            found = connection.execute(question, values or None)
            return found.fetchall() if found.description else []

    def backends(self) -> set[str]:
        """The connections of stores, by names that are never the same."""
        found = self.ask(
            "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE %s", f"{self.name} %"
        )
        return {name for (name,) in found}

    def count_backends(self, expected: int) -> int:
        """How many connections stores have, once it is `expected`: the server notices a closed one a little later."""
        for _ in range(500):
            if len(self.backends()) == expected:
                break
            self.ask("SELECT pg_sleep(0.01)")
        return len(self.backends())

    def cut(self) -> None:
        """End the connections of all stores."""
        self.ask(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE %s",
            f"{self.name} %",
        )


class Way:
    """Passes on what goes between clients and a server, until it is `silent`: what went through by then stays as it is.

    A client that connects later finds a new way; the server does not hear that the old ones are of no use.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder = folder
        self._server = str(server / ".s.PGSQL.5432")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._to: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._deaf: set[socket.socket] = set()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._work, name="way")
        self._thread.start()

    def silence(self) -> None:
        """From here on no client hears anything any more; what they say still arrives, but for their last word."""
        self._deaf |= {self._to[client] for client in self._clients}

    def close(self) -> None:
        """Cut all of it."""
        self._wake.send(b"x")
        self._thread.join()
        for end in (self._listening, self._wake, self._woken, *self._to):
            end.close()
        self._selector.close()

    def _work(self) -> None:
        while True:
            for key, _ in self._selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._woken:
                    return
                if source is self._listening:
                    self._accept()
                else:
                    self._pass_on(source)

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        self._to |= {client: server, server: client}
        self._clients.add(client)
        for end in (client, server):
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        try:
            data = source.recv(65536)
        except ConnectionError:
            data = b""
        other = self._to[source]
        if not data:
            self._selector.unregister(source)
            if source not in self._deaf and other not in self._deaf:
                other.shutdown(socket.SHUT_WR)
        elif source not in self._deaf and not (other in self._deaf and data == _GOODBYE):
            other.sendall(data)
