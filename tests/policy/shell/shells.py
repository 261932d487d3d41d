"""Real shells with harmless programs, to see what a command really runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SHELLS = [path for name in ("bash", "dash") if (path := shutil.which(name)) is not None]
PROGRAMS = ("ls", "git", "cat", "grep", "evil")
_STUB = """#!/bin/sh
for word in "${0##*/}" "$@"; do printf "%s\\037" "$word"; done >> "$SEEN"
printf "\\036" >> "$SEEN"
"""


class Bench:
    """A folder whose `bin` has programs that write down how they were called, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        (folder / "bin").mkdir()
        for name in PROGRAMS:
            path = folder / "bin" / name
            path.write_text(_STUB)
            path.chmod(0o755)

    def ran(self, shell: str, command: str) -> list[list[str]]:
        """What a real shell runs for a command, as the programs saw it."""
        seen = self.folder / "seen"
        seen.write_bytes(b"")
        environment = {
            "PATH": str(self.folder / "bin"), "SEEN": str(seen), "HOME": "/nowhere", "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        subprocess.run(
            [shell, "-c", f"{command}\nwait"],
            env=environment,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        calls = seen.read_bytes().decode().split("\x1e")[:-1]
        return [call.split("\x1f")[:-1] for call in calls]
