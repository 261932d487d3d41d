"""Converts between an MCP server and our tools: definitions to tools, and results of calls to tool output.

Names, texts and schemas of a server are untrusted data. Texts and images go to the model, structured data to the
details. Also reports the progress of a call, at a limited rate.
"""

from __future__ import annotations

import asyncio
import binascii
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import msgspec

from steersman.tools.builtin.images import MAX_IMAGE_BYTES, detect_image_type, inspect_image
from steersman.tools.calling import CallingConvention
from steersman.tools.mcp.errors import McpError
from steersman.tools.output import ToolContext
from steersman.tools.text import strip_invisible
from steersman.tools.tool import Access, Tool
from steersman.types.content import Content, ImageContent, TextContent
from steersman.types.secrets import redact
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    import mcp_types

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 48
MAX_SCHEMA_WEIGHT = 10_000
MAX_DESCRIPTION_LENGTH = 4_096
# A schema of these bytes has fewer parts. There are more steps where references name the same ones again and again.
_MAX_SCHEMA_STEPS = 100_000
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
        made: Tool = Tool(name, definition.description, definition.parameters, _take_all, access=access)
        made.execute = execute
        # An untrusted schema may have a property of any name, so its arguments are never passed by name.
        made._set_calling(CallingConvention(execute, schema, threaded=False, bundled=True, context=""))  # pyright: ignore[reportPrivateUsage]  # the second half of making one
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

    __slots__ = ("_known", "_open", "_root", "_steps", "recursive")

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0
        self._known: dict[str, int] = {}
        self._open: set[str] = set()
        self.recursive = False

    def weigh(self, schema: Any, depth: int) -> int:
        if depth > MAX_SCHEMA_DEPTH:
            raise McpError(f"its schema is nested more than {MAX_SCHEMA_DEPTH} deep, references followed")
        self._steps += 1
        if self._steps > _MAX_SCHEMA_STEPS:
            raise McpError("its schema is too complicated (its references name the same parts again and again)")
        if isinstance(schema, list):
            # Also lists in lists, which mean nothing, count as depth: with references they would be thousands of calls.
            items = cast(list[Any], schema)
            return sum([self.weigh(item, depth + isinstance(item, list)) for item in items])
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


_MAX_PICTURES = 20
_MAX_LABEL_LENGTH = 500
_MAX_DETAILS_LENGTH = 256 * 1024
_UPDATE_SECONDS = 0.1
_MAX_PROGRESS_LENGTH = 1_000

ProgressNote = tuple[float, float | None, str | None]


def to_output(server: str, result: mcp_types.CallToolResult, secrets: Sequence[str] = ()) -> ToolOutput:
    """Convert the result of a call; content that a model cannot take is described in words.

    The secrets are redacted in one that is an error: it often quotes the answer of another service.
    """
    secrets = secrets if result.is_error else ()
    content = _merge_texts(_convert_blocks(result), secrets)
    details: dict[str, Any] = {"mcp_server": server}
    if result.structured_content is not None:
        structured = msgspec.json.encode(result.structured_content).decode()
        shown = redact(structured, *secrets)
        if not content:
            content = [TextContent(shown)]
        if shown == structured and len(structured) <= _MAX_DETAILS_LENGTH:
            details["structured_content"] = result.structured_content
    return ToolOutput(content or "", details, is_error=result.is_error)


def _convert_blocks(result: mcp_types.CallToolResult) -> Iterator[str | ImageContent]:
    import mcp_types  # an extra, which is there when a server has answered

    pictures = 0
    for block in result.content:
        match block:
            case mcp_types.TextContent():
                yield block.text
            case mcp_types.ImageContent():
                pictures += 1
                yield (
                    _convert_picture(block)
                    if pictures <= _MAX_PICTURES
                    else _describe_binary("image", block.mime_type, block.data)
                )
            case mcp_types.AudioContent():
                yield _describe_binary("audio", block.mime_type, block.data)
            case mcp_types.ResourceLink():
                about = f", {_to_one_line(block.description)}" if block.description else ""
                yield f"[resource: {_to_one_line(block.name)} at {_to_one_line(block.uri)}{about}]"
            case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as inner):
                yield f"[resource: {_to_one_line(inner.uri)}]\n{inner.text}"
            case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as inner):
                yield _describe_binary(f"resource {_to_one_line(inner.uri)}", inner.mime_type, inner.blob)
            case _:
                yield "[something that cannot be shown]"


def _merge_texts(blocks: Iterator[str | ImageContent], secrets: Sequence[str]) -> list[Content]:
    """Merge neighbouring texts into one block, without the secrets."""
    merged: list[Content] = []
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
            continue
        if texts:
            merged.append(TextContent(redact("\n".join(texts), *secrets)))
            texts = []
        merged.append(block)
    if texts:
        merged.append(TextContent(redact("\n".join(texts), *secrets)))
    return merged


def _convert_picture(block: mcp_types.ImageContent) -> str | ImageContent:
    """Convert an image, or describe it where providers would reject it: it would break every later request."""
    try:
        data = binascii.a2b_base64(block.data, strict_mode=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        return f"[image: {_to_one_line(block.mime_type)}, which could not be decoded]"
    # The bytes decide the type; the declared type does not matter.
    kind = detect_image_type(data)
    if kind is None or len(data) > MAX_IMAGE_BYTES:
        return _describe_binary("image", block.mime_type, block.data)
    try:
        inspect_image(data, kind)
    except ValueError as error:
        return f"[image: {kind}, not shown: {error}]"
    return ImageContent(block.data, kind)


def _describe_binary(what: str, kind: str | None, data: str) -> str:
    return f"[{what}: {_to_one_line(kind or 'of unknown type')}, about {len(data) * 3 // 4:,} bytes, not shown]"


def _to_one_line(text: str) -> str:
    return strip_invisible(text, _MAX_LABEL_LENGTH, lines=False)


class Progress:
    """The progress of one call; passes at most ten updates a second to `update`."""

    __slots__ = ("_last", "_loop", "_timer", "_update", "_waiting")

    def __init__(self, update: Callable[[Any], None]) -> None:
        self._update = update
        self._loop = asyncio.get_running_loop()
        self._last = -math.inf
        self._waiting: ProgressNote | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def show(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a progress notification of the server."""
        self._waiting = (progress, total, message)
        pause = self._last + _UPDATE_SECONDS - self._loop.time()
        if pause <= 0:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(pause, self._flush)

    def close(self) -> None:
        """End the call: pass on the last update, and nothing after it."""
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting is not None:
            note, self._waiting = self._waiting, None
            self._last = self._loop.time()
            self._update(_make_update(*note))


def _make_update(progress: float, total: float | None, message: str | None) -> dict[str, Any]:
    """Make an update of the call from a progress notification."""
    update: dict[str, Any] = {"type": "progress"}
    amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
    update["text"] = strip_invisible(message, _MAX_PROGRESS_LENGTH, lines=False) if message else amount
    if math.isfinite(progress):
        update["progress"] = progress
    if total is not None and math.isfinite(total):
        update["total"] = total
    return update
