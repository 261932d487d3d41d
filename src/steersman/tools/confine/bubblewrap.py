"""Bubblewrap: the command line that puts a command behind its walls."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from steersman.tools.confine.launch import DEFAULT_PATH
from steersman.tools.confine.places import SandboxPaths
from steersman.tools.confine.walls import SECCOMP_FD

# What root needs over files of others in its own folders, as with Landlock.
FILE_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4}


def find_bubblewrap() -> str | None:
    """Where bubblewrap is; looked for in the places of the system, where no project can put its own."""
    return shutil.which("bwrap", path=DEFAULT_PATH)


def build_bubblewrap_command(
    bwrap: str, places: SandboxPaths, cwd: str, argv: Sequence[str], *, allow_network: bool, root: bool, seccomp: bool
) -> list[str]:
    """The command line. Later mounts lie over earlier ones: programs, the workspace, what is protected in it."""
    found = [bwrap, "--unshare-all", "--new-session", "--cap-drop", "ALL"]
    if allow_network:
        found.append("--share-net")
    if root:
        for name in FILE_CAPABILITIES:
            found += ["--cap-add", name]
    if seccomp:
        found += ["--seccomp", str(SECCOMP_FD)]
    # Read-only: a command of root could otherwise set the machine's kernel to run a program of its choice.
    found += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in places.readable:
        if path != "/proc":
            found += ["--ro-bind-try", path, path]
    for path in places.writable:
        found += ["--bind", path, path]
    for path, writable in places.protected.pinned:
        found += ["--bind" if writable else "--ro-bind", path, path]
    return [*found, "--remount-ro", "/", "--chdir", cwd, "--", *argv]
