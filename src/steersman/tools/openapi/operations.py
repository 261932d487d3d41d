"""The operations of an OpenAPI description: one for each method of each path, each with a unique tool name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

from steersman.tools.openapi.document import Document, SchemaConverter, UniqueNames
from steersman.tools.openapi.parameters import LOCATIONS, STYLES, Location, Parameter
from steersman.tools.text import format_value

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
Choice: TypeAlias = "Iterable[str] | Callable[[Operation], bool]"

_MAX_NAME_LENGTH = 64
_MAX_DESCRIPTION_LENGTH = 1_000
# How much of a text is looked at: hundreds of operations may share a long one, and all of their tags.
_MAX_READ_LENGTH = 4_000
_MAX_TAGS = 100
# The tool's function needs this parameter name for itself.
_RESERVED_NAME = "arguments"
# Set by the HTTP client or by the user; a description cannot make them arguments for the model.
_OWN_HEADERS = re.compile(
    "accept|accept-encoding|authorization|connection|content-.*|cookie|expect|host|keep-alive|proxy-.*|te|trailer"
    "|transfer-encoding|upgrade"
)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TEMPLATE = re.compile(r"\{([^{}/]+)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the description; `id` is its `operationId`, or method and path where it has none."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    tags: tuple[str, ...]
    deprecated: bool
    tool: str
    """The name of its tool."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The request body: its media type, and the argument that holds it."""

    media_type: str
    argument: str
    required: bool


@dataclass(frozen=True, slots=True)
class Form:
    """The input of an operation: its parameters, its request body, and one schema for all of them."""

    parameters: tuple[Parameter, ...]
    payload: Payload | None
    schema: Mapping[str, Any]


