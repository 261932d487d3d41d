"""Definitions of a server's tools, and the tools made from them. Names, texts and schemas are untrusted data."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

import msgspec

from steersman.tools.calling import Calling
from steersman.tools.mcp.errors import McpError
from steersman.tools.output import ToolContext
from steersman.tools.text import strip_invisible
from steersman.tools.tool import Access, Tool
from steersman.types.tools import ToolOutput

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 48
MAX_SCHEMA_WEIGHT = 10_000
MAX_DESCRIPTION_LENGTH = 4_096
# Arguments are checked on our side up to this weight. Heavier or recursive schemas are left to the server's own check.
_MAX_CHECKED_WEIGHT = 1_000
_MAX_NAME_LENGTH = 128
_MAX_TEXT_LENGTH = 1_024

_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_VALUES = frozenset(("enum", "const", "default", "examples", "required"))
_CHOICES = frozenset(("anyOf", "oneOf"))
_DEFINITIONS = frozenset(("$defs", "definitions"))
_TEXTS = ("title", "description", "$comment")
# No wildcard is allowed: an approval rule made from a tool's name must not match other tools.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_OBJECT: Mapping[str, Any] = {"type": "object"}

Schema = dict[str, Any]
Execute = Callable[[dict[str, Any], ToolContext], Awaitable[ToolOutput]]


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool of a server: `digest` is the hash of the definition exactly as sent; the other fields are cleaned."""

    tool: str
    description: str
    parameters: Mapping[str, Any]
    digest: str


def define(name: str, description: str | None, schema: Mapping[str, Any]) -> Definition:
    """Build a definition from what a server sent; `McpError` says why it is refused."""
    if _TOOL_NAME.fullmatch(name) is None:
        raise McpError("its name has other characters than letters, digits, '_', '-', '.' and '/', or more than 128")
    parameters = clean_schema(schema)
    digest = sha256(msgspec.json.encode([name, description, schema], order="deterministic")).hexdigest()
    return Definition(name, strip_invisible(description or "", MAX_DESCRIPTION_LENGTH), parameters, digest)


def make_tool(name: str, definition: Definition, execute: Execute, access: Access) -> Tool:
    """Make the tool for an agent; `McpError` for an invalid schema.

    The server's hints about its own tools (`readOnlyHint` and the like) are ignored.
    """
    # First, because it refuses schemas that are too complicated to process.
    schema = build_validation_schema(definition.parameters)
    try:
        made = Tool(name, definition.description, definition.parameters, _take_all, access=access)
        made.execute = made.__wrapped__ = execute
        # An untrusted schema may have a property of any name, so its arguments are never passed by name.
        made._set_calling(Calling(execute, schema, threaded=False, bundled=True, context=""))  # pyright: ignore[reportPrivateUsage]  # the second half of making one
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise McpError(f"its schema is wrong ({strip_invisible(str(error), 300, lines=False)})") from error
    return made


def _take_all(_arguments_of_a_remote_tool: dict[str, Any]) -> None:
    """Take the place of the real function until it is set."""


def clean_schema(schema: Mapping[str, Any]) -> Schema:
    """Clean the texts of a schema for the model; `McpError` for a schema that is too large or too deep."""
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise McpError(f"its schema is not JSON ({error})") from error
    if size > MAX_SCHEMA_BYTES:
        raise McpError(f"its schema has {size:,} bytes, more than {MAX_SCHEMA_BYTES:,}")
    return _rewrite(schema, _clean_texts, 0)


def build_validation_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Build the schema against which arguments are checked before the server gets them.

    Patterns are removed: an untrusted regular expression can be made to run for ever (ReDoS).
    """
    weigher = _Weigher(schema)
    weight = weigher.weigh(schema, 0)
    if weight > MAX_SCHEMA_WEIGHT:
        raise McpError(f"its schema is too complicated ({weight:,.0f} parts, more than {MAX_SCHEMA_WEIGHT:,})")
    if weigher.recursive or weight > _MAX_CHECKED_WEIGHT:
        return _OBJECT
    return _rewrite(schema, _remove_patterns, 0)


def _rewrite(schema: Mapping[str, Any], change: Callable[[Schema], Schema], depth: int) -> Schema:
    """Apply `change` to every schema inside a schema; property names and plain values are not taken for schemas."""
    if depth > MAX_SCHEMA_DEPTH:
        raise McpError(f"its schema is nested more than {MAX_SCHEMA_DEPTH} deep")
    return change({key: _rewrite_part(key, value, change, depth + 1) for key, value in schema.items()})


def _rewrite_part(key: str, value: Any, change: Callable[[Schema], Schema], depth: int) -> Any:
    if key in _VALUES:
        return value
    if key in _MAPS and isinstance(value, dict):
        return {
            _check_property_name(name): _rewrite_inner(item, change, depth)
            for name, item in cast(dict[str, Any], value).items()
        }
    if isinstance(value, list):
        return [_rewrite_inner(item, change, depth) for item in cast(list[Any], value)]
    return _rewrite_inner(value, change, depth)


def _rewrite_inner(value: Any, change: Callable[[Schema], Schema], depth: int) -> Any:
    return _rewrite(cast(Schema, value), change, depth) if isinstance(value, dict) else value


def _check_property_name(name: str) -> str:
    if not name.isprintable() or len(name) > _MAX_NAME_LENGTH:
        raise McpError(f"its schema has a property with an unreadable name, {name[:50]!r}")
    return name


def _clean_texts(schema: Schema) -> Schema:
    for key in _TEXTS:
        if key in schema:
            text = schema.pop(key)
            if isinstance(text, str):
                schema[key] = strip_invisible(text, _MAX_TEXT_LENGTH)
    return schema


def _remove_patterns(schema: Schema) -> Schema:
    schema.pop("pattern", None)
    if schema.pop("patternProperties", None) is not None:
        schema.pop("additionalProperties", None)
    return schema


class _Weigher:
    """Counts the parts of a schema as a validator meets them: references are followed, alternatives count twice."""

    __slots__ = ("_known", "_open", "_root", "recursive")

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[str, int] = {}
        self._open: set[str] = set()
        self.recursive = False

    def weigh(self, schema: Any, depth: int) -> int:
        if depth > MAX_SCHEMA_DEPTH:
            raise McpError(f"its schema is nested more than {MAX_SCHEMA_DEPTH} deep, references followed")
        if isinstance(schema, list):
            return sum([self.weigh(item, depth) for item in cast(list[Any], schema)])
        if not isinstance(schema, dict):
            return 0
        return 1 + sum([self._weigh_part(key, value, depth + 1) for key, value in cast(Schema, schema).items()])

    def _weigh_part(self, key: str, value: Any, depth: int) -> int:
        if key == "$ref":
            return self._weigh_reference(value, depth)
        if key in _VALUES or key in _DEFINITIONS:
            return 0
        if key in _MAPS and isinstance(value, dict):
            return sum([self.weigh(item, depth) for item in cast(Schema, value).values()])
        return self.weigh(value, depth) * (2 if key in _CHOICES else 1)

    def _weigh_reference(self, pointer: Any, depth: int) -> int:
        if not isinstance(pointer, str):
            return 0
        if pointer in self._open:
            self.recursive = True
            return 1
        if pointer not in self._known:
            self._open.add(pointer)
            self._known[pointer] = self.weigh(_resolve_pointer(self._root, pointer), depth)
            self._open.discard(pointer)
        return self._known[pointer]


def _resolve_pointer(root: Mapping[str, Any], pointer: str) -> Any:
    found: Any = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = cast(Schema, found).get(step) if isinstance(found, dict) else None
    return found
