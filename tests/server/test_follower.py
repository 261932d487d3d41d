"""What a server shows of a session whose process ends its run at an unlucky moment (durable.md U5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import Gate, check_order, make_deployer, run_server
from tests.server.test_elsewhere import LONG, make_slow
from tests.server.test_two_servers import show

from steersman import Session
from steersman.session import SqliteStore

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
