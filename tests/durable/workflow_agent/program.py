"""A worker as a program, to be killed: `python -m tests.durable.workflow_agent.program ADDRESS QUEUE FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.durable.workflow_agent.stage import HEARTBEAT, Stage, connect


async def main(address: str, queue: str, folder: str) -> None:
    """Work until it is killed."""
    stage = Stage(await connect(address), Path(folder))
    stage.queue = queue
    async with stage.work(heartbeat=HEARTBEAT):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
