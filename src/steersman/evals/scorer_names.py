"""Scorers by name, as a file or a command line gives them: `contains`, `{"matches": "^[0-9]+$"}`, `max_cost=0.05`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.evals import scorers
from steersman.evals.judging import judge
from steersman.evals.scorers import Scorer

_KNOWN: dict[str, Callable[..., Scorer]] = {
    "calls": scorers.calls,
    "contains": scorers.contains,
    "equals": scorers.equals,
    "json_schema": scorers.json_schema,
    "judge": judge,
    "matches": scorers.matches,
    "max_cost": scorers.max_cost,
    "max_duration": scorers.max_duration,
    "never_calls": scorers.never_calls,
}
_LISTS = frozenset(("calls", "contains", "never_calls"))  # a list is several arguments
_VALUES = frozenset(("json_schema", "equals"))  # an object is the one argument itself


def build_scorers(given: Any, folder: Path) -> list[Scorer]:
    """The scorers of a list; raises `ValueError` for what is none. Files they name are relative to `folder`."""
    if not isinstance(given, list):
        raise ValueError(f"'scorers' is a list, such as [contains, {{max_cost: 0.05}}], got {given!r:.100}.")
    found: list[Scorer] = []
    for item in cast(list[Any], given):
        if isinstance(item, str):
            found.append(_build(item, None, folder))
        elif isinstance(item, Mapping) and len(cast(Mapping[Any, Any], item)) == 1:
            [(name, settings)] = cast(Mapping[Any, Any], item).items()
            found.append(_build(name, settings, folder))
        else:
            raise ValueError(f"A scorer is a name, or one name with its settings, got {item!r:.100}.")
    return [_number(scorer, found, place) for place, scorer in enumerate(found)]


def parse_scorer(text: str, folder: Path) -> Scorer:
    """The scorer of a flag: a name, or `name=settings` with JSON or a plain text."""
    name, equal, rest = text.partition("=")
    if not equal:
        return _build(name, None, folder)
    try:
        settings = msgspec.json.decode(rest)
    except msgspec.DecodeError:
        settings = rest
    return _build(name, settings, folder)


def _build(name: Any, settings: Any, folder: Path) -> Scorer:
    make = _KNOWN.get(name) if isinstance(name, str) else None
    if make is None:
        near = get_close_matches(str(name), list(_KNOWN), 1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"There is no scorer {str(name)!r:.100}.{meant} Known are: {', '.join(_KNOWN)}.")
    if name == "json_schema" and isinstance(settings, str):
        settings = _read_schema(folder / settings)
    try:
        if settings is None:
            return make()
        if isinstance(settings, list) and name in _LISTS:
            return make(*cast(list[Any], settings))
        if isinstance(settings, dict) and name not in _VALUES and not (name == "calls" and "name" in settings):
            return _build_by_names(make, name, cast(dict[str, Any], settings))
        return make(settings)
    except TypeError as error:
        wanted = ", ".join(str(parameter) for parameter in inspect.signature(make).parameters)
        raise ValueError(
            f"The scorer {name!r} cannot be made of {settings!r:.100}: {error}. It takes: {wanted}."
        ) from error


def _build_by_names(make: Callable[..., Scorer], name: str, settings: dict[str, Any]) -> Scorer:
    """A scorer whose settings have names; what `calls` and the like look for stands under the name of the list."""
    many = next((key for key in ("tools", "texts") if key in settings), None)
    if name in _LISTS and many is not None:
        values = settings[many]
        rest = {key: value for key, value in settings.items() if key != many}
        return make(*(cast(list[Any], values) if isinstance(values, list) else [values]), **rest)
    return make(**settings)


def _read_schema(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"Cannot use the JSON Schema {str(path)!r}: {why}.") from error


def _number(scorer: Scorer, every: list[Scorer], place: int) -> Scorer:
    """A scorer of a file that has the name of an earlier one gets a number: `matches`, `matches-2`."""
    before = sum(other.name == scorer.name for other in every[:place])
    return replace(scorer, name=f"{scorer.name}-{before + 1}") if before else scorer
