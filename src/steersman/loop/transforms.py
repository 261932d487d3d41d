"""Calls `transform_context` with what its parameter names ask for: `messages`, `signal`, `overflow`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from steersman.types.cancel import CancelToken
from steersman.types.messages import AgentMessage

if TYPE_CHECKING:
    import asyncio

Signal: TypeAlias = "asyncio.Event | CancelToken"
Transform: TypeAlias = "Callable[[list[AgentMessage], Signal, bool], Any]"

_NAMES = ("messages", "signal", "overflow")
_P = inspect.Parameter
_BY_POSITION = (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)


def bind_transform(option: str, function: Any) -> Transform:
    """A function that calls the transform with the arguments it asks for by name.

    The first parameter by position gets the messages under any name. Raises `TypeError` if a required parameter asks
    for anything else, or none takes the messages.
    """
    if not callable(function):
        raise TypeError(f"{option} takes a function, got {function!r}.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some built-ins do not tell
        return lambda messages, signal, overflow: function(messages)
    bound = _list_bound_names(function)
    free = [parameter for parameter in parameters if parameter.name not in bound]
    taker = _find_messages_parameter(free)
    if taker is None:
        raise TypeError(f"{option} is called with the messages, but {function!r} has no parameter for them.")
    positional, named = _sort_parameters(free, taker)
    for parameter in free:
        if parameter.name not in (*positional, *named) and _is_required(parameter):
            raise TypeError(
                f"{option} gets what its parameters ask for: {', '.join(_NAMES)}. {function!r} also asks for "
                f"{parameter.name!r}."
            )

    def transform(messages: list[AgentMessage], signal: Signal, overflow: bool) -> Any:
        given: dict[str, Any] = {"messages": messages, "signal": signal, "overflow": overflow, taker: messages}
        return function(*[given[name] for name in positional], **{name: given[name] for name in named})

    return transform


def _list_bound_names(function: object) -> list[str]:
    """The names that a `functools.partial` gives a value: they are the caller's own."""
    return list(function.keywords) if isinstance(function, functools.partial) else []


def _find_messages_parameter(parameters: list[inspect.Parameter]) -> str | None:
    """The parameter called `messages`, else the first by position that asks for nothing else, else `*` or `**`."""
    names = [parameter.name for parameter in parameters]
    if "messages" in names:
        return "messages"
    for kinds in (_BY_POSITION, (_P.VAR_POSITIONAL,)):
        for parameter in parameters:
            if parameter.kind in kinds and parameter.name not in _NAMES:
                return parameter.name
    return "messages" if any(parameter.kind is _P.VAR_KEYWORD for parameter in parameters) else None


def _sort_parameters(parameters: list[inspect.Parameter], taker: str) -> tuple[list[str], list[str]]:
    """The names that are passed by position, in order, and those that are passed by name."""
    kinds = {parameter.name: parameter.kind for parameter in parameters}
    by_position = [_P.POSITIONAL_ONLY, _P.VAR_POSITIONAL]
    if kinds.get(taker) is _P.VAR_POSITIONAL:
        by_position.append(_P.POSITIONAL_OR_KEYWORD)  # what stands before `*args` cannot be passed by name then
    wanted = [name for name in kinds if name == taker or name in _NAMES]
    positional = [name for name in wanted if kinds[name] in by_position]
    named = [name for name in wanted if kinds[name] not in by_position]
    # `(*args, **kwargs)` passes on to a function whose names are not known.
    if _P.VAR_KEYWORD in kinds.values() and _P.VAR_POSITIONAL not in kinds.values():
        others = _NAMES if taker == "messages" else _NAMES[1:]
        named += [name for name in others if name not in wanted]
    return positional, named


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is _P.empty and parameter.kind not in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
