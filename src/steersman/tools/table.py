"""What `tools=[...]` takes, and the table of tools by name that a run has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from types import FunctionType
from typing import Any, Protocol, TypeAlias, cast

from steersman.tools.text import find_similar
from steersman.tools.tool import Tool, make_tool


class AgentTool(Protocol):
    """An object that is a tool: it has these four, as attributes, properties or methods.

    `execute` is sync or async and takes what the function of a `Tool` may take: the arguments by name or as one dict,
    and the `ToolContext`. Attributes named after the settings of a `Tool`, such as `timeout` or `access`, count too.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def execute(self) -> Callable[..., Any]: ...


class Toolset(Protocol):
    """Tools that come together and may change from run to run, such as those of MCP servers."""

    @property
    def tools(self) -> Sequence[Tool]: ...


ToolLike: TypeAlias = Tool | AgentTool | Toolset | Callable[..., Any]
"""What `tools=[...]` takes."""


def has_toolsets(tools: Iterable[ToolLike]) -> bool:
    """Whether the same list may hold other tools at the next run."""
    return any(_find_members(item) is not None for item in tools)


def build_tool_table(tools: Iterable[ToolLike]) -> dict[str, Tool]:
    """Return the tools by name; functions and objects become tools, and a toolset adds the tools it has now."""
    table: dict[str, Tool] = {}
    _check_list(tools)
    for item in _expand_toolsets(tools):
        found = cast(Tool, item) if isinstance(item, Tool) else _make_any_tool(item)
        if found.name in table:
            raise ValueError(f"Two tools are named {found.name!r}; give one another name with @tool(name=...).")
        table[found.name] = found
    return table


# What a table has until it is built; never changed.
_NO_TOOLS: list[Any] = []
_NO_NAMES: dict[str, Tool] = {}


class ToolTable:
    """The tools of a context by name: built at first use, when the list has changed, and with each run for toolsets."""

    __slots__ = ("_given", "_has_toolsets", "by_name")

    def __init__(self) -> None:
        self.by_name = _NO_NAMES
        self._given: Sequence[Any] = _NO_TOOLS
        self._has_toolsets = False

    def read(self, tools: Sequence[Any], *, new_run: bool = False) -> dict[str, Tool]:
        """The table of these tools, the same object as long as they are the same."""
        if tools != self._given or (new_run and self._has_toolsets):
            self._build(tools)
        return self.by_name

    def _build(self, tools: Sequence[Any]) -> None:
        self.by_name = build_tool_table(tools)
        self._given = tools[:]
        self._has_toolsets = has_toolsets(tools)


def read_tools(tools: Iterable[ToolLike]) -> list[Tool | Toolset]:
    """Return the tools as a list in which functions and objects have become tools; toolsets stay toolsets."""
    _check_list(tools)
    found: list[Tool | Toolset] = [
        item if isinstance(item, Tool) or _find_members(item) is not None else _make_any_tool(item)
        for item in cast(Iterable[Any], tools)
    ]
    build_tool_table(found)  # raises for two of the same name
    return found


def _check_list(tools: object) -> None:
    if type(tools) is list or type(tools) is tuple:
        return
    if isinstance(tools, Tool | str | bytes | Mapping) or not hasattr(tools, "__iter__"):
        raise TypeError(f"Tools come as a list, such as tools=[read, write], got {tools!r}.")


def _expand_toolsets(tools: Iterable[Any]) -> Iterator[Any]:
    for item in tools:
        members = _find_members(item)
        yield from (item,) if members is None else members


def _find_members(item: Any) -> Sequence[Tool] | None:
    """Return the tools of a toolset; `None` for anything else."""
    if isinstance(item, Tool) or hasattr(item, "execute") or hasattr(item, "as_tool"):
        return None  # an agent has tools of its own, and is no toolset
    found = getattr(item, "tools", None)
    return cast(Sequence[Tool], found) if isinstance(found, list | tuple) else None


def describe_unknown_tool(name: str, names: Iterable[str]) -> str:
    """Describe a call of an unknown tool, for the model."""
    known = list(names)
    text = f"No tool named {name!r}. Available tools: {', '.join(known) or 'none'}."
    near = find_similar(name, known)
    return f"{text} Did you mean {near[0]!r}?" if near else text


_PARTS = ("name", "description", "parameters", "execute")
_SETTINGS = ("timeout", "sequential", "keys", "uninterruptible", "idempotent", "needs_approval", "access")


_MAX_KNOWN = 256
_known: dict[FunctionType, tuple[Tool, Sequence[object]]] = {}


def _make_function_tool(function: FunctionType) -> Tool:
    """Make a tool from a function, once: it is the same tool in every agent, as long as the function stays as it is."""
    parts = (function.__code__, function.__name__, function.__doc__, function.__defaults__, function.__kwdefaults__)
    found = _known.get(function)
    if found is not None and all(map(is_, found[1], parts)):
        return found[0]
    made = make_tool(function, None, None, {})
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known[function] = made, parts
    return made


def _make_any_tool(item: Any) -> Tool:
    """Make a tool from a function, or from an object with the parts of one."""
    if not hasattr(item, "execute"):
        return _make_function_tool(item) if type(item) is FunctionType else make_tool(item, None, None, {})
    if isinstance(item, type):
        raise TypeError(f"Tools are objects, and {item.__name__} is a class: give an instance, {item.__name__}(...).")
    missing = [part for part in _PARTS if not hasattr(item, part)]
    if missing:
        raise TypeError(
            f"An object that is a tool has {', '.join(_PARTS)}; {item!r} has no {' and no '.join(map(repr, missing))}."
        )
    settings = {name: getattr(item, name) for name in _SETTINGS if hasattr(item, name)}
    return Tool(item.name, item.description, item.parameters, item.execute, **settings)
