"""Runs the JavaScript clients that judge the server's protocols."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
JUDGES = ROOT / ".venv" / "judges"


async def judge(program: str, *arguments: str) -> Any:
    """What a program of tests/server/judges prints; skips the test where Node or its packages are missing.

    It may start programs of these tests.
    """
    node = shutil.which("node")
    if node is None or not (JUDGES / ".ready").exists():
        pytest.skip("Node and the packages of tests/server/judges are not installed: `make test` does it where npm is.")
    script = JUDGES / program
    script.write_bytes((ROOT / "tests" / "server" / "judges" / program).read_bytes())
    process = await asyncio.create_subprocess_exec(
        node,
        str(script),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(output)
