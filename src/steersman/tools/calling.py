"""How a tool's function takes its arguments: by name or as one dict, with or without the context, in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from steersman.tools.context import ToolContext
from steersman.tools.schema.forms import Convert
from steersman.tools.schema.from_types import Parameters, is_context_parameter, resolve_hints


class Calling(msgspec.Struct, frozen=True):
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

    def bind(self, arguments: dict[str, Any], ctx: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments for one call."""
        if self.bundled:
            if self.context is None:
                return [arguments], {}
            return ([arguments, ctx], {}) if self.context == "" else ([arguments], {self.context: ctx})
        if not self.converts and self.context is None and not self.positional:
            return [], arguments
        named = dict(arguments)
        for name, convert in self.converts:
            if name in named:
                named[name] = convert(named[name])
        if self.context is not None:
            named[self.context] = ctx
        if not self.positional:
            return [], named
        # A gap would shift the arguments after it, so everything after the first missing one keeps its default.
        first = next((index for index, name in enumerate(self.positional) if name not in named), len(self.positional))
        return [named.pop(name) for name in self.positional[:first]], named


def calling_from_signature(function: Callable[..., Any], parameters: Parameters) -> Calling:
    """Describe how to call a function whose schema was made from its own signature."""
    return Calling(
        function,
        parameters.schema,
        not is_async(function),
        context=parameters.context,
        positional=parameters.positional,
        converts=parameters.converts,
    )


def calling_from_schema(function: Callable[..., Any], schema: Mapping[str, Any], tool: str) -> Calling:
    """Describe how to call a function that was given with a schema, by the names of its parameters."""
    threaded = not is_async(function)
    try:
        listed = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some builtins have no signature; most tools with a hand-written schema take one dict.
        return Calling(function, schema, threaded, bundled=True)
    hints = resolve_hints(function, tool)
    named = [p for p in listed if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD]
    rest = any(p.kind is p.VAR_KEYWORD for p in listed)
    context = next((p.name for p in named if is_context_parameter(p.name, hints)), None)
    properties = cast(Mapping[str, Any], schema.get("properties", {}))
    others = [p for p in named if p.name != context]
    unknown = [p for p in others if p.name not in properties and p.default is p.empty]
    if len(unknown) == len(others) == 1:
        return _bundle_arguments(function, schema, threaded, context, named)
    if len(unknown) == len(others) == 2 and context is None:
        return Calling(function, schema, threaded, bundled=True, context="")
    if unknown:
        names = ", ".join(repr(p.name) for p in unknown)
        raise TypeError(
            f"The function of tool {tool!r} needs {names}, which its schema does not have. "
            "Take the schema's properties by name, or one dict of all arguments, and 'ctx' for the context."
        )
    positional = [p.name for p in others if p.kind is p.POSITIONAL_ONLY]
    needed = [p.name for p in others if p.default is p.empty]
    closed = _close_schema(schema, [p.name for p in others], needed, tool, rest=rest)
    return Calling(function, closed, threaded, context=context, positional=positional)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(cast(Any, function), "__call__", None)  # noqa: B004  # the question is what kind of call it is
    )


def _bundle_arguments(
    function: Callable[..., Any], schema: Mapping[str, Any], threaded: bool, context: str | None, named: Sequence[Any]
) -> Calling:
    """Pass one dict, and the context by name; pass the context by position where it comes first or second."""
    if context is None:
        return Calling(function, schema, threaded, bundled=True)
    position = [p.name for p in named].index(context)
    if position == 1 and named[1].kind is not named[1].KEYWORD_ONLY:
        context = ""
    elif position == 0 and named[0].kind is not named[0].KEYWORD_ONLY:
        inner = function

        def call_with_context_first(arguments: dict[str, Any], ctx: ToolContext) -> Any:
            return inner(ctx, arguments)

        function, context = call_with_context_first, ""
    return Calling(function, schema, threaded, bundled=True, context=context)


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
