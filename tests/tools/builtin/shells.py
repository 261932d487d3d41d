"""Calling `bash` in tests, and looking for what it left behind."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from steersman import CancelToken, Tool, ToolContext, ToolOutput
from steersman.types.errors import ToolError

DEADLINE = 2.5


async def run(
    tool: Tool, command: str, *, on_update: Callable[[Any], object] | None = None, **arguments: Any
) -> ToolOutput:
    """One call; what the tool raises for the model is an error output, as the loop makes it one."""

    def show(update: Any) -> None:
        if on_update is not None:
            on_update(update)

    ctx = ToolContext("call_1", "bash", CancelToken(), on_update=show)
    try:
        return await tool.call(tool.check({"command": command, **arguments}), ctx)
    except ToolError as error:
        return ToolOutput(str(error), is_error=True)


def text(output: ToolOutput) -> str:
    assert isinstance(output.content, str)
    return output.content


def new_mark() -> str:
    """Digits of one test only; they fit into an environment, an argument, and behind the point of a sleep's seconds."""
    return str(secrets.randbelow(10**15) + 10**15)


def marked(mark: str) -> list[str]:
    """The processes that carry a mark in their environment or their arguments, zombies not counted."""
    found: list[str] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                seen = [_bytes(f"/proc/{entry}/{name}") for name in ("environ", "cmdline")]
            except OSError:
                continue
            if any(mark.encode() in each for each in seen):
                found.append(f"{entry} {seen[1]!r}")
    return found


def zombies() -> list[str]:
    """Children of this process that died and were not reaped."""
    found: list[str] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                head, _, tail = _bytes(f"/proc/{entry}/stat").rpartition(b")")
            except OSError:
                continue
            state, parent = tail.split()[:2]
            if state == b"Z" and int(parent) == os.getpid():
                found.append(head.decode("utf-8", "replace"))
    return found


def supervisors() -> list[str]:
    """The processes of this one that look after commands: each is about to become a zombie and to be reaped."""
    found: list[str] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = _bytes(f"/proc/{entry}/stat").rpartition(b")")[2].split()[1]
                if int(parent) == os.getpid() and b"supervisor" in _bytes(f"/proc/{entry}/cmdline"):
                    found.append(entry)
            except OSError:
                continue
    return found


async def gone(mark: str, seconds: float = DEADLINE) -> tuple[list[str], list[str]]:
    """What is left of the processes with a mark, and of zombies, at the latest 2.5 seconds from now, or as many.

    Without a supervisor, so that nothing can become a zombie between this look and the next.
    """
    await happens(lambda: not supervisors() and not marked(mark) and not zombies(), seconds)
    return marked(mark), zombies()


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for something that happens in another process."""
    assert await happens(condition, seconds), "It did not happen."


async def happens(condition: Callable[[], Any], seconds: float = 10.0) -> bool:
    """Wait for something that happens in another process; whether it did."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # noqa: ASYNC110  # another process does not set our events
        await asyncio.sleep(0.005)
    return bool(condition())


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
