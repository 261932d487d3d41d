"""JSON Schema from Python types and from the parameters of a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast, get_args, get_origin

import msgspec

from steersman.tools.output import ToolContext
from steersman.tools.schema.checks import ForeignSchema
from steersman.tools.schema.forms import Convert, Form, Forms
from steersman.tools.schema.records import ABSENT, encode_default, parse_docstring, resolve_annotations
from steersman.tools.schema.validation import InvalidArguments, compile_schema

OutputCodec: TypeAlias = tuple[dict[str, Any], Callable[[Any], Any]]

_GUESSABLE = (str, int, float, bool)


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of a function: their schema, and the converters from JSON to the annotated types."""

    schema: dict[str, Any]
    description: str
    converts: Sequence[tuple[str, Convert]]
    positional: Sequence[str]
    context: str | None
    method: bool


def build_schema(kind: Any) -> dict[str, Any]:
    """Build the JSON Schema of a type."""
    forms = Forms()
    return forms.embed_definitions(forms.make(kind).schema)


def build_converter(kind: Any) -> Callable[[Any], Any]:
    """Build a function from a JSON value that fits the schema to an object of the type."""
    return Forms().make(kind).convert or (lambda value: value)


def build_output_codec(kind: Any) -> OutputCodec:
    """Build the schema of a type, and a function from any JSON value to a checked object of the type.

    The function coerces where that loses nothing, and raises `ValueError` with a text that tells the model what to
    correct. A JSON Schema may be given instead of a type; its objects are plain JSON values.
    """
    if isinstance(kind, Mapping):
        found = cast(Mapping[str, Any], kind)
        return dict(found), compile_schema(found if isinstance(kind, ForeignSchema) else dict(found), name="output")
    forms = Forms()
    form = forms.make(kind)
    schema = forms.embed_definitions(form.schema)
    check = compile_schema(schema, name="output")
    inner = form.convert

    def convert(value: Any) -> Any:
        plain = check(value)
        return plain if inner is None else convert_checked(inner, plain, "output")

    return schema, convert


def convert_checked(convert: Convert, value: Any, name: str) -> Any:
    """Build the object from a value that fits the schema; raise `InvalidArguments` where its class refuses it."""
    try:
        return convert(value)
    except InvalidArguments:
        raise
    except (ValueError, TypeError, ArithmeticError, AssertionError, LookupError, msgspec.ValidationError) as error:
        # A `__post_init__` or a validator raises these for a value it refuses.
        raise InvalidArguments(f"{name}: {error}" if str(error) else f"{name}: {error!r}") from error


def read_parameters(function: Callable[..., Any], name: str) -> Parameters:
    """Read the parameters of a typed function; `TypeError` where its signature is incomplete."""
    documentation = parse_docstring(inspect.getdoc(function))
    listed = list(inspect.signature(function).parameters.values())
    method = bool(listed) and listed[0].name in ("self", "cls") and listed[0].annotation is inspect.Parameter.empty
    hints = resolve_hints(function, name)
    forms, properties, converts = Forms(), dict[str, Any](), list[tuple[str, Convert]]()
    positional, required = list[str](), list[str]()
    context, rest = None, False
    for parameter in listed[1:] if method else listed:
        default = ABSENT if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(f"Tool {name!r} takes '*{parameter.name}'; a model gives arguments by name. Take a list.")
        elif is_context_parameter(parameter.name, hints):
            context = parameter.name
        else:
            form = _make_form(forms, name, parameter.name, hints, default)
            form = form.add_description(documentation.parameters.get(parameter.name))
            properties[parameter.name] = {**form.schema, **encode_default(default)}
            if form.convert is not None:
                converts.append((parameter.name, form.convert))
            if default is ABSENT:
                required.append(parameter.name)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
    schema = _make_object_schema(properties, required, closed=not rest)
    return Parameters(forms.embed_definitions(schema), documentation.summary, converts, positional, context, method)


def resolve_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Resolve the annotations of a function's parameters; the return annotation is left out."""
    target: Any = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = target.func
    if not hasattr(target, "__code__") and not hasattr(target, "__func__"):
        target = type(target).__call__ if callable(target) else target
    target = getattr(target, "__func__", target)
    annotations = {key: value for key, value in getattr(target, "__annotations__", {}).items() if key != "return"}
    return resolve_annotations(annotations, getattr(target, "__globals__", {}), f"Tool {name!r}")


def is_context_parameter(name: str, hints: Mapping[str, Any]) -> bool:
    """Whether a parameter takes the `ToolContext`: by its type, or by the name `ctx` without another type."""
    hint = hints.get(name, Any)
    if any(get_origin(each) is ToolContext or each is ToolContext for each in (hint, *get_args(hint))):
        return True
    return name == "ctx" and hint is Any


def _make_form(forms: Forms, tool: str, name: str, hints: Mapping[str, Any], default: Any) -> Form:
    hint = hints.get(name, ABSENT)
    if hint is ABSENT:
        if type(default) not in _GUESSABLE:
            raise TypeError(
                f"Parameter {name!r} of tool {tool!r} has no type. Annotate it, for example '{name}: str', "
                "so that the model knows what to give."
            )
        hint = cast(Any, type(default))
    try:
        form = forms.make(hint)
    except TypeError as error:
        raise TypeError(f"Parameter {name!r} of tool {tool!r}: {error}") from error
    if default is None and hint is not Any and not _accepts_null(form.schema):
        # `limit: int = None` means that None is allowed.
        return forms.make_nullable(form)
    return form


def _accepts_null(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") == "null" or None in schema.get("enum", ()):
        return True
    return any(_accepts_null(branch) for branch in schema.get("anyOf", ()))


def _make_object_schema(properties: dict[str, Any], required: list[str], *, closed: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema
