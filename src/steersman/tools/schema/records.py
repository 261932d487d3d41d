"""Records: the fields of a class (dataclass, TypedDict, NamedTuple, msgspec Struct) with annotations and docstrings."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import cleandoc, get_annotations
from types import SimpleNamespace
from typing import Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from steersman.tools.output import ToolContext

ABSENT: Any = object()
"""Marks a missing default, because `None` is a valid default."""

_PARAMETERS = frozenset(("args", "arguments", "parameters", "params", "other parameters", "attributes", "keyword args"))
_OTHERS = frozenset(
    ("returns", "return", "yields", "yield", "raises", "raise", "warns", "warnings", "examples", "example", "notes")
).union(("note", "references", "see also", "todo"))
_SPHINX = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_GOOGLE = re.compile(r"(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


class Field(msgspec.Struct, frozen=True):
    """One field: its `key` in JSON, its `name` in Python."""

    key: str
    name: str
    kind: Any
    required: bool
    default: Any = ABSENT
    description: str | None = None


class Record(msgspec.Struct, frozen=True):
    """The fields of a class, and the function that builds an instance. `tag` is a field that only names the class."""

    fields: Sequence[Field]
    build: Callable[..., Any]
    description: str = ""
    tag: tuple[str, str | int] | None = None

    def build_schema(self, forms: Sequence[tuple[Field, dict[str, Any]]]) -> dict[str, Any]:
        """Build the object schema from the schema of each field."""
        properties: dict[str, Any] = {}
        required = [field.key for field in self.fields if field.required]
        if self.tag is not None:
            properties[self.tag[0]] = {"const": self.tag[1]}
            required.insert(0, self.tag[0])
        for field, schema in forms:
            properties[field.key] = {**schema, **encode_default(field.default)}
        result: dict[str, Any] = {"type": "object"}
        if self.description:
            result["description"] = self.description
        result["properties"] = properties
        if required:
            result["required"] = required
        result["additionalProperties"] = False
        return result


def encode_default(value: Any) -> dict[str, Any]:
    """Encode a default for a schema; nothing for a value without a JSON form."""
    if value is ABSENT:
        return {}
    try:
        plain = msgspec.to_builtins(value)
        msgspec.json.encode(plain)
    except Exception:  # noqa: BLE001  # any object may be a default, and a default is only a hint to the model
        return {}
    return {"default": plain}


def read_record(cls: type[Any]) -> Record | None:
    """Read the fields of a record class; `None` for any other class."""
    if is_typeddict(cls):
        return _read_typed_dict(cls)
    if dataclasses.is_dataclass(cls):
        return _read_dataclass(cls)
    if issubclass(cls, msgspec.Struct):
        return None if cls.__struct_config__.array_like else _read_struct(cls)
    if hasattr(cls, "_fields") and issubclass(cls, tuple):
        return _read_named_tuple(cls)
    return None


def _resolve_class_hints(cls: type[Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        if base.__module__ != "builtins":
            hints |= resolve_annotations(
                get_annotations(base), vars(module) if module else {}, f"{base.__qualname__!r}"
            )
    return hints


def _read_class_docstring(cls: type[Any]) -> tuple[str, Mapping[str, str]]:
    text = cls.__dict__.get("__doc__")
    if isinstance(text, str) and text.startswith(f"{cls.__name__}("):
        text = None  # What Python writes for a dataclass without a docstring tells the model nothing.
    documentation = parse_docstring(text if isinstance(text, str) else None)
    return documentation.summary, documentation.parameters


def _read_dataclass(cls: Any) -> Record:
    summary, descriptions = _read_class_docstring(cls)
    hints = _resolve_class_hints(cls)
    fields: list[Field] = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        plain = field.default is dataclasses.MISSING
        required = plain and field.default_factory is dataclasses.MISSING
        description = field.metadata.get("description") or descriptions.get(field.name)
        default = ABSENT if plain else field.default
        fields.append(Field(field.name, field.name, hints[field.name], required, default, description))
    return Record(fields, cls, summary)


def _read_typed_dict(cls: Any) -> Record:
    summary, descriptions = _read_class_docstring(cls)
    fields: list[Field] = []
    for name, hint in _resolve_class_hints(cls).items():
        required = name in cls.__required_keys__
        # With postponed annotations, `__required_keys__` does not consider these marks.
        while (origin := get_origin(hint)) in (Required, NotRequired):
            required, hint = origin is Required, get_args(hint)[0]
        fields.append(Field(name, name, hint, required, ABSENT, descriptions.get(name)))
    return Record(fields, dict, summary)


def _read_named_tuple(cls: Any) -> Record:
    _, descriptions = _read_class_docstring(cls)
    hints = _resolve_class_hints(cls)
    defaults = cast(dict[str, Any], cls._field_defaults)
    names = cast(tuple[str, ...], cls._fields)
    fields = [
        Field(
            name, name, hints.get(name, Any), name not in defaults, defaults.get(name, ABSENT), descriptions.get(name)
        )
        for name in names
    ]
    return Record(fields, cls)


def _read_struct(cls: Any) -> Record:
    summary, descriptions = _read_class_docstring(cls)
    hints = _resolve_class_hints(cls)
    config = cls.__struct_config__
    fields: list[Field] = []
    # Not `msgspec.structs.fields`, which cannot resolve names of classes defined inside a function.
    names = cast(tuple[str, ...], cls.__struct_fields__)
    keys = cast(tuple[str, ...], cls.__struct_encode_fields__)
    defaults = cast(tuple[Any, ...], cls.__struct_defaults__)
    first_default = len(names) - len(defaults)
    for index, (name, key) in enumerate(zip(names, keys, strict=True)):
        default = defaults[index - first_default] if index >= first_default else msgspec.NODEFAULT
        required = default is msgspec.NODEFAULT
        shown = ABSENT if required or type(default).__module__.startswith("msgspec") else default
        fields.append(Field(key, name, hints[name], required, shown, descriptions.get(name)))
    tag = None if config.tag is None else (cast(str, config.tag_field), cast("str | int", config.tag))
    return Record(fields, cls, summary, tag)


class Documentation(msgspec.Struct, frozen=True):
    """A parsed docstring: the summary, and a description for each parameter."""

    summary: str = ""
    parameters: dict[str, str] = {}  # msgspec copies the default


def parse_docstring(text: str | None) -> Documentation:
    """Parse a docstring: the text before the first section, and the descriptions of the parameters."""
    if not text or not text.strip():
        return Documentation()
    lines = cleandoc(text).splitlines()
    end = next((index for index in range(len(lines)) if _starts_section(lines, index)), len(lines))
    parameters: dict[str, str] = {}
    index = end
    while index < len(lines):
        index = _read_section(lines, index, parameters)
    return Documentation("\n".join(lines[:end]).strip(), parameters)


def _find_heading(lines: list[str], index: int) -> str | None:
    """Return the name of the section that begins at a line, in lower case."""
    line = lines[index]
    if not line or line[0].isspace():
        return None
    name = line.strip().rstrip(":").lower()
    if name not in _PARAMETERS and name not in _OTHERS:
        return None
    return name if line.rstrip().endswith(":") or _is_underlined(lines, index) else None


def _is_underlined(lines: list[str], index: int) -> bool:
    below = lines[index + 1].strip() if index + 1 < len(lines) else ""
    return len(below) >= 3 and not below.strip("-")


def _starts_section(lines: list[str], index: int) -> bool:
    return _find_heading(lines, index) is not None or _SPHINX.match(lines[index]) is not None


def _read_section(lines: list[str], start: int, parameters: dict[str, str]) -> int:
    """Read the parameters that a section describes; return the index of the line after it."""
    heading = _find_heading(lines, start)
    numpy = heading is not None and _is_underlined(lines, start)
    first = start + (2 if numpy else 1)
    end = next((index for index in range(first, len(lines)) if _starts_section(lines, index)), len(lines))
    if heading is None:
        _read_sphinx(lines[start:end], parameters)
    elif heading in _PARAMETERS:
        _read_entries(lines[first:end], parameters, _NUMPY if numpy else _GOOGLE)
    return end


def _read_sphinx(lines: list[str], parameters: dict[str, str]) -> None:
    match = _SPHINX.match(lines[0])
    if match is None or match.group(1) not in ("param", "parameter", "arg", "argument") or not match.group(2):
        return
    # `:param int count:` names the type first.
    _add_description(parameters, match.group(2).split()[-1], [match.group(3), *lines[1:]])


def _read_entries(lines: list[str], parameters: dict[str, str], pattern: re.Pattern[str]) -> None:
    """Read entries, which begin at the section's own indentation; deeper lines continue the last entry."""
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    names: list[str] = []
    texts: list[str] = []
    for line in lines:
        match = pattern.fullmatch(line.strip()) if line[:indent].isspace() or not indent else None
        if match is not None and len(line) - len(line.lstrip()) == indent:
            for name in names:
                _add_description(parameters, name, texts)
            names = [name.strip() for name in match.group(1).split(",")]
            texts = [match.group(2)] if pattern is _GOOGLE else []
        else:
            texts.append(line)
    for name in names:
        _add_description(parameters, name, texts)


