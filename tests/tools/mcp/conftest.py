"""The npm servers, installed once beside the virtual environment; where that fails, their tests are skipped."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

VERSION = "2026.8.31"
PACKAGES = ("server-everything", "server-filesystem")
FOLDER = Path(sys.prefix) / "mcp-npm"
SECONDS = 90
RECENT = 600


@pytest.fixture(scope="session")
def npm() -> Path:
    """The folder that holds the official servers of `@modelcontextprotocol`."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker installs, the others wait for it
        problem = _install()
    if problem:
        pytest.skip(f"the npm servers could not be installed: {problem}")
    return FOLDER / "node_modules" / "@modelcontextprotocol"


def _install() -> str:
    done, failed = FOLDER / f"installed-{VERSION}", FOLDER / "failed"
    if done.exists():
        return ""
    if failed.exists() and time.time() - failed.stat().st_mtime < RECENT:
        return failed.read_text(encoding="utf-8")
    wanted = [f"@modelcontextprotocol/{name}@{VERSION}" for name in PACKAGES]
    command = ["npm", "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "--loglevel=error", *wanted]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS, env={**os.environ, "CI": "1"})
    except (OSError, subprocess.SubprocessError) as error:
        failed.write_text(type(error).__name__, encoding="utf-8")
        return type(error).__name__
    done.touch()
    return ""
