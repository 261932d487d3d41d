"""A server for the measurements, in a process of its own: `python -m bench.serve_child KIND EVENTS PACE SIZE`.

KIND is `steersman` or `floor`. Prints its URL. When the watchers are there, a line on stdin starts the events; at the
end it prints what they cost.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from time import perf_counter, process_time

from aiohttp import web

from steersman import Agent
from steersman.server import Server
from steersman.testing import ScriptedModel, answer
from steersman.types import encode
from steersman.types.events import AgentEvent, MessageUpdate
from steersman.types.messages import user_message
from steersman.types.stream import TextDelta

TOKEN = "bench-token-of-the-server"


async def wait_for_line() -> None:
    """Wait until the measurement says so."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def start(app: web.Application) -> tuple[web.AppRunner, int]:
    """Serve an application on a free port."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    return runner, runner.addresses[0][1]


async def serve_steersman(events: int, pace: float, size: int) -> None:
    """The events of one run, through the server."""
    told: list[float] = []
    agent = Agent(ScriptedModel(answer("x" * size * events, deltas=events, pace=pace)).model)
    server = Server(lambda: agent, token=TOKEN)
    runner, port = await start(server.app)
    live = await server.sessions.create(None)
    live.agent.subscribe(lambda event: told.append(perf_counter()) if is_delta(event) else None)
    print(f"http://127.0.0.1:{port}/sessions/{live.session.id}/events", flush=True)
    await wait_for_line()
    before = process_time()
    await live.prompt(user_message("Go."))
    await live.wait_until_idle()
    await wait_for_line()
    report(before, told)
    await runner.cleanup()


async def serve_floor(events: int, pace: float, size: int) -> None:
    """The same events through bare aiohttp.web: a queue for each watcher."""
    queues: list[asyncio.Queue[bytes | None]] = []

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        queues.append(queue)
        while (frame := await queue.get()) is not None:
            await response.write(frame)
        return response

    app = web.Application()
    app.router.add_get("/events", watch)
    runner, port = await start(app)
    print(f"http://127.0.0.1:{port}/events", flush=True)
    await wait_for_line()
    before = process_time()
    told: list[float] = []
    for number in range(events):
        await asyncio.sleep(pace)
        event = MessageUpdate("loop_0123456789ab_1", number, 1794826294.1, TextDelta("x" * size))
        frame = b"id: 5.%d\ndata: %b\n\n" % (number + 1, encode(event))
        told.append(perf_counter())
        for queue in queues:
            queue.put_nowait(frame)
    for queue in queues:
        queue.put_nowait(b'id: 6\ndata: {"type":"agent_end"}\n\n')
    await wait_for_line()
    report(before, told)
    for queue in queues:
        queue.put_nowait(None)
    await runner.cleanup()


def is_delta(event: AgentEvent) -> bool:
    """Whether it is one of the events that are counted."""
    return type(event) is MessageUpdate and type(event.delta) is TextDelta


def report(before: float, told: list[float]) -> None:
    """Print the CPU seconds since `before`, the largest memory in MiB, and when each event was told in process."""
    used = process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": used, "memory": memory, "told": told}), flush=True)


if __name__ == "__main__":
    kind, count, seconds, length = sys.argv[1:]
    serve = serve_steersman if kind == "steersman" else serve_floor
    asyncio.run(serve(int(count), float(seconds), int(length)))
