"""Files for the model: read in windows, edited exactly, written whole, and never outside of one folder."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from steersman import Agent
from steersman.events import ToolExecutionEnd
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import Workspace, edit_tool, read_tool, write_tool

CODE = "def greet(name):\r\n    print('Hello ' + name)\r\n\r\ngreet('you')\r\n"

SCRIPT = ScriptedModel(
    answer(call("read", path="greet.py")),
    # Both at once: calls on one file take turns, so neither is lost.
    answer(
        call("edit", path="greet.py", edits=[{"old": "'Hello ' + name", "new": "f'Hello {name}'"}]),
        call("edit", path="./greet.py", edits=[{"old": "def greet(name):", "new": "def greet(name: str) -> None:"}]),
    ),
    answer(call("edit", path="greet.py", edits=[{"old": "greet", "new": "welcome"}])),
    answer(call("write", path="notes/todo.md", content="- tests\n")),
    answer(call("read", path="../secrets.txt")),
    answer(call("write", path=".git/hooks/pre-commit", content="#!/bin/sh\n")),
    "It greets better now.",
)


async def improve(folder: str) -> None:
    workspace = Workspace(folder)
    tools = [read_tool(workspace), write_tool(workspace), edit_tool(workspace)]
    stream = Agent(SCRIPT.model, tools=tools).prompt("Improve the greeting.")
    async for event in stream:
        if isinstance(event, ToolExecutionEnd):
            mark = "!" if event.is_error else "="
            print(f"{mark} {event.tool_name}: {event.result.text.replace(folder, '~').splitlines()[-1]}")
            for line in event.result.details.get("diff", "").splitlines()[3:]:
                print(f"    {line}")
    print((await stream).text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "greet.py")
        code.write_bytes(CODE.encode())
        asyncio.run(improve(folder))
        print(code.read_bytes())
