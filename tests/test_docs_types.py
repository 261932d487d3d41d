"""README, documents and examples are type-checked as a reader's own code is: basedpyright and mypy, both strict.

So is `tests/agent/typed.py`, which says what they know about an agent: each of them looks at all of it in one run.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.test_docs import DOCUMENTS, EXAMPLES, ROOT, blocks, shown

SETTINGS = """
[tool.basedpyright]
pythonVersion = "3.11"
typeCheckingMode = "strict"
enableTypeIgnoreComments = false
reportUnnecessaryTypeIgnoreComment = true
include = ["code"]
reportUnusedClass = false      # a document shows a class or a function and leaves its use to the reader
reportUnusedFunction = false
reportUnusedExpression = false
reportUnusedVariable = false

[tool.mypy]
strict = true
python_version = "3.11"
follow_imports = "silent"      # the library itself is checked by basedpyright
disallow_untyped_decorators = true
"""

TYPED = ROOT / "tests" / "agent" / "typed.py"
UNTYPED = "<!-- untyped -->"


def write_module(document: Path, to: Path) -> None:
    """Write the blocks of a document as functions, each inside the one before.

    So a block sees the names of those above it, may use them for something else, and may `await`. A block below
    `<!-- untyped -->` shows what happens without types.
    """
    lines: list[str] = []
    text = document.read_text(encoding="utf-8").splitlines()
    typed = [block for block in blocks(document) if block.above < 2 or text[block.above - 2] != UNTYPED]
    for depth, block in enumerate(typed):
        lines.append("    " * depth + f"async def block_at_line_{block.above + 1}() -> None:")
        lines.append(textwrap.indent(block.code, "    " * (depth + 1)))
    to.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a user: a module for each document, the examples, and what checkers know about an agent."""
    root = tmp_path_factory.mktemp("documents")
    (root / "code").mkdir()
    (root / "pyproject.toml").write_text(SETTINGS)
    for path in DOCUMENTS:
        if blocks(path):
            name = shown(path).removesuffix(".md").replace("/", "_").replace("-", "_")
            write_module(path, root / "code" / f"{name}.py")
    for path in EXAMPLES:
        (root / "code" / f"example_{path.name}").write_text(path.read_text(encoding="utf-8"))
    (root / "code" / TYPED.name).write_text(TYPED.read_text(encoding="utf-8"))
    return root


def check(project: Path, *command: str) -> str:
    """What a checker prints, if it finds anything."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=project, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_modules_hold_every_block(project: Path) -> None:
    count = sum(len(blocks(path)) - path.read_text(encoding="utf-8").count(UNTYPED) for path in DOCUMENTS)
    found = 0
    for module in (project / "code").glob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        found += sum(
            isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("block_at_line_") for node in ast.walk(tree)
        )
    assert found == count > 100


@pytest.mark.timeout(300)
def test_basedpyright_accepts_every_document_and_example(project: Path) -> None:
    """api.md: an editor completes an option and a checker refuses a wrong one; `result.output` has its type."""
    assert check(project, "basedpyright", "--pythonpath", sys.executable, "--level", "error") == ""


@pytest.mark.timeout(300)
def test_mypy_accepts_every_document_and_example(project: Path) -> None:
    """api.md: the same, for those who use mypy."""
    assert check(project, "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), "code") == ""
