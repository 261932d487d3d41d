"""What a command writes into its home folder does not run in a later one, and the user's name is there for commits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.tools.builtin.shells import run, text
from tests.tools.confine.rooms import walls_of

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.home import read_git_identity
from steersman.tools.confine.sandbox import Confinement, Sandbox

pytestmark = pytest.mark.real_time


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    walls: Confinement = walls_of(request.param)
    assert walls.kind in ("bubblewrap", "landlock")
    return walls.kind


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, and a user with a name in the settings at home and other settings that run programs."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        '[user]\n\tname = "Ada \\"L\\" \\\\ Lovelace"\n\temail = ada@example.com\n'
        f'[includeIf "gitdir:{tmp_path}/project/"]\n\tpath = work\n[core]\n\tfsmonitor = "touch ran; false"\n'
    )
    (home / "work").write_text("[user]\n\temail = ada@work.example\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    root = tmp_path / "project"
    root.mkdir()
    done = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "init", "-q", "."], cwd=root, env=done, check=True)
    return root


EVIL = """printf '[core]\\n\\tfsmonitor = "touch ran; false"\\n' > {}"""


@pytest.mark.parametrize("path", ["~/.gitconfig", "~/.config/git/config"])
async def test_settings_that_a_command_writes_run_nothing_in_the_next(
    project: Path, sandbox: Sandbox, path: str
) -> None:
    bash = bash_tool(project, sandbox=sandbox)
    output = await run(bash, f"mkdir -p ~/.config/git; {EVIL.format(path)}; git status; ls ran; rm ran")
    assert not output.is_error  # so that the rest tells something: in the same command, it runs
    output = await run(bash, "git status > /dev/null; ls -A ~; ls ran")
    assert "No such file" in text(output)
    assert not (project / "ran").exists()


def list_existing(*paths: str) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


async def test_nothing_of_a_home_folder_is_left(project: Path, sandbox: Sandbox) -> None:
    bash = bash_tool(project, sandbox=sandbox)
    homes = [text(await run(bash, "echo $HOME; touch ~/x; mkdir ~/d; ln -s / ~/d/root")).strip() for _ in range(2)]
    assert len(set(homes)) == 2
    assert list_existing(*homes) == []
    output = await run(bash, "echo $HOME; sleep 600", timeout=0.2)
    assert list_existing(text(output).split()[0]) == []


async def test_temporary_files_are_kept_for_the_next_command(project: Path, sandbox: Sandbox) -> None:
    bash = bash_tool(project, sandbox=sandbox)
    await run(bash, "echo kept > $TMPDIR/x")
    assert text(await run(bash, "cat $TMPDIR/x")) == "kept\n"


async def test_commits_have_the_name_of_the_user(project: Path, sandbox: Sandbox) -> None:
    """The name for this folder, and nothing else of the user's settings."""
    bash = bash_tool(project, sandbox=sandbox, git="read-write")
    output = await run(bash, "git commit -q --allow-empty -m a && git log --format='%an <%ae>'")
    assert text(output) == 'Ada "L" \\ Lovelace <ada@work.example>\n'
    assert text(await run(bash, "git config --global --list --name-only")) == "user.name\nuser.email\n"
    # A name in the repository's own settings comes first, as outside.
    with (project / ".git/config").open("a") as file:
        file.write("[user]\n\tname = Local\n")
    output = await run(bash, "git commit -q --allow-empty -m b && git log -1 --format=%an")
    assert text(output) == "Local\n"
    assert not (project / "ran").exists()


async def test_where_nothing_can_be_committed_the_name_is_not_told(project: Path, sandbox: Sandbox) -> None:
    assert text(await run(bash_tool(project, sandbox=sandbox), "ls -A ~")) == "(no output)"


def test_a_user_without_a_name_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert read_git_identity(str(tmp_path)) == ""
    (tmp_path / ".gitconfig").write_text("broken [")
    assert read_git_identity(str(tmp_path)) == ""
    assert read_git_identity("/no/such/folder") == ""
