"""A scripted agent behind ACP in a process of its own: `python -m tests.server.fronts.acp.program STORE`."""

from __future__ import annotations

import asyncio
import sys

from tests.server.fronts.acp.kit import ScriptedFolders

from steersman.cli.serving.stdio import take_stdio
from steersman.server.fronts.acp.front import AcpFront
from steersman.session.opening import open_store


async def main(store: str) -> None:
    """Serve until the end of the input."""
    async with take_stdio() as stdio:
        front = AcpFront(ScriptedFolders(store=open_store(store)), stdio.output)
        stdio.read_lines(front.receive)
        print("this is no message of the protocol", flush=True)
        await stdio.ended.wait()
        await front.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
