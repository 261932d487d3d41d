"""Reads datasets from files: JSON Lines with a case in each line, or YAML with cases, scorers, models and repeats.

Every error names the file, the line and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.evals.case import Case, Dataset, DatasetError
from steersman.evals.scorer_names import build_scorers
from steersman.types.errors import MissingExtra

MAX_BYTES = 64 * 1024 * 1024
"""The most bytes of a dataset file."""

_CASE_FIELDS = ("prompt", "expected", "files", "metadata", "id")
_FILE_FIELDS = ("name", "cases", "scorers", "repeat", "models")


@dataclass(frozen=True, slots=True)
class _Found:
    """A value of a file and the line it begins in."""

    line: int
    value: Any


def read_dataset(path: Path) -> Dataset:
    """Read a dataset; raises `DatasetError` for what cannot be used, and `MissingExtra` without PyYAML."""
    readers: dict[str, Callable[[Path, str], Dataset]] = {
        ".jsonl": _read_jsonl,
        ".yaml": _read_yaml,
        ".yml": _read_yaml,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{str(path)!r}: a dataset is a .jsonl, .yaml or .yml file. Rename it, or convert it.")
    return reader(path, _read_text(path))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DatasetError(f"Cannot read the dataset {str(path)!r}: {error.strerror}. Check its path.") from error
    if len(data) > MAX_BYTES:
        raise DatasetError(f"{str(path)!r} is larger than {MAX_BYTES:,} bytes. Split it into several datasets.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DatasetError(f"{str(path)!r}, line {line}: not UTF-8. Save the file as UTF-8.") from error


def _read_jsonl(path: Path, text: str) -> Dataset:
    found: list[_Found] = []
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            found.append(_Found(line, msgspec.json.decode(row)))
        except (msgspec.DecodeError, RecursionError) as error:
            raise _make_error(path, line, f"not JSON: {error}. Each line is one case as a JSON object.") from error
    return _build(path, found, {})


def _read_yaml(path: Path, text: str) -> Dataset:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(
            f"{str(path)!r} is YAML, and reading it needs PyYAML: pip install 'steersman[yaml]'. "
            "A .jsonl file needs nothing."
        ) from error
    loader = yaml.SafeLoader(text)
    try:
        node = cast(Any, loader.get_single_node())
        if node is None:
            raise _make_error(path, 1, "the file is empty. It needs a list of cases under 'cases:'.")
        repeated = next(_find_repeated_keys(node), None)
        if repeated is not None:
            raise _make_error(path, repeated[0], f"the key {repeated[1]!r} is there twice. Leave one of them out.")
        value: Any = cast(Any, loader).construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise _make_error(path, line, f"not YAML: {error.problem}.") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, DatasetError):
            raise
        raise _make_error(path, 1, f"not YAML: {error}.") from error
    finally:
        cast(Any, loader).dispose()
    if isinstance(value, list):
        return _build(path, _pair_lines(node, cast(list[Any], value)), {})
    if not isinstance(value, dict):
        raise _make_error(path, 1, f"expected a list of cases, or 'cases:' with a list, got {value!r:.100}.")
    return _build_mapping(path, node, cast(dict[Any, Any], value))


def _build_mapping(path: Path, node: Any, value: dict[Any, Any]) -> Dataset:
    lines = {str(key.value): key.start_mark.line + 1 for key, _ in node.value}
    for key in value:
        if key not in _FILE_FIELDS:
            raise _make_error(path, lines.get(str(key), 1), _describe_unknown(key, _FILE_FIELDS))
    cases = value.get("cases")
    if not isinstance(cases, list):
        raise _make_error(path, lines.get("cases", 1), f"'cases' is a list of cases, got {cases!r:.100}.")
    items = next(found for key, found in node.value if key.value == "cases")
    return _build(path, _pair_lines(items, cast(list[Any], cases)), value, lines)


def _pair_lines(node: Any, values: list[Any]) -> list[_Found]:
    return [_Found(item.start_mark.line + 1, value) for item, value in zip(node.value, values, strict=True)]


def _find_repeated_keys(node: Any, depth: int = 0) -> Iterator[tuple[int, str]]:
    """The keys that a mapping has twice, with their lines: YAML would keep only the last one."""
    if depth > 50 or not isinstance(node.value, list):
        return
    seen: set[str] = set()
    for child in cast(list[Any], node.value):
        if isinstance(child, tuple):
            key, value = cast(tuple[Any, Any], child)
            if isinstance(key.value, str):
                if key.value in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value)
            yield from _find_repeated_keys(value, depth + 1)
        else:
            yield from _find_repeated_keys(child, depth + 1)


def _build(path: Path, found: list[_Found], settings: Mapping[Any, Any], lines: Mapping[str, int] = {}) -> Dataset:
    if not found:
        raise _make_error(path, 1, 'there are no cases. Add one, such as {"prompt": "...", "expected": "..."}.')
    first: dict[str, int] = {}
    cases: list[Case] = []
    for number, item in enumerate(found, 1):
        case = _build_case(path, item, number)
        if case.id in first:
            raise _make_error(
                path, item.line, f"the id {case.id!r} is that of line {first[case.id]}. Give each case its own."
            )
        first[case.id] = item.line
        cases.append(case)
    repeat, models, name = settings.get("repeat", 1), settings.get("models", []), settings.get("name", path.stem)
    if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
        raise _make_error(path, lines["repeat"], f"'repeat' is a whole number from 1 on, got {repeat!r:.100}.")
    if not isinstance(models, list) or not all(isinstance(model, str) for model in cast(list[Any], models)):
        raise _make_error(
            path, lines["models"], f"'models' is a list of names such as openai:gpt-5, got {models!r:.100}."
        )
    if not isinstance(name, str):
        raise _make_error(path, lines["name"], f"'name' is a text, got {name!r:.100}.")
    try:
        scorers = build_scorers(settings.get("scorers", []), path.parent)
    except ValueError as error:
        raise _make_error(path, lines["scorers"], str(error)) from error
    return Dataset(cases, name=name, scorers=scorers, repeat=repeat, models=cast(list[str], models))


def _build_case(path: Path, item: _Found, number: int) -> Case:
    if not isinstance(item.value, dict):
        raise _make_error(path, item.line, f"a case has a 'prompt' and maybe 'expected', got {item.value!r:.100}.")
    fields = cast(dict[Any, Any], item.value)
    for key in fields:
        if key not in _CASE_FIELDS:
            raise _make_error(path, item.line, _describe_unknown(key, _CASE_FIELDS))
    if "prompt" not in fields:
        raise _make_error(path, item.line, "the case has no 'prompt'. Add what the agent is asked.")
    files = fields.get("files")
    id = fields.get("id", f"case-{number}")
    if isinstance(files, str):
        files = path.parent / files
    try:
        return Case(
            fields["prompt"],
            expected=fields.get("expected"),
            files=files,
            metadata=fields.get("metadata") or {},
            id=str(id) if isinstance(id, int) else id,
        )
    except DatasetError as error:
        raise _make_error(path, item.line, str(error)) from error


def _describe_unknown(key: object, known: tuple[str, ...]) -> str:
    near = get_close_matches(str(key), known, 1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no field {str(key)!r:.100}.{meant} Known are: {', '.join(known)}."


def _make_error(path: Path, line: int, text: str) -> DatasetError:
    return DatasetError(f"{str(path)!r}, line {line}: {text}")
