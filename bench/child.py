"""What needs an interpreter of its own: how much memory many agents take, and how long an import takes.

python -m bench.child crowd steersman 10000
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from pathlib import Path
from time import process_time
from typing import TypeAlias, TypeVar

from bench.floor import FloorAgent
from bench.script import MODEL, PROVIDER, Plain, Script, add, text_turn, tool_turn, turns_of
from bench.work import TOOL

from steersman import Agent, Model, tool
from steersman.types.stream import StreamEvent

ROOT = Path(__file__).parent.parent
EventT = TypeVar("EventT")
Figures: TypeAlias = dict[str, float]


def spawn(*arguments: str) -> Figures:
    """The figures a fresh interpreter comes to."""
    command = [sys.executable, "-m", "bench.child", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


class Rendezvous:
    """A model that answers nobody before everybody has asked: all agents are under way at once."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._all_asked = asyncio.Event()

    def script(self, turns: Sequence[Sequence[EventT]]) -> Callable[..., AsyncGenerator[EventT, None]]:
        """The script of one agent."""
        script = Script(turns)

        async def play(*request: object) -> AsyncGenerator[EventT, None]:
            if script.asked == 0:
                self._left -= 1
                if self._left == 0:
                    self._all_asked.set()
                await self._all_asked.wait()
            async for event in script(*request):
                yield event

        return play


async def _ours(number: int, script: Callable[..., AsyncGenerator[StreamEvent, None]]) -> str:
    agent = Agent(Model(PROVIDER, MODEL), tools=[TOOL], stream_fn=script)
    stream = agent.prompt(f"Agent {number}.")
    updates = [event async for event in stream if event.type == "message_update"]
    result = await stream
    tool_text = agent.messages[2].text
    return f"{len(updates)} {tool_text} {result.text}"


async def _floor(number: int, script: Callable[..., AsyncGenerator[Plain, None]]) -> str:
    agent = FloorAgent(script, {"add": add})
    updates = [event async for event in agent.events(f"Agent {number}.") if event["type"] == "message_update"]
    tool_text, text = (agent.messages[at]["content"][0]["text"] for at in (2, -1))
    return f"{len(updates)} {tool_text} {text}"


async def crowd(side: str, count: int) -> Figures:
    """So many agents at once, each with a tool call and two answers, each read by a task of its own."""
    meeting = Rendezvous(count)
    work: list[Coroutine[None, None, str]] = []
    for number in range(count):
        turns = turns_of(tool_turn(number), text_turn(_expected(number)))
        if side == "steersman":
            work.append(_ours(number, meeting.script(turns.typed)))
        else:
            work.append(_floor(number, meeting.script(turns.plain)))
    began = process_time()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    seconds = process_time() - began
    # Four deltas of the call, six of the text, what the tool gave, and the answer.
    right = sum(task.result() == f"10 {number} {_expected(number)}" for number, task in enumerate(tasks))
    return {"mib": _peak_mib(), "seconds": seconds, "right": right}


def _expected(number: int) -> str:
    return f"The answer to agent {number} is {number}."


async def subtract(a: int, b: int) -> str:
    """The other tool of both sides."""
    return str(a - b)


async def idle(side: str, count: int, turns: int) -> Figures:
    """Bytes of an agent that does nothing, after so many turns; model and two tools are shared, as in a server."""
    script = turns_of(*[text_turn("The answer is 42.")] * turns)
    model, tools, asked = Model(PROVIDER, MODEL), [TOOL, tool(subtract)], Script(script.typed)

    async def agent() -> object:
        if side == "steersman":
            ours = Agent(model, tools=tools, stream_fn=Script(script.typed) if turns else asked)
            for _ in range(turns):
                await ours.run("What is the answer?")
            return ours
        floor = FloorAgent(Script(script.plain), {"add": add, "subtract": subtract})
        for _ in range(turns):
            await floor.run("What is the answer?")
        return floor

    kept = [await agent()]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept += [await agent() for _ in range(count)]
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"bytes": (after - before) / count}


def _peak_mib() -> float:
    """The most memory this process ever had. What `getrusage` says may be its parent's, so Linux is asked elsewhere."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    what, side, *numbers = sys.argv[1:]
    work = {"crowd": crowd, "idle": idle}[what]
    print(json.dumps(asyncio.run(work(side, *map(int, numbers)))))
