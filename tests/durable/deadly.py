"""Workers that a tool kills: after so many calls in each.

    python -m tests.durable.deadly DSN TEMPORAL QUEUE LEDGER WORKERS LIVES KIND

All are forked from this process, and stand by until one is given a run. `LIVES` is how many calls each survives, `KIND`
is `idempotent` or `once`, of the tool. A line on stdout for each that is dead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.durable.dying import say
from tests.durable.stage import Ledger

from steersman import Agent, tool
from steersman.durable import Worker
from steersman.session import PostgresStore
from steersman.testing import ScriptedModel, answer, call
from steersman.types.model import Request

STEPS = 6


def make_deadly_agent(ledger: Ledger, lives: int | None, *, idempotent: bool = True) -> Agent:
    """An agent that takes steps, by a tool that kills its process after so many calls, or never."""
    taken: list[str] = []

    @tool(idempotent=idempotent)
    async def step() -> str:
        """Take a step."""
        ledger.add("step")
        if len(taken) == lives:
            os.kill(os.getpid(), signal.SIGKILL)
        taken.append("step")
        return "taken"

    def react(request: Request) -> Any:
        done = sum(message.role == "tool_result" and message.text == "taken" for message in request.messages)
        return answer(call("step")) if done < STEPS else "All taken."

    return Agent(ScriptedModel(react, repeat_last=True).model, tools=[step], repeated_calls=None)


async def _work(dsn: str, temporal: str, queue: str, ledger: str, lives: str, kind: str) -> None:
    agent = make_deadly_agent(Ledger(Path(ledger)), int(lives), idempotent=kind == "idempotent")
    await Worker({"deadly": agent}, PostgresStore(dsn), temporal, task_queue=queue, max_sessions=1).run()


def _main(dsn: str, temporal: str, queue: str, ledger: str, workers: str, lives: str, kind: str) -> None:
    for _ in range(int(workers)):
        if not os.fork():
            try:
                asyncio.run(_work(dsn, temporal, queue, ledger, lives, kind))
            finally:
                os._exit(1)
    for _ in range(int(workers)):
        _, status = os.wait()
        say("dead" if os.WIFSIGNALED(status) else "ended")


if __name__ == "__main__":
    _main(*sys.argv[1:])
