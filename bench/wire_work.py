"""One job done by each side against the mock server: the CPU time it took, and what came out."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import process_time
from typing import Any, Literal, TypeAlias

import aiohttp
from bench.wire_floor import FloorAgent, sdk_stream

from steersman import Agent, ExecutionLimits, Model, tool
from steersman.provider.http.client import aclose_http
from steersman.types.stream import TextDelta, ToolCallDelta

Watch: TypeAlias = Literal["subscriber", "reader", "nobody"]
LIMITS = ExecutionLimits(max_turns=1_000_000, max_total_tokens=None)


async def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


TOOL = tool(add)


@dataclass(frozen=True, slots=True)
class Job:
    """What the model is called, which tells the mock what to do, how often it is prompted, and who watches."""

    url: str
    model: str
    prompts: int = 1
    watch: Watch = "subscriber"
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """CPU seconds, the last answer, how many deltas were seen, and the CPU clock at each turn if marked."""

    seconds: float
    answer: str
    deltas: int
    turns: list[float]


Play: TypeAlias = Callable[[Job], Coroutine[Any, Any, Done]]


async def steersman(job: Job) -> Done:
    """The job done by Steersman, the connection made beforehand."""
    await Agent(_model(job, "text:1"), tools=[TOOL]).run("Warm up.")
    agent = Agent(_model(job), tools=[TOOL], limits=LIMITS)
    deltas: list[str] = []
    turns: list[float] = []

    def heard(event: Any) -> None:
        if event.type == "message_update":
            if type(event.delta) is TextDelta or type(event.delta) is ToolCallDelta:
                deltas.append(event.delta.delta)
        elif job.marked and event.type == "turn_start":
            turns.append(process_time())

    if job.watch == "subscriber":
        agent.subscribe(heard)
    answer = ""
    gc.collect()
    began = process_time()
    for _ in range(job.prompts):
        if job.watch == "reader":
            stream = agent.prompt("Begin.")
            async for event in stream:
                heard(event)
            answer = (await stream).text
        else:
            answer = (await agent.run("Begin.")).text
    seconds = process_time() - began
    await aclose_http()
    return Done(seconds, answer, len(deltas), turns)


async def floor(job: Job) -> Done:
    """The job done by the hand-written loop."""
    deltas: list[str] = []
    turns: list[float] = []
    mark = (lambda: turns.append(process_time())) if job.marked else None
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await FloorAgent(session, job.url, "text:1", {"add": add}, len).run("Warm up.")
        agent = FloorAgent(session, job.url, job.model, {"add": add}, deltas.append, mark)
        answer = ""
        gc.collect()
        began = process_time()
        for _ in range(job.prompts):
            answer = await agent.run("Begin.")
        seconds = process_time() - began
    return Done(seconds, answer, len(deltas), turns)


async def sdk(job: Job) -> Done:
    """As many requests of the official SDK, read chunk by chunk, without any loop."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=job.url, api_key="key", max_retries=0) as client:
        await sdk_stream(client, "text:1", 1)
        gc.collect()
        began = process_time()
        answer = await sdk_stream(client, job.model, job.prompts)
        return Done(process_time() - began, answer, 0, [])


def _model(job: Job, name: str | None = None) -> Model:
    return Model("openai-chat", name or job.model, base_url=job.url, api_key="key")


def done(play: Play, job: Job) -> Done:
    """The job from a clean start."""
    return asyncio.run(play(job))
