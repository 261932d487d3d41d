"""One job done by both sides: the same turns, the same tool, the same watcher, the CPU time and what came out."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import process_time
from typing import Any, Literal, TypeAlias

from bench.floor import FloorAgent
from bench.script import MODEL, PROVIDER, Script, Turns, add

from steersman import Agent, ExecutionLimits, Model, tool
from steersman.events import AgentEvent

Watch: TypeAlias = Literal["subscriber", "reader", "partial", "nobody"]
NO_TURN_LIMIT = 1_000_000
LIMITS = ExecutionLimits(max_turns=NO_TURN_LIMIT, max_total_tokens=None)
TOOL = tool(add)


@dataclass(frozen=True, slots=True)
class Job:
    """Prompts one after another, follow-ups to the first, the turns that answer them, and who watches.

    Only where it is `marked` is the clock read at each request.
    """

    turns: Turns
    watch: Watch = "subscriber"
    prompts: int = 1
    follow_ups: int = 0
    paced: bool = False
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """CPU seconds, the last answer, the types of the events in order, and the CPU clock at each request if marked."""

    seconds: float
    answer: str
    events: list[str]
    requests: list[float]


Play: TypeAlias = Callable[[Job], Coroutine[Any, Any, Done]]


async def steersman(job: Job) -> Done:
    """The job done by Steersman."""
    requests: list[float] = []
    mark = (lambda: requests.append(process_time())) if job.marked else None
    script = Script(job.turns.typed, paced=job.paced, on_request=mark)
    agent = Agent(Model(PROVIDER, MODEL), tools=[TOOL], stream_fn=script, limits=LIMITS)
    for _ in range(job.follow_ups):
        agent.follow_up("Go on.")
    events: list[str] = []
    if job.watch == "subscriber":
        agent.subscribe(lambda event: events.append(event.type))
    elif job.watch == "partial":
        agent.subscribe(lambda event: events.append(_read_partial(event)))
    answer = ""
    began = process_time()
    for _ in range(job.prompts):
        if job.watch == "reader":
            stream = agent.prompt("Begin.")
            async for event in stream:
                events.append(event.type)
            answer = (await stream).text
        else:
            answer = (await agent.run("Begin.")).text
    return Done(process_time() - began, answer, events, requests)


def _read_partial(event: AgentEvent) -> str:
    """The type of an event, after a look at the answer so far."""
    if event.type == "message_update" and event.message is None:
        raise RuntimeError("Expected every update to have the answer so far.")
    return event.type


async def floor(job: Job) -> Done:
    """The job done by the hand-written loop."""
    requests: list[float] = []
    mark = (lambda: requests.append(process_time())) if job.marked else None
    script = Script(job.turns.plain, paced=job.paced, on_request=mark)
    agent = FloorAgent(script, {"add": add}, max_turns=NO_TURN_LIMIT)
    agent.follow_ups.extend(["Go on."] * job.follow_ups)
    events: list[str] = []
    if job.watch == "subscriber":
        agent.subscribers.append(lambda event: events.append(event["type"]))
    answer = ""
    began = process_time()
    for _ in range(job.prompts):
        if job.watch == "reader":
            async for event in agent.events("Begin."):
                events.append(event["type"])
            answer = agent.messages[-1]["content"][0]["text"]
        else:
            answer = await agent.run("Begin.")
    return Done(process_time() - began, answer, events, requests)


def done(play: Play, job: Job) -> Done:
    """The job from a clean start: what an earlier one left to collect is not counted, what this one leaves is."""
    gc.collect()
    return asyncio.run(play(job))
