"""A server in a process of its own, for tests that kill it.

Its processes are forked from one that has imported everything: to start Python anew takes longer than such a test.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from tests.server.kit import Client, deploy

from steersman import Agent, tool
from steersman.server import Server, serve
from steersman.session import PostgresStore
from steersman.testing import ScriptedModel, answer, call
from steersman.types.messages import ToolResultMessage

TOKEN = "a-token-that-stays-the-same"
_processes = get_context("forkserver")
_processes.set_forkserver_preload([__name__])


class Program:
    """A server that can be killed and started again on its port."""

    def __init__(self, folder: Path | str, kind: str, files: int | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        store = folder if isinstance(folder, str) else str(folder / "sessions.db")
        self._arguments = (store, self.port, kind, files)
        self._process: BaseProcess | None = None

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        ready, tell = _processes.Pipe(duplex=False)
        with ready:
            with tell:
                self._process = _processes.Process(target=run, args=(*self._arguments, tell), daemon=True)
                await asyncio.to_thread(self._process.start)
            await _wait_until_readable(ready.fileno())
            assert str(self.port) in ready.recv()

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int | None:
        """End it by a signal, if it runs; returns its exit code."""
        process = self._process
        assert process is not None
        assert process.pid is not None
        if process.exitcode is None:
            os.kill(process.pid, number)
            await _wait_until_readable(process.sentinel)
            process.join()
        return process.exitcode


async def _wait_until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


@asynccontextmanager
async def run_program(folder: Path | str, kind: str, **options: int) -> AsyncGenerator[tuple[Program, Client]]:
    """A server in a process of its own, and a client of it. It may open so many `files`.

    Its sessions are in a folder, or where a connection string says.
    """
    program = Program(folder, kind, **options)
    await program.start()
    try:
        async with ClientSession() as http:
            yield program, Client(http, f"http://127.0.0.1:{program.port}", TOKEN)
    finally:
        await program.end()


def run(store: str, port: int, kind: str, files: int | None, tell: Connection[str, Any]) -> None:
    """Serve until a signal comes; `tell` gets the URL once it listens."""
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    def show(_: Server, url: str) -> None:
        tell.send(url)

    where = PostgresStore(store) if "host=" in store else store
    asyncio.run(serve(lambda: make_agent(kind), store=where, port=port, token=TOKEN, started=show, grace=0.2))


def make_agent(kind: str) -> Agent:
    """An agent that behaves by the conversation, so that it goes on after a restart."""

    async def play(request: Any) -> Any:
        if isinstance(request.messages[-1], ToolResultMessage) or (kind == "hold" and len(request.messages) > 1):
            return answer("Done.")
        if kind == "hold":
            return answer("I hold on. " * 30, call("hold"), deltas=60, pace=0.01)
        if kind == "slow":
            return answer("One two three four five six seven eight nine ten. " * 40, deltas=400, pace=0.02)
        return answer("Let me see. ", call("deploy", target="live"))

    return Agent(ScriptedModel(play, repeat_last=True).model, tools=[deploy, hold], cancel_grace=0.001)


@tool
async def hold() -> str:
    """Hold until a message comes."""
    await asyncio.Event().wait()
    return ""
