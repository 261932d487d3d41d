"""Annotations as they were meant: strings resolved, `Annotated` opened."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, get_type_hints

from steersman.tools.context import ToolContext

_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


def resolve(annotations: Mapping[str, Any], names: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The annotations as types; names that are not global are looked for where the caller stands.

    A tool defined inside a function may use classes defined beside it, which no namespace of the tool itself holds.
    """
    holder = SimpleNamespace(__annotations__=dict(annotations))
    # Often imported for the type checker alone.
    local: dict[str, Any] = {"ToolContext": ToolContext}
    local = {name: value for name, value in local.items() if name not in names}
    while True:
        try:
            return get_type_hints(holder, dict(names), local, include_extras=True)
        except NameError as error:
            name = error.name
            if name is None or name in local or not _find_outside(name, local):
                raise TypeError(
                    f"{owner} is annotated with {name!r}, which is not defined where it could be found. "
                    "Import it outside `if TYPE_CHECKING`, or define it at the top of the module."
                ) from error


def _find_outside(name: str, local: dict[str, Any]) -> bool:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # documented; `inspect` would only wrap it
    while frame is not None:
        if name in frame.f_locals and not frame.f_globals.get("__name__", "").startswith("steersman.tools."):
            local[name] = frame.f_locals[name]
            return True
        frame = frame.f_back
    return False


def description_of(metadata: Sequence[Any]) -> str | None:
    """What `Annotated` says about a value: a plain text, or whatever carries a description."""
    for item in metadata:
        if isinstance(item, str):
            return item
        for attribute in ("description", "documentation"):
            if isinstance(text := getattr(item, attribute, None), str):
                return text
    return None


def constrained(schema: dict[str, Any], metadata: Sequence[Any]) -> dict[str, Any]:
    """The schema with the bounds that `Annotated` gives, whichever library spells them."""
    for item in metadata:
        # Pydantic's Field keeps its bounds one level deeper.
        for bounds in (item, *getattr(item, "metadata", ())):
            schema = _bounded(schema, bounds)
    return schema


def _bounded(schema: dict[str, Any], bounds: Any) -> dict[str, Any]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [_bounded(branch, bounds) for branch in schema["anyOf"]]}
    kind = schema.get("type")
    added: dict[str, Any] = {}
    for attribute, word in _BOUNDS.items():
        wanted = ("string",) if attribute == "pattern" else ("integer", "number")
        value = getattr(bounds, attribute, None)
        if kind in wanted and isinstance(value, str if attribute == "pattern" else int | float):
            added[word] = value
    if kind in _LENGTHS:
        for attribute, prefix in (("min_length", "min"), ("max_length", "max")):
            if isinstance(value := getattr(bounds, attribute, None), int):
                added[prefix + _LENGTHS[kind]] = value
    return {**schema, **added} if added else schema
