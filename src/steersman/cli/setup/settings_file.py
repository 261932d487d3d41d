"""Adds rules to the user's settings file, and leaves everything else in it as it is, comments included."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from steersman.cli.exits import UserError
from steersman.cli.setup.settings import make_private_folder
from steersman.cli.setup.settings_parser import parse_settings, read_settings_bytes

_TABLE = re.compile(r"^[ \t]*\[approval\][ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_NEXT_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_ALLOW = re.compile(r"^[ \t]*allow[ \t]*=[ \t]*\[", re.MULTILINE)
# What may stand in a list of strings: the strings themselves, comments, and the bracket that ends it.
_TOKEN = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|\]|,|[^\s]')


def add_allow_rules(path: Path, rules: Sequence[str]) -> None:
    """Adds rules to `approval.allow`; raises `UserError` if the file cannot be changed without changing more."""
    content = read_settings_bytes(path) or b""
    known = parse_settings(content, path).allow
    new = [rule for rule in rules if rule not in known]
    if not new:
        return
    text = content.decode("utf-8-sig")
    wanted = _add_to_table(tomllib.loads(text), new)
    for changed in _list_edits(text, new):
        if _parses_as(changed, wanted):
            _replace_file(path, changed)
            return
    raise UserError(f"The rule cannot be added to {str(path)!r} safely; add it to approval.allow there: {new!r}.")


def _add_to_table(found: dict[str, Any], rules: Sequence[str]) -> dict[str, Any]:
    approval = cast("dict[str, Any]", found.get("approval", {}))
    return {**found, "approval": {**approval, "allow": [*approval.get("allow", ()), *rules]}}


def _list_edits(text: str, rules: Sequence[str]) -> Iterator[str]:
    """Texts that may be the file with the rules added; the caller checks what they mean."""
    quoted = ", ".join(json.dumps(rule, ensure_ascii=False) for rule in rules)
    if (table := _TABLE.search(text)) is None:
        yield f"{text.rstrip()}\n\n[approval]\nallow = [{quoted}]\n".lstrip("\n")
        return
    after = _NEXT_TABLE.search(text, table.end())
    end = len(text) if after is None else after.start()
    if (allow := _ALLOW.search(text, table.end(), end)) is not None:
        place, needs_comma = _find_list_end(text, allow.end())
        yield f"{text[:place]}{', ' if needs_comma else ' ' if place > allow.end() else ''}{quoted}{text[place:]}"
    yield f"{text[: table.end()]}\nallow = [{quoted}]{text[table.end() :]}"


def _find_list_end(text: str, start: int) -> tuple[int, bool]:
    """Where another item of a list goes: after its last one; and whether a comma must come first."""
    place, needs_comma = start, False
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token == "]":
            break
        if not token.startswith("#"):
            place, needs_comma = match.end(), token != ","
    return place, needs_comma


def _parses_as(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def _replace_file(path: Path, text: str) -> None:
    """Replaces the file at once; a link stays one, and the file it leads to keeps its mode."""
    real = Path(os.path.realpath(path))
    try:
        make_private_folder(real.parent)
        mode = real.stat().st_mode & 0o777 if real.exists() else 0o600
        handle, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as target:
                target.write(text)
            os.chmod(name, mode)
            os.replace(name, real)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"Cannot write the settings {str(path)!r}: {error.strerror}.") from error
