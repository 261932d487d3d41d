"""Two server processes on one file or database: what runs in one is watched and steered at the other."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import Client, Event, check_order
from tests.server.program import Program, run_program
from tests.server.test_watch import Screen, join_text

pytestmark = pytest.mark.real_time
LEFT = {"content": "To the left.", "mode": "cancel"}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A file or a database, as another process is told of it."""
    return request.getfixturevalue("postgres").dsn if request.param == "postgres" else tmp_path


@asynccontextmanager
async def run_two(place: Path | str, kind: str = "hold") -> AsyncGenerator[tuple[Program, Client, Client]]:
    """The process of a server, a client of it, and a client of another one."""
    async with AsyncExitStack() as stack:
        first, a = await stack.enter_async_context(run_program(place, kind))
        _, b = await stack.enter_async_context(run_program(place, kind))
        yield first, a, b


def keep_records(events: Sequence[tuple[str, Event]]) -> list[tuple[str, Event]]:
    return [(position, event) for position, event in events if "." not in position]


def show(events: Sequence[tuple[str, Event]], *, whole: bool = True, moved: bool = False) -> Screen:
    """What a person sees.

    One who has `moved` to another server may get deltas of an answer whose beginning the first one did not know yet.
    """
    screen = Screen(whole=whole)
    for _, event in events:
        if not (moved and event["type"] == "message_update" and screen.text is None):
            screen.show(event)
    return screen


async def read_until(client: Client, id: str, kind: str, found: list[tuple[str, Event]], text: str = "") -> None:
    """Read the events up to one of a type that contains a text."""
    async with client.watch(id) as events:
        async for position, event in events:
            found.append((position, event))
            if event["type"] == kind and text in str(event):
                return
    raise AssertionError(f"the stream ended without {kind}")


async def test_a_run_is_watched_and_steered_from_another_server(place: Path | str) -> None:
    """durable.md U2, U5, S2: the steering is heard once; both see all records, and answers as they arrive."""
    async with run_two(place) as (_, a, b):
        id = await a.create()
        early = asyncio.ensure_future(b.collect(id))
        await a.act(id, "prompt", {"content": "Go."})
        middle: list[tuple[str, Event]] = []
        await read_until(b, id, "message_update", middle, "hold")
        _, shown = await b.send("GET", f"/sessions/{id}")
        status, refused = await b.send("POST", f"/sessions/{id}/prompt", {"content": "Me too."})
        joined = asyncio.ensure_future(b.collect(id))
        await b.find(id, "tool_execution_start")
        receipts = [await b.act(id, "steer", LEFT, Idempotency_Key="once") for _ in range(2)]
        receipts.append(await a.act(id, "steer", LEFT, Idempotency_Key="once"))
        seen_at_b, seen_late = await early, await joined
        seen_at_a = await a.collect(id)
    assert shown["status"] == "running"
    assert (status, refused["detail"][:14]) == (409, "A run is going")
    assert receipts[0] == receipts[1] == receipts[2]
    texts = [join_text(event["message"]["content"]) for _, event in seen_at_a if event["type"] == "message_end"]
    assert texts.count("To the left.") == 1
    for seen in (seen_at_b, seen_late):
        check_order(seen)
        assert keep_records(seen) == keep_records(seen_at_a)
        assert show(seen).complete == ["I hold on. " * 30, "Done."]
    assert any(event["type"] == "message_update" for _, event in seen_at_b)


async def test_watchers_learn_that_the_process_was_killed_and_the_session_goes_on(place: Path | str) -> None:
    """durable.md U5, S2: the watch at the other server ends, and the session is continued there."""
    async with run_two(place) as (first, a, b):
        id = await a.create()
        await a.act(id, "prompt", {"content": "Go."})
        seen: list[tuple[str, Event]] = []

        async def watch() -> None:
            async with b.watch(id) as events:
                async for position, event in events:
                    seen.append((position, event))
                    if event["type"] == "tool_execution_start" and first.pid:
                        os.kill(first.pid, signal.SIGKILL)

        await watch()
        _, shown = await b.send("GET", f"/sessions/{id}")
        await b.act(id, "continue")
        rest = await b.collect(id, after=seen[-1][0])
        await first.end()
    assert shown["status"] == "idle"
    check_order([*seen, *rest])
    assert show([*seen, *rest]).complete == ["I hold on. " * 30, "Done."]
    assert [event["end_reason"] for _, event in rest if event["type"] == "agent_end"] == ["done"]


async def test_a_server_that_was_stopped_and_taken_over_shows_nothing_of_its_own(place: Path | str) -> None:
    """durable.md U3: what it still does is refused, and its watchers see what the new owner writes."""
    async with run_two(place) as (first, a, b):
        id = await a.create()
        await a.act(id, "prompt", {"content": "Go."})
        watching: asyncio.Task[Any] = asyncio.ensure_future(a.collect(id))
        await b.find(id, "tool_execution_start")
        os.kill(first.pid, signal.SIGSTOP)
        status, _ = await b.send("POST", f"/sessions/{id}/continue", {})
        await b.act(id, "continue", {"take_over": True})
        seen_at_b = await b.collect(id)
        os.kill(first.pid, signal.SIGCONT)
        seen_at_a = await watching
        again = await a.collect(id)
        _, shown = await a.send("GET", f"/sessions/{id}")
    assert status == 409
    check_order(seen_at_a)
    assert keep_records(seen_at_a) == keep_records(seen_at_b) == keep_records(again)
    assert show(seen_at_b).complete == ["I hold on. " * 30, "Done."]
    assert shown["status"] == "idle"


async def test_a_question_that_a_restart_has_cut_is_ended_from_another_server(place: Path | str) -> None:
    """S7, D6: the server that has the session open runs nothing just now; an abort elsewhere ends its question."""
    async with run_two(place, "ask") as (first, a, b):
        id = await a.create()
        await a.act(id, "prompt", {"content": "Deploy."})
        asked = (await a.collect(id, "approval_requested"))[-1]
        await first.end()
        await first.start()
        await a.act(id, "configure", {"thinking_level": "low"})  # it is open there now, and no run goes on
        await b.act(id, "abort")
        rest = await b.collect(id, after=asked[0])
        _, shown = await b.send("GET", f"/sessions/{id}")
        late = await b.act(id, "approve", {"id": asked[1]["approval_id"]})
    assert [event["end_reason"] for _, event in rest if event["type"] == "agent_end"] == ["aborted"]
    [result] = [event["result"] for _, event in rest if event["type"] == "tool_execution_end"]
    assert result["details"]["status"] == "not_started"
    assert (shown["status"], shown["approvals"], late["status"]) == ("idle", [], "resolved")
