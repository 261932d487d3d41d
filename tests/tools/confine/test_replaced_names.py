"""What is protected is replaced by the user while a command runs, as by an editor that saves or by `git checkout`.

The kernel takes the read-only mount of the command away with what it was on, and the command could write what is there
from then on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.tools.builtin.shells import run, text, until
from tests.tools.confine.rooms import Room
from tests.tools.confine.test_new_names import WAIT
from tests.tools.confine.test_sandbox_git import named

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.protected_paths import Git
from steersman.tools.confine.sandbox import Confinement
from steersman.types.tools import ToolOutput

pytestmark = pytest.mark.real_time

FILES = {
    ".mcp.json": ".mcp.json",
    ".steersman": ".steersman/hooks/gate",
    "sub/.steersman": "sub/.steersman/hooks/gate",
    ".git": ".git/hooks/pre-commit",
    "sub/.git": "sub/.git/hooks/pre-commit",
}


def make(root: Path, name: str) -> None:
    """Make what is protected under a name."""
    path = root / name
    if name.endswith(".git"):
        subprocess.run(["git", "init", "-q", path.parent], check=True)
        return
    file = root / FILES[name]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")


def replace(root: Path, name: str) -> None:
    path = root / name
    if path.is_file():
        path.with_name("new").write_text("mine")
        os.replace(path.with_name("new"), path)
    else:
        shutil.rmtree(path)
        make(root, name)


async def change_during(room: Room, walls: Confinement, path: str, change: str, git: Git = "read-only") -> ToolOutput:
    """Run a command that writes to a path in the workspace, after the user has done something."""
    bash = bash_tool(room.root, sandbox=named(walls), git=git)
    work = asyncio.create_task(run(bash, f"{WAIT}; echo evil > {path}; true"))
    await until((room.root / "ready").exists)
    if change == "replace":
        replace(room.root, path if path in FILES else next(name for name in FILES if FILES[name] == path))
    else:
        subprocess.run(change, shell=True, cwd=room.root, check=True)  # noqa: ASYNC221
    (room.root / "go").touch()
    return await work


@pytest.mark.parametrize("name", FILES)
async def test_what_a_command_could_write_by_then_is_set_aside(room: Room, whole: Confinement, name: str) -> None:
    make(room.root, name)
    output = await change_during(room, whole, FILES[name], "replace")
    assert output.is_error
    assert f"what was put there is now '{os.path.basename(name)}.refused-" in text(output)
    assert not (room.root / name).exists()


async def test_settings_of_git_that_are_replaced_are_named(room: Room, whole: Confinement) -> None:
    """Set aside, the repository would have none; commands may commit in it."""
    make(room.root, ".git")
    output = await change_during(
        room, whole, ".git/config", "git config user.name Somebody && mkdir done", git="read-write"
    )
    assert output.is_error
    assert f"'{room.root}/.git/config' has been replaced while the command ran, which could write it" in text(output)
    assert (room.root / ".git/config").read_text() == "evil\n"


@pytest.mark.parametrize("name", FILES)
async def test_what_is_changed_or_deleted_is_left_alone(room: Room, whole: Confinement, name: str) -> None:
    make(room.root, name)
    output = await change_during(room, whole, FILES[name], f"echo yours > {FILES[name]}")
    assert "refused" not in text(output)
    assert (room.root / FILES[name]).read_text() == "yours\n"
    (room.root / "go").unlink()
    (room.root / "ready").unlink()
    output = await change_during(room, whole, FILES[name], f"rm -r {name}")
    assert "has been replaced" not in text(output)


async def test_no_file_stays_open(room: Room, whole: Confinement) -> None:
    for name in FILES:
        make(room.root, name)
    bash = bash_tool(room.root, sandbox=named(whole))
    await run(bash, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await run(bash, "true")
    assert len(os.listdir("/proc/self/fd")) <= before
