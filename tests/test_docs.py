"""Every Python block of the documents is run, offline, and prints what it says it prints (`#> ...`)."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import itertools
import logging
import re
import shlex
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, cast

from docs.blocks import DOCUMENTS, EXAMPLES, ROOT, Block, name_file, read_blocks
from tests.rows import each_row

from steersman import Agent, RunResult, Session
from steersman.cli.arguments import parse
from steersman.loop.inbox import Receipt
from steersman.provider.models import catalogue, presets, registry
from steersman.provider.models.registry import list_provider_names
from steersman.testing import Witness, run_virtual

OBJECTS = {"agent": Agent, "receipt": Receipt, "result": RunResult, "session": Session, "witness": Witness}
OWN = {"session": ("closed", "id", "recorder")}  # set when one is made
ATTRIBUTE = re.compile(rf"`({'|'.join(OBJECTS)})\.(?!py\b)([a-z]\w*)")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
SHELL = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)
PROMISE = re.compile(r"#> ?(.*)")
OF_OTHERS = re.compile(r"^```(?:rust|text|typescript)\n.*?^```$|^\|[^|]*\|", re.MULTILINE | re.DOTALL)
"""What the page for users of other projects says about these: their programs, and the first column of its tables."""
REGISTRIES = [(presets, "PRESETS"), (registry, "_loaders"), (registry, "_loaded"), (catalogue, "_described")]
PUBLIC = {
    "steersman",
    "steersman.context",
    "steersman.durable",
    "steersman.durable.workflow_agent",
    "steersman.evals",
    "steersman.events",
    "steersman.policy",
    "steersman.provider",
    "steersman.server",
    "steersman.session",
    "steersman.team",
    "steersman.telemetry",
    "steersman.testing",
    "steersman.testing.servers",
    "steersman.tools",
    "steersman.types",
}
"""The packages users import from. The modules below them are free to move."""


@contextlib.contextmanager
def restored_logging() -> Generator[None]:
    """Undo what a document sets up: loggers are shared by all tests of a process."""
    root, logger = logging.getLogger(), logging.getLogger("steersman")
    handlers, levels = list(root.handlers), (root.level, logger.level)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        logger.setLevel(levels[1])


@contextlib.contextmanager
def restored_providers() -> Generator[None]:
    """Forget the providers and models that a document adds, which are shared as well."""
    shared = [cast(dict[object, object], vars(module)[name]) for module, name in REGISTRIES]
    before = [dict(each) for each in shared]
    try:
        yield
    finally:
        for found, entries in zip(shared, before, strict=True):
            found.clear()
            found.update(entries)


def output_of(block: Block, path: Path, names: dict[str, Any]) -> list[str]:
    """Run a block, which may `await`, among the names of the blocks above it; the lines it prints."""
    source = "\n" * block.above + block.code  # so that a traceback names the line of the document
    code = cast(CodeType, compile(source, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        left = cast(object, eval(code, names))
        if isinstance(left, Coroutine):
            run_virtual(cast(Coroutine[Any, Any, None], left))
    return printed.getvalue().splitlines()


@each_row("path", [path for path in DOCUMENTS if read_blocks(path)], ids=name_file)
def test_the_python_of_a_document_runs_and_prints_what_it_says(path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    providers = list_provider_names()
    with restored_logging(), restored_providers():
        for block in read_blocks(path):
            assert output_of(block, path, names) == PROMISE.findall(block.code), f"{name_file(path)}:{block.above + 1}"
    assert list_provider_names() == providers


def private_imports(code: str) -> Iterator[str]:
    """What a piece of code imports from below the public packages, or by a name that a package does not list."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.ImportFrom(module=str() as module) if module.split(".")[0] == "steersman":
                listed = importlib.import_module(module).__all__ if module in PUBLIC else ()
                yield from (f"{module}.{each.name}" for each in node.names if each.name not in listed)
            case ast.Import(names=names):
                yield from (
                    each.name for each in names if each.name.startswith("steersman.") and each.name not in PUBLIC
                )
            case _:
                continue


