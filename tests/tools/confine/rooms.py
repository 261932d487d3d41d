"""Workspaces and the walls around them, for tests that try to get out. Each kind of wall that this machine has."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from steersman.tools.builtin.command import Command, CommandOutcome
from steersman.tools.builtin.output_capture import OutputCapture
from steersman.tools.confine.launch import build_child_environment
from steersman.tools.confine.protected_paths import find_sandbox_paths
from steersman.tools.confine.sandbox import Confinement, confinement

WHOLE = ["bubblewrap", "landlock"]
KINDS = [*WHOLE, "landlock alone"]


def walls_of(kind: str) -> Confinement:
    """The confinement of a kind, or a skip that says why this machine has none."""
    found = confinement("bubblewrap" if kind == "bubblewrap" else "landlock")
    if found.kind == "none":
        pytest.skip(found.reason)
    if kind == "landlock" and not found.namespaces:
        pytest.skip(found.reason)
    # As it is on a machine that has no namespaces for ordinary users.
    return dataclasses.replace(found, namespaces=False) if kind == "landlock alone" else found


class Room:
    """A workspace, and a folder beside it to which a command inside has no right."""

    ended: CommandOutcome

    def __init__(self, base: Path) -> None:
        self.root, self.outside, self.tmp = base / "root", base / "outside", base / "tmp"
        for folder in (self.root, self.outside, self.tmp):
            folder.mkdir()
        self.secret = self.outside / "secret"
        self.secret.write_text("canary")

    def run(self, walls: Confinement, command: str, **settings: Any) -> tuple[str, int]:
        """Run a command behind the walls: its output and its exit code."""
        allow_network = settings.pop("allow_network", False)
        environment = build_child_environment({"TMPDIR": str(self.tmp), "HOME": str(self.tmp)})
        where = find_sandbox_paths(str(self.root), [str(self.tmp)], environment, **settings)
        argv = ["/bin/bash", "-c", command]
        return self.follow(walls.plan(argv, environment, str(self.root), where, allow_network=allow_network))

    def follow(self, plan: dict[str, Any]) -> tuple[str, int]:
        captured = OutputCapture(lambda: str(self.tmp), max_bytes=100_000, max_lines=10_000, max_file_bytes=0)
        ended = Command(plan, captured, 30, lambda _: None).run()
        self.ended = ended
        return captured.to_text()[0], os.waitstatus_to_exitcode(ended.status)


def open_files() -> set[tuple[int, str]]:
    """The descriptors of this process, with what they lead to.

    To be compared by what came anew and not by how many there are: what earlier tests left to be collected may go
    meanwhile.
    """
    found: set[tuple[int, str]] = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add((int(number), os.readlink(f"/proc/self/fd/{number}")))
        except OSError:
            continue  # the one of the listing itself
    return found


def python(code: str) -> str:
    return f"{sys.executable} -c '{code}'"
