"""The stage of the tests of agents in workflows: an agent that announces each step, and waits for leave to take it.

A step is a request to the model or a tool call. Each announces itself over a socket with the number of its process, so
a test knows when it is under way, and where; it goes on when the test answers.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker
from temporalio.workflow import ActivityConfig

from steersman import Agent, tool
from steersman.durable.workflow_agent import AgentInput, AgentPlugin, AgentResult, AgentWorkflow
from steersman.session import Session, SqliteStore, Store
from steersman.testing import ScriptedModel, call
from steersman.types.model import Request

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
TURNS = 6
HEARTBEAT = 2.0
"""Seconds after which the work of a killed program is given to another worker."""


def make_agent(socket: Path, turns: int = TURNS, **options: Any) -> Agent[Any]:
    """An agent that calls a tool in each turn: `act`, which is not idempotent, and `look`, which is, in turn."""

    @tool
    async def act(n: int) -> str:
        """Act."""
        await announce(socket, f"act {n}")
        return f"acted {n}"

    @tool(idempotent=True)
    async def look(n: int) -> str:
        """Look."""
        await announce(socket, f"look {n}")
        return f"looked {n}"

    async def react(request: Request) -> Any:
        done = sum(message.role == "tool_result" for message in request.messages)
        await announce(socket, f"ask {done}")
        return call("act" if done % 2 else "look", n=done, id=f"call_{done}") if done < turns else "all done"

    options = {"repeated_calls": None, **options}
    return Agent(ScriptedModel(react, repeat_last=True).model, tools=[act, look], **options)


async def announce(socket: Path, what: str) -> None:
    """Announce a step, and wait for leave."""
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(f"{os.getpid()} {what}\n".encode())
        await reader.readline()
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def connect(address: str) -> Client:
    """A client; a server that has just started listens a little before it answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await Client.connect(address)
            except RuntimeError as error:
                if "not healthy yet" not in str(error):
                    raise
                await asyncio.sleep(0.1)


class Stage:
    """One test: its server, task queue, store and socket. `held` steps wait until they are let go."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.queue = f"queue-{secrets.token_hex(6)}"
        self.store: Store = SqliteStore(folder / "sessions.db")
        self.socket = folder / "steps"
        self.held: set[str] = set()
        self.steps: list[str] = []
        self._arrived: dict[str, asyncio.Event] = {}
        self._leave: dict[str, asyncio.Event] = {}
        self._pids: dict[str, int] = {}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Stage]:
        """Listen to the steps."""
        async with await asyncio.start_unix_server(self._hear, self.socket):
            yield self

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, _, step = (await reader.readline()).decode().strip().partition(" ")
        self.steps.append(step)
        self._pids[step] = int(pid)
        self._arrived.setdefault(step, asyncio.Event()).set()
        if step in self.held:
            leaving = asyncio.ensure_future(self._leave.setdefault(step, asyncio.Event()).wait())
            gone = asyncio.ensure_future(reader.read())
            await asyncio.wait((leaving, gone), return_when=asyncio.FIRST_COMPLETED)
            for task in (leaving, gone):
                task.cancel()
            await asyncio.wait((leaving, gone))
        writer.write(b"go\n")
        await _close(writer)

    async def wait_for(self, step: str) -> int:
        """Wait until a step is under way; returns the number of its process."""
        async with asyncio.timeout(60):
            await self._arrived.setdefault(step, asyncio.Event()).wait()
        return self._pids[step]

    def let_go(self, step: str) -> None:
        """Let a held step go on, and do not hold it again."""
        self.held.discard(step)
        self._leave.setdefault(step, asyncio.Event()).set()

    def forget(self) -> None:
        """Begin anew: no step was seen."""
        for known in (self.steps, self._arrived, self._leave, self._pids):
            known.clear()

    @asynccontextmanager
    async def work(
        self, agent: Agent[Any] | None = None, *, heartbeat: float = 60, **options: Any
    ) -> AsyncGenerator[None]:
        """A worker in this process; another one takes over `heartbeat` seconds after its death."""
        agents = {"actor": agent or make_agent(self.socket)}
        options = {"graceful_shutdown_timeout": timedelta(0), **options}
        beats = ActivityConfig(heartbeat_timeout=timedelta(seconds=heartbeat))
        plugin = AgentPlugin(agents, self.store, model=beats, tools={"*": beats}, session=beats)
        async with Worker(self.client, task_queue=self.queue, plugins=[plugin], **options):
            yield

    async def start(self, prompt: Any = "go", **fields: Any) -> WorkflowHandle[Any, AgentResult]:
        """Start the workflow."""
        start = AgentInput("actor", prompt, **fields)
        id = f"run-{secrets.token_hex(6)}"
        return await self.client.start_workflow(AgentWorkflow.run, start, id=id, task_queue=self.queue)

    async def finish(self, handle: WorkflowHandle[Any, T]) -> T:
        """Wait for the result."""
        async with asyncio.timeout(60):
            return await handle.result()

    def read(self, session_id: str) -> list[str]:
        """What was said in a session, as `role: text`."""
        session = Session.open(self.store, session_id, write=False)
        try:
            return [f"{message.role}: {getattr(message, 'text', '')}" for message in session.messages]
        finally:
            session.close()


@contextmanager
def start_program(stage: Stage) -> Generator[subprocess.Popen[bytes]]:
    """A worker in another process, which is killed at the end if not before."""
    command = [sys.executable, "-m", "tests.durable.workflow_agent.program"]
    address = stage.client.service_client.config.target_host
    with subprocess.Popen([*command, address, stage.queue, str(stage.socket.parent)], cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def expect(turns: int = TURNS, **instead: str) -> list[str]:
    """What is said in a whole run; `instead` replaces results, such as `call_3`."""
    said = ["user: go"]
    for n in range(turns):
        usual = f"{'acted' if n % 2 else 'looked'} {n}"
        said += ["assistant: ", f"tool_result: {instead.get(f'call_{n}', usual)}"]
    return [*said, "assistant: all done"]
