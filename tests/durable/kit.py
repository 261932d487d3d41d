"""What the tests of supervised sessions share: programs that are read line by line, and judges of what is left."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.session.kit import records

from steersman.context.repair import UNKNOWN
from steersman.session import Session
from steersman.session.stores.store import Store
from steersman.types.messages import AssistantMessage, ToolResultMessage

ROOT = Path(__file__).parents[2]


def new_queue() -> str:
    """A task queue for one test alone."""
    return f"queue-{secrets.token_hex(6)}"


class Program:
    """Another process of the tests, whose lines are read as they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def read_line(self) -> str:
        """The next line; empty at the end."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode().rstrip("\n")
        self.lines.append(line)
        return line

    async def wait_for(self, beginning: str) -> str:
        """Read until a line begins like this."""
        try:
            async with asyncio.timeout(60):
                while line := await self.read_line():
                    if line.startswith(beginning):
                        return line
        except TimeoutError:
            pass
        raise AssertionError(f"No line {beginning!r}: {self.lines}")

    def stop(self) -> None:
        """Stop it where it is, and wait until it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        """Let it go on after a stop."""
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill it, and those it has forked."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await self.process.wait()


@asynccontextmanager
async def running(*arguments: str, home: Path | None = None) -> AsyncGenerator[Program]:
    """A program, `python -m ...`, of the tests or with a home of its own; it is gone in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        cwd=home or ROOT,
        env=None if home is None else {"PATH": os.environ["PATH"], "HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    program = Program(process)
    try:
        yield program
    finally:
        await program.kill()


def find_faults(store: Store, session_id: str, begun: list[str], turns: int) -> list[str]:
    """What is wrong with a session of `make_worker_agent` after its end: lost or doubled messages and calls.

    Its prompt was its id.
    """
    with Session.open(store, session_id, write=False) as session:
        messages = list(session.messages)
    faults: list[str] = []
    users = [message.text for message in messages if message.role == "user"]
    if users != [session_id]:
        faults.append(f"the user said {users}")
    answers = [message.text for message in messages if isinstance(message, AssistantMessage)]
    if answers != [*(f"Step {number}." for number in range(turns)), f"All {turns} done."]:
        faults.append(f"the model said {answers}")
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    if len(results) != 2 * turns or len({message.tool_call_id for message in results}) != len(results):
        faults.append(f"{len(results)} results")
    for number in range(turns):
        pays = begun.count(f"pay {session_id} {number}")
        told = [message for message in results if message.tool_name == "pay"][number].text
        if told == f"paid {session_id} {number}" and pays != 1:
            faults.append(f"pay {number} is told as done and was begun {pays} times")
        elif told == UNKNOWN and pays > 1:
            faults.append(f"pay {number} was begun {pays} times")
        elif told not in (f"paid {session_id} {number}", UNKNOWN):
            faults.append(f"pay {number}: {told}")
    ends = [record.payload["end_reason"] for record in records(store, session_id) if record.type == "run_end"]
    if ends != ["done"]:
        faults.append(f"ends: {ends}")
    return faults
