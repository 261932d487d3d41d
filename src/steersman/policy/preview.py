"""What a tool call would do, as a person reads it: the command, the diff, or the arguments; and what it may destroy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from steersman.types.visible import escape_invisible

Kind: TypeAlias = Literal["plain", "path", "added", "removed", "note"]

MAX_PREVIEW = 20_000
"""How many characters of a call a preview shows; the beginning and the end of what is longer."""

_TAIL = MAX_PREVIEW // 4
_INDENT = 2
_MOST_BLANKS = 1_000_000
_DIFF: Mapping[str, Kind] = {"+": "added", "-": "removed", "@": "note", "\\": "note", "[": "note"}


class Part(NamedTuple):
    """One or more lines that belong together. The text is the model's, with all its invisible characters."""

    text: str
    kind: Kind = "plain"


def describe_arguments(name: str, arguments: Mapping[str, Any]) -> Iterator[Part]:
    """The arguments as people read them; those without a special form as JSON. Nothing is left out."""
    rest = dict(arguments)
    match name:
        case "bash" if isinstance(rest.get("command"), str):
            yield Part(rest.pop("command"))
        case "fetch" if isinstance(rest.get("url"), str):
            yield Part(rest.pop("url"))
        case "write" if isinstance(rest.get("content"), str) and isinstance(rest.get("path"), str):
            yield Part(rest.pop("path"), "path")
            yield _mark_lines("+", rest.pop("content"), "added")
        case "edit" if isinstance(rest.get("path"), str) and _are_edits(rest.get("edits")):
            yield Part(rest.pop("path"), "path")
            for number, edit in enumerate(cast(list[dict[str, Any]], rest.pop("edits"))):
                yield from [Part("")] if number else []
                yield from [Part("all occurrences in the file:")] if edit.get("all") else []
                yield _mark_lines("-", edit["old"], "removed")
                yield _mark_lines("+", edit["new"], "added")
        case _:
            pass
    if rest:
        yield Part(_encode_rest(rest))


def describe_call(name: str, arguments: Mapping[str, Any], effect: str | None = None) -> Iterator[Part]:
    """What a call would do: `effect`, which the tool's own preview gave, or else the arguments."""
    if effect is None:
        yield from describe_arguments(name, arguments)
        return
    lines = effect.removesuffix("\n").split("\n")
    if len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ "):
        yield Part(lines[1][4:].removeprefix("b/"), "path")
        lines = lines[2:]
    for line in lines:
        yield Part(line, _DIFF.get(line[:1], "plain"))


def preview_call(name: str, arguments: Mapping[str, Any], effect: str | None = None) -> str:
    """The call as one text for a person, safe to show: invisible characters are escaped, long texts are cut."""
    text = "\n".join([part.text for part in describe_call(name, arguments, effect)])
    if len(text) <= MAX_PREVIEW:
        return escape_invisible(text)
    left_out = len(text) - MAX_PREVIEW
    head, tail = escape_invisible(text[: MAX_PREVIEW - _TAIL]), escape_invisible(text[-_TAIL:])
    return f"{head}\n[{left_out:,} characters are left out here; args has all of them]\n{tail}"


def write_json(value: object) -> str:
    """Write a value as JSON for a person: one item per line, or all in one where the lines would be mostly blanks.

    Before each of many numbers deep inside brackets there are hundreds of blanks.
    """
    return json.dumps(value, ensure_ascii=False, indent=None if _has_many_blanks(value) else _INDENT, default=str)


def _has_many_blanks(value: object) -> bool:
    level: list[object] = [value]
    depth = blanks = 0
    while level and blanks <= _MOST_BLANKS:
        depth += 1
        items = [item for each in level for item in _list_items(each)]
        blanks += _INDENT * depth * len(items)
        level = list(filter(_is_container, items))
    return blanks > _MOST_BLANKS


def _is_container(value: object) -> bool:
    return isinstance(value, (dict, list, tuple))


def _list_items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast(dict[object, object], value).values()
    return cast(Iterable[object], value) if isinstance(value, (list, tuple)) else ()


def _encode_rest(rest: dict[str, Any]) -> str:
    try:
        return write_json(rest)
    except (TypeError, ValueError, RecursionError):  # a hook may have put anything into them
        return repr(rest)


def _are_edits(edits: object) -> bool:
    """Whether the marked lines show these edits completely."""
    return isinstance(edits, list) and all(
        isinstance(edit, Mapping) and _is_edit(cast(Mapping[str, Any], edit)) for edit in cast(list[object], edits)
    )


def _is_edit(edit: Mapping[str, Any]) -> bool:
    texts = isinstance(edit.get("old"), str) and isinstance(edit.get("new"), str)
    return texts and set(edit) <= {"old", "new", "all"} and isinstance(edit.get("all", False), bool)


def _mark_lines(mark: str, text: str, kind: Kind) -> Part:
    if not text:
        return Part(f"{mark} (nothing)", "note")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return Part("\n".join([f"{mark} {line}" for line in lines]), kind)
