"""Folders that a command replaces by links, closes or fills with modules, so that something outside follows it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.tools.builtin.shells import run, text, until
from tests.tools.confine.rooms import Room, walls_of

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.folder_snapshot import open_folder
from steersman.tools.confine.launch import build_child_environment
from steersman.tools.confine.protected_paths import find_sandbox_paths
from steersman.tools.confine.sandbox import Sandbox
from steersman.types.errors import ToolError

pytestmark = pytest.mark.real_time


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return walls_of(request.param).kind  # pyright: ignore[reportReturnType]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace, and a folder of the user beside it."""
    root, home = tmp_path / "root", tmp_path / "home"
    (root / "sub").mkdir(parents=True)
    (home / "papers").mkdir(parents=True)
    (home / "papers" / "will").write_text("canary")
    return root, home


async def test_a_workspace_that_became_a_link_is_refused(places: tuple[Path, Path], sandbox: Sandbox) -> None:
    """docs/security.md: the rest of your home cannot be read. A command of an outer workspace moves an inner one."""
    root, home = places
    outer, inner = bash_tool(root, sandbox=sandbox), bash_tool(root / "sub", sandbox=sandbox)
    assert not (await run(outer, f"mv sub old; ln -s {home} sub")).is_error
    output = await run(inner, "cat papers/will; touch papers/new")
    assert output.is_error
    assert "is now a link to" in text(output)
    assert os.listdir(home / "papers") == ["will"]


async def test_a_writable_folder_that_became_a_link_is_refused(places: tuple[Path, Path], sandbox: Sandbox) -> None:
    """docs/bash.md: a command cannot write outside the workspace, also not through a folder above `writable`."""
    root, home = places
    (root / "sub" / "papers").mkdir()
    tool = bash_tool(root, sandbox=sandbox, writable=[root / "sub" / "papers"])
    assert not (await run(tool, "mv sub old; ln -s ../home sub")).is_error
    output = await run(tool, "cat sub/papers/will; touch sub/papers/new")
    assert "is now a link to" in text(output)
    assert os.listdir(home / "papers") == ["will"]