def list_operations(
    document: Document, prefix: str = ""
) -> dict[Operation, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """List the operations, each with its own object and the object of its path."""
    found: dict[Operation, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    names = UniqueNames(_MAX_NAME_LENGTH)
    for method, path, item, details in _iterate_operations(document):
        given = details.get("operationId")
        id = given if isinstance(given, str) and given else f"{method.upper()} {path}"
        wanted = id if id is given else f"{method}_{path.strip('/')}"
        name = names.add(prefix + _to_identifier(wanted[:_MAX_READ_LENGTH]))
        tags = details.get("tags")
        operation = Operation(
            id,
            method.upper(),
            path,
            _to_one_line(details.get("summary")),
            _to_one_line(details.get("description")),
            tuple(map(_to_tag, cast(Sequence[Any], tags)[:_MAX_TAGS])) if isinstance(tags, list | tuple) else (),
            details.get("deprecated") is True,
            name,
        )
        found[operation] = (details, item)
    return found


def choose_operations(operations: Sequence[Operation], choice: Choice | None, setting: str) -> list[Operation]:
    """Choose operations by id, tool name or `GET /path`, or by a function."""
    if choice is None:
        return list(operations)
    if callable(choice):
        return [operation for operation in operations if choice(operation)]
    if isinstance(choice, str):
        raise TypeError(f"{setting!r} is a list, such as {setting}=[{choice!r}], or a function; got a string.")
    wanted: set[Operation] = set()
    for name in choice:
        matching = [operation for operation in operations if name in _list_names(operation)]
        if not matching:
            known = [operation.id for operation in operations]
            near = get_close_matches(name, known, 3, 0.7)
            hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"There are: {', '.join(known[:20])}."
            raise ValueError(f"{setting!r} names an operation {name!r}, which the description does not have. {hint}")
        wanted.update(matching)
    return [operation for operation in operations if operation in wanted]


def build_form(
    document: Document,
    operation: Operation,
    details: Mapping[str, Any],
    item: Mapping[str, Any],
    withheld: frozenset[tuple[str, str]],
) -> Form:
    """Build the form of an operation. `withheld` are parameters set by the user, as location and lower-case name."""
    schemas, names = SchemaConverter(document), UniqueNames(_MAX_NAME_LENGTH, _RESERVED_NAME)
    properties: dict[str, Any] = {}
    required: list[str] = []
    parameters: list[Parameter] = []
    for given, location, name in _collect_parameters(document, operation, details, item, withheld):
        argument = _name_argument(name, location, names)
        parameter, schema = _parse_parameter(document, given, name, location, argument)
        properties[argument] = _add_description(schemas.convert(schema), given.get("description"))
        parameters.append(parameter)
        if parameter.required:
            required.append(argument)
    payload = None
    if "requestBody" in details:
        body = document.follow(details["requestBody"], "A request body")
        if (media := _choose_media_type(document, body)) is not None:
            payload = Payload(media[0], _name_argument("body", "request", names), body.get("required") is True)
            properties[payload.argument] = _add_description(schemas.convert(media[1]), body.get("description"))
            if payload.required:
                required.append(payload.argument)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    definitions = schemas.build_definitions()
    return Form(tuple(parameters), payload, schema | {"$defs": definitions} if definitions else schema)


def _iterate_operations(document: Document) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    for path, given in document.follow(document.root.get("paths") or {}, "'paths'").items():
        if path.startswith("x-"):
            continue
        if not path.startswith("/") or {".", ".."} & set(path.split("/")):
            raise ValueError(f"A path begins with '/' and has no '.' or '..' as a step, got {path!r}.")
        item = document.follow(given, f"The path {path!r}")
        for method in METHODS:
            if method in item:
                yield method, path, item, document.follow(item[method], f"{method.upper()} {path}")


def _list_names(operation: Operation) -> tuple[str, str, str]:
    return operation.id, operation.tool, f"{operation.method} {operation.path}"


def _collect_parameters(
    document: Document,
    operation: Operation,
    details: Mapping[str, Any],
    item: Mapping[str, Any],
    withheld: frozenset[tuple[str, str]],
) -> list[tuple[Mapping[str, Any], Location, str]]:
    """Collect the parameters in the order of their locations; the operation's own override those of its path."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    listed = [*(item.get("parameters") or ()), *(details.get("parameters") or ())]
    document.count_parts(len(listed))
    for given in listed:
        parameter = document.follow(given, f"A parameter of {operation.id!r}")
        location, name = parameter.get("in"), parameter.get("name")
        if location not in LOCATIONS or not isinstance(name, str) or not name:
            shown = f"'in': {format_value(location)} and 'name': {format_value(name)}"
            raise ValueError(f"A parameter of {operation.id!r} has {shown}.")
        found[location, name] = parameter
    in_template = _TEMPLATE.findall(operation.path)
    for name in in_template:
        # Some descriptions leave out a parameter that is in the path template.
        found.setdefault(("path", name), {"required": True, "schema": {"type": "string"}})
    ordered = sorted(found.items(), key=lambda entry: LOCATIONS.index(cast(Location, entry[0][0])))
    return [
        (parameter, cast(Location, location), name)
        for (location, name), parameter in ordered
        if (location, name.lower()) not in withheld
        and not (location == "header" and (_OWN_HEADERS.fullmatch(name.lower()) or not _TOKEN.fullmatch(name)))
        and not (location == "path" and name not in in_template)
    ]


def _parse_parameter(
    document: Document, given: Mapping[str, Any], name: str, location: Location, argument: str
) -> tuple[Parameter, Any]:
    content = _read_content_schemas(document, given)
    schema: Any = next(iter(content.values())) if content else given.get("schema", {})
    styles = STYLES[location]
    style = given.get("style", styles[0])
    if style not in styles:
        known = ", ".join(styles)
        raise ValueError(f"The {location} parameter {name!r} has the style {format_value(style)}; there are {known}.")
    explode = given.get("explode", style == "form")
    required = given.get("required") is True or location == "path"
    return Parameter(name, argument, location, style, explode is True, required, bool(content)), schema


def _choose_media_type(document: Document, body: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Choose the media type of the request body among those that the operation accepts, and its schema."""
    content = _read_content_schemas(document, body)
    if not content:
        return None
    best = min(content, key=_rank_media_type)
    media_type = best.partition(";")[0].strip().lower()
    return ("application/json" if "*" in media_type else media_type), content[best]


def _read_content_schemas(document: Document, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas by media type."""
    content: Any = given.get("content")
    if not isinstance(content, Mapping):
        return {}
    kinds = cast(Mapping[str, Any], content)
    document.count_parts(len(kinds))
    return {
        kind: cast(Mapping[str, Any], details).get("schema", {}) if isinstance(details, Mapping) else {}
        for kind, details in kinds.items()
    }


def _rank_media_type(kind: str) -> int:
    kind = kind.partition(";")[0].strip().lower()
    if kind == "application/json":
        return 0
    if kind.endswith("+json") or "*" in kind:
        return 1
    return {"application/x-www-form-urlencoded": 2, "multipart/form-data": 3}.get(kind, 4)


def _add_description(schema: Any, description: Any) -> Any:
    """Add the description of the parameter or body, which says more than the schema's own."""
    text = _to_one_line(description)
    return {**cast(dict[str, Any], schema), "description": text} if text and isinstance(schema, dict) else schema


def _to_tag(given: Any) -> str:
    # YAML can write a list of a few bytes that takes gigabytes as text.
    return given if isinstance(given, str) else format_value(given)


def _to_one_line(text: Any) -> str:
    return " ".join(text[:_MAX_READ_LENGTH].split())[:_MAX_DESCRIPTION_LENGTH] if isinstance(text, str) else ""


def _to_identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") or "operation"


def _name_argument(name: str, location: str, taken: UniqueNames) -> str:
    wanted = re.sub(r"[^A-Za-z0-9_.-]", "_", name[:_MAX_NAME_LENGTH]) or "value"
    return taken.add(f"{wanted[: _MAX_NAME_LENGTH - 8]}_{location}" if wanted in taken else wanted)
