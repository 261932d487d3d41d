"""The names of options: both spellings of some, and a hint for one that is not known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from steersman.context.compaction.strategies import ContextConfig
from steersman.policy.limits import ExecutionLimits
from steersman.provider.streaming.retry import Retry

SPELLINGS = {"limits": "execution_limits", "retry": "retry_strategy"}
"""Options with a short name beside that of their field."""


def read_options(options: Mapping[str, Any], known: Collection[str], owner: str) -> dict[str, Any]:
    """The options by the names of their fields; `TypeError` for an unknown one, and for one given in both spellings."""
    found: dict[str, Any] = {}
    for given, value in options.items():
        name = SPELLINGS.get(given, given)
        if name not in known:
            raise TypeError(f"{owner} has no option {given!r}.{_suggest_option(given, known)}")
        if name in found:
            short = next(short for short, long in SPELLINGS.items() if long == name)
            raise TypeError(f"{owner} got {short!r} and {name!r}, which are the same option. Give one of them.")
        found[name] = value
    return found


def _suggest_option(name: str, known: Collection[str]) -> str:
    for option, kind in (("limits", ExecutionLimits), ("context_config", ContextConfig), ("retry", Retry)):
        if name in [field.name for field in fields(kind)]:
            return f" It belongs to {option}: {option}={kind.__name__}({name}=...)."
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name, [*known, *SPELLINGS], 1)
    return f" Did you mean {near[0]!r}?" if near else f" The options are: {', '.join(sorted({*known, *SPELLINGS}))}."
