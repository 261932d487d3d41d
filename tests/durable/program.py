"""A worker as a program, which tells what its tools do.

python -m tests.durable.program DSN TEMPORAL QUEUE
"""

from __future__ import annotations

import asyncio
import logging
import sys

from tests.durable.stage import make_agents

from steersman.durable import Worker
from steersman.session import PostgresStore


async def _main(dsn: str, temporal: str, queue: str) -> None:
    async with Worker(make_agents(_say), PostgresStore(dsn), temporal, task_queue=queue, rest_after=0.2):
        _say("ready")
        await asyncio.Event().wait()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="log %(message)s")
    asyncio.run(_main(*sys.argv[1:]))