def _add_description(parameters: dict[str, str], name: str, texts: list[str]) -> None:
    text = " ".join(line.strip() for line in texts).strip()
    if text:
        parameters[name.lstrip("*")] = text


def resolve_annotations(annotations: Mapping[str, Any], names: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Resolve annotations to types; names that are not global are looked up in the calling frames.

    A tool defined inside a function may use classes of that function, which are in no namespace of the tool itself.
    """
    holder = SimpleNamespace(__annotations__=dict(annotations))
    # `ToolContext` is often imported only under `if TYPE_CHECKING`.
    local: dict[str, Any] = {"ToolContext": ToolContext}
    local = {name: value for name, value in local.items() if name not in names}
    while True:
        try:
            return get_type_hints(holder, dict(names), local, include_extras=True)
        except NameError as error:
            name = error.name
            if name is None or name in local or not _find_in_callers(name, local):
                raise TypeError(
                    f"{owner} is annotated with {name!r}, which is not defined where it could be found. "
                    "Import it outside `if TYPE_CHECKING`, or define it at the top of the module."
                ) from error


def _find_in_callers(name: str, local: dict[str, Any]) -> bool:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # documented; `inspect` would only wrap it
    while frame is not None:
        if name in frame.f_locals and not frame.f_globals.get("__name__", "").startswith("steersman.tools."):
            local[name] = frame.f_locals[name]
            return True
        frame = frame.f_back
    return False


def find_description(metadata: Sequence[Any]) -> str | None:
    """Find the description in the metadata of `Annotated`: a plain text, or an object with a description."""
    for item in metadata:
        if isinstance(item, str):
            return item
        for attribute in ("description", "documentation"):
            if isinstance(text := getattr(item, attribute, None), str):
                return text
    return None


def apply_constraints(schema: dict[str, Any], metadata: Sequence[Any]) -> dict[str, Any]:
    """Add the bounds in the metadata of `Annotated` to the schema, whichever library defines them."""
    for item in metadata:
        # Pydantic's Field keeps its bounds one level deeper.
        for bounds in (item, *getattr(item, "metadata", ())):
            schema = _apply_bounds(schema, bounds)
    return schema


def _apply_bounds(schema: dict[str, Any], bounds: Any) -> dict[str, Any]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [_apply_bounds(branch, bounds) for branch in schema["anyOf"]]}
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
