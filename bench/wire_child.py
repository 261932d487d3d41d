"""What needs an interpreter of its own: many agents at once, and a cold start.

python -m bench.wire_child crowd steersman http://127.0.0.1:8000/v1 500
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from time import process_time
from typing import Any, TypeAlias

ROOT = Path(__file__).parent.parent
Figures: TypeAlias = dict[str, float]


def spawn(*arguments: str, bytecode: str | None = None) -> Figures:
    """The figures a fresh interpreter comes to."""
    environment = dict(os.environ)
    if bytecode is not None:
        environment |= {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "bench.wire_child", *arguments]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment)
    return json.loads(ran.stdout)


async def crowd(side: str, url: str, count: str) -> Figures:
    """So many agents at once, each with three turns of words and a tool call and an answer, each watched."""
    import aiohttp
    from bench.mock import ANSWER
    from bench.wire_floor import FloorAgent
    from bench.wire_work import TOOL, add

    from steersman import Agent, Model

    heard: deque[Any] = deque(maxlen=1)  # told of everything, keeps nothing
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    def agent() -> Any:
        if side == "floor":
            return FloorAgent(session, url, "work:3", {"add": add}, heard.append)
        made = Agent(Model("openai-chat", "work:3", base_url=url, api_key="key"), tools=[TOOL])
        made.subscribe(heard.append)
        return made

    await agent().run("Warm up.")  # what is imported at first use is a matter of the cold start
    agents = [agent() for _ in range(int(count))]
    gc.collect()  # what came before leaves neither side anything to collect
    began = process_time()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one.run("Begin.")) for one in agents]
    seconds = process_time() - began
    answers = [task.result() if side == "floor" else task.result().text for task in tasks]
    await session.close()
    return {"seconds": seconds, "right": answers.count(ANSWER)}


async def cold(side: str, url: str) -> Figures:
    """From the first import to the first answer."""
    began = process_time()
    if side == "steersman":
        from steersman import Agent, Model

        model = Model("openai-chat", "text:4", base_url=url, api_key="key")
        text = (await Agent(model).run("Begin.")).text
    elif side == "floor":
        import aiohttp
        from bench.wire_floor import FloorAgent

        async with aiohttp.ClientSession() as session:
            text = await FloorAgent(session, url, "text:4", {}, len).run("Begin.")
    else:
        from bench.wire_floor import sdk_stream
        from openai import AsyncOpenAI

        async with AsyncOpenAI(base_url=url, api_key="key") as client:
            text = await sdk_stream(client, "text:4", 1)
    assert text == "word " * 4, text
    return {"seconds": process_time() - began}


async def light() -> Figures:
    """Whether importing the package imports the HTTP client."""
    import steersman

    return {"aiohttp": float("aiohttp" in sys.modules), "names": len(steersman.__all__)}


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    work: dict[str, Any] = {"crowd": crowd, "cold": cold, "light": light}
    print(json.dumps(asyncio.run(work[what](*given))))
