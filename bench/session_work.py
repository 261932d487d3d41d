"""The jobs of the session measurements: conversations that are kept, plain commits beside them, and a long session."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.script import MODEL, PROVIDER, Script, text_turn, tool_turn, turns_of
from bench.work import LIMITS, TOOL

from steersman import Agent, Model
from steersman.session.journal import JournalWriter
from steersman.session.records import Record
from steersman.session.session import Session
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import Handle, Problem, Summary
from steersman.types.content import TextContent, ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, user_message

PAYLOAD = b"x" * 600
"""About what a record of a short turn has."""
_ROUND_BYTES = 8_000


class CountedStore:
    """An SQLite file that counts its commits; each is one sync."""

    def __init__(self, path: Path) -> None:
        self.inner = SqliteStore(path)
        self.commits = 0

    def create(self, session_id: str, /, *, first: bool = False) -> Handle:
        """A new session."""
        return CountedHandle(self.inner.create(session_id, first=first), self)

    def open(self, session_id: str, /, *, write: bool = True) -> Handle:
        """One that is there."""
        return CountedHandle(self.inner.open(session_id, write=write), self)

    def list(self) -> Sequence[Summary]:
        """All of them."""
        return self.inner.list()

    def delete(self, session_id: str, /) -> None:
        """One less."""
        self.inner.delete(session_id)


class CountedHandle:
    """One session of it."""

    def __init__(self, inner: Handle, store: CountedStore) -> None:
        self.inner = inner
        self.store = store

    @property
    def session_id(self) -> str:
        """As it is."""
        return self.inner.session_id

    @property
    def writable(self) -> bool:
        """As it is."""
        return self.inner.writable

    @property
    def problems(self) -> Sequence[Problem]:
        """As they are."""
        return self.inner.problems

    @property
    def last_seq(self) -> int:
        """As it is."""
        return self.inner.last_seq

    def append(self, records: Sequence[Record], /) -> None:
        """One commit more."""
        self.inner.append(records)
        self.store.commits += 1

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """As they are."""
        return self.inner.lines(after)

    def set_title(self, title: str, /) -> None:
        """As it is."""
        self.inner.set_title(title)

    def close(self) -> None:
        """As it is."""
        self.inner.close()


@dataclass(slots=True)
class Turns:
    """Wall seconds and commits of each turn, and the last answer."""

    seconds: list[float] = field(default_factory=list[float])
    commits: list[int] = field(default_factory=list[int])
    answer: str = ""


async def converse(turns: int, store: CountedStore | None, *, tools: int = 1, id: str | None = None) -> Turns:
    """A run of so many turns, each with so many calls, kept or not."""
    marks: list[tuple[float, int]] = []
    session = None if store is None else Session.create(store, id)

    def mark() -> None:
        marks.append((perf_counter(), 0 if store is None else store.commits))

    said = [tool_turn(number, tools) if tools else text_turn("It is 42.") for number in range(turns)]
    script = Script(turns_of(*said, text_turn("It is 42.")).typed, on_request=mark)
    agent = Agent(Model(PROVIDER, MODEL), tools=[TOOL], stream_fn=script, limits=LIMITS, session=session)
    for _ in range(0 if tools else turns):
        agent.follow_up("Go on.")
    result = await agent.run("Begin.")
    if session is not None:
        session.close()
    pairs = list(pairwise(marks))
    return Turns([b[0] - a[0] for a, b in pairs], [b[1] - a[1] for a, b in pairs], result.text)


async def crowd(path: Path, count: int, turns: int) -> tuple[float, CountedStore]:
    """So many conversations at once, all kept in one file; wall seconds of all, and the store."""
    store = CountedStore(path)
    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(converse(turns, store, id=f"session-{number}")) for number in range(count)]
    seconds = perf_counter() - began
    if {task.result().answer for task in tasks} != {"It is 42."}:
        raise RuntimeError("Expected every session to come to the answer.")
    return seconds, store


def plain(path: Path) -> sqlite3.Connection:
    """A plain table, as safe as a session."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS plain (key INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    return connection


def plain_commits(connection: sqlite3.Connection, count: int, rows: int = 1) -> float:
    """Median wall seconds of a plain commit of so many rows."""
    seconds: list[float] = []
    for _ in range(count):
        began = perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO plain (data) VALUES (?)", [(PAYLOAD,)] * rows)
        connection.execute("COMMIT")
        seconds.append(perf_counter() - began)
    return median(seconds)


def plain_crowd(path: Path, count: int, commits: int) -> float:
    """Wall seconds of so many threads with so many plain commits in all."""
    connections = [plain(path) for _ in range(count)]
    threads = [threading.Thread(target=plain_commits, args=(each, commits // count, 3)) for each in connections]
    began = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = perf_counter() - began
    for connection in connections:
        connection.close()
    return seconds


def appended(path: Path, count: int, rows: int = 1) -> float:
    """Median wall seconds to have so many records added and kept."""
    journal = JournalWriter(SqliteStore(path).create("appended"))
    payload = {"text": PAYLOAD.decode()}
    seconds: list[float] = []
    for _ in range(count):
        began = perf_counter()
        for _ in range(rows):
            journal.add("note", payload)
        if not journal.flush():
            raise RuntimeError(f"Expected the records to be kept, got {journal.degraded!r}.")
        seconds.append(perf_counter() - began)
    journal.close()
    return median(seconds)


def long_session(path: Path, size: int, *, branches: int = 1) -> int:
    """A session of so many bytes, in so many branches that begin with the same message; how many messages it has."""
    session = Session.create(path, "long")
    messages = size // _ROUND_BYTES * 3
    session.log.append(user_message("Begin."))
    for branch in range(branches):
        if branch:
            session.branch(0)
        for number in range(messages // 3 // branches):
            for message in _round(branch, number):
                session.log.append(message)
            if number % 500 == 0:
                session.flush()
    session.close()
    return messages


def _round(branch: int, number: int) -> tuple[AgentMessage, ...]:
    """A question, a call and its result: about `_ROUND_BYTES` of them, with what is around them."""
    id = f"call_{branch}_{number}"
    return (
        user_message("word " * 100),
        AssistantMessage([TextContent("word " * 400), ToolCall(id, "read", {"path": f"file {number}"})]),
        ToolResultMessage([TextContent("line\n" * 800)], tool_call_id=id, tool_name="read"),
    )
