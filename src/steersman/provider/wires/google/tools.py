"""The tools of a request as Gemini declares them: legal names, supported schemas, encoded once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from steersman.provider.wires.google.schema import convert_schema
from steersman.provider.wires.protocol import ToolNames, encode_json, memoize_by_members
from steersman.types.model import ToolSpec

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]*")
NAME_LENGTH = 64
PARAMETER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

# Gemini sees its tools in this namespace and sometimes calls them by the qualified name.
_NAMESPACE = re.compile(r"default_api[:.]")


class ToolSet:
    """The tools of a request: their names and parameter names on the wire, and their encoded form."""

    __slots__ = ("_known", "_names", "_parameters", "encoded", "to_wire", "unchanged")

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._names = ToolNames(tools, NAME, NAME_LENGTH)
        # The name of a tool on the wire.
        self.to_wire = self._names.to_wire
        self._known = {tool.name for tool in tools}
        self._parameters: dict[str, _Renaming] = {}
        self.encoded = encode_json([self._declare(tool) for tool in tools])
        # Nearly all tools: neither their name nor that of a parameter is another one on the wire.
        self.unchanged = {name for name in self._known - self._parameters.keys() if self.to_wire(name) == name}

    def encode_call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the name and the arguments of a call with the names on the wire."""
        if name in self.unchanged:
            return name, arguments
        renamed = self._parameters.get(name)
        return self.to_wire(name), arguments if renamed is None else renamed.apply(arguments, renamed.there)

    def decode_call(self, name: str, arguments: str) -> tuple[str, str]:
        """Return the name and the arguments of a call with the tool's own names."""
        if name in self.unchanged:
            return name, arguments
        own = self._names.from_wire(name)
        if own not in self._known and (short := _NAMESPACE.sub("", name, count=1)) != name:
            known = self._names.from_wire(short)
            own = known if known in self._known else own
        renamed = self._parameters.get(own)
        return own, arguments if renamed is None else renamed.decode_arguments(arguments)

    def _declare(self, tool: ToolSpec) -> dict[str, Any]:
        renamed = _Renaming(tool.parameters)
        if renamed.there:
            self._parameters[tool.name] = renamed
        declared: dict[str, Any] = {"name": self.to_wire(tool.name), "description": tool.description}
        schema = convert_schema(tool.parameters, lambda name: renamed.there.get(name, name))
        if schema.get("properties") or schema.keys() - {"type", "properties", "additionalProperties", "title"}:
            declared["parametersJsonSchema"] = {"type": "object", **schema}
        return declared


@memoize_by_members(limit=1024)
def encode_tools(tools: Sequence[ToolSpec]) -> ToolSet:
    """Return the encoded tools; the same tools are encoded once."""
    return ToolSet(tools)


class _Renaming:
    """Property names that Gemini refuses, and their replacements, in both directions."""

    __slots__ = ("back", "there")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        names = dict.fromkeys(_find_properties(schema))
        legal = ToolNames(names, PARAMETER, NAME_LENGTH)
        self.there = {name: legal_name for name in names if (legal_name := legal.to_wire(name)) != name}
        self.back = {legal: name for name, legal in self.there.items()}

    def decode_arguments(self, arguments: str) -> str:
        """Return the arguments with the original names; what cannot be read stays as it is."""
        try:
            return encode_json(self.apply(msgspec.json.decode(arguments), self.back)).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return arguments

    def apply(self, value: Any, names: Mapping[str, str]) -> Any:
        if isinstance(value, Mapping):
            items = cast(Mapping[str, Any], value).items()
            return {names.get(key, key): self.apply(item, names) for key, item in items}
        if isinstance(value, list):
            return [self.apply(item, names) for item in cast(list[Any], value)]
        return value


def _find_properties(schema: Any) -> Iterator[str]:
    """Yield the names of all properties in a schema, at any depth."""
    if isinstance(schema, Mapping):
        node = cast(Mapping[str, Any], schema)
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            yield from cast(Mapping[str, Any], properties)
        for key, value in node.items():
            if key == "properties" and isinstance(value, Mapping):
                for item in cast(Mapping[str, Any], value).values():
                    yield from _find_properties(item)
            elif key not in ("const", "default", "enum", "examples"):
                yield from _find_properties(value)
    elif isinstance(schema, list):
        for item in cast(list[Any], schema):
            yield from _find_properties(item)
