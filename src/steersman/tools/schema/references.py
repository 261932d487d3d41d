"""References inside a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """The schema with its references led to the new names."""
    if isinstance(schema, list):
        return [renamed(item, names) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, item in cast(dict[str, Any], schema).items():
        if key == "$ref" and isinstance(item, str):
            head, _, name = item.rpartition("/")
            result[key] = f"{head}/{names.get(name, name)}"
        else:
            result[key] = renamed(item, names)
    return result


def mentions(schema: Any, reference: str) -> bool:
    """Whether a reference occurs anywhere in a schema."""
    if isinstance(schema, list):
        return any(mentions(item, reference) for item in cast(list[Any], schema))
    if not isinstance(schema, dict):
        return False
    items = cast(dict[str, Any], schema)
    return items.get("$ref") == reference or any(mentions(item, reference) for item in items.values())
