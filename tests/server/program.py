"""A server in a process of its own, for tests that kill it: `python -m tests.server.program STORE PORT TOKEN KIND`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.server.kit import deploy

from steersman import Agent
from steersman.server import Server, serve
from steersman.testing import ScriptedModel, answer, call
from steersman.types.messages import ToolResultMessage


def make_agent(kind: str) -> Agent:
    """An agent that behaves by the conversation, so that it goes on after a restart."""

    async def play(request: Any) -> Any:
        if isinstance(request.messages[-1], ToolResultMessage):
            return answer("Done.")
        if kind == "slow":
            return answer("One two three four five six seven eight nine ten. " * 40, deltas=400, pace=0.02)
        return answer("Let me see. ", call("deploy", target="live"))

    return Agent(ScriptedModel(play, repeat_last=True).model, tools=[deploy])


def show(_: Server, url: str) -> None:
    """Tell the test that the server listens."""
    print(url, flush=True)


if __name__ == "__main__":
    store, port, token, kind = sys.argv[1:]
    asyncio.run(serve(lambda: make_agent(kind), store=store, port=int(port), token=token, started=show, grace=0.2))
