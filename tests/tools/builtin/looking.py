"""What the tests of `list`, `glob` and `search` share: a tree of files, and a call as the loop would make it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput


def context() -> ToolContext:
    return ToolContext("call_1", "tool", CancelToken())


async def call(tool: Tool, **arguments: Any) -> ToolOutput:
    """Check the arguments and run the tool; what it raises to the model is an error result."""
    try:
        return await tool.call(tool.check(arguments), context())
    except ToolError as error:
        return ToolOutput(str(error), is_error=True)


async def text(tool: Tool, **arguments: Any) -> str:
    """What a call that works out says."""
    output = await call(tool, **arguments)
    assert not output.is_error, output.content
    assert isinstance(output.content, str)
    return output.content


async def lines(tool: Tool, **arguments: Any) -> list[str]:
    return (await text(tool, **arguments)).split("\n")


async def error(tool: Tool, **arguments: Any) -> str:
    """What a call that does not says."""
    output = await call(tool, **arguments)
    assert output.is_error, output.content
    assert isinstance(output.content, str)
    return output.content


def plant(root: Path, *names: str, **files: str | bytes) -> Path:
    """Files by path; a name alone is an empty file, or a folder where it ends with a slash."""
    root.mkdir(parents=True, exist_ok=True)
    for name in names:
        target = root / name
        if name.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        else:
            write(root, name, b"")
    for name, content in files.items():
        write(root, name, content)
    return root


def write(root: Path, name: str, content: str | bytes) -> None:
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else os.fsencode(content))
