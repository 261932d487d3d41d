"""Commands that the user runs with `!`: as the user, without a sandbox; the model reads the output."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.content import TextContent
from steersman.types.errors import ToolError
from steersman.types.events import ToolExecutionEnd
from steersman.types.ids import new_id
from steersman.types.messages import ToolResultMessage, UserMessage
from steersman.types.tools import ToolOutput

MAX_SECONDS = 24 * 3600.0


class OwnCommands:
    """Runs commands of the user, one after another."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._tool: Tool | None = None
        self._lock = asyncio.Lock()

    async def run(self, command: str) -> ToolExecutionEnd:
        """Runs a command; a cancel ends it and everything it started."""
        async with self._lock:
            tool = self._tool = self._tool or bash_tool(
                self._workspace, sandbox="off", env=dict(os.environ), timeout=MAX_SECONDS, max_timeout=MAX_SECONDS
            )
            id, began = new_id("own"), asyncio.get_running_loop().time()
            try:
                output = await tool.call({"command": command}, ToolContext(id, "!", CancelToken()))
            except ToolError as error:
                output = ToolOutput(str(error), is_error=True)
        content = output.content if isinstance(output.content, str) else ""
        result = ToolResultMessage(
            [TextContent(content)],
            tool_call_id=id,
            tool_name="!",
            is_error=output.is_error,
            details={**output.details, "status": "completed"},
        )
        took = asyncio.get_running_loop().time() - began
        arguments = {"command": command}
        return ToolExecutionEnd("", 0, 0.0, id, "!", arguments, result=result, is_error=output.is_error, duration=took)


def describe_to_model(event: ToolExecutionEnd) -> UserMessage:
    """What the model reads of a command: a line about it first, then the output."""
    command = event.args["command"]
    code: object = event.result.details.get("exit_code")
    head = f"I ran `{command}` myself; exit code {code}. Its output:"
    return UserMessage([TextContent(head), TextContent(event.result.text)])
