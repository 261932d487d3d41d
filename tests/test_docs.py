"""Every Python block of the documents is run, offline, and prints what it says it prints (`#> ...`)."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import re
import shlex
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, cast

import pytest

from steersman.cli.arguments import parse
from steersman.testing import run_virtual

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
SHELL = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)
PROMISE = re.compile(r"#> ?(.*)")


class Block(NamedTuple):
    """A Python block and where it stands, as the number of lines above it."""

    code: str
    above: int


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [Block(match[1], text.count("\n", 0, match.start(1))) for match in BLOCK.finditer(text)]


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


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path)], ids=shown)
def test_the_python_of_a_document_runs_and_prints_what_it_says(path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path):
        assert output_of(block, path, names) == PROMISE.findall(block.code), f"{shown(path)}:{block.above + 1}"


def commands(path: Path) -> Iterator[list[str]]:
    """The words of each command in the shell blocks of a document, apart from what is set before it."""
    for block in SHELL.findall(path.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" (?:\||&&) ", line):
                words = shlex.split(part, comments=True)
                yield [*itertools.dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_the_commands_of_a_document_can_be_typed(path: Path) -> None:
    targets = TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    for words in commands(path):
        match words:
            case ["steersman" | ".venv/bin/steersman", "sessions" | "models" | "doctor" as command, *arguments]:
                assert parse([command, *arguments]).command == command
            case ["steersman" | ".venv/bin/steersman", *arguments]:
                assert parse([*arguments, "Hello"]).command == "run"  # without a word it would be a chat, on a terminal
            case ["make", target, *_]:
                assert target in targets
            case _:
                continue


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_the_links_of_a_document_lead_somewhere(path: Path) -> None:
    targets = LINK.findall(path.read_text(encoding="utf-8"))
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


def test_the_architecture_has_a_line_for_every_module() -> None:
    source = ROOT / "src" / "steersman"
    modules = [path.relative_to(source).as_posix() for path in source.rglob("*.py") if path.name != "__init__.py"]
    table = re.findall(
        r"^\| `([\w/]+\.py)` \| \S", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(table) == sorted(modules)
