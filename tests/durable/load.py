"""A worker under load, as a program that may be killed.

python -m tests.durable.load DSN TEMPORAL LEDGER QUEUE TURNS SESSIONS
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.durable.stage import Ledger, make_worker_agent

from steersman.durable import Worker
from steersman.session import PostgresStore


async def _main(dsn: str, temporal: str, ledger: str, queue: str, turns: str, sessions: str) -> None:
    written = Ledger(Path(ledger))
    worker = Worker(
        lambda: make_worker_agent(written, int(turns)),
        PostgresStore(dsn),
        temporal,
        task_queue=queue,
        max_sessions=int(sessions),
    )
    await worker.run(lambda: print("ready", flush=True))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
