"""Parameters of an operation, and the encoding of their values: a value cannot change other parts of the request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote, unquote

import msgspec

from steersman.tools.text import format_value
from steersman.types.errors import ToolError

Location: TypeAlias = Literal["path", "query", "header", "cookie"]
LOCATIONS: tuple[Location, ...] = ("path", "query", "header", "cookie")
STYLES: Mapping[Location, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_DECODINGS = 4


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `name` in the request, `argument` for the model; `as_json` encodes its value as JSON text."""

    name: str
    argument: str
    location: Location
    style: str
    explode: bool
    required: bool
    as_json: bool = False


def encode_path_value(parameter: Parameter, value: Any) -> str:
    """Encode a value for a path; it always stays within its segment."""
    _check_segments(parameter, value)
    items, mapping = _encode_items(parameter, value), _encode_mapping(parameter, value)
    match parameter.style:
        case "label":
            text = "." + _join(items, mapping, "." if parameter.explode else ",", explode=parameter.explode)
        case "matrix":
            text = _encode_matrix(parameter, items, mapping)
        case _:
            text = _join(items, mapping, ",", explode=parameter.explode)
    if not text or value is None:
        raise ToolError(f"The argument {parameter.argument!r} is part of the path and cannot be empty.")
    return text


def encode_query_value(parameter: Parameter, value: Any) -> list[str]:
    """Encode a value as parts of a query, such as `name=value`."""
    name = percent_encode(parameter.name)
    if parameter.style == "deepObject" and isinstance(value, Mapping) and not parameter.as_json:
        return _encode_deep_object(name, cast(Mapping[str, Any], value))
    items, mapping = _encode_items(parameter, value), _encode_mapping(parameter, value)
    if parameter.explode:
        if mapping is not None:
            return [f"{key}={item}" for key, item in mapping]
        return [f"{name}={item}" for item in items]
    separator, word = {"spaceDelimited": ("%20", " "), "pipeDelimited": ("%7C", "|")}.get(parameter.style, (",", ""))
    texts = items if mapping is None else [text for pair in mapping for text in pair]
    if word and len(texts) > 1 and any(separator in text for text in texts):
        raise ToolError(f"The items of {parameter.argument!r} cannot hold {word!r}, which separates them.")
    return [f"{name}={separator.join(texts)}"] if texts else []


def encode_header_value(parameter: Parameter, value: Any) -> str:
    """Encode a value as a header."""
    if isinstance(value, Mapping) and not parameter.as_json:
        pairs = [(key, to_text(item)) for key, item in cast(Mapping[str, Any], value).items()]
        text = ",".join(f"{key}={item}" if parameter.explode else f"{key},{item}" for key, item in pairs)
    else:
        text = ",".join(map(to_text, _to_list(parameter, value)))
    if _CONTROLS.search(text):
        raise ToolError(
            f"The argument {parameter.argument!r} is sent as a header and cannot hold line breaks, "
            f"got {format_value(text)}."
        )
    return text


def encode_cookie_value(parameter: Parameter, value: Any) -> list[str]:
    """Encode a value as cookies, such as `name=value`."""
    return encode_query_value(parameter, value)


def percent_encode(text: str) -> str:
    """Percent-encode every character that has a meaning in a URL."""
    return quote(text, safe="")


def _encode_matrix(parameter: Parameter, items: Sequence[str], mapping: Sequence[tuple[str, str]] | None) -> str:
    name = percent_encode(parameter.name)
    if not parameter.explode:
        return f";{name}={_join(items, mapping, ',', explode=False)}"
    if mapping is not None:
        return "".join(f";{key}={item}" for key, item in mapping)
    return "".join(f";{name}={item}" for item in items)


def _join(items: Sequence[str], mapping: Sequence[tuple[str, str]] | None, separator: str, *, explode: bool) -> str:
    if mapping is None:
        return separator.join(items)
    return separator.join(f"{key}={item}" if explode else f"{key},{item}" for key, item in mapping)


def _encode_deep_object(name: str, value: Mapping[str, Any]) -> list[str]:
    """Encode an object as `name[key]=value`, nested objects too; a list repeats its name."""
    parts: list[str] = []
    for key, item in value.items():
        inner = f"{name}%5B{percent_encode(key)}%5D"
        if isinstance(item, Mapping):
            parts += _encode_deep_object(inner, cast(Mapping[str, Any], item))
        else:
            each = cast(Sequence[Any], item) if isinstance(item, list | tuple) else [item]
            parts += [f"{inner}={percent_encode(to_text(one))}" for one in each if one is not None]
    return parts


def _to_list(parameter: Parameter, value: Any) -> list[Any]:
    if parameter.as_json:
        return [msgspec.json.encode(value).decode()]
    if isinstance(value, list | tuple):
        return [item for item in cast(Sequence[Any], value) if item is not None]
    return [] if value is None else [value]


def _encode_items(parameter: Parameter, value: Any) -> list[str]:
    return [percent_encode(to_text(item)) for item in _to_list(parameter, value)]


def _encode_mapping(parameter: Parameter, value: Any) -> list[tuple[str, str]] | None:
    if not isinstance(value, Mapping) or parameter.as_json:
        return None
    pairs = cast(Mapping[str, Any], value).items()
    return [(percent_encode(key), percent_encode(to_text(item))) for key, item in pairs if item is not None]


def to_text(value: Any) -> str:
    """Encode a value as text; anything but text becomes JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _check_segments(parameter: Parameter, value: Any) -> None:
    """Refuse `..` as a path step, also encoded: some servers decode a path before they resolve it, some even twice."""
    for text in _collect_texts(value):
        for _ in range(_MAX_DECODINGS):
            if {".", ".."} & set(re.split(r"[/\\]", text)):
                raise ToolError(
                    f"The argument {parameter.argument!r} is part of the path and cannot be or hold '.' or '..' as a "
                    f"step, got {format_value(value)}."
                )
            if (decoded := unquote(text)) == text:
                break
            text = decoded


def _collect_texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [
            text for pair in cast(Mapping[str, Any], value).items() for part in pair for text in _collect_texts(part)
        ]
    if isinstance(value, list | tuple):
        return [text for item in cast(Sequence[Any], value) for text in _collect_texts(item)]
    return [value] if isinstance(value, str) else []
