"""Descriptions from docstrings written in Google, NumPy or Sphinx style."""

from __future__ import annotations

import re
from inspect import cleandoc

import msgspec

_PARAMETERS = frozenset(("args", "arguments", "parameters", "params", "other parameters", "attributes", "keyword args"))
_OTHERS = frozenset(
    ("returns", "return", "yields", "yield", "raises", "raise", "warns", "warnings", "examples", "example", "notes")
).union(("note", "references", "see also", "todo"))
_SPHINX = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_GOOGLE = re.compile(r"(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


class Documentation(msgspec.Struct, frozen=True):
    """What a docstring says: about the whole, and about each parameter."""

    summary: str = ""
    parameters: dict[str, str] = {}  # a fresh one for each


def read_docstring(text: str | None) -> Documentation:
    """The description (all before the first section) and what is said about the parameters."""
    if not text or not text.strip():
        return Documentation()
    lines = cleandoc(text).splitlines()
    end = next((index for index in range(len(lines)) if _starts_section(lines, index)), len(lines))
    parameters: dict[str, str] = {}
    index = end
    while index < len(lines):
        index = _read_section(lines, index, parameters)
    return Documentation("\n".join(lines[:end]).strip(), parameters)


def _heading(lines: list[str], index: int) -> str | None:
    """The section that begins at a line, in lower case."""
    line = lines[index]
    if not line or line[0].isspace():
        return None
    name = line.strip().rstrip(":").lower()
    if name not in _PARAMETERS and name not in _OTHERS:
        return None
    return name if line.rstrip().endswith(":") or _underlined(lines, index) else None


def _underlined(lines: list[str], index: int) -> bool:
    below = lines[index + 1].strip() if index + 1 < len(lines) else ""
    return len(below) >= 3 and not below.strip("-")


def _starts_section(lines: list[str], index: int) -> bool:
    return _heading(lines, index) is not None or _SPHINX.match(lines[index]) is not None


def _read_section(lines: list[str], start: int, parameters: dict[str, str]) -> int:
    """Notes what a section says about parameters and gives the line after it."""
    heading = _heading(lines, start)
    numpy = heading is not None and _underlined(lines, start)
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
    _note(parameters, match.group(2).split()[-1], [match.group(3), *lines[1:]])


def _read_entries(lines: list[str], parameters: dict[str, str], pattern: re.Pattern[str]) -> None:
    """Entries begin at the section's own indentation; deeper lines go on with the last one."""
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    names: list[str] = []
    said: list[str] = []
    for line in lines:
        match = pattern.fullmatch(line.strip()) if line[:indent].isspace() or not indent else None
        if match is not None and len(line) - len(line.lstrip()) == indent:
            for name in names:
                _note(parameters, name, said)
            names = [name.strip() for name in match.group(1).split(",")]
            said = [match.group(2)] if pattern is _GOOGLE else []
        else:
            said.append(line)
    for name in names:
        _note(parameters, name, said)


def _note(parameters: dict[str, str], name: str, said: list[str]) -> None:
    words = " ".join(line.strip() for line in said).strip()
    if words:
        parameters[name.lstrip("*")] = words
