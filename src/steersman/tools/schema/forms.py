"""Forms of Python types in JSON: a schema, and a function that builds the object from a checked JSON value."""

from __future__ import annotations

import enum
import os
import types
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NewType, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import msgspec

from steersman.tools.schema.records import Record, apply_constraints, find_description, read_record
from steersman.tools.schema.validation import InvalidArguments, compile_schema

Convert: TypeAlias = Callable[[Any], Any]

_PLAIN: Mapping[Any, dict[str, Any]] = {
    Any: {},
    object: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
}
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection)
_SETS = (set, frozenset, abc.Set, abc.MutableSet)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_SCALARS = (str, int, float, bool, type(None))
_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Form(msgspec.Struct, frozen=True):
    """How a type looks in JSON. `convert` is `None` where the JSON value is already the object."""

    schema: dict[str, Any]
    convert: Convert | None = None

    def add_description(self, description: str | None) -> Form:
        """Return the form with a description, unless it has one."""
        if not description or self.schema.get("description"):
            return self
        return Form({**self.schema, "description": description}, self.convert)


class Forms:
    """Makes forms that share one set of definitions; only recursive types get a definition of their own."""

    __slots__ = ("_open", "_used", "definitions")

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._open: dict[Any, tuple[str, list[Convert]]] = {}
        self._used: set[str] = set()

    def make(self, kind: Any) -> Form:
        """Make the form of a type; `TypeError` for a type without a JSON form."""
        if kind in _PLAIN:
            return Form(_PLAIN[kind])
        if kind is float:
            # JSON does not distinguish 3 from 3.0; the function expects a float.
            return Form({"type": "number"}, float)
        if hasattr(kind, "__metadata__"):
            return self._make_annotated(kind)
        if isinstance(kind, TypeVar):
            return self.make(kind.__bound__ or Any)
        if isinstance(kind, NewType):
            return self.make(cast(Any, kind).__supertype__)
        if hasattr(kind, "__value__"):
            return self.make(kind.__value__)
        origin = get_origin(kind)
        if origin is Literal:
            return _make_literal(get_args(kind))
        if origin is Union or origin is types.UnionType:
            return self._make_union([self.make(branch) for branch in get_args(kind)])
        return self._make_from_class(kind, origin or kind, get_args(kind))

    def embed_definitions(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a self-contained schema: its definitions inside, and no bare reference at the top."""
        if not self.definitions:
            return schema
        if "$ref" in schema and "properties" not in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            schema = {**self.definitions[name], **{key: schema[key] for key in schema if key != "$ref"}}
        return {**schema, "$defs": self.definitions}

    def _make_from_class(self, kind: Any, cls: Any, arguments: tuple[Any, ...]) -> Form:
        if not isinstance(cls, type):
            raise TypeError(_describe_unsupported(kind))
        cls = cast(type[Any], cls)
        if cls in _LISTS:
            return self._make_list(arguments, None)
        if cls in _SETS:
            return self._make_list(arguments, frozenset if cls is frozenset else set)
        if cls is tuple:
            return self._make_tuple(arguments)
        if cls in _MAPPINGS:
            return self._make_mapping(arguments)
        if issubclass(cls, enum.Enum):
            return _make_enum(cls)
        if hasattr(cls, "__fspath__"):
            return Form({"type": "string"}, str if cls is os.PathLike else cls)
        if hasattr(cls, "model_json_schema") and hasattr(cls, "model_validate"):
            return self._make_pydantic(cls)
        if (record := read_record(cls)) is not None:
            return self._make_record(cls, record)
        return self._make_foreign(kind)

    def _make_annotated(self, kind: Any) -> Form:
        form = self.make(kind.__origin__)
        form = Form(apply_constraints(form.schema, kind.__metadata__), form.convert)
        description = find_description(kind.__metadata__)
        return Form({**form.schema, "description": description}, form.convert) if description else form

    def _make_union(self, forms: Sequence[Form]) -> Form:
        schema = {"anyOf": [form.schema for form in forms]}
        if all(form.convert is None for form in forms):
            return Form(schema)
        others = [form for form in forms if form.schema != _PLAIN[None]]
        if len(others) == 1 and (inner := others[0].convert) is not None:
            return Form(schema, lambda value: None if value is None else inner(value))
        return Form(schema, self._make_choice(forms))

    def make_nullable(self, form: Form) -> Form:
        """Return a form that also accepts null, with the same description."""
        return self._make_union([form, Form(_PLAIN[None])]).add_description(form.schema.get("description"))

    def _make_choice(self, forms: Sequence[Form]) -> Convert:
        """Make a converter that uses the first branch that accepts the value unchanged."""
        checks: list[tuple[Convert, Convert | None]] = []

        def convert(value: Any) -> Any:
            if not checks:
                # Compiled on first use: definitions are complete only after all forms are made.
                for form in forms:
                    branch = {**form.schema, "$defs": self.definitions}
                    checks.append((compile_schema(branch, coerce=False), form.convert))
            for check, branch in checks:
                try:
                    plain = check(value)
                except InvalidArguments:
                    continue
                return plain if branch is None else branch(plain)
            raise ValueError("fits none of the alternatives")

        return convert

    def _make_list(self, arguments: tuple[Any, ...], build: Convert | None) -> Form:
        item = self.make(arguments[0]) if arguments else Form({})
        schema: dict[str, Any] = {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
        if build is not None:
            schema["uniqueItems"] = True
        inner = item.convert
        if inner is None:
            return Form(schema, build)
        if build is None:
            return Form(schema, lambda value: [inner(element) for element in value])
        return Form(schema, lambda value: build(inner(element) for element in value))

    def _make_tuple(self, arguments: tuple[Any, ...]) -> Form:
        if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
            form = self._make_list(arguments[:1], None)
            inner = form.convert
            return Form(form.schema, tuple if inner is None else lambda value: tuple(inner(value)))
        items = [] if arguments == ((),) else [self.make(kind) for kind in arguments]
        schema = {
            "type": "array",
            "prefixItems": [item.schema for item in items],
            "minItems": len(items),
            "maxItems": len(items),
        }
        converts = [item.convert or _identity for item in items]
        return Form(schema, lambda value: tuple([convert(v) for convert, v in zip(converts, value, strict=True)]))

    def _make_mapping(self, arguments: tuple[Any, ...]) -> Form:
        if not arguments:
            return Form({"type": "object"})
        key, item = self._make_key_converter(arguments[0]), self.make(arguments[1])
        schema: dict[str, Any] = {"type": "object"}
        if item.schema:
            schema["additionalProperties"] = item.schema
        if key is None and item.convert is None:
            return Form(schema)
        name, inner = key or _identity, item.convert or _identity
        return Form(schema, lambda value: {name(k): inner(v) for k, v in value.items()})

    def _make_key_converter(self, kind: Any) -> Convert | None:
        """Make a converter for keys: JSON keys are strings, from which numbers and enums are parsed."""
        form = self.make(kind)
        if form.schema.get("type") == "integer" and form.convert is None:
            return int
        if form.schema.get("type") == "number":
            return float
        return form.convert

    def _make_record(self, cls: type[Any], record: Record) -> Form:
        if cls in self._open:
            name, cell = self._open[cls]
            self._used.add(name)
            return Form({"$ref": f"#/$defs/{name}"}, lambda value: cell[0](value))
        name, cell = self._find_free_name(cls.__name__), cast(list[Convert], [])
        self._open[cls] = (name, cell)
        fields = [(field, self.make(field.kind).add_description(field.description)) for field in record.fields]
        del self._open[cls]
        schema = record.build_schema([(field, form.schema) for field, form in fields])
        steps = [(field.key, field.name, form.convert) for field, form in fields]
        build = record.build

        def convert(value: Any) -> Any:
            given = {
                name: value[key] if inner is None else inner(value[key]) for key, name, inner in steps if key in value
            }
            return build(**given)

        cell.append(convert)
        if name not in self._used:
            return Form(schema, convert)
        self.definitions[name] = schema
        return Form({"$ref": f"#/$defs/{name}"}, convert)

    def _make_pydantic(self, cls: Any) -> Form:
        def convert(value: Any) -> Any:
            try:
                return cls.model_validate(value)
            except ValueError as error:
                errors = getattr(error, "errors", None)
                if errors is None:
                    raise
                # Pydantic's own text spans several lines and ends in a URL.
                raise ValueError(
                    "; ".join(": ".join([*[str(step) for step in item["loc"]], item["msg"]]) for item in errors())
                ) from error

        return Form(self._adopt_schema(cls.model_json_schema()), convert)

    def _make_foreign(self, kind: Any) -> Form:
        """Make the form of a type that only msgspec supports: dates, UUIDs, decimals, bytes, attrs classes."""
        try:
            schema = self._adopt_schema(msgspec.json.schema(kind))
        except (TypeError, RecursionError) as error:
            raise TypeError(_describe_unsupported(kind)) from error
        return Form(schema, lambda value: msgspec.convert(value, kind))

    def _adopt_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Take over a schema of another library; its definitions move to ours under free names."""
        own = schema.pop("$defs", {})
        names: dict[str, str] = {}
        for name in own:
            names[name] = self._find_free_name(name)
            self.definitions[names[name]] = {}
        for name, definition in own.items():
            self.definitions[names[name]] = _rename_references(definition, names)
        adopted = _rename_references(schema, names)
        target = adopted["$ref"].rpartition("/")[2] if set(adopted) == {"$ref"} else ""
        if target in names.values() and not _has_reference(self.definitions, adopted["$ref"]):
            return self.definitions.pop(target)
        return adopted

    def _find_free_name(self, name: str) -> str:
        taken = {*self.definitions, *(used for used, _ in self._open.values())}
        base = "".join(letter if letter.isalnum() else "_" for letter in name)
        free, number = base, 2
        while free in taken:
            free, number = f"{base}_{number}", number + 1
        return free


def _identity(value: Any) -> Any:
    return value


def _make_literal(values: tuple[Any, ...]) -> Form:
    members = {value.value: value for value in values if isinstance(value, enum.Enum)}
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    form = Form(_make_enum_schema(plain, f"Literal{list(values)!r}"))
    return Form(form.schema, lambda value: members.get(value, value)) if members else form


def _make_enum(cls: type[enum.Enum]) -> Form:
    values = [member.value for member in cls]
    if all(type(value) in _SCALARS for value in values):
        return Form(_make_enum_schema(values, cls.__name__), cls)
    return Form(_make_enum_schema([member.name for member in cls], cls.__name__), lambda name: cls[name])


def _make_enum_schema(values: list[Any], owner: str) -> dict[str, Any]:
    if not values or any(type(value) not in _SCALARS for value in values):
        raise TypeError(f"{owner} needs values that have a JSON form: text, numbers, booleans or None.")
    kinds: set[type[Any]] = {type(value) for value in values}
    return {"type": _TYPE_NAMES[kinds.pop()], "enum": values} if len(kinds) == 1 else {"enum": values}


def _describe_unsupported(kind: Any) -> str:
    name = getattr(kind, "__name__", None) or str(kind)
    return (
        f"{name!r} has no JSON form. Use str, int, float, bool, list, dict, Literal, an Enum, a dataclass, "
        "a TypedDict, a msgspec Struct or a pydantic model, or write a Tool with a JSON Schema of its own."
    )


def _rename_references(schema: Any, names: Mapping[str, str]) -> Any:
    """Return the schema with its references changed to the new names."""
    if isinstance(schema, list):
        return [_rename_references(item, names) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, item in cast(dict[str, Any], schema).items():
        if key == "$ref" and isinstance(item, str):
            head, _, name = item.rpartition("/")
            result[key] = f"{head}/{names.get(name, name)}"
        else:
            result[key] = _rename_references(item, names)
    return result


def _has_reference(schema: Any, reference: str) -> bool:
    """Whether a reference occurs anywhere in a schema."""
    if isinstance(schema, list):
        return any(_has_reference(item, reference) for item in cast(list[Any], schema))
    if not isinstance(schema, dict):
        return False
    items = cast(dict[str, Any], schema)
    return items.get("$ref") == reference or any(_has_reference(item, reference) for item in items.values())
