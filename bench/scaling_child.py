"""Sessions in one process for `bench.scaling`: `python -m bench.scaling_child STORE SESSIONS AT_ONCE TURNS A_SECOND`.

So many a second are begun; with 0 they are begun as fast as they end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter, process_time

from bench.cluster_agents import make_noter

from steersman import Session
from steersman.session import PostgresStore


async def run(store: PostgresStore, id: str, turns: int) -> None:
    """One session from its creation to its end."""
    session = await asyncio.to_thread(Session.create, store, id)
    try:
        agent = make_noter()
        await asyncio.to_thread(agent.configure, session=session)
        result = await agent.run(f"Turns: {turns}")
        assert result.text == "Done.", result
    finally:
        await asyncio.to_thread(session.close)


async def run_all(where: str, count: int, at_once: int, turns: int, a_second: float) -> None:
    """All of them, so many at once; prints the seconds and the CPU seconds."""
    store, left = PostgresStore(where), list(range(count))
    began = perf_counter()

    async def take() -> None:
        while left:
            number = left.pop()
            if a_second:
                await asyncio.sleep(max(0.0, began + (count - number) / a_second - perf_counter()))
            await run(store, f"single-{began}-{number}", turns)

    await asyncio.to_thread(store.list)
    began, cpu = perf_counter(), process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(take())
    print(f"done {json.dumps([perf_counter() - began, process_time() - cpu])}", flush=True)


if __name__ == "__main__":
    asyncio.run(run_all(sys.argv[1], *map(int, sys.argv[2:5]), a_second=float(sys.argv[5])))
