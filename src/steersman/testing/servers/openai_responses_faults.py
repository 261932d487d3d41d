"""What the OpenAI Responses API says to a field that is not as it should be, in its own words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

Json: TypeAlias = Mapping[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]+")
_TYPES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    type(None): "null",
}


class Fault(Exception):
    """Why a request is refused."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


def need(fields: Json, name: str, path: str = "") -> Any:
    """The field, which must be there."""
    where = f"{path}.{name}" if path else name
    if fields.get(name) is None:
        raise Fault(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return fields[name]


def typed(value: object, kind: type | tuple[type, ...], path: str) -> Any:
    """The value, which must be of this type."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(_TYPES[one] for one in kinds)
        got = _TYPES.get(type(value), "an unknown value")
        raise Fault(f"Invalid type for '{path}': expected {wanted}, but got {got} instead.", path, "invalid_type")
    return value


def text(value: object, path: str, *, longest: int | None = None) -> str:
    """The text, which must not be empty, nor longer than it may be."""
    words = cast(str, typed(value, str, path))
    if not words:
        raise Fault(
            f"Invalid '{path}': empty string. Expected a string with minimum length 1, but got an empty string "
            "instead.",
            path,
            "empty_string",
        )
    if longest is not None and len(words) > longest:
        raise Fault(
            f"Invalid '{path}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(words)} instead.",
            path,
            "string_above_max_length",
        )
    return words


def array(value: object, path: str) -> Sequence[Any]:
    """The list, which must not be empty."""
    found = cast(Sequence[Any], typed(value, list, path))
    if not found:
        raise Fault(
            f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            path,
            "empty_array",
        )
    return found


def chosen(value: object, allowed: Sequence[str], path: str) -> str:
    """The word, which must be one of these."""
    if value not in allowed:
        words = [f"'{word}'" for word in allowed]
        listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"
        raise Fault(f"Invalid value: '{value}'. Supported values are: {listed}.", path, "invalid_value")
    return cast(str, value)


def known(fields: Json, allowed: frozenset[str], path: str = "") -> None:
    """Refuse fields that the API does not have."""
    for name in fields:
        if name not in allowed:
            where = f"{path}.{name}" if path else name
            raise Fault(f"Unknown parameter: '{where}'.", where, "unknown_parameter")


def legal_name(value: object, path: str) -> str:
    """A name of a tool or a format."""
    name = text(value, path, longest=64)
    if not NAME.fullmatch(name):
        raise Fault(
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            path,
            "invalid_value",
        )
    return name


def legal_id(value: object, prefix: str, path: str) -> str:
    """The id of an item, which tells its kind."""
    id = cast(str, typed(value, str, path))
    if not NAME.fullmatch(id):
        raise Fault(
            f"Invalid '{path}': '{id}'. Expected an ID that contains letters, numbers, underscores, or dashes, but "
            "this value contained additional characters.",
            path,
            "invalid_value",
        )
    if not id.startswith(prefix):
        raise Fault(f"Invalid '{path}': '{id}'. Expected an ID that begins with '{prefix}'.", path, "invalid_value")
    return id
