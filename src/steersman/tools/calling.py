"""How a tool's function is called: arguments by name or as one dict, with or without the context."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from steersman.tools.output import ToolContext
from steersman.tools.schema.forms import Convert
from steersman.tools.schema.from_types import Parameters, is_context_parameter, resolve_hints


class CallingConvention(msgspec.Struct, frozen=True):
    """How one function takes its arguments.

    `bundled` functions get them as one dict, with the context after it where `context` is `""`; other functions get
    them by name. Arguments are checked against `schema`, which refuses what the function cannot take.
    """

    function: Callable[..., Any]
    schema: Mapping[str, Any]
    threaded: bool
    bundled: bool = False
    context: str | None = None
    positional: Sequence[str] = ()
    converts: Sequence[tuple[str, Convert]] = ()

    @property
    def is_plain(self) -> bool:
        """Whether an async function takes just the arguments, as they are."""
        return not (self.threaded or self.bundled or self.converts or self.positional or self.context is not None)


def build_convention_from_signature(function: Callable[..., Any], parameters: Parameters) -> CallingConvention:
    """Describe how to call a function whose schema was made from its own signature."""
    return CallingConvention(
        function,
        parameters.schema,
        not is_async(function),
        context=parameters.context,
        positional=parameters.positional,
        converts=parameters.converts,
    )


def build_convention_from_schema(
    function: Callable[..., Any], schema: Mapping[str, Any], tool: str
) -> CallingConvention:
    """Describe how to call a function that was given with a schema, by the names of its parameters."""
    threaded = not is_async(function)
    try:
        listed = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some builtins have no signature; most tools with a hand-written schema take one dict.
        return CallingConvention(function, schema, threaded, bundled=True)
    hints = resolve_hints(function, tool)
    named = [p for p in listed if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD]
    rest = any(p.kind is p.VAR_KEYWORD for p in listed)
    context = next((p.name for p in named if is_context_parameter(p.name, hints)), None)
    properties = cast(Mapping[str, Any], schema.get("properties", {}))
    others = [p for p in named if p.name != context]
    if any(p.name in _ROLES and p.name not in properties for p in others):
        return _build_convention_with_roles(function, schema, tool, listed, context)
    unknown = [p for p in others if p.name not in properties and p.default is p.empty]
    if len(unknown) == len(others) == 1:
        return _bundle_arguments(function, schema, threaded, context, named)
    if len(unknown) == len(others) == 2 and context is None:
        return CallingConvention(function, schema, threaded, bundled=True, context="")
    if unknown:
        raise _make_parameters_error(tool, unknown)
    positional = [p.name for p in others if p.kind is p.POSITIONAL_ONLY]
    needed = [p.name for p in others if p.default is p.empty]
    closed = _close_schema(schema, [p.name for p in others], needed, tool, rest=rest)
    return CallingConvention(function, closed, threaded, context=context, positional=positional)


# Parts of the context that a function may take by these names: pi's tools are `execute(tool_call_id, params, signal,
# on_update)`, and so are those of its relatives.
_ROLES: dict[str, Callable[[ToolContext], Any]] = {
    "tool_call_id": lambda ctx: ctx.tool_call_id,
    "signal": lambda ctx: ctx.token,
    "on_update": lambda ctx: ctx.update,
}


def _build_convention_with_roles(
    function: Callable[..., Any],
    schema: Mapping[str, Any],
    tool: str,
    listed: Sequence[inspect.Parameter],
    context: str | None,
) -> CallingConvention:
    """Describe how to call a function that takes parts of the context by name, beside its arguments."""
    properties = cast(Mapping[str, Any], schema.get("properties", {}))
    named = [p for p in listed if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD]
    roles = {p.name: _ROLES[p.name] for p in named if p.name in _ROLES and p.name not in properties}
    others = [p for p in named if p.name not in roles and p.name != context]
    unknown = [p for p in others if p.name not in properties and p.default is p.empty]
    bundle = unknown[0].name if len(unknown) == len(others) == 1 else None
    if unknown and bundle is None:
        raise _make_parameters_error(tool, unknown)
    if bundle is None:
        needed = [p.name for p in others if p.default is p.empty]
        rest = len(named) < len(listed)
        schema = _close_schema(schema, [p.name for p in others], needed, tool, rest=rest)
    positional = [p.name for p in named if p.kind is p.POSITIONAL_ONLY]

    def call_with_roles(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        given = {name: role(ctx) for name, role in roles.items()}
        given.update(arguments if bundle is None else {bundle: arguments})
        if context is not None:
            given[context] = ctx
        first = [given.pop(name) for name in positional if name in given]
        return function(*first, **given)

    return CallingConvention(call_with_roles, schema, not is_async(function), bundled=True, context="")


def _make_parameters_error(tool: str, unknown: Sequence[inspect.Parameter]) -> TypeError:
    names = ", ".join(repr(p.name) for p in unknown)
    return TypeError(
        f"The function of tool {tool!r} needs {names}, which its schema does not have. "
        "Take the schema's properties by name, or one dict of all arguments, and 'ctx' for the context."
    )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(cast(Any, function), "__call__", None)  # noqa: B004  # the question is what kind of call it is
    )


def _bundle_arguments(
    function: Callable[..., Any], schema: Mapping[str, Any], threaded: bool, context: str | None, named: Sequence[Any]
) -> CallingConvention:
    """Pass one dict, and the context by name; pass the context by position where it comes first or second."""
    if context is None:
        return CallingConvention(function, schema, threaded, bundled=True)
    position = [p.name for p in named].index(context)
    if position == 1 and named[1].kind is not named[1].KEYWORD_ONLY:
        context = ""
    elif position == 0 and named[0].kind is not named[0].KEYWORD_ONLY:
        inner = function

        def call_with_context_first(arguments: dict[str, Any], ctx: ToolContext) -> Any:
            return inner(ctx, arguments)

        function, context = call_with_context_first, ""
    return CallingConvention(function, schema, threaded, bundled=True, context=context)


def _close_schema(
    schema: Mapping[str, Any], names: Sequence[str], needed: Sequence[str], tool: str, *, rest: bool
) -> Mapping[str, Any]:
    """Add what the function demands: its required parameters are required, and unknown arguments are refused."""
    properties = cast(Mapping[str, Any], schema.get("properties", {}))
    surplus = [name for name in properties if name not in names]
    if surplus and not rest:
        raise TypeError(
            f"The schema of tool {tool!r} has {', '.join(map(repr, surplus))}, which its function does not take. "
            "Add the parameter, or take one dict of all arguments."
        )
    required = list(dict.fromkeys([*schema.get("required", ()), *needed]))
    result = {**schema, "required": required}
    if not rest and schema.get("additionalProperties") is not False:
        result["additionalProperties"] = False
    return result
