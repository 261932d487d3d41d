"""Validation: a JSON Schema is compiled once into a function that checks values and coerces them without loss.

Coerced are `"42"` to a number, `"true"` to a boolean, `3.0` to an integer, and JSON text to an object or a list; `null`
is dropped for an optional property that cannot be null. A string for a string property stays unchanged, whatever it
looks like. Formats and unknown keywords are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from steersman.tools.schema import checks
from steersman.tools.schema.checks import (
    MAX_NAMED,
    MAX_PROBLEMS,
    ForeignSchema,
    Node,
    Problems,
    ValuePath,
    accept_anything,
    compile_enum,
    join_some,
    refuse_anything,
)
from steersman.tools.schema.containers import compile_array, compile_object
from steersman.tools.text import format_value
from steersman.types.errors import ToolError

_LABELS = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_OBJECT_WORDS = frozenset(("properties", "required", "additionalProperties", "patternProperties"))
_ARRAY_WORDS = frozenset(("items", "prefixItems"))
_MAX_SHOWN = 10
_MAX_ALTERNATIVES = 300_000
# The most items of values that alternatives and the parts of chains may look at, each on its own: as many take up to a
# second. A text may have to be parsed, and counts as an item for so many characters.
_MAX_WORK = 1_000_000
_CHARACTERS_PER_ITEM = 32
_MAX_LABEL_LENGTH = 20_000


class InvalidArguments(ToolError, ValueError):
    """The arguments do not fit the schema; the text says where, what was expected and what was given."""


def compile_schema(
    schema: Mapping[str, Any] | bool, *, name: str = "arguments", coerce: bool = True
) -> Callable[[Any], Any]:
    """Return a function that returns the checked value, copied and coerced, or raises `InvalidArguments`.

    Raises `ValueError` when the schema itself is wrong. `name` is how error messages call the value.
    """
    compiler = Compiler(schema)
    try:
        node = compiler.compile(schema, coerce=coerce)
    except RecursionError:
        raise ValueError("The JSON Schema is nested too deeply, or contains itself without a reference.") from None
    compiler.forget_parts()

    def check(value: Any) -> Any:
        problems: Problems = []
        compiler.tried = compiler.work = 0
        try:
            result = node(value, None, problems)
        except TooManyAlternatives:
            raise InvalidArguments(f"{name}: there are too many ways to read it; send a smaller value") from None
        except RecursionError:
            raise InvalidArguments(f"{name}: nested too deeply; send a flatter value") from None
        if problems:
            raise InvalidArguments(_format_problems(name, problems))
        return result

    return check


class TooManyAlternatives(Exception):
    """Checking a value took too many alternatives (`anyOf`, `oneOf`) of its schema."""


class Compiler:
    """Compiles the parts of one schema into functions, each part once. Recursive schemas are supported.

    `tried` counts the alternatives that a value was checked against: nested alternatives multiply, and so do the values
    of a list and the alternatives for each. `work` counts what all of them, and the parts of chains (`allOf`), look at:
    each looks at the whole value.
    """

    __slots__ = ("_known", "_labels", "_references", "_root", "is_foreign", "tried", "work")

    def __init__(self, root: Mapping[str, Any] | bool) -> None:
        self._root = root
        self.is_foreign = isinstance(root, ForeignSchema)
        self._references: dict[tuple[str, bool], list[Node]] = {}
        # Keyed by identity; the part is kept alive beside its result, so that its id is not reused.
        self._known: dict[tuple[int, bool], tuple[Any, Node]] = {}
        self._labels: dict[int, tuple[Any, str]] = {}
        self.tried = self.work = 0

    def compile(self, schema: Any, *, coerce: bool) -> Node:
        """Compile one schema, or return its cached function."""
        key = (id(schema), coerce)
        if key not in self._known:
            self._known[key] = (schema, self._compile_new(schema, coerce))
        return self._known[key][1]

    def forget_parts(self) -> None:
        """Forget the compiled parts: they know the compiler, and would be garbage with it."""
        self._known.clear()
        self._references.clear()

    def _compile_new(self, schema: Any, coerce: bool) -> Node:
        if schema is True or schema == {}:
            return accept_anything
        if schema is False:
            return refuse_anything
        if not isinstance(schema, Mapping):
            raise ValueError(f"A JSON Schema is an object or a boolean, got {format_value(schema)}.")
        parts = self._compile_parts(cast(Mapping[str, Any], schema), coerce)
        if not parts:
            return accept_anything
        return parts[0] if len(parts) == 1 else self._chain_nodes(parts)

    def _chain_nodes(self, parts: Sequence[Node]) -> Node:
        def check(value: Any, at: ValuePath, problems: Problems) -> Any:
            size = _count_items(value)
            before = len(problems)
            for part in parts:
                self._add_work(size)
                value = part(value, at, problems)
                if len(problems) > before:
                    break
            return value

        return check

    def _negate(self, node: Node) -> Node:
        def check(value: Any, at: ValuePath, problems: Problems) -> Any:
            self._add_work(_count_items(value))
            found: Problems = []
            node(value, at, found)
            if not found:
                problems.append((at, f"this value is not allowed here, got {format_value(value)}"))
            return value

        return check

    def _add_work(self, size: int) -> None:
        self.work += size
        if self.work > _MAX_WORK:
            raise TooManyAlternatives

    def describe(self, schema: Any) -> str:
        """Describe what a schema expects."""
        if id(schema) not in self._labels:
            self._labels[id(schema)] = (schema, self._describe_new(schema))
        return self._labels[id(schema)][1]

    def _describe_new(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            return "a value"
        schema = cast(Mapping[str, Any], schema)
        if "enum" in schema:
            allowed = schema["enum"]
            return f"one of {join_some(list(map(format_value, allowed[:MAX_NAMED])), len(allowed))}"
        if "const" in schema:
            return format_value(schema["const"])
        if types := _read_types(schema):
            return " or ".join(_LABELS[name] for name in types)
        if "$ref" in schema:
            # Only one step is followed: alternatives may refer back to this schema.
            target = _resolve_pointer(self._root, schema["$ref"])
            return self.describe(target) if isinstance(target, Mapping) and "type" in target else "a value"
        for word in ("anyOf", "oneOf"):
            if word in schema:
                labels = dict.fromkeys(self.describe(branch) for branch in schema[word][:MAX_NAMED])
                return " or ".join(labels)[:_MAX_LABEL_LENGTH]
        return "a value"

    def compile_union(
        self, nodes: Sequence[tuple[Node, Node]], label: str, *, coerce: bool, exclusive: bool = False
    ) -> Node:
        """Compile alternatives: the first that accepts the value unchanged, else the first that can coerce it."""
        passes = ([strict for strict, _ in nodes], [lenient for _, lenient in nodes] if coerce else ())

        def check(value: Any, at: ValuePath, problems: Problems) -> Any:
            failures: list[Problems] = []
            size = _count_items(value)
            for branches in passes:
                if self.tried > _MAX_ALTERNATIVES:
                    raise TooManyAlternatives
                failures.clear()
                taken: list[Any] = []
                for branch in branches:
                    self.tried += 1
                    self._add_work(size)
                    found: Problems = []
                    result = branch(value, at, found)
                    if found:
                        failures.append(found)
                    elif not exclusive:
                        return result
                    else:
                        taken.append(result)
                if len(taken) == 1:
                    return taken[0]
                if taken:
                    problems.append((at, partial(_describe_surplus, label, value)))
                    return value
                if not coerce:
                    break
            problems.extend(_find_nearest(failures, at) or [(at, partial(_describe_misfit, label, value))])
            return value

        return check

    def _compile_parts(self, schema: Mapping[str, Any], coerce: bool) -> list[Node]:
        parts: list[Node] = []
        if "$ref" in schema:
            parts.append(self._compile_reference(schema["$ref"], coerce))
        if types := _read_types(schema):
            parts.append(self._compile_types(types, schema, coerce))
        if "enum" in schema or "const" in schema:
            allowed = schema["enum"] if "enum" in schema else [schema["const"]]
            if not isinstance(allowed, Sequence) or isinstance(allowed, str):
                raise ValueError(f"'enum' is a list of values, got {format_value(allowed)}.")
            parts.append(compile_enum(cast(Sequence[Any], allowed)))
        parts += [self.compile(branch, coerce=coerce) for branch in _read_branches(schema, "allOf")]
        for word in ("anyOf", "oneOf"):
            if branches := _read_branches(schema, word):
                nodes = [
                    (self.compile(branch, coerce=False), self.compile(branch, coerce=coerce)) for branch in branches
                ]
                label = self.describe({word: branches})
                parts.append(self.compile_union(nodes, label, coerce=coerce, exclusive=word == "oneOf"))
        if "not" in schema:
            parts = [*(parts or [accept_anything]), self._negate(self.compile(schema["not"], coerce=False))]
        return parts

    def _compile_types(self, types: Sequence[str], schema: Mapping[str, Any], coerce: bool) -> Node:
        if len(types) == 1:
            return self._compile_type(types[0], schema, coerce)
        nodes = [(self._compile_type(name, schema, False), self._compile_type(name, schema, coerce)) for name in types]
        return self.compile_union(nodes, " or ".join(_LABELS[name] for name in types), coerce=coerce)

    def _compile_type(self, name: str, schema: Mapping[str, Any], coerce: bool) -> Node:
        match name:
            case "object":
                return compile_object(self, schema, coerce=coerce)
            case "array":
                return compile_array(self, schema, coerce=coerce)
            case "string":
                return checks.compile_string(schema, is_foreign=self.is_foreign)
            case "integer":
                return checks.compile_integer(schema, coerce=coerce)
            case "number":
                return checks.compile_number(schema, coerce=coerce)
            case "boolean":
                return checks.compile_boolean(coerce=coerce)
            case _:
                return checks.compile_null(coerce=coerce)

    def _compile_reference(self, pointer: Any, coerce: bool) -> Node:
        key = (pointer, coerce)
        if key not in self._references:
            # The cell is registered before its schema is compiled, so that a recursive schema finds it.
            cell = self._references[key] = []
            cell.append(self.compile(_resolve_pointer(self._root, pointer), coerce=coerce))
        cell = self._references[key]
        return cell[0] if cell else lambda value, at, problems: cell[0](value, at, problems)


def _read_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    declared = schema.get("type")
    if declared is None:
        # A schema with `properties` and no `type` means an object, and likewise for a list.
        if not _OBJECT_WORDS.isdisjoint(schema):
            return ("object",)
        return () if _ARRAY_WORDS.isdisjoint(schema) else ("array",)
    types = (declared,) if isinstance(declared, str) else tuple(dict.fromkeys(cast(Sequence[Any], declared)))
    for name in types:
        if name not in _LABELS:
            raise ValueError(f"Unknown type {name!r} in a JSON Schema; the types are {', '.join(_LABELS)}.")
    return types


def _read_branches(schema: Mapping[str, Any], word: str) -> Sequence[Any]:
    branches = schema.get(word, ())
    if not isinstance(branches, Sequence) or isinstance(branches, str):
        raise ValueError(f"{word!r} is a list of schemas, got {format_value(branches)}.")
    return cast(Sequence[Any], branches)


def _describe_surplus(label: str, value: Any) -> str:
    return f"fits more than one of the alternatives ({label}), got {format_value(value)}"


def _describe_misfit(label: str, value: Any) -> str:
    return f"expected {label}, got {format_value(value)}"


def _count_items(value: Any) -> int:
    """Count what is in a value, with what is inside of that; no further than is allowed."""
    count, waiting = 0, [value]
    while waiting and count <= _MAX_WORK:
        item = waiting.pop()
        count += 1
        if isinstance(item, str):
            count += len(item) // _CHARACTERS_PER_ITEM
        elif isinstance(item, dict):
            waiting += cast(dict[Any, Any], item).values()
        elif isinstance(item, list | tuple):
            waiting += cast(Sequence[Any], item)
    return count


def _find_nearest(failures: Sequence[Problems], at: ValuePath) -> Problems | None:
    """Return the problems of the branch the value was meant for: its type fits and only its parts do not."""
    inner = [found for found in failures if all(path is not at for path, _ in found)]
    return min(inner, key=len) if inner else None


def _resolve_pointer(root: Any, pointer: Any) -> Any:
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        raise ValueError(
            f"Only references inside the schema are followed ('#/$defs/...'), got {format_value(pointer)}."
        )
    found = root
    for step in pointer[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and step in found:
            found = cast(Any, found[step])
        elif isinstance(found, Sequence) and step.isdigit() and int(step) < len(cast(Sequence[Any], found)):
            found = cast(Any, found[int(step)])
        else:
            raise ValueError(f"The schema refers to {pointer!r}, which it does not define.")
    return found


def _format_problems(name: str, problems: Problems) -> str:
    lines = [
        f"{name}{_format_path(at)}: {text if isinstance(text, str) else text()}" for at, text in problems[:_MAX_SHOWN]
    ]
    if len(problems) > _MAX_SHOWN:
        lines.append(f"and {len(problems) - _MAX_SHOWN} more" if len(problems) < MAX_PROBLEMS else "and more")
    return "\n".join(lines)


def _format_path(at: ValuePath) -> str:
    steps: list[str] = []
    while at is not None:
        at, key = at
        steps.append(f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{format_value(key)}]")
    return "".join(reversed(steps))
