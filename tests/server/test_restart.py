"""A server that is killed or stopped loses nothing: open questions, receipts, positions and queued messages."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession
from tests.server.kit import Client, Event, check_order

pytestmark = pytest.mark.real_time
TOKEN = "a-token-that-stays-the-same"
ROOT = Path(__file__).parents[2]


class Program:
    """A server that can be killed and started again on its port."""

    def __init__(self, folder: Path, kind: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._store = folder / "sessions.db"
        self._kind = kind
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.server.program", str(self._store), str(self.port), TOKEN, self._kind),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        assert str(self.port).encode() in await self.process.stdout.readline()

    async def end(self, number: signal.Signals) -> int:
        """End it by a signal; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return await self.process.wait()


@asynccontextmanager
async def run_program(folder: Path, kind: str) -> AsyncGenerator[tuple[Program, Client]]:
    program = Program(folder, kind)
    await program.start()
    try:
        async with ClientSession() as http:
            yield program, Client(http, f"http://127.0.0.1:{program.port}", TOKEN)
    finally:
        if program.process is not None and program.process.returncode is None:
            await program.end(signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_an_open_question_is_still_open_after_a_restart(
    tmp_path: Path, number: signal.Signals, decision: str
) -> None:
    """S7: both events are records; the answer lets the interrupted run go on."""
    async with run_program(tmp_path, "ask") as (program, client):
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        seen = await client.collect(id, "approval_requested")
        await program.end(number)
        await program.start()
        _, shown = await client.send("GET", f"/sessions/{id}")
        _, listed = await client.send("GET", "/sessions")
        question = seen[-1][1]["approval_id"]
        assert shown["status"] == listed["sessions"][0]["status"] == "waiting"
        assert [one["approval_id"] for one in shown["approvals"]] == [question]
        await client.act(id, decision, {"id": question, "reason": "no"})
        rest = await client.collect(id, after=seen[-1][0])
    check_order([*seen, *rest])
    asked = [event["approval_id"] for _, event in rest if event["type"] == "approval_requested"]
    assert asked == [question]
    results = [event["result"]["details"]["status"] for _, event in rest if event["type"] == "tool_execution_end"]
    assert results == ["completed" if decision == "approve" else "denied"]
    assert rest[-1][1]["end_reason"] == "done"


async def test_a_run_that_was_killed_in_mid_answer_can_be_continued(tmp_path: Path) -> None:
    """Positions seen before the kill are still good, and nothing comes twice."""
    async with run_program(tmp_path, "slow") as (program, client):
        id = await client.create()
        first = await client.act(id, "prompt", {"content": "Count."}, Idempotency_Key="p")
        seen: list[tuple[str, Event]] = []
        async with client.watch(id) as events:
            async for position, event in events:
                seen.append((position, event))
                if len(seen) == 40:
                    break
        await program.end(signal.SIGKILL)
        await program.start()
        again = await client.act(id, "prompt", {"content": "Count."}, Idempotency_Key="p")
        _, shown = await client.send("GET", f"/sessions/{id}")
        await client.act(id, "continue", {})
        await client.find(id, "message_update", seen[-1][0])
        await client.act(id, "abort")
        rest = await client.collect(id, after=seen[-1][0])
        _, tree = await client.send("GET", f"/sessions/{id}/tree")
    assert first == again
    assert shown["status"] == "idle"
    check_order([*seen, *rest])
    assert [node["role"] for node in tree] == ["user", "assistant"]


async def test_sigterm_drains(tmp_path: Path) -> None:
    """Section 3: running ones get their grace, then are interrupted and resumable; the exit code is 0."""
    async with run_program(tmp_path, "slow") as (program, client):
        id = await client.create()
        await client.act(id, "prompt", {"content": "Count."})
        seen = await client.collect(id, "message_update")
        code = await program.end(signal.SIGTERM)
        await program.start()
        await client.act(id, "continue", {})
        rest = await client.collect(id, "message_update", after=seen[-1][0])
    assert code == 0
    check_order([*seen, *rest])