async def test_a_temporary_folder_that_became_a_link_leads_nowhere(
    places: tuple[Path, Path], sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md: the temporary folder is deleted at the end; what a command put a link to is not."""
    root, home = places
    monkeypatch.setattr(tempfile, "tempdir", str(root / "sub"))
    tool = bash_tool(root, sandbox=sandbox)
    swap = f"cd sub; for b in steersman-*; do mv $b gone; ln -s {home} $b; done"
    assert not (await run(tool, swap)).is_error
    assert not (await run(tool, "echo $HOME")).is_error
    assert os.listdir(home) == ["papers"]
    del tool
    gc.collect()
    assert os.listdir(home) == ["papers"]
    assert os.listdir(home / "papers") == ["will"]


async def test_closed_folders_are_deleted_with_the_home_folder(places: tuple[Path, Path], sandbox: Sandbox) -> None:
    """docs/security.md: the home folder is new in each call. Read-only folders, as `go` makes them, are deleted too."""
    tool = bash_tool(places[0], sandbox=sandbox)
    output = await run(
        tool, "mkdir -p $HOME/a/b; touch $HOME/a/b/c; chmod 000 $HOME/a/b; chmod 500 $HOME/a; echo $HOME"
    )
    home = Path(text(output).strip())
    assert home.name not in os.listdir(home.parent)


async def test_a_folder_of_programs_that_became_a_link_shows_nothing(
    places: tuple[Path, Path], sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md: the rest of your home cannot be read. A command makes a folder of PATH a link to it."""
    root, home = places
    monkeypatch.setenv("PATH", f"{root}/sub:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(root / "venv"))
    tool = bash_tool(root, sandbox=sandbox)
    assert not (await run(tool, f"rmdir sub; ln -s {home} sub; ln -s {home} venv")).is_error
    output = await run(tool, f"cat {home}/papers/will sub/papers/will venv/papers/will")
    assert "canary" not in text(output)


@pytest.mark.parametrize("side", ["source", "workspace"])
def test_what_is_exchanged_while_the_sandbox_is_built_is_not_mounted(
    tmp_path: Path, sandbox: Sandbox, side: str
) -> None:
    """docs/bash.md: a command cannot reach files outside, also not by exchanging folders while another one starts."""
    room = Room(tmp_path)
    walls = walls_of(sandbox)
    (room.root / "sub" / ".git").mkdir(parents=True)
    (room.root / "sub" / ".git" / "config").touch()
    (room.outside / ".git").mkdir()
    environment = build_child_environment({"HOME": str(room.tmp)})
    where = find_sandbox_paths(str(room.root), [str(room.tmp)], environment)
    argv = ["/bin/bash", "-c", "cat secret sub/secret; touch new sub/new"]
    plan = walls.plan(argv, environment, str(room.root), where, allow_network=False)
    moved = room.root if side == "workspace" else room.root / "sub"
    moved.rename(tmp_path / "old")
    moved.symlink_to(os.path.relpath(room.outside, moved.parent))
    with pytest.raises(ToolError, match="replaced by a link"):
        room.follow(plan)
    assert sorted(os.listdir(room.outside)) == [".git", "secret"]


@pytest.mark.parametrize("moved", ["out", "."])
async def test_output_is_not_written_through_a_link(places: tuple[Path, Path], sandbox: Sandbox, moved: str) -> None:
    """docs/bash.md: a command cannot write outside. It replaces the folder for long output while it runs."""
    root, home = places
    (root / "sub" / "out").mkdir()
    tool = bash_tool(root, sandbox=sandbox, output_folder=root / "sub" / "out")
    swap = f"cd sub; mv out old; ln -s {home} out" if moved == "out" else f"mv sub old; ln -s {home} sub"
    output = await run(tool, f"{swap}; seq 100000")
    assert "it could not be saved" in text(output)
    assert os.listdir(home) == ["papers"]


def test_a_closed_folder_that_became_a_link_is_not_opened(tmp_path: Path) -> None:
    """docs/bash.md: permissions outside do not change. A search opens folders that a command has closed."""
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir(mode=0o200)
    (tmp_path / "root" / "sub").symlink_to("../outside")
    open_folder(str(tmp_path / "root" / "sub"))
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o200
    open_folder(str(tmp_path / "outside"))
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o700


async def test_two_commands_at_once_leave_no_repository(places: tuple[Path, Path], sandbox: Sandbox) -> None:
    """docs/bash.md: a repository is set aside, also where a second command makes again what the first one had made."""
    root, _ = places
    tool = bash_tool(root, sandbox=sandbox, sequential=False)
    make = "mkdir sub/.git; touch sub/.git/config"
    first = asyncio.ensure_future(run(tool, f"{make}; touch ready; until [ -e begun ]; do sleep 0.02; done"))
    await until(lambda: (root / "ready").exists())
    second = await run(tool, f"touch begun; while [ -e sub/.git ]; do sleep 0.02; done; {make}", timeout=10)
    assert (await first).is_error
    assert second.is_error
    assert not (root / "sub" / ".git").exists()


def test_a_repository_in_a_closed_folder_is_found_and_set_aside(tmp_path: Path) -> None:
    """docs/bash.md: a repository that a command made is set aside, also in a folder that the command has closed."""
    for name, mode in (("hidden", 0o311), ("fixed", 0o555), ("locked", 0o755)):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / ".git" / "HEAD").touch()
        (tmp_path / name / ".git").chmod(0o300 if name == "locked" else 0o755)
        (tmp_path / name).chmod(mode)
    done = subprocess.run(
        ["setpriv", "--inh-caps=-all", "--bounding-set=-all", sys.executable, "-c", _SET_ASIDE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("HEAD*"))
    assert [path.partition("/")[0] for path in left] == ["fixed", "hidden", "locked"]
    assert all("/.git.refused-" in path and "/HEAD.refused-" in path for path in left), left


_SET_ASIDE = """
import sys
from steersman.tools.confine.folder_snapshot import FolderSnapshot, set_aside
set_aside(FolderSnapshot(sys.argv[1]).refresh(lambda _: True))
"""


def test_bubblewrap_works_in_a_program_with_few_open_files() -> None:
    """docs/security.md: bubblewrap is used if it works. The filter must reach it whatever numbers descriptors have."""
    walls_of("bubblewrap")
    code = "from steersman.tools import confinement; found = confinement('bubblewrap'); print(found.kind, found.reason)"
    for more in range(4):
        program = f"import os; files = [os.dup(0) for _ in range({more})]; {code}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("bubblewrap "), done.stdout


_PROGRAM = """
import asyncio, os, sys
from steersman import CancelToken, ToolContext
from steersman.tools import builtin_tools
tools = {tool.name: tool for tool in builtin_tools(os.path.dirname(__file__))}
assert "resource" not in sys.modules
async def call(name, **arguments):
    return await tools[name].call(arguments, ToolContext("1", name, CancelToken()))
WRITE
print(asyncio.run(call("search", pattern="(?=n)nothing")).content)
import helper
print(helper.__file__)
"""
_WRITES = {
    "bash": """asyncio.run(call("bash", command="echo open\\\\(\\\\'pwned\\\\',\\\\'w\\\\'\\\\) > resource.py"))""",
    "write": """asyncio.run(call("write", path="resource.py", content="open('pwned','w')"))""",
}


@pytest.mark.parametrize("tool", _WRITES)
def test_a_module_that_a_tool_wrote_is_not_imported_for_one_of_python(tmp_path: Path, tool: str) -> None:
    """docs/security.md: what a command writes does not run outside. The program's own folder is the workspace here."""
    if tool == "bash":
        walls_of("landlock")
    (tmp_path / "app.py").write_text(_PROGRAM.replace("WRITE", _WRITES[tool]))
    (tmp_path / "helper.py").touch()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "app.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (tmp_path / "resource.py").exists(), done.stderr
    assert not (tmp_path / "pwned").exists()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "helper.py")
