"""What a server shows of a session whose process ends its run at an unlucky moment (durable.md U5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import Gate, check_order, make_deployer, run_server
from tests.server.test_elsewhere import LONG, make_slow
from tests.server.test_two_servers import show

from steersman import Session
from steersman.session import SessionError, SqliteStore

pytestmark = pytest.mark.real_time


class EndingStore(SqliteStore):
    """A store that calls a function just before it says whether a session has a writer."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.looks: list[Callable[[], object]] = []
        self.hear: Callable[[bytes | None], None] | None = None

    def follow(self, session_id: str, hear: Callable[[bytes | None], None], /) -> Any:
        """Follow a session, and keep what is called then."""
        self.hear = hear
        return super().follow(session_id, hear)

    def has_writer(self, session_id: str, /) -> bool:
        """Whether the session has a writer."""
        if self.looks:
            self.looks.pop()()
        return super().has_writer(session_id)


async def test_a_run_that_ends_while_its_writer_is_looked_for_is_shown_to_its_end(tmp_path: Path) -> None:
    """U5: a process that has ended its run and closed the session since the last look is not one that was killed."""
    gate, store, loop = Gate(), EndingStore(tmp_path / "sessions.db"), asyncio.get_running_loop()
    session = Session.create(SqliteStore(tmp_path / "sessions.db"), "s")
    agent = make_slow(gate)()
    agent.configure(session=session)
    async with run_server(make_deployer, store=store) as client, asyncio.timeout(20):
        watching = asyncio.ensure_future(client.collect("s"))
        run = asyncio.ensure_future(agent.run("Go."))
        await client.find("s", "tool_execution_start")
        assert store.hear is not None
        looked = asyncio.Event()
        store.looks.append(lambda: loop.call_soon_threadsafe(looked.set))
        store.hear(None)
        await looked.wait()

        async def finish() -> None:
            gate.opened.set()
            await run
            await asyncio.to_thread(session.close)

        store.looks.append(lambda: asyncio.run_coroutine_threadsafe(finish(), loop).result())
        store.hear(None)
        events = await watching
    assert session.closed
    assert store.looks == []
    check_order(events)
    assert show(events).complete == [LONG, "Done. " * 9]


class FailingHandle:
    """An open session that cannot be read while its store fails."""

    def __init__(self, handle: Any, store: FailingStore) -> None:
        self._handle = handle
        self._store = store

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The records after a number."""
        if self._store.failures:
            self._store.failures -= 1
            raise SessionError("disk I/O error")
        return self._handle.lines(after)

    def close(self) -> None:
        """Close it."""
        self._handle.close()


class FailingStore(EndingStore):
    """A store of which some reads fail."""

    failures = 0

    def open(self, session_id: str, /, *, write: bool = True) -> Any:
        """An existing session."""
        return FailingHandle(super().open(session_id, write=write), self)


async def test_watchers_learn_of_a_killed_process_also_if_the_store_fails_at_that_moment(tmp_path: Path) -> None:
    """U5: the store cannot be read when the process is seen to be gone, and can be with the next look."""

    store = FailingStore(tmp_path / "sessions.db")
    session = Session.create(SqliteStore(tmp_path / "sessions.db"), "s")
    agent = make_slow(Gate())()
    agent.configure(session=session)
    async with run_server(make_deployer, store=store) as client, asyncio.timeout(20):
        run = asyncio.ensure_future(agent.run("Go."))
        async with client.watch("s") as events:
            async for _, event in events:
                if event["type"] == "tool_execution_start":
                    break
            assert store.hear is not None
            session.recorder.journal.cut("It was killed.")  # pyright: ignore[reportOptionalMemberAccess]  # it is open for writing
            await asyncio.to_thread(session.__exit__)
            store.looks.append(lambda: setattr(store, "failures", 1))
            store.hear(None)
            assert [event async for _, event in events] == []
        agent.abort()
        await run
