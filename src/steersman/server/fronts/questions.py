"""The open questions of a run, which a front asks its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any


class Questions:
    """Asks each question in a task of its own, so that one that waits holds up nothing."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def read(self, event: Mapping[str, Any], ask: Callable[[Mapping[str, Any]], Any]) -> None:
        """Ask what an event asks, once; stop waiting for what is answered."""
        if event["type"] == "approval_requested" and event["approval_id"] not in self._tasks:
            self._tasks[event["approval_id"]] = asyncio.get_running_loop().create_task(ask(event))
        elif event["type"] == "approval_resolved":
            task = self._tasks.get(event["approval_id"])
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """Stop waiting for answers."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
