"""The built-in tools: files, a shell and the web, for one workspace. `builtin_tools()` makes them; `prun` is apart.

A single one, for the current folder: `from steersman.tools.builtin import read`. It is made on first use.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.tools.confine.protected_paths import Git
    from steersman.tools.confine.sandbox import Sandbox
    from steersman.tools.confine.workspace import Workspace
    from steersman.tools.tool import Tool

    bash: Tool
    edit: Tool
    fetch: Tool
    glob: Tool
    list: Tool
    read: Tool
    search: Tool
    write: Tool

# The name of each tool and its module, which has a function `<name>_tool`.
_MODULES = {
    "read": "read_tool",
    "write": "write_tool",
    "edit": "edit_tool",
    "list": "list_tool",
    "glob": "glob_tool",
    "search": "search_tool",
    "bash": "bash_tool",
    "fetch": "fetch_tool",
}
_tools_by_folder: dict[str, tuple[Workspace, dict[str, Tool]]] = {}


def builtin_tools(
    workspace: Workspace | str | os.PathLike[str] = ".",
    *,
    sandbox: Sandbox = "auto",
    allow_network: bool = False,
    git: Git = "read-only",
) -> builtins.list[Tool]:
    """Make the tools for files, shell and web for a workspace; `sandbox`, `allow_network` and `git` are for `bash`.

    To leave one out or to set more options, make them one by one: `read_tool(workspace)`, `bash_tool(workspace, ...)`.
    """
    from steersman.tools.confine.workspace import Workspace

    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    settings: dict[str, dict[str, Any]] = {"bash": {"sandbox": sandbox, "allow_network": allow_network, "git": git}}
    return [_make_tool(name, place, settings.get(name, {})) for name in _MODULES]


def _make_tool(name: str, workspace: Workspace, settings: dict[str, Any]) -> Tool:
    from importlib import import_module

    make: Callable[..., Tool] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), f"{name}_tool")
    # `fetch` needs no workspace.
    return make(**settings) if name == "fetch" else make(workspace, **settings)


def __getattr__(name: str) -> Tool:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder = os.path.realpath(".")
    if folder not in _tools_by_folder:
        from steersman.tools.confine.workspace import Workspace

        _tools_by_folder[folder] = (Workspace(folder), {})
    # Tools of one folder share a workspace, which knows the versions of the files that were read.
    place, made = _tools_by_folder[folder]
    if name not in made:
        made[name] = _make_tool(name, place, {})
    return made[name]


def __dir__() -> builtins.list[str]:
    return sorted(("builtin_tools", *_MODULES))


# Without `list`: a star import would replace Python's own. It can be imported by name like the others.
__all__ = ["bash", "builtin_tools", "edit", "fetch", "glob", "read", "search", "write"]
