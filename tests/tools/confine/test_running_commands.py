"""Commands of several programs or tools in one workspace: what one makes under a protected name, no other one keeps.

The rule is in docs/bash.md: a repository, `.steersman` or `.mcp.json` that a command makes is set aside at its end.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tools.builtin.shells import run, text, until
from tests.tools.confine.rooms import Room
from tests.tools.confine.test_new_names import WAIT, ask_git, prepare
from tests.tools.confine.test_sandbox_git import named

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.folder_snapshot import FolderSnapshot
from steersman.tools.confine.running_commands import begin_command
from steersman.tools.confine.sandbox import Confinement
from steersman.tools.confine.scratch import Scratch

pytestmark = pytest.mark.real_time

# A program in which a command has begun, until its stdin is closed.
PROGRAM = """
import sys
from steersman.tools.confine.folder_snapshot import FolderSnapshot
from steersman.tools.confine.running_commands import begin_command
from steersman.tools.confine.scratch import Scratch

root, scratch = sys.argv[1], Scratch()
begun = begin_command(scratch, FolderSnapshot(root), root, git="read-only", allowed=())
print("begun", len(begun.before), flush=True)
sys.stdin.read()
"""


async def run_both(room: Room, walls: Confinement, first: str, second: str, *, inner: str = ".") -> str:
    """Run a command, the first in a folder of the workspace; the second begins meanwhile, and goes on after its end."""
    (room.root / inner).mkdir(exist_ok=True)
    one, two = bash_tool(room.root / inner, sandbox=named(walls)), bash_tool(room.root, sandbox=named(walls))
    begun = asyncio.create_task(run(one, prepare(room, f"{first}; {WAIT}")))
    await until((room.root / inner / "ready").exists)
    work = asyncio.create_task(
        run(two, prepare(room, f"touch begun; until [ -e end ]; do sleep 0.02; done; {second}; true"))
    )
    await until((room.root / "begun").exists)
    (room.root / inner / "go").touch()
    await begun
    (room.root / "end").touch()
    return text(await work)


@pytest.mark.parametrize("name", [".mcp.json", ".steersman", "sub/.mcp.json", "sub/.git"])
async def test_a_name_that_another_command_has_made_is_not_kept(room: Room, whole: Confinement, name: str) -> None:
    (room.root / "sub").mkdir()
    make = f"evil {name}" if name.endswith(".git") else f"echo evil > {name}"
    assert f"what was put there is now '{os.path.basename(name)}.refused-" in await run_both(room, whole, make, make)
    await asyncio.to_thread(ask_git, room.root / "sub")
    assert not (room.root / name).exists()
    assert not (room.outside / "pwned").exists()


async def test_a_link_that_another_command_has_made_is_not_put_back(room: Room, whole: Confinement) -> None:
    """To a folder outside, which a command cannot write; another program could."""
    (room.root / "sub").mkdir()
    await run_both(room, whole, f"ln -s {room.outside} sub/.git", "true")
    assert not (room.root / "sub/.git").is_symlink()


async def test_a_name_that_a_command_holds_in_a_folder_is_not_kept_by_one_around_it(
    room: Room, whole: Confinement
) -> None:
    said = await run_both(room, whole, "true", "evil sub/.git", inner="sub")
    assert "what was put there is now '.git.refused-" in said
    await asyncio.to_thread(ask_git, room.root / "sub")
    assert not (room.root / "sub/.git").exists()
    assert not (room.outside / "pwned").exists()


async def test_a_repository_of_the_user_is_left_alone_by_both(room: Room, whole: Confinement) -> None:
    """In the workspace itself, where no command can make one."""
    bash = bash_tool(room.root, sandbox=named(whole))
    begun = asyncio.create_task(run(bash, WAIT))
    await until((room.root / "ready").exists)
    subprocess.run(["git", "init", "-q", room.root], check=True)  # noqa: ASYNC221
    other = bash_tool(room.root, sandbox=named(whole))
    said = text(await run(other, "touch .git/new"))
    assert "Read-only file system" in said
    (room.root / "go").touch()
    assert text(await begun) == "(no output)"
    assert (room.root / ".git/HEAD").exists()


def find_before(root: Path) -> set[str]:
    scratch = Scratch()
    begun = begin_command(scratch, FolderSnapshot(str(root)), str(root), git="read-only", allowed=())
    found = {os.path.relpath(path, root) for path in begun.before}
    begun.close()
    return found


def test_another_program_counts_until_it_ends(tmp_path: Path) -> None:
    """Also where it is killed, for then nothing is set aside: what is there must be protected from then on."""
    root = Path(os.path.realpath(tmp_path))
    for name in ("old", "new", "odd"):
        (root / name).mkdir()
    (root / "old/.mcp.json").touch()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun 1\n"
        (root / "new/.mcp.json").touch()
        (root / "odd/.git").mkdir()
        assert find_before(root) == {"old/.mcp.json"}
        assert find_before(root / "new") == set()
        other.kill()
    assert find_before(root) == {"old/.mcp.json", "new/.mcp.json"}


def test_what_a_command_can_write_says_nothing_about_others(tmp_path: Path) -> None:
    """The temporary folder is in the workspace: a command could make every repository look like its own."""
    root = Path(os.path.realpath(tmp_path))
    (root / "old").mkdir()
    (root / "old/.mcp.json").touch()
    base = root / "tmp/steersman-forged"
    (base / "running").mkdir(parents=True)
    (base / "running/command_1").write_text(
        json.dumps({"root": "/", "git": "read-only", "known": [], "complete": True})
    )
    scratch = Scratch()
    shutil.copy(Path(scratch.make_folder("x")).parent / "lock", base)
    with (base / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, root],
            env={**os.environ, "TMPDIR": str(root / "tmp")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    assert done.stdout == b"begun 1\n"


def test_who_may_write_repositories_may_make_them(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    scratch = Scratch()
    begun = begin_command(scratch, FolderSnapshot(str(root)), str(root), git="read-write", allowed=())
    (root / "new/.git/hooks").mkdir(parents=True)
    (root / "new/.mcp.json").touch()
    assert find_before(root) == {"new/.git"}
    begun.close()
    assert find_before(root) == {"new/.git", "new/.mcp.json"}


def test_what_was_not_searched_is_not_new(tmp_path: Path) -> None:
    """In a repository, and in a workspace with too many folders: what is there may be the user's."""
    root = Path(os.path.realpath(tmp_path))
    (root / ".git/modules/one").mkdir(parents=True)
    (root / "far/away").mkdir(parents=True)
    few = FolderSnapshot(str(root), most=1)
    all_of_it = FolderSnapshot(str(root))
    scratch = Scratch()
    for snapshot in (few, all_of_it):
        begun = begin_command(scratch, snapshot, str(root), git="read-only", allowed=())
        (root / ".git/modules/one/.mcp.json").touch()
        assert find_before(root / ".git/modules") == {"one/.mcp.json"}
        if snapshot is few:
            (root / "far/away/.mcp.json").touch()
            assert find_before(root / "far") == {"away/.mcp.json"}
        begun.close()
