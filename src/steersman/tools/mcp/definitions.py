"""What a server says about its tools, and the tools made of it. Names, words and schemas are data from a stranger."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from steersman.tools.calling import Calling
from steersman.tools.context import ToolContext
from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.schemas import checked, shown
from steersman.tools.mcp.words import plain
from steersman.tools.tool import Access, Tool
from steersman.types.tools import ToolOutput

LONGEST_DESCRIPTION = 4_096
# No wildcard may stand in it: a rule made from a tool's name must not cover other tools.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")

Execute = Callable[[dict[str, Any], ToolContext], Awaitable[ToolOutput]]


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool of a server: `digest` stands for what the server said, word for word; the rest is fit to be shown."""

    tool: str
    description: str
    parameters: Mapping[str, Any]
    digest: str


def define(name: str, description: str | None, schema: Mapping[str, Any]) -> Definition:
    """A definition from what a server said; `McpError` says why there can be none."""
    if _TOOL_NAME.fullmatch(name) is None:
        raise McpError("its name has other characters than letters, digits, '_', '-', '.' and '/', or more than 128")
    parameters = shown(schema)
    digest = sha256(msgspec.json.encode([name, description, schema], order="deterministic")).hexdigest()
    return Definition(name, plain(description or "", LONGEST_DESCRIPTION), parameters, digest)


def make_tool(name: str, definition: Definition, execute: Execute, access: Access) -> Tool:
    """The tool an agent gets; `McpError` for a schema that no tool can have.

    What the server hints about its own tools (`readOnlyHint` and the like) has no say here.
    """
    # First of all: what is too complicated to be looked through is refused before anybody tries.
    schema = checked(definition.parameters)
    try:
        made = Tool(name, definition.description, definition.parameters, _takes_all, access=access)
        made.execute = made.__wrapped__ = execute
        # A stranger's schema may have a property of any name, so its arguments are never passed by name.
        made._settle(Calling(execute, schema, threaded=False, bundled=True, context=""))  # pyright: ignore[reportPrivateUsage]  # the second half of making one
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise McpError(f"its schema is wrong ({plain(str(error), 300, lines=False)})") from error
    return made


def _takes_all(_arguments_of_a_remote_tool: dict[str, Any]) -> None:
    """Stands in until the real function is set."""
