"""The parameters of an operation, and how a value of one is written in a request: it stays the value of that one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote, unquote

import msgspec

from steersman.tools.text import show
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
_MOST_DECODINGS = 4


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `name` on the wire, `argument` to the model; `as_json` writes its value as JSON text."""

    name: str
    argument: str
    location: Location
    style: str
    explode: bool
    required: bool
    as_json: bool = False


def in_path(parameter: Parameter, value: Any) -> str:
    """The value as it stands in a path: within its segment, whatever it is."""
    _check_segments(parameter, value)
    items, mapping = _items(parameter, value), _mapping(parameter, value)
    match parameter.style:
        case "label":
            text = "." + _joined(items, mapping, "." if parameter.explode else ",", explode=parameter.explode)
        case "matrix":
            text = _matrix(parameter, items, mapping)
        case _:
            text = _joined(items, mapping, ",", explode=parameter.explode)
    if not text or value is None:
        raise ToolError(f"The argument {parameter.argument!r} is part of the path and cannot be empty.")
    return text


def in_query(parameter: Parameter, value: Any) -> list[str]:
    """The value as parts of a query, such as `name=value`."""
    name = quoted(parameter.name)
    if parameter.style == "deepObject" and isinstance(value, Mapping) and not parameter.as_json:
        return _deep(name, cast(Mapping[str, Any], value))
    items, mapping = _items(parameter, value), _mapping(parameter, value)
    if parameter.explode:
        if mapping is not None:
            return [f"{key}={item}" for key, item in mapping]
        return [f"{name}={item}" for item in items]
    separator, word = {"spaceDelimited": ("%20", " "), "pipeDelimited": ("%7C", "|")}.get(parameter.style, (",", ""))
    texts = items if mapping is None else [text for pair in mapping for text in pair]
    if word and len(texts) > 1 and any(separator in text for text in texts):
        raise ToolError(f"The items of {parameter.argument!r} cannot hold {word!r}, which stands between them.")
    return [f"{name}={separator.join(texts)}"] if texts else []


def in_header(parameter: Parameter, value: Any) -> str:
    """The value as a header."""
    if isinstance(value, Mapping) and not parameter.as_json:
        pairs = [(key, _text(item)) for key, item in cast(Mapping[str, Any], value).items()]
        text = ",".join(f"{key}={item}" if parameter.explode else f"{key},{item}" for key, item in pairs)
    else:
        text = ",".join(map(_text, _listed(parameter, value)))
    if _CONTROLS.search(text):
        raise ToolError(
            f"The argument {parameter.argument!r} is sent as a header and cannot hold line breaks, got {show(text)}."
        )
    return text


def in_cookie(parameter: Parameter, value: Any) -> list[str]:
    """The value as cookies, such as `name=value`."""
    return in_query(parameter, value)


def quoted(text: str) -> str:
    """The text with everything percent-encoded that could mean something in a URL."""
    return quote(text, safe="")


def _matrix(parameter: Parameter, items: Sequence[str], mapping: Sequence[tuple[str, str]] | None) -> str:
    name = quoted(parameter.name)
    if not parameter.explode:
        return f";{name}={_joined(items, mapping, ',', explode=False)}"
    if mapping is not None:
        return "".join(f";{key}={item}" for key, item in mapping)
    return "".join(f";{name}={item}" for item in items)


def _joined(items: Sequence[str], mapping: Sequence[tuple[str, str]] | None, separator: str, *, explode: bool) -> str:
    if mapping is None:
        return separator.join(items)
    return separator.join(f"{key}={item}" if explode else f"{key},{item}" for key, item in mapping)


def _deep(name: str, value: Mapping[str, Any]) -> list[str]:
    """`name[key]=value`, and so on inwards; a list repeats its name."""
    parts: list[str] = []
    for key, item in value.items():
        inner = f"{name}%5B{quoted(key)}%5D"
        if isinstance(item, Mapping):
            parts += _deep(inner, cast(Mapping[str, Any], item))
        else:
            each = cast(Sequence[Any], item) if isinstance(item, list | tuple) else [item]
            parts += [f"{inner}={quoted(_text(one))}" for one in each if one is not None]
    return parts


def _listed(parameter: Parameter, value: Any) -> list[Any]:
    if parameter.as_json:
        return [msgspec.json.encode(value).decode()]
    if isinstance(value, list | tuple):
        return [item for item in cast(Sequence[Any], value) if item is not None]
    return [] if value is None else [value]


def _items(parameter: Parameter, value: Any) -> list[str]:
    return [quoted(_text(item)) for item in _listed(parameter, value)]


def _mapping(parameter: Parameter, value: Any) -> list[tuple[str, str]] | None:
    if not isinstance(value, Mapping) or parameter.as_json:
        return None
    pairs = cast(Mapping[str, Any], value).items()
    return [(quoted(key), quoted(_text(item))) for key, item in pairs if item is not None]


def _text(value: Any) -> str:
    """A plain value as text; what is nested deeper than a style can say is JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _check_segments(parameter: Parameter, value: Any) -> None:
    """Encoded, `..` stays in its segment; but there are servers that decode before they look, some of them twice."""
    for text in _texts(value):
        for _ in range(_MOST_DECODINGS):
            if {".", ".."} & set(re.split(r"[/\\]", text)):
                raise ToolError(
                    f"The argument {parameter.argument!r} is part of the path and cannot be or hold '.' or '..' as a "
                    f"step, got {show(value)}."
                )
            if (decoded := unquote(text)) == text:
                break
            text = decoded


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for pair in cast(Mapping[str, Any], value).items() for part in pair for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for item in cast(Sequence[Any], value) for text in _texts(item)]
    return [value] if isinstance(value, str) else []
