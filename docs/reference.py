"""Writes the reference, `docs/reference/*.md`, from the code: signatures, fields and docstrings as they stand there.

    python -m docs.reference

Everything is read from the source, so that the pages are the same whatever the machine and the version of Python.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

ROOT = Path(__file__).parent.parent
PAGES = Path(__file__).parent / "reference"
SOURCE = ROOT / "src"
ROOMS = {
    "agent": "Agent",
    "loop": "The loop",
    "events": "The stream of events",
    "policy": "What a caller may decide",
    "context": "What has been said",
    "provider": "Models and providers",
    "tools": "Tools",
    "team": "Agents together",
    "session": "Sessions",
    "types": "Plain values",
}
"""The rooms that have public names in `steersman`, in the order in which they are met."""

_PRIVATE = ("agent", "loop", "session")
"""Rooms whose page has only what is in `steersman`; the page of stores has all of `steersman.session`."""
_OWN_PAGES = ("steersman.types.events", "steersman.types.stream", "steersman.tools.mcp", "steersman.tools.builtin")
_HEAD = "<!-- Written by `make reference` from the code. -->\n"
_WIDE = 118
Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Found:
    """A definition, the module it stands in, and the words right below it where it is a value."""

    module: str
    node: Definition
    words: str = ""


def build_pages() -> dict[str, str]:
    """All pages by file name."""
    rooms = {f"{room}.md": _write_room(room, title) for room, title in ROOMS.items()}
    made = {
        **rooms,
        "event-types.md": _write_events(),
        "builtin-tools.md": _write_builtin_tools(),
        "mcp.md": _write_names("MCP servers", "steersman.tools.mcp"),
        "workflow_agent.md": _write_names("The loop as a workflow", "steersman.durable.workflow_agent"),
        "testing.md": _write_names("For tests", "steersman.testing"),
        "stores.md": _write_names("Stores of sessions", "steersman.session"),
        "servers.md": _write_names("Strict servers for tests", "steersman.testing.servers"),
        "durable.md": _write_names("Runs that outlive a machine", "steersman.durable"),
        "telemetry.md": _write_names("OpenTelemetry", "steersman.telemetry"),
        "evals.md": _write_names("Evaluations", "steersman.evals"),
        "command.md": _write_command(),
        "settings.md": _write_settings(),
        "modules.md": _write_modules(),
    }
    return {"README.md": _write_index(made), **made}


# Reading the source


@cache
def path_of(module: str) -> Path:
    """The file of a module."""
    base = SOURCE.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def source_of(module: str) -> str:
    """The text of a module."""
    return path_of(module).read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(source_of(module))


@cache
def find(module: str, name: str) -> Found | None:
    """Where a name that a module has is defined, wherever it was imported from."""
    body = tree_of(module).body
    # The last one: what comes before it are its overloads.
    for at, node in reversed(list(enumerate(body))):
        if name in _list_defined_names(node):
            return Found(module, cast(Definition, node), _read_string(body[at + 1]) if at + 1 < len(body) else "")
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steersman"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(node.module or "", alias.name)
    return None


def _list_defined_names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


def _read_string(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return inspect.cleandoc(text)
        case _:
            return ""


def _get_source(module: str, node: ast.AST) -> str:
    return ast.get_source_segment(source_of(module), node) or ""


def _list_public_names(module: str) -> list[str]:
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and "__all__" in _list_defined_names(node):
            return cast(list[str], ast.literal_eval(node.value))
    return []


# One definition


def describe(name: str, found: Found) -> str:
    """What the reference says of a name."""
    match found.node:
        case ast.ClassDef() as node:
            return _describe_class(name, found.module, node)
        case ast.FunctionDef() | ast.AsyncFunctionDef() as node:
            return _write_section(name, _write_signature(found.module, node), _get_docstring(node), found.module)
        case node:
            code = re.sub(r"\n\s*", " ", _get_source(found.module, node))
            return _write_section(name, code if len(code) <= 400 else f"{name} = ...", found.words, found.module)


def _describe_class(name: str, module: str, node: ast.ClassDef) -> str:
    bases = [_get_source(module, base) for base in node.bases]
    shown = [base for base in bases if not base.startswith("_") and base != "msgspec.Struct"]
    code = f"class {name}({', '.join(shown)})" if shown else f"class {name}"
    fields, methods = _find_members(module, node)
    if fields:
        code += ":\n" + "\n".join(f"    {field}" for field in fields)
    parts = [_write_section(name, code, _get_docstring(node), module)]
    for called, (place, method) in methods.items():
        attribute = any(_get_source(place, mark) in ("property", "cached_property") for mark in method.decorator_list)
        what = _write_property(place, method) if attribute else _write_signature(place, method)
        words = _get_docstring(method)
        title = f"{name}.{called}" if called != "__init__" else f"{name}()"
        parts.append(f"#### `{title}`\n\n```py\n{what}\n```\n\n{words}".rstrip() + "\n")
    return "\n".join(parts)


def _find_members(module: str, node: ast.ClassDef) -> tuple[list[str], dict[str, tuple[str, Function]]]:
    """The fields and the public methods of a class and of what it inherits from here.

    Inherited fields come first, as in the constructor; inherited methods come last.
    """
    fields: dict[str, str] = {}
    methods: dict[str, tuple[str, Function]] = {}
    inherited_methods: dict[str, tuple[str, Function]] = {}
    for base in node.bases:
        found = find(module, _get_source(module, base))
        if found is not None and isinstance(found.node, ast.ClassDef):
            inherited, more = _find_members(found.module, found.node)
            fields |= {re.split(r"\W", field, maxsplit=1)[0]: field for field in inherited}
            inherited_methods |= more
    for item in node.body:
        match item:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                line = re.sub(r"\n\s*", " ", _get_source(module, item))
                if "init=False" not in line:
                    fields[name] = line
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_public(module, item):
                methods[item.name] = (module, item)
            case _:
                pass
    return list(fields.values()), methods | {
        name: method for name, method in inherited_methods.items() if name not in methods
    }


def _is_public(module: str, node: Function) -> bool:
    marks = [_get_source(module, mark) for mark in node.decorator_list]
    if any(mark.endswith((".setter", "overload")) for mark in marks):
        return False
    return not node.name.startswith("_") or node.name == "__init__"


def _write_signature(module: str, node: Function) -> str:
    """A signature as it is written, without comments; `self` is left out."""
    lines = source_of(module).splitlines()
    first = node.body[0]
    end = first.lineno if first.lineno > node.lineno else node.lineno + 1
    text = "\n".join(re.sub(r"\s+#.*$", "", line) for line in lines[node.lineno - 1 : end - 1])
    text = re.sub(r"\s*:\s*(\.\.\.)?\s*$", "", textwrap.dedent(text).rstrip())
    marks = [f"@{mark}" for item in node.decorator_list if (mark := _get_source(module, item)) in ("classmethod",)]
    joined = re.sub(r",?\n\s*\)", ")", re.sub(r"\(\n\s*", "(", re.sub(r",\n\s*", ", ", text)))
    joined = re.sub(r"\((self|cls)(, |(?=\)))", "(", joined)
    if len(joined) > _WIDE:
        joined = re.sub(r"(\n\s*)(self|cls),(?=\n)", "", text)
    return "\n".join([*marks, joined])


def _write_property(module: str, node: Function) -> str:
    given = "" if node.returns is None else f": {_get_source(module, node.returns)}"
    return f"{node.name}{given}"


def _get_docstring(node: ast.ClassDef | Function) -> str:
    return ast.get_docstring(node) or ""


def _write_section(name: str, code: str, words: str, module: str) -> str:
    return f"### `{name}`\n\n```py\n{code}\n```\n\n{words}\n\nIn `{module}`.\n".replace("\n\n\n", "\n")


# Pages


def _write_room(room: str, title: str) -> str:
    """The public names of a room: those in `steersman`, and those that its own package offers besides."""
    package = f"steersman.{room}"
    short = {name: found for name, found in _find_all("steersman").items() if found.module.split(".")[1] == room}
    about = (ast.get_docstring(tree_of(package)) or "").split("\n\n")[0]
    listed = {name: found for name, found in _find_all(package).items() if not _has_own_page(found)}
    if room in _PRIVATE:
        return _write_page(title, f"{about}\n\nAll of these are in `steersman`.", short)
    also = f" These are in `steersman` too: {', '.join(f'`{name}`' for name in short)}." if short else ""
    return _write_page(
        title, f"{about}\n\nAll of these are in `{package}`.{also}", dict(sorted({**short, **listed}.items()))
    )


def _find_all(module: str) -> dict[str, Found]:
    found = {name: find(module, name) for name in _list_public_names(module)}
    return {name: each for name, each in found.items() if each is not None}


def _has_own_page(found: Found) -> bool:
    """Whether another page of the reference describes a name: events, MCP servers, built-in tools."""
    return found.module.startswith(_OWN_PAGES) and not isinstance(found.node, ast.Assign | ast.AnnAssign)


def _write_names(title: str, module: str) -> str:
    about = (ast.get_docstring(tree_of(module)) or "").split("\n\n")[0]
    found = {name: find(module, name) for name in sorted(_list_public_names(module))}
    return _write_page(title, f"`{module}`: {about}", {name: each for name, each in found.items() if each is not None})


def _write_page(title: str, about: str, names: Mapping[str, Found]) -> str:
    body = [describe(name, found) for name, found in names.items()]
    return "\n".join([_HEAD, f"# {title}\n", f"{about}\n", *body])


def _write_events() -> str:
    parts = [_HEAD, "# Event types\n"]
    for module, title in (("steersman.types.events", "Events of a run"), ("steersman.types.stream", "Stream events")):
        parts += [f"## {title}\n", f"{ast.get_docstring(tree_of(module))}\n"]
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                parts.append(describe(node.name, Found(module, node)))
    return "\n".join(parts)


def _write_builtin_tools() -> str:
    from steersman.tools.builtin import builtin_tools

    package = "steersman.tools.builtin"
    parts = [_HEAD, "# Built-in tools\n", f"{ast.get_docstring(tree_of(package))}\n"]
    made = find(package, "builtin_tools")
    assert made is not None
    parts.append(describe("builtin_tools", made))
    for tool in builtin_tools(".", sandbox="off"):
        factory = find("steersman.tools", f"{tool.name}_tool")
        assert factory is not None
        parts += [describe(f"{tool.name}_tool", factory), _write_parameters(tool.name, tool.parameters)]
    for name in ("todo", "TodoItem", "find_todo"):
        found = find("steersman.tools", name)
        assert found is not None
        parts.append(describe(name, found))
    return "\n".join(parts)


def _write_parameters(name: str, schema: Mapping[str, Any]) -> str:
    rows = ["| the model gives | | |", "|---|---|---|"]
    for key, value in cast(dict[str, dict[str, Any]], schema.get("properties", {})).items():
        needed = "needed" if key in schema.get("required", ()) else f"default `{value.get('default')}`"
        kinds = [str(part.get("type", "")) for part in value.get("anyOf", [value])]
        rows.append(f"| `{key}` | {' or '.join(kinds)}, {needed} | {_escape_cell(value.get('description', ''))} |")
    return f"What the model sees of `{name}`:\n\n" + "\n".join(rows) + "\n"


def _write_command() -> str:
    from steersman.cli import arguments, exits
    from steersman.cli.sessions import subcommand as sessions
    from steersman.cli.setup import doctor, models

    parser = cast(argparse.ArgumentParser, vars(arguments)["_build_parser"]())
    parts = [_HEAD, "# The command\n", "```text\n" + (parser.usage or "") + "\n```\n", f"{parser.description}\n"]
    parts += [_write_flags(parser, "##")]
    for word, module in (("sessions", sessions), ("models", models), ("doctor", doctor)):
        made = argparse.ArgumentParser(prog=f"steersman {word}", conflict_handler="resolve")
        arguments.add_common_options(made)
        module.configure(made)
        parts += [
            f"## `steersman {word}`\n",
            f"{arguments.SUBCOMMANDS[word].capitalize()}.\n",
            _write_flags(made, "###"),
        ]
    parts += ["## Exit codes\n", f"{exits.__doc__}\n", "| code | |", "|---|---|"]
    for node in tree_of("steersman.cli.exits").body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as code)):
                parts.append(f"| {code} | {name.lower().replace('_', ' ')} |")
            case _:
                pass
    return "\n".join(parts) + "\n"


def _write_flags(parser: argparse.ArgumentParser, level: str) -> str:
    parts: list[str] = []
    for group in cast(list[Any], vars(parser)["_action_groups"]):
        nested, rows = _split_group(group)
        if rows:
            title = {"positional arguments": "Words", "options": "Flags"}.get(group.title, group.title.capitalize())
            parts += [f"{level} {title}\n", "| | |", "|---|---|", *rows, ""]
        for made in nested:
            inner = [row for each in cast(list[Any], vars(made)["_action_groups"]) for row in _split_group(each)[1]]
            shown = [row for row in inner if not row.startswith(("| `--session-dir", "| `--verbose"))]
            about = [f"{level} `{made.prog.removeprefix('steersman ')}`\n", f"{made.description}\n"]
            parts += [*about, "| | |", "|---|---|", *shown, ""]
    return "\n".join(parts)


def _split_group(group: Any) -> tuple[list[argparse.ArgumentParser], list[str]]:
    """The parsers that a group of flags leads to, and the rows for its flags."""
    actions = [action for action in cast(list[Any], group._group_actions) if "--help" not in action.option_strings]
    nested = [action for action in actions if isinstance(action.choices, dict)]
    parsers = [made for action in nested for made in cast(dict[str, argparse.ArgumentParser], action.choices).values()]
    return parsers, [_write_flag(action) for action in actions if action not in nested]


def _write_flag(action: Any) -> str:
    value = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
    if not action.option_strings:
        return f"| `{action.metavar or action.dest}` | {_escape_cell(action.help or '')} |"
    names = ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")
    return f"| `{_escape_cell(names)}` | {_escape_cell(action.help or '')} |"


def _write_settings() -> str:
    from steersman.cli.setup import settings, settings_parser

    about = (settings.__doc__ or "").split("\n\n")[0]
    parts = [_HEAD, "# Settings\n", f"{about}\n", "`~/.config/steersman/config.toml`, and a project's"]
    parts[-1] += f" `{settings.PROJECT_FILE}` once it is trusted.\n"
    tables = (("_FORMS", ""), ("_APPROVAL", "[approval]"), ("_PROVIDER", "[providers.NAME]"), ("_HOOK", "[[hooks]]"))
    for name, title in tables:
        forms = cast(dict[str, tuple[object, str]], vars(settings_parser)[name])
        parts += [f"## `{title}`\n" if title else "## At the top\n", "| key | it is |", "|---|---|"]
        parts += [f"| `{key}` | {_escape_cell(what)} |" for key, (_, what) in forms.items()]
        parts.append("")
    return "\n".join(parts)


def _write_modules() -> str:
    """Every module with the first line of its docstring, package by package; a package comes before what is in it."""
    parts = [
        _HEAD,
        "# Modules\n",
        "Every module and what it does. [ARCHITECTURE.md](../../ARCHITECTURE.md) says how they work together.\n",
    ]
    root = SOURCE / "steersman"
    packages = sorted(
        (path.parent for path in root.rglob("__init__.py")), key=lambda path: path.relative_to(root).parts
    )
    for package in packages:
        modules = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
        name = package.relative_to(SOURCE).as_posix()
        parts += [f"## `{name}`\n", f"{_read_first_line(package / '__init__.py')}\n"]
        if modules:
            rows = [f"| `{path.name}` | {_escape_cell(_read_first_line(path))} |" for path in modules]
            parts += ["| module | |", "|---|---|", *rows, ""]
    return "\n".join(parts)


def _read_first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def _write_index(made: Mapping[str, str]) -> str:
    lines = [_HEAD, "# Reference\n", "Written from the code by `make reference`.\n"]
    for name, text in made.items():
        title = next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ")
        names = re.findall(r"^### `(\w+)`$", text, re.MULTILINE)
        lines.append(f"- [{title}]({name})" + (f": {', '.join(f'`{each}`' for each in names)}" if names else ""))
    return "\n".join(lines) + "\n"


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write all pages, and remove those that are no longer made."""
    made = build_pages()
    PAGES.mkdir(exist_ok=True)
    for path in PAGES.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} pages in {PAGES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
