"""An OpenAPI description as it was given: a mapping, JSON or YAML of version 3, whose references lead inside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from steersman.tools.text import show
from steersman.types.errors import MissingExtra

Spec: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]

_LONGEST_CHAIN = 50
# The words of YAML that are no text, in the order in which they are tried.
_PLAIN_VALUES = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "-?(?:0|[1-9][0-9]*)",
    "float": r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?",
    "merge": "<<",
}


class Document:
    """A description, and where its references lead."""

    __slots__ = ("nullable_keyword", "root")

    def __init__(self, root: Mapping[str, Any]) -> None:
        version = root.get("openapi")
        if not isinstance(version, str) or not version.startswith("3."):
            said = f"swagger {root['swagger']!r}" if "swagger" in root else show(version)
            raise ValueError(f"An OpenAPI description of version 3 is needed ('openapi': '3.1.0'), got {said}.")
        self.root = root
        # Version 3.0 has its own dialect of JSON Schema.
        self.nullable_keyword = version.startswith("3.0")

    def at(self, pointer: Any) -> Any:
        """What a reference leads to."""
        if not isinstance(pointer, str) or not pointer.startswith("#/"):
            raise ValueError(
                f"Only references inside the description are followed ('#/components/...'), got {show(pointer)}."
            )
        from urllib.parse import unquote

        found: Any = self.root
        for step in unquote(pointer[2:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                found = cast(Any, found[name] if isinstance(found, Mapping) else _list(found)[int(name)])
            except (LookupError, ValueError):
                raise ValueError(f"The description refers to {pointer!r}, which it does not hold.") from None
        return found

    def followed(self, value: Any, what: str) -> Mapping[str, Any]:
        """An object, or the one its reference leads to."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(value, Mapping):
                raise ValueError(f"{what} is an object, got {show(value)}.")
            if "$ref" not in value:
                return cast(Mapping[str, Any], value)
            value = self.at(cast(Any, value["$ref"]))
        raise ValueError(f"{what} is a reference that leads to itself.")


def load(spec: Spec) -> Document:
    """The description in a mapping, in JSON or YAML text, or in a file."""
    if isinstance(spec, Mapping):
        return Document(spec)
    if isinstance(spec, bytes):
        text = spec.decode("utf-8-sig")
    elif isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith("{")):
        text = spec.removeprefix("\ufeff")
    else:
        text = _file(spec)
    root = _parsed(text)
    if not isinstance(root, Mapping):
        raise ValueError(f"An OpenAPI description is an object, got {show(root)}.")
    return Document(cast(Mapping[str, Any], root))


def _file(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"An OpenAPI description is a mapping, JSON or YAML text, or a path, got {show(path)}.")
    if isinstance(path, str) and path.startswith(("http://", "https://")):
        raise ValueError(f"A description is not downloaded here; get {show(path)} first and give its text or its path.")
    return Path(cast(str, path)).read_text(encoding="utf-8-sig")


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if text.lstrip().startswith("{"):
            raise ValueError(f"The OpenAPI description is not JSON: {error}.") from error
    return _yaml(text)


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(
            "The OpenAPI description is not JSON, and to read YAML PyYAML is needed: pip install 'steersman[yaml]'."
        ) from error

    class Loader(yaml.SafeLoader):
        """Plain values as JSON has them: `no` is a word and not false, a date is a text, and every key is one."""

        # Our own, so that those of SafeLoader stay as they are.
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # the name and the form are PyYAML's

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            made = super().construct_mapping(node, deep=deep)
            return {key if isinstance(key, str) else msgspec.json.encode(key).decode(): made[key] for key in made}

    add = cast(Callable[[str, re.Pattern[str], None], None], Loader.add_implicit_resolver)
    for tag, pattern in _PLAIN_VALUES.items():
        add(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), None)
    try:
        return yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"The OpenAPI description is neither JSON nor YAML: {error}.") from error


def _list(value: Any) -> Sequence[Any]:
    return cast(Sequence[Any], value) if isinstance(value, list | tuple) else ()
