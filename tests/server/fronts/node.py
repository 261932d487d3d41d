"""Node and packages of npm for the judges that are written in JavaScript; without them the tests are skipped."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_INSTALL_SECONDS = 300


def install_packages(*packages: str) -> Path:
    """A folder with these packages, which is kept for the next time; skips the test if they cannot be installed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    mark = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "steersman-tests" / f"npm-{mark}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"npm did not install {' '.join(packages)} in time")
            if done.returncode:
                pytest.skip(f"npm cannot install {' '.join(packages)}: {done.stderr[-200:]}")
            (folder / "installed").touch()
    return folder


def place_script(script: Path, folder: Path) -> Path:
    """A copy of a script beside the packages, where node finds them."""
    copy = folder / f"{os.getpid()}-{script.name}"
    shutil.copyfile(script, copy)
    return copy
