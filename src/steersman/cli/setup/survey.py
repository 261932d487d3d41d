"""Looks at a project without a model: its languages, its folders, and the commands that build, test and check it.

Nothing is run, and only files that name these things are read.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from steersman.cli.setup.bounded_toml import load_toml
from steersman.tools.confine.workspace import Workspace, WorkspaceError
from steersman.tools.text import to_one_line

MAX_FILES, MAX_BYTES = 20_000, 200_000
"""The most files that are counted, and the most bytes that are read of one."""

_LANGUAGES = {
    "py": "Python", "js": "JavaScript", "jsx": "JavaScript", "mjs": "JavaScript", "ts": "TypeScript",
    "tsx": "TypeScript", "go": "Go", "rs": "Rust", "java": "Java", "kt": "Kotlin", "rb": "Ruby", "php": "PHP",
    "c": "C", "h": "C", "cpp": "C++", "cc": "C++", "hpp": "C++", "cs": "C#", "swift": "Swift", "scala": "Scala",
    "sh": "Shell", "lua": "Lua", "ex": "Elixir", "exs": "Elixir", "hs": "Haskell", "dart": "Dart", "sql": "SQL",
}  # fmt: skip
_SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "env", "target", "build", "dist", "vendor", "coverage"))
_LOCKS = {
    "uv.lock": "uv", "poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv", "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn", "bun.lockb": "bun", "package-lock.json": "npm",
}  # fmt: skip
_SCRIPTS = {
    "test": "test",
    "lint": "lint",
    "build": "build",
    "format": "format",
    "typecheck": "types",
    "check": "check",
}
_TARGETS = {**_SCRIPTS, "fmt": "format", "fix": "format", "types": "types"}
_TARGET = re.compile(r"(?m)^([A-Za-z][A-Za-z0-9_-]*)[ \t]*:(?!=)")
_RUN = re.compile(r"(?m)^[ \t-]*run:[ \t]*([^|>\s][^\n]*)$")
_MOST_FOLDERS, _MOST_COMMANDS = 20, 8


@dataclass(slots=True)
class Survey:
    """What was found; `commands` by purpose, in the order in which they were found."""

    name: str
    about: str = ""
    languages: list[str] = field(default_factory=list[str])
    runners: list[str] = field(default_factory=list[str])
    commands: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    folders: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    notes: list[str] = field(default_factory=list[str])

    def add(self, purpose: str, command: str) -> None:
        """Adds a command, once; of many, the first ones."""
        known = self.commands.setdefault(purpose, [])
        if (
            len(known) < _MOST_COMMANDS
            and (line := to_one_line(command, 200))
            and "`" not in line
            and line not in known
        ):
            known.append(line)


def survey_project(folder: Path) -> Survey:
    """Looks at a project."""
    found, files = Survey(to_one_line(folder.name, 80) or "this project"), Workspace(folder)
    _count_files(folder, found)
    found.runners += [tool for name, tool in _LOCKS.items() if (folder / name).is_file()]
    for name, look in (
        ("Makefile", _look_at_makefile),
        ("pyproject.toml", _look_at_pyproject),
        ("package.json", _look_at_package),
        ("Cargo.toml", _look_at_cargo),
        ("go.mod", _look_at_go),
    ):
        if (text := _read(files, name)) is not None:
            look(text, found)
    for path in _list_workflows(folder):
        for command in _RUN.findall(_read(files, path) or ""):
            found.add("CI", command.strip("'\" "))
    return found


def _read(files: Workspace, name: str) -> str | None:
    try:
        return files.read_bytes(name, limit=MAX_BYTES).decode("utf-8-sig", "replace")
    except WorkspaceError:
        return None


def _count_files(folder: Path, found: Survey) -> None:
    languages, folders = Counter[str](), Counter[str]()
    for path in _walk(folder):
        top, slash, _ = path.partition("/")
        folders.update([top] if slash else [])
        ending = path.rpartition(".")[2].lower() if "." in path.rpartition("/")[2] else ""
        languages.update([_LANGUAGES[ending]] if ending in _LANGUAGES else [])
    total = sum(languages.values())
    found.languages = [name for name, count in languages.most_common(5) if count * 20 >= total]
    found.folders = sorted(folders.most_common(_MOST_FOLDERS))


def _walk(folder: Path) -> Iterator[str]:
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        inside = os.path.relpath(place, folder)
        for name in names:
            if (count := count + 1) > MAX_FILES:
                return
            yield name if inside == "." else f"{inside}/{name}"


def _list_workflows(folder: Path) -> list[str]:
    place = folder / ".github" / "workflows"
    names = sorted(path.name for path in place.glob("*.y*ml"))[:5] if place.is_dir() else []
    return [f".github/workflows/{name}" for name in names] + [".gitlab-ci.yml"]


def _look_at_makefile(text: str, found: Survey) -> None:
    found.runners.append("make")
    for target in _TARGET.findall(text):
        if target in _TARGETS:
            found.add(_TARGETS[target], f"make {target}")


def _look_at_pyproject(text: str, found: Survey) -> None:
    try:
        table = load_toml(text)
    except ValueError:
        found.notes.append("pyproject.toml is not valid TOML.")
        return
    project, tools = _get_table(table, "project"), _get_table(table, "tool")
    _name(project, found)
    runner = next((tool for tool in ("uv", "poetry", "pdm") if tool in (*found.runners, *tools)), None)
    before = f"{runner} run " if runner else ""
    listed = json.dumps([project, _get_table(table, "dependency-groups"), tools], default=str)
    if "pytest" in listed:
        found.add("test", f"{before}pytest")
    if "ruff" in listed:
        found.add("lint", f"{before}ruff check .")
        found.add("format", f"{before}ruff format .")
    for tool in ("mypy", "basedpyright", "pyright"):
        if f'"{tool}' in listed:
            found.add("types", f"{before}{tool}" + (" ." if tool == "mypy" else ""))
    if runner and runner not in found.runners:
        found.runners.append(runner)
    elif not runner:
        found.runners.append("pip")


def _look_at_package(text: str, found: Survey) -> None:
    try:
        table: Any = json.loads(text)
    except (ValueError, RecursionError):
        found.notes.append("package.json is not valid JSON.")
        return
    if not isinstance(table, dict):
        return
    _name(cast(dict[str, Any], table), found)
    runner = next((tool for tool in ("pnpm", "yarn", "bun", "npm") if tool in found.runners), "npm")
    if runner not in found.runners:
        found.runners.append(runner)
    for script in _get_table(cast(dict[str, Any], table), "scripts"):
        if script in _SCRIPTS:
            found.add(_SCRIPTS[script], f"{runner} run {script}" if script != "test" else f"{runner} test")


def _look_at_cargo(text: str, found: Survey) -> None:
    found.runners.append("cargo")
    for purpose, command in {"build": "build", "test": "test", "lint": "clippy", "format": "fmt"}.items():
        found.add(purpose, f"cargo {command}")
    try:
        _name(_get_table(load_toml(text), "package"), found)
    except ValueError:
        found.notes.append("Cargo.toml is not valid TOML.")


def _look_at_go(text: str, found: Survey) -> None:
    found.runners.append("go")
    for purpose, command in {"build": "build ./...", "test": "test ./...", "lint": "vet ./..."}.items():
        found.add(purpose, f"go {command}")


def _get_table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _name(table: Mapping[str, Any], found: Survey) -> None:
    if isinstance(name := table.get("name"), str) and to_one_line(name, 80):
        found.name = to_one_line(name, 80)
    if isinstance(about := table.get("description"), str) and not found.about:
        found.about = to_one_line(about, 300)
