"""The names of options: both spellings of some, and a hint for one that is not known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any

from steersman.context.compaction.config import ContextConfig
from steersman.policy.limits import ExecutionLimits
from steersman.provider.streaming.retry_strategy import Retry
from steersman.types.guards import find_nearest

SPELLINGS = {"limits": "execution_limits", "retry": "retry_strategy"}
"""Options with a short name beside that of their field."""

_RETRY_METHODS = ("should_retry", "delay")
_ELSEWHERE = {
    **dict.fromkeys(("tools", "system_prompt", "messages", "agent_id", "session_id"), "AgentContext({}=...)"),
    **dict.fromkeys(("base_url", "api_key"), "get_model('provider:model-id', {}=...)"),
    **dict.fromkeys(("output_type", "session", "steering_mode", "follow_up_mode"), "Agent(..., {}=...)"),
}
"""What `Agent` takes and a configuration does not: it belongs to the context or the model, or needs an agent."""


def read_options(options: Mapping[str, Any], known: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The options by the names of their fields; `TypeError` for an unknown one, and for one given in both spellings."""
    found = dict(options)
    for short, name in SPELLINGS.items():
        if short in found:
            if name in found:
                raise TypeError(f"{owner} got {short!r} and {name!r}, which are the same option. Give one of them.")
            found[name] = found.pop(short)
            _check_kind(short, name, found[name])
        elif name in found:
            _check_kind(name, name, found[name])
    if not found.keys() <= known.keys():
        given = next(given for given in options if SPELLINGS.get(given, given) not in known)
        raise TypeError(f"{owner} has no option {given!r}.{_suggest_option(given, known, owner)}")
    return found


def drop_replaced(options: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The options without the old value of one that `dataclasses.replace` got in its short spelling.

    It passes what it got, then every other field in order: a long spelling among these was not given by the caller.
    """
    order = {name: index for index, name in enumerate(known)}
    rest: list[str] = []
    for name in reversed(options):
        if name not in order or (rest and order[name] > order[rest[-1]]):
            break
        rest.append(name)
    old = {name for short, name in SPELLINGS.items() if short in options and name in rest}
    return {name: value for name, value in options.items() if name not in old}


def _check_kind(given: str, name: str, value: Any) -> None:
    """Check the options with two names here, where it is known which of them the caller wrote."""
    if value is None:
        return
    if name == "execution_limits" and not isinstance(value, ExecutionLimits):
        raise TypeError(f"{given} is an ExecutionLimits(...) or None, got {value!r}.")
    if name == "execution_limits" or type(value) is Retry:
        return
    if not all(callable(getattr(value, method, None)) for method in _RETRY_METHODS):
        raise TypeError(
            f"{given} is a Retry(...), an object with the methods {' and '.join(_RETRY_METHODS)}, or None, "
            f"got {value!r}."
        )


def _suggest_option(name: str, known: Collection[str], owner: str) -> str:
    if owner == "AgentLoopConfig" and name in _ELSEWHERE:
        return f" It belongs elsewhere: {_ELSEWHERE[name].format(name)}."
    for option, kind in (("limits", ExecutionLimits), ("context_config", ContextConfig), ("retry", Retry)):
        if name in [field.name for field in fields(kind)]:
            return f" It belongs to {option}: {option}={kind.__name__}({name}=...)."
    near = find_nearest(name, [*known, *SPELLINGS])
    return f" Did you mean {near!r}?" if near else f" The options are: {', '.join(sorted({*known, *SPELLINGS}))}."
