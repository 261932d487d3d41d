"""README, documents and examples are type-checked as a reader's own code is: basedpyright and mypy, both strict.

`make types` gives basedpyright the documents together with the rest of the code, so that it reads the library once.
`tests/agent/typed.py` says what both of them know about an agent.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs.blocks import DOCUMENTS, EXAMPLES, ROOT, UNTYPED, read_blocks, write_modules

SETTINGS = """
[tool.mypy]
strict = true
python_version = "3.11"
follow_imports = "silent"      # the library itself is checked by basedpyright
disallow_untyped_decorators = true
"""

TYPED = ROOT / "tests" / "agent" / "typed.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a user: a module for each document, the examples, and what checkers know about an agent."""
    root = tmp_path_factory.mktemp("documents")
    write_modules(root / "code")
    (root / "pyproject.toml").write_text(SETTINGS)
    for path in EXAMPLES:
        shutil.copy(path, root / "code" / f"example_{path.name}")
    shutil.copy(TYPED, root / "code")
    return root


def test_the_modules_hold_every_block(project: Path) -> None:
    count = sum(len(read_blocks(path)) - path.read_text(encoding="utf-8").count(UNTYPED) for path in DOCUMENTS)
    found = 0
    for module in (project / "code").glob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        found += sum(
            isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("block_at_line_") for node in ast.walk(tree)
        )
    assert found == count > 100


@pytest.mark.timeout(300)
def test_mypy_accepts_every_document_and_example(project: Path) -> None:
    """api.md: an editor completes an option and a checker refuses a wrong one; `result.output` has its type."""
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), "code"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