@each_row("path", [path for path in DOCUMENTS if read_blocks(path)], ids=name_file)
def test_a_document_imports_only_from_the_public_packages(path: Path) -> None:
    assert [name for block in read_blocks(path) for name in private_imports(block.code)] == []


@each_row("path", EXAMPLES, ids=name_file)
def test_an_example_imports_only_from_the_public_packages(path: Path) -> None:
    assert [*private_imports(path.read_text(encoding="utf-8"))] == []


@each_row("package", sorted(PUBLIC))
def test_every_name_that_a_public_package_lists_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert sorted(set(module.__all__)) == sorted(module.__all__)


def commands(path: Path) -> Iterator[list[str]]:
    """The words of each command in the shell blocks of a document, apart from what is set before it."""
    for block in SHELL.findall(path.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" (?:\||&&) ", line):
                words = shlex.split(part, comments=True)
                yield [*itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words)]


@each_row("path", DOCUMENTS, ids=name_file)
def test_the_commands_of_a_document_can_be_typed(path: Path) -> None:
    targets = TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    for words in commands(path):
        match words:
            case [
                "steersman" | ".venv/bin/steersman",
                "sessions" | "models" | "doctor" | "eval" as command,
                *arguments,
            ]:
                assert parse([command, *arguments]).command == command
            case ["steersman" | ".venv/bin/steersman", *arguments]:
                assert parse([*arguments, "Hello"]).command == "run"  # without a word it would be a chat, on a terminal
            case ["make", target, *_]:
                assert target in targets
            case _:
                continue


@each_row("path", DOCUMENTS, ids=name_file)
def test_a_document_names_only_methods_and_properties_that_exist(path: Path) -> None:
    """house.md: the documents say what the code does."""
    text = path.read_text(encoding="utf-8")
    named = set(ATTRIBUTE.findall(OF_OTHERS.sub("", text) if path.name == "coming-from.md" else text))
    known = {(name, attribute) for name, kind in OBJECTS.items() for attribute in (*dir(kind), *OWN.get(name, ()))}
    assert sorted(named - known) == []


@each_row("path", DOCUMENTS, ids=name_file)
def test_the_links_of_a_document_lead_somewhere(path: Path) -> None:
    targets = LINK.findall(re.sub(r"`[^`\n]+`", "", path.read_text(encoding="utf-8")))  # a link in code is no link
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_documents_are_there() -> None:
    wanted = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
        "docs/events.md",
        "docs/glossary.md",
        "docs/hooks.md",
        "docs/providers.md",
        "docs/testing.md",
        "docs/tutorial.md",
    ]
    assert [name for name in wanted if not (ROOT / name).is_file()] == []


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_the_architecture_is_short() -> None:
    assert len(ARCHITECTURE.encode()) <= 20_000


def test_every_file_that_the_architecture_names_exists() -> None:
    source = ROOT / "src" / "steersman"
    names = {path.name for path in source.rglob("*.py")}
    named = [name for name in re.findall(r"`([\w/]+\.py)`", ARCHITECTURE) if "NAME" not in name]
    there = [
        name in names if "/" not in name else any((base / name).is_file() for base in (source, ROOT)) for name in named
    ]
    assert [name for name, is_there in zip(named, there, strict=True) if not is_there] == []


def test_the_architecture_has_every_package() -> None:
    source = ROOT / "src" / "steersman"
    packages = {path.parent.relative_to(source).as_posix() + "/" for path in source.rglob("__init__.py")} - {"./"}
    rooms = ARCHITECTURE.partition("## The rooms")[2].partition("\n## ")[0]
    missing = [
        package
        for package in sorted(packages)
        # A package inside another may be named by its last part, beside the one it is in.
        if f"`{package}`" not in rooms and f"`{package.rstrip('/').rpartition('/')[2]}/`" not in rooms
    ]
    assert missing == []


@each_row("path", DOCUMENTS, ids=name_file)
def test_a_document_names_only_files_that_exist(path: Path) -> None:
    named = re.findall(
        r"\b(?:src/steersman|tests|docs|examples)/[\w/.-]+\.(?:py|md|txt)\b", path.read_text(encoding="utf-8")
    )
    assert [name for name in named if not (ROOT / name).is_file()] == []
