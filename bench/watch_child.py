"""A server for `bench.watch`: `python -m bench.watch_child STORE`. Prints its URL, and then what its run hears."""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter

from steersman import Agent, tool
from steersman.server import Server, serve
from steersman.session import PostgresStore
from steersman.testing import ScriptedModel, answer, call
from steersman.types.events import AgentEvent

TOKEN = "bench-token-of-two-servers"


@tool
async def hold() -> str:
    """Hold until a message comes."""
    await asyncio.Event().wait()
    return ""


def tell(event: AgentEvent) -> None:
    """Say when a message of the user was heard, on the clock of the machine."""
    if event.type == "message_end" and event.message.role == "user":
        print(f"heard {perf_counter()} {event.message.text}", flush=True)


def make_agent() -> Agent:
    """An agent that is always in a tool, until it is steered."""
    agent = Agent(
        ScriptedModel(answer(call("hold")), repeat_last=True).model,
        tools=[hold],
        steering="cancel",
        cancel_grace=0.001,
        limits=None,
        repeated_calls=None,
    )
    agent.subscribe(tell)
    return agent


def show(_: Server, url: str) -> None:
    """Say where it is."""
    print(url, flush=True)


if __name__ == "__main__":
    where = sys.argv[1]
    store = PostgresStore(where) if "host=" in where else where
    asyncio.run(serve(make_agent, store=store, port=0, token=TOKEN, started=show, grace=0.1))
