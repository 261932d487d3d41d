"""What basedpyright and mypy know about an agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CHECKED = Path(__file__).with_name("typed.py")


@pytest.mark.parametrize("checker", ["basedpyright", "mypy"])
@pytest.mark.timeout(600)
def test_checkers_infer_what_an_agent_gives(checker: str) -> None:
    """api.md: an editor completes an option and a checker refuses a wrong one; `result.output` has its type."""
    program = Path(sys.executable).with_name(checker)
    options = ["--strict", "--follow-imports=silent"] if checker == "mypy" else []
    done = subprocess.run([program, *options, CHECKED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
