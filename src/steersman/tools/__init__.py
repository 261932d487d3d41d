"""Tools for the model: each has a name, a description and a JSON Schema, and its arguments are checked before it runs.

Nothing here imports the loop. A tool that needs something from it returns an effect; a tool that fails raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily
from steersman.tools.tool import Tool, tool  # not lazy: the module and the decorator have the same name

if TYPE_CHECKING:
    from steersman.tools.builtin import builtin_tools
    from steersman.tools.builtin.bash_tool import bash_tool
    from steersman.tools.builtin.edit_tool import edit_tool
    from steersman.tools.builtin.fetch_tool import fetch_tool
    from steersman.tools.builtin.glob_tool import glob_tool
    from steersman.tools.builtin.list_tool import list_tool
    from steersman.tools.builtin.prun import prun, prun_with_memo
    from steersman.tools.builtin.read_tool import read_tool
    from steersman.tools.builtin.search_tool import search_tool
    from steersman.tools.builtin.todo import TodoItem, find_todo, todo
    from steersman.tools.builtin.write_tool import write_tool
    from steersman.tools.confine.sandbox import confinement
    from steersman.tools.confine.workspace import Workspace
    from steersman.tools.mcp import (
        ChangedTool,
        HttpServer,
        McpError,
        McpServers,
        ServerLost,
        StdioServer,
        Trust,
        UntrustedFile,
    )
    from steersman.tools.openapi.build import Operation, openapi_tools
    from steersman.tools.output import ToolContext
    from steersman.tools.skills import Skill, Skills, find_skills
    from steersman.tools.table import AgentTool, ToolLike, Toolset
    from steersman.types.tools import Prun, ToolOutput

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "builtin": "builtin_tools",
        "builtin.bash_tool": "bash_tool",
        "builtin.edit_tool": "edit_tool",
        "builtin.fetch_tool": "fetch_tool",
        "builtin.glob_tool": "glob_tool",
        "builtin.list_tool": "list_tool",
        "builtin.prun": "prun prun_with_memo",
        "builtin.read_tool": "read_tool",
        "builtin.search_tool": "search_tool",
        "builtin.todo": "TodoItem find_todo todo",
        "builtin.write_tool": "write_tool",
        "confine.sandbox": "confinement",
        "confine.workspace": "Workspace",
        "output": "ToolContext",
        "mcp": ("ChangedTool HttpServer McpError McpServers ServerLost StdioServer Trust UntrustedFile"),
        "openapi.build": "Operation openapi_tools",
        "skills": "Skill Skills find_skills",
        "table": "AgentTool ToolLike Toolset",
        "steersman.types.tools": "Prun ToolOutput",
    },
)

__all__ = [
    "AgentTool",
    "ChangedTool",
    "HttpServer",
    "McpError",
    "McpServers",
    "Operation",
    "Prun",
    "ServerLost",
    "Skill",
    "Skills",
    "StdioServer",
    "TodoItem",
    "Tool",
    "ToolContext",
    "ToolLike",
    "ToolOutput",
    "Toolset",
    "Trust",
    "UntrustedFile",
    "Workspace",
    "bash_tool",
    "builtin_tools",
    "confinement",
    "edit_tool",
    "fetch_tool",
    "find_skills",
    "find_todo",
    "glob_tool",
    "list_tool",
    "openapi_tools",
    "prun",
    "prun_with_memo",
    "read_tool",
    "search_tool",
    "todo",
    "tool",
    "write_tool",
]
