"""The built-in tools: files, a shell and the web, for one workspace. `builtin_tools()` has them all.

A single one, for the current folder: `from steersman.tools.builtin import read`. They are made when they are asked for.
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

# A tool's name, the module it lives in, and the function that makes it.
_HOMES = {
    "read": "read_tool",
    "write": "write_tool",
    "edit": "edit_tool",
    "list": "list_tool",
    "glob": "glob_tool",
    "search": "search_tool",
    "bash": "bash_tool",
    "fetch": "fetch_tool",
}
_here: dict[str, tuple[Workspace, dict[str, Tool]]] = {}


def builtin_tools(
    workspace: Workspace | str | os.PathLike[str] = ".",
    *,
    sandbox: Sandbox = "auto",
    allow_network: bool = False,
    git: Git = "read-only",
) -> builtins.list[Tool]:
    """All built-in tools for a workspace; `sandbox`, `allow_network` and `git` are for `bash`.

    To leave one out or to set more, make them one by one: `read_tool(workspace)`, `bash_tool(workspace, ...)`.
    """
    from steersman.tools.confine.workspace import Workspace

    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    settings: dict[str, dict[str, Any]] = {"bash": {"sandbox": sandbox, "allow_network": allow_network, "git": git}}
    return [_make_tool(name, place, settings.get(name, {})) for name in _HOMES]


def _make_tool(name: str, workspace: Workspace, settings: dict[str, Any]) -> Tool:
    from importlib import import_module

    make: Callable[..., Tool] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), f"{name}_tool")
    # The web has no workspace.
    return make(**settings) if name == "fetch" else make(workspace, **settings)


def __getattr__(name: str) -> Tool:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    folder = os.path.realpath(".")
    if folder not in _here:
        from steersman.tools.confine.workspace import Workspace

        _here[folder] = (Workspace(folder), {})
    # Tools of one folder share a workspace, and with it what is known of the files that were read.
    place, made = _here[folder]
    if name not in made:
        made[name] = _make_tool(name, place, {})
    return made[name]


def __dir__() -> builtins.list[str]:
    return sorted(("builtin_tools", *_HOMES))


# Without `list`, which a star would put in the place of Python's own. By its name it can be had like the others.
__all__ = ["bash", "builtin_tools", "edit", "fetch", "glob", "read", "search", "write"]
