"""Classes with named fields (dataclasses, TypedDicts, NamedTuples, msgspec Structs) seen as one thing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import get_annotations
from typing import Any, NotRequired, Required, cast, get_args, get_origin, is_typeddict

import msgspec

from steersman.tools.schema.annotations import resolve
from steersman.tools.schema.docstrings import read_docstring

ABSENT: Any = object()
"""Stands for "no default", where `None` is one."""


class Field(msgspec.Struct, frozen=True):
    """One field: `key` in JSON, `name` in Python."""

    key: str
    name: str
    kind: Any
    required: bool
    default: Any = ABSENT
    description: str | None = None


class Record(msgspec.Struct, frozen=True):
    """The fields of a class, and how to make one of it. `tag` is a field that only names the class."""

    fields: Sequence[Field]
    build: Callable[..., Any]
    description: str = ""
    tag: tuple[str, str | int] | None = None

    def schema(self, forms: Sequence[tuple[Field, dict[str, Any]]]) -> dict[str, Any]:
        """The object schema, given that of each field."""
        properties: dict[str, Any] = {}
        required = [field.key for field in self.fields if field.required]
        if self.tag is not None:
            properties[self.tag[0]] = {"const": self.tag[1]}
            required.insert(0, self.tag[0])
        for field, schema in forms:
            properties[field.key] = {**schema, **json_default(field.default)}
        result: dict[str, Any] = {"type": "object"}
        if self.description:
            result["description"] = self.description
        result["properties"] = properties
        if required:
            result["required"] = required
        result["additionalProperties"] = False
        return result


def json_default(value: Any) -> dict[str, Any]:
    """The default as a schema shows it, or nothing where JSON cannot."""
    if value is ABSENT:
        return {}
    try:
        plain = msgspec.to_builtins(value)
        msgspec.json.encode(plain)
    except Exception:  # noqa: BLE001  # any object may stand as a default, and a default is only advice to the model
        return {}
    return {"default": plain}


def record_of(cls: type[Any]) -> Record | None:
    """The fields of a class that has them; `None` for any other class."""
    if is_typeddict(cls):
        return _typed_dict(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    if issubclass(cls, msgspec.Struct):
        return None if cls.__struct_config__.array_like else _struct(cls)
    if hasattr(cls, "_fields") and issubclass(cls, tuple):
        return _named_tuple(cls)
    return None


def _hints(cls: type[Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        if base.__module__ != "builtins":
            hints |= resolve(get_annotations(base), vars(module) if module else {}, f"{base.__qualname__!r}")
    return hints


def _documented(cls: type[Any]) -> tuple[str, Mapping[str, str]]:
    text = cls.__dict__.get("__doc__")
    if isinstance(text, str) and text.startswith(f"{cls.__name__}("):
        text = None  # What Python writes for a dataclass without a docstring tells the model nothing.
    documentation = read_docstring(text if isinstance(text, str) else None)
    return documentation.summary, documentation.parameters


def _dataclass(cls: Any) -> Record:
    summary, said = _documented(cls)
    hints = _hints(cls)
    fields: list[Field] = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        plain = field.default is dataclasses.MISSING
        required = plain and field.default_factory is dataclasses.MISSING
        description = field.metadata.get("description") or said.get(field.name)
        default = ABSENT if plain else field.default
        fields.append(Field(field.name, field.name, hints[field.name], required, default, description))
    return Record(fields, cls, summary)


def _typed_dict(cls: Any) -> Record:
    summary, said = _documented(cls)
    fields: list[Field] = []
    for name, hint in _hints(cls).items():
        required = name in cls.__required_keys__
        # With postponed annotations the class does not know yet that it holds these marks.
        while (origin := get_origin(hint)) in (Required, NotRequired):
            required, hint = origin is Required, get_args(hint)[0]
        fields.append(Field(name, name, hint, required, ABSENT, said.get(name)))
    return Record(fields, dict, summary)


def _named_tuple(cls: Any) -> Record:
    _, said = _documented(cls)
    hints = _hints(cls)
    defaults = cast(dict[str, Any], cls._field_defaults)
    names = cast(tuple[str, ...], cls._fields)
    fields = [
        Field(name, name, hints.get(name, Any), name not in defaults, defaults.get(name, ABSENT), said.get(name))
        for name in names
    ]
    return Record(fields, cls)


def _struct(cls: Any) -> Record:
    summary, said = _documented(cls)
    hints = _hints(cls)
    config = cls.__struct_config__
    fields: list[Field] = []
    # Not `msgspec.structs.fields`: that cannot resolve names of classes defined inside a function.
    names = cast(tuple[str, ...], cls.__struct_fields__)
    keys = cast(tuple[str, ...], cls.__struct_encode_fields__)
    defaults = cast(tuple[Any, ...], cls.__struct_defaults__)
    first_default = len(names) - len(defaults)
    for index, (name, key) in enumerate(zip(names, keys, strict=True)):
        default = defaults[index - first_default] if index >= first_default else msgspec.NODEFAULT
        required = default is msgspec.NODEFAULT
        shown = ABSENT if required or type(default).__module__.startswith("msgspec") else default
        fields.append(Field(key, name, hints[name], required, shown, said.get(name)))
    tag = None if config.tag is None else (cast(str, config.tag_field), cast("str | int", config.tag))
    return Record(fields, cls, summary, tag)
