"""Repositories, `.steersman` and `.mcp.json` that a command tries to make: in the workspace and in its subfolders.

git is asked outside the sandbox while the command runs and afterwards, as an editor does it all the time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.tools.builtin.shells import run, text, until
from tests.tools.confine.rooms import Room, walls_of
from tests.tools.confine.test_sandbox_git import named

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.folder_snapshot import is_settled
from steersman.tools.confine.launch import build_child_environment, launch
from steersman.tools.confine.path_resolution import Root, resolve_path, split_path
from steersman.tools.confine.protected_paths import Git, find_sandbox_paths
from steersman.tools.confine.sandbox import Confinement, Sandbox, confinement
from steersman.tools.confine.syscalls import FOLDER
from steersman.tools.confine.workspace import PROTECTED
from steersman.tools.confine.write_protection import Protection
from steersman.tools.tool import Tool
from steersman.types.tools import ToolOutput

pytestmark = pytest.mark.real_time

# `evil FOLDER` makes a repository that runs something when it is asked for its status.
EVIL = r"""
    evil() {
        mkdir -p $1/objects $1/refs; echo 'ref: refs/heads/main' > $1/HEAD
        printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n' > $1/config
        printf '\tworktree = WORK\n\tfsmonitor = "touch PWNED; false"\n' >> $1/config
    }
"""
WAIT = "touch ready; until [ -e go ]; do sleep 0.02; done"
ATTACKS = {
    "a folder": "evil .git",
    "made elsewhere and moved": "evil e; mv -T e .git",
    "moved from the temporary folder": "evil $TMPDIR/e; mv -T $TMPDIR/e .git",
    "what was there removed": "rmdir .git; evil .git",
    "what was there moved": "mv .git old; evil .git",
    "exchanged": "evil e; mv --exchange -T e .git",
    "a link": "evil e; ln -sfnT e .git",
    "a file": "evil e; echo 'gitdir: e' > .git",
    "a file moved": "evil e; echo 'gitdir: e' > f; mv -Tf f .git",
    "mounted over": "evil e; mount --bind e .git; umount .git; umount -l .git; evil .git",
    "by git": "git init -q .; evil .git",
    "the workspace itself": "evil .",
    "the workspace itself, with a moved HEAD": "evil e; mv e/objects e/refs e/config .; rmdir HEAD; mv -T e/HEAD HEAD",
    "the workspace itself, by git": "git init -q --bare .; evil .",
}


def ask_git(folder: Path) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_OPTIONAL_LOCKS": "0"}
    subprocess.run(["git", "status"], cwd=folder, env=environment, capture_output=True, timeout=30, check=False)


def prepare(room: Room, command: str) -> str:
    evil = EVIL.replace("WORK", str(room.root)).replace("PWNED", str(room.outside / "pwned"))
    return f"{evil}\n{command}"


async def ask_during(room: Room, walls: Confinement, command: str) -> ToolOutput | None:
    """Run a command that stops in the middle, and ask git outside meanwhile and afterwards."""
    bash = bash_tool(room.root, sandbox=named(walls))
    work = asyncio.create_task(run(bash, prepare(room, f"{command}; {WAIT}")))
    await until((room.root / "ready").exists)
    await asyncio.to_thread(ask_git, room.root)
    (room.root / "go").touch()
    output = await work
    await asyncio.to_thread(ask_git, room.root)
    return output


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in ("exchanged", "mounted over")])
async def test_without_walls_the_attempts_work(room: Room, name: str) -> None:
    """So that the next test tells something."""
    await ask_during(room, confinement("off"), ATTACKS[name])
    assert (room.outside / "pwned").exists()


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_repository_cannot_be_made_while_a_command_runs(room: Room, whole: Confinement, name: str) -> None:
    await ask_during(room, whole, ATTACKS[name])
    assert not (room.outside / "pwned").exists()
    assert not [path for path in room.root.iterdir() if path.name == ".git" or path.name.startswith(".git.")]


async def test_what_git_says_about_it_is_explained(room: Room, whole: Confinement) -> None:
    output = await run(bash_tool(room.root, sandbox=named(whole)), "git init .")
    assert output.is_error
    assert "Read-only file system" in text(output)
    assert text(output).endswith("only the user can change that, with bash_tool(git='read-write')]")
    assert (await run(bash_tool(room.root, sandbox=named(whole), git="read-write"), "git init -q .")).content == (
        "(no output)"
    )
    assert (room.root / ".git/HEAD").exists()


async def test_what_is_not_a_repository_stays_none(room: Room, whole: Confinement) -> None:
    """Neither for the command nor for git outside, which looks further up."""
    subprocess.run(["git", "init", "-q", room.root.parent], check=True)  # noqa: ASYNC221
    output = await run(bash_tool(room.root, sandbox=named(whole)), "git rev-parse --show-toplevel; ls -A .git")
    assert "not a git repository" in text(output)
    work = asyncio.create_task(run(bash_tool(room.root, sandbox=named(whole)), WAIT))
    await until((room.root / "ready").exists)
    assert {path.name for path in room.root.iterdir()} == {".git", "HEAD", "ready"}
    done = subprocess.run(  # noqa: ASYNC221
        ["git", "rev-parse", "--show-toplevel"], cwd=room.root, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{room.root.parent}\n"
    (room.root / "go").touch()
    assert not (await work).is_error
    assert {path.name for path in room.root.iterdir()} == {"go", "ready"}


async def test_the_last_of_several_commands_lets_go_of_the_name(room: Room, whole: Confinement) -> None:
    bash = bash_tool(room.root, sandbox=named(whole), sequential=False)
    first = asyncio.create_task(run(bash, WAIT))
    await until((room.root / "ready").exists)
    second = asyncio.create_task(
        run(bash, prepare(room, "touch begun; until [ -e end ]; do sleep 0.02; done; evil .git"))
    )
    await until((room.root / "begun").exists)
    (room.root / "go").touch()
    await first
    assert (room.root / ".git").is_dir()
    (room.root / "end").touch()
    assert "Read-only file system" in text(await second)
    assert not (room.root / ".git").exists()


async def test_a_repository_that_the_user_makes_meanwhile_is_left_alone(room: Room, whole: Confinement) -> None:
    work = asyncio.create_task(run(bash_tool(room.root, sandbox=named(whole)), WAIT))
    await until((room.root / "ready").exists)
    subprocess.run(["git", "init", "-q", room.root], check=True)  # noqa: ASYNC221
    (room.root / "go").touch()
    assert (await work).content == "(no output)"
    assert (room.root / ".git/HEAD").exists()


async def test_an_empty_folder_that_was_left_is_removed_with_the_next_command(room: Room, whole: Confinement) -> None:
    environment = build_child_environment({"HOME": str(room.tmp)})
    where = find_sandbox_paths(str(room.root), [], environment)
    argv = ["/bin/bash", "-c", "touch ready; sleep 5"]
    launched = launch(whole.plan(argv, environment, str(room.root), where, allow_network=False))
    await until((room.root / "ready").exists)
    os.kill(launched.process.pid, signal.SIGKILL)
    await asyncio.to_thread(launched.close)
    assert (room.root / ".git").is_dir()
    await run(bash_tool(room.root, sandbox=named(whole)), "true")
    assert not (room.root / ".git").exists()


def test_what_was_set_aside_runs_nothing(room: Room) -> None:
    """Where names can only be checked afterwards, also not from inside the folder that is left."""
    room.run(walls_of("landlock alone"), prepare(room, "evil .git"))
    [aside] = [path for path in room.root.iterdir() if path.name.startswith(".git.refused-")]
    for folder in (room.root, aside):
        ask_git(folder)
    assert not (room.outside / "pwned").exists()
    for name in ("HEAD", "config"):
        next(aside.glob(f"{name}.refused-*")).rename(aside / name)
    ask_git(aside)
    assert (room.outside / "pwned").exists()  # so that the rest tells something


MADE_BELOW = {
    "a repository": ("evil sub/.git", "sub/.git"),
    "in a new folder": ("evil a/b/.git", "a/b/.git"),
    "moved with its folder": ("evil $TMPDIR/s/.git; mv $TMPDIR/s new", "new/.git"),
    "in the place of a folder": ("evil $TMPDIR/s/.git; rmdir sub; mv $TMPDIR/s sub", "sub/.git"),
    "a pointer": ("evil $TMPDIR/e; echo gitdir: $TMPDIR/e > sub/.git", "sub/.git"),
    "a link": ("evil e; ln -s ../e sub/.git", "sub/.git"),
    "other letters": ("evil sub/.Git", "sub/.Git"),
    "a bare repository": ("evil sub", "sub/HEAD"),
    "settings": ("mkdir sub/.steersman; touch sub/.steersman/x", "sub/.steersman"),
    "servers": ("echo '{}' > sub/.mcp.json", "sub/.mcp.json"),
}


@pytest.mark.parametrize("name", list(MADE_BELOW)[:-2])
async def test_without_walls_the_attempts_in_subfolders_work(room: Room, name: str) -> None:
    """So that the next test tells something."""
    (room.root / "sub").mkdir()
    command, made = MADE_BELOW[name]
    await run(bash_tool(room.root, sandbox="off", env={"TMPDIR": str(room.tmp)}), prepare(room, command))
    await asyncio.to_thread(ask_git, (room.root / made).parent)
    assert (room.outside / "pwned").exists() is (name != "other letters")  # that needs another file system


@pytest.mark.parametrize("name", MADE_BELOW)
async def test_what_a_command_makes_in_subfolders_is_set_aside(room: Room, walls: Confinement, name: str) -> None:
    """As the file tools refuse to make it."""
    (room.root / "sub").mkdir()
    command, made = MADE_BELOW[name]
    bash = bash_tool(room.root, sandbox=named(walls))
    assert (await run(bash, "true")).content == "(no output)"
    output = await run(bash, prepare(room, command))
    path = room.root / made
    assert output.is_error
    assert f"[commands may not make or change {str(path)!r}: what was put there is now '{path.name}.refused-" in text(
        output
    )
    assert path.name not in [each.name for each in path.parent.iterdir()]
    for folder in (room.root, path.parent, *path.parent.iterdir()):
        if folder.is_dir():
            await asyncio.to_thread(ask_git, folder)
    assert not (room.outside / "pwned").exists()
    assert (await run(bash, "true")).content == "(no output)"


# In the temporary folder a command may make a repository, which stays until the tool is gone.
LINKED = {
    "a link": "evil $TMPDIR/s/.git; ln -s $TMPDIR/s new",
    "in the place of a folder": "evil $TMPDIR/s/.git; rmdir sub; ln -s $TMPDIR/s sub",
    "a link through a link": "evil $TMPDIR/s/.git; ln -s $TMPDIR a; ln -s a/s new",
    "a link in the temporary folder": "evil $TMPDIR/s/.git; ln -s s $TMPDIR/t; ln -s $TMPDIR/t sub/new",
    "a bare one": "evil $TMPDIR/s; ln -s $TMPDIR/s new",
    "to what is around it": "evil $TMPDIR/.git; ln -s $TMPDIR/.. sub/new",
    "through the process": "evil $TMPDIR/s/.git; ln -s /proc/self/root/$TMPDIR/s new",
    "above a link": "evil $TMPDIR/s/.git; ln -s deep/er in; ln -s ../in/../..$(up)$TMPDIR/s sub/new",
    "in what is set aside": "evil $TMPDIR/s/.git; mkdir sub/.git; ln -s $TMPDIR/s sub/.git/new",
    "in a folder that may not be changed": "evil $TMPDIR/s/.git; ln -s $TMPDIR/s sub/new; chmod 555 sub",
    "with a name that is set aside": "evil $TMPDIR/s/.git; ln -s $TMPDIR/s sub/.git",
}
# Links that lead nowhere else, until another command changes what is on their way.
LATER = {
    "a link in the temporary folder": (
        "ln -s $PWD/deep $TMPDIR/l; ln -s $TMPDIR/l sub/new",
        "rm $TMPDIR/l; evil $TMPDIR/l/.git",
    ),
    "a link in the workspace": (
        "evil $TMPDIR/s/.git; ln -s ../deep/er/and/deep/er sub/in; ln -s ../sub/in/../..$(up)$TMPDIR/s deep/new",
        "rm sub/in; mkdir sub/in",
    ),
}


@pytest.mark.parametrize("name", LINKED)
async def test_no_link_to_the_temporary_folder_stays(room: Room, walls: Confinement, name: str) -> None:
    """docs/bash.md: what a command makes in a subfolder runs nothing, also where the folder is elsewhere."""
    bash = make_rooms(room, walls)
    output = await run(bash, prepare(room, UP + LINKED[name]))
    await ask_git_everywhere(room)
    assert not (room.outside / "pwned").exists()
    assert output.is_error
    assert "[commands may not link to the temporary folder: " in text(output)
    assert (room.root / "fine").is_symlink()
    assert (await run(bash, "true")).content == "(no output)"


@pytest.mark.parametrize("name", LATER)
async def test_no_link_leads_to_the_temporary_folder_later(room: Room, walls: Confinement, name: str) -> None:
    bash = make_rooms(room, walls)
    first, second = LATER[name]
    await run(bash, prepare(room, UP + first))
    await until(lambda: is_settled(max(path.lstat().st_ctime_ns for path in room.root.glob("**/")), time.time_ns()))
    await run(bash, "true")
    await run(bash, prepare(room, UP + second))
    await ask_git_everywhere(room)
    assert not (room.outside / "pwned").exists()
    assert (await run(bash, "true")).content == "(no output)"


async def test_no_link_to_the_temporary_folder_of_another_tool_stays(room: Room, walls: Confinement) -> None:
    bash, other = make_rooms(room, walls), bash_tool(room.root, sandbox=named(walls))
    place = text(await run(bash, prepare(room, "evil $TMPDIR/s/.git; echo $TMPDIR/s"))).strip()
    output = await run(other, f"ln -s {place} new")
    await ask_git_everywhere(room)
    assert not (room.outside / "pwned").exists()
    assert "[commands may not link to the temporary folder: " in text(output)


async def test_links_of_the_user_stay(room: Room, walls: Confinement) -> None:
    """Also where they lead to the temporary folder by one that a command has made, which is removed."""
    bash = make_rooms(room, walls)
    (room.outside / "alias").symlink_to(room.root)
    for name, target in {
        "by": room.outside / "alias/build",
        "near": "build",
        "out": room.outside,
        "loop": "loop",
    }.items():
        (room.root / name).symlink_to(target)
    output = await run(bash, "ln -s $TMPDIR build; ln -s sub ours")
    assert text(output).count("has been removed") == 1
    assert {path.name for path in room.root.iterdir() if path.is_symlink()} == {
        "by", "fine", "loop", "near", "ours", "out"
    }  # fmt: skip


async def test_links_are_not_followed_without_end(room: Room, walls: Confinement) -> None:
    """Each is a way of a thousand names to the next one: to look at a few hundred would take minutes, for each call."""
    bash = make_rooms(room, walls)
    for number in range(45):
        (room.root / f"l{number}").symlink_to("sub/../" * 580 + f"l{number + 1}")
    output = await run(bash, "ln -s sub ours")
    assert "[links may not lead through more than 1,000 names: " in text(output)
    assert {path.name for path in room.root.iterdir() if path.is_symlink()} == {"fine", "ours"}


# `up` prints the way from the workspace to the root folder.
UP = "up() { pwd | sed 's,/[^/]*,/..,g'; }\n"


def make_rooms(room: Room, walls: Confinement) -> Tool:
    (room.root / "sub").mkdir()
    (room.root / "deep/er/and/deep/er").mkdir(parents=True)
    (room.root / "fine").symlink_to("sub")
    return bash_tool(room.root, sandbox=named(walls))


async def ask_git_everywhere(room: Room) -> None:
    for folder in room.root.glob("**/"):
        await asyncio.to_thread(ask_git, folder)
        for inner in folder.iterdir():
            if inner.is_symlink():
                for place in (inner, inner / "tmp"):
                    if place.is_dir():
                        await asyncio.to_thread(ask_git, place)


# Each of them is found by git once the name around it has become another one.
INSIDE = {
    "in settings": "evil sub/.steersman/.git",
    "in what should be a file": "evil sub/.mcp.json/deep/.git",
    "in a repository": "evil sub/.git; evil sub/.git/.git; evil sub/.git/x/bare",
    "in settings of the workspace": "evil .steersman/.mcp.json/.steersman/.git",
    "in a HEAD": "evil sub/HEAD/.git; mkdir sub/objects sub/refs",
    "where the new names are taken": "evil sub/.git; mkdir sub/.git/HEAD.refused sub/.git/config.refused",
}


@pytest.mark.parametrize("name", INSIDE)
async def test_what_is_in_a_name_that_is_set_aside_runs_nothing(room: Room, whole: Confinement, name: str) -> None:
    """docs/bash.md: a repository that a command made in a subfolder is of no use for git when it is over."""
    (room.root / "sub").mkdir()
    bash = bash_tool(room.root, sandbox=named(whole))
    assert (await run(bash, prepare(room, INSIDE[name]))).is_error
    for folder, _, _ in os.walk(room.root):
        await asyncio.to_thread(ask_git, Path(folder))
    assert not (room.outside / "pwned").exists()
    assert not [path for path in room.root.rglob("*") if path.name in (".git", ".steersman", ".mcp.json", "HEAD")]


async def test_a_deep_home_folder_does_not_keep_names_from_being_set_aside(room: Room, whole: Confinement) -> None:
    """docs/bash.md: names are set aside, and nothing in HOME is kept, whatever the command leaves there."""
    deep = 'import os\nos.chdir(os.environ["HOME"])\nfor _ in range(1500): os.mkdir("d"); os.chdir("d")'
    bash = bash_tool(room.root, sandbox=named(whole))
    output = await run(bash, prepare(room, f"evil sub/.git; echo $HOME; python3 -c '{deep}'"))
    assert "'.git.refused-" in text(output)
    await asyncio.to_thread(ask_git, room.root / "sub")
    assert not (room.outside / "pwned").exists()
    home, _, _ = text(output).partition("\n")
    assert not await asyncio.to_thread(os.path.lexists, home)


async def test_a_write_that_began_before_the_command_completes_no_repository(room: Room, walls: Confinement) -> None:
    """docs/security.md: `write` makes no repository, also not with what a command makes beside it meanwhile."""
    sub = room.root / "sub"
    sub.mkdir()
    bash = bash_tool(room.root, sandbox=named(walls))
    folder = os.open(room.root, FOLDER)
    root = Root(tuple(split_path(str(room.root))), folder, kernel=True)
    place = resolve_path(root, ["sub", "HEAD"], "sub/HEAD")
    with Protection(PROTECTED, room.root).admit(root, place, "sub/HEAD"):
        work = asyncio.create_task(run(bash, prepare(room, "evil sub; rm sub/HEAD; touch made")))
        await until((room.root / "made").exists)
        await asyncio.wait([work], timeout=0.5)  # it must not be over before the write is
        (sub / "HEAD").write_text("ref: refs/heads/main")
    os.close(place.folder)
    os.close(folder)
    assert "'HEAD.refused-" in text(await work)
    await asyncio.to_thread(ask_git, sub)
    assert not (room.outside / "pwned").exists()


async def test_a_workspace_with_a_file_head_is_not_made_a_repository(room: Room, whole: Confinement) -> None:
    """The name cannot be held where the project has it: the file is set aside when the command is over."""
    (room.root / "HEAD").write_text("mine")
    output = await run(bash_tool(room.root, sandbox=named(whole)), prepare(room, "evil ."))
    assert "'HEAD.refused-" in text(output)
    await asyncio.to_thread(ask_git, room.root)
    assert not (room.outside / "pwned").exists()


@pytest.mark.parametrize(
    "command",
    [
        "evil store/bare.git",
        "git push -q store/bare.git HEAD:refs/heads/new",
        "echo 'touch PWNED' > store/bare.git/hooks/post-receive",
        "mv store old; mkdir store; evil store/bare.git",
        "evil e; echo ../../e > store/bare.git/commondir",
        "evil store/common",
    ],
)
async def test_a_bare_repository_that_is_there_cannot_be_written(room: Room, whole: Confinement, command: str) -> None:
    """docs/bash.md: a command can read repositories but not write them, whatever their name."""
    store = room.root / "store"
    for name in ("bare.git/objects", "bare.git/refs", "bare.git/hooks", "common/objects", "common/refs", "tree"):
        (store / name).mkdir(parents=True)
    for name, content in {
        "bare.git/HEAD": "ref: refs/heads/main",
        "tree/HEAD": "x",
        "tree/commondir": "../common",
    }.items():
        (store / name).write_text(content)
    before = sorted(store.rglob("*"))
    output = await run(bash_tool(room.root, sandbox=named(whole)), prepare(room, command))
    assert output.is_error
    assert sorted(store.rglob("*")) == before
    allowed = bash_tool(room.root, sandbox=named(whole), git="read-write")
    assert not (await run(allowed, "touch store/bare.git/config")).is_error


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "off"])
@pytest.mark.parametrize("git", ["read-only", "read-write"])
async def test_a_folder_called_like_a_remote_is_none(tmp_path: Path, sandbox: Sandbox, git: Git) -> None:
    """docs/approval.md: a rule for `git push` runs no hooks of the project."""
    if sandbox != "off":
        walls_of(sandbox)
    make = "git init -q .; git -c user.name=A -c user.email=a@b.c commit -q --allow-empty -m first"
    trap = "printf '#!/bin/sh\ntouch ../pwned' > $name/hooks/pre-receive; chmod +x $name/hooks/pre-receive"
    more = f"for name in upstream real; do git init -q --bare $name; {trap}; done; git remote add origin $PWD/real"
    await asyncio.to_thread(subprocess.run, f"{make}; {more}", shell=True, cwd=tmp_path, check=True)
    bash = bash_tool(tmp_path, sandbox=sandbox, git=git)
    for command in ("git push upstream HEAD:new", "git push upstream :main", "git push --dry-run upstream HEAD:new"):
        assert "no-such-remote" in text(await run(bash, command))
        assert not (tmp_path / "pwned").exists()
    assert not (await run(bash, "git ls-remote origin")).is_error


async def test_a_workspace_that_is_a_bare_repository_keeps_its_settings(room: Room, whole: Confinement) -> None:
    """docs/bash.md: hooks and settings of the workspace's own repository cannot be written."""
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", "--bare", "."], cwd=room.root, check=True)
    before = (room.root / "config").read_text()
    bash = bash_tool(room.root, sandbox=named(whole))
    for command in ("evil .", "echo x > config", "touch hooks/post-receive", "mv hooks old", "rm config"):
        assert (await run(bash, prepare(room, command))).is_error
    assert (await run(bash, "echo .. > commondir")).is_error
    assert (room.root / "config").read_text() == before
    assert not (room.root / "hooks/post-receive").exists()
    assert not (room.root / "commondir").exists()


async def test_a_file_head_is_not_made_one_of_git_meanwhile(room: Room, whole: Confinement) -> None:
    """docs/bash.md: a command cannot make the workspace itself a repository, also not for the time it runs."""
    (room.root / "HEAD").write_text("mine")
    await ask_during(room, whole, "evil .")
    assert not (room.outside / "pwned").exists()


async def test_a_clone_is_set_aside_and_the_reason_is_told(room: Room, whole: Confinement) -> None:
    command = "git init -q $TMPDIR/origin && git clone -q $TMPDIR/origin copy"
    output = await run(bash_tool(room.root, sandbox=named(whole)), command)
    assert text(output).endswith("only the user can change that, with bash_tool(git='read-write')]")
    assert not (room.root / "copy/.git").exists()
    output = await run(bash_tool(room.root, sandbox=named(whole), git="read-write"), f"{command}2")
    assert (room.root / "copy2/.git/HEAD").exists()
    assert not output.is_error


async def test_who_may_write_repositories_may_still_not_make_settings(room: Room, whole: Confinement) -> None:
    bash = bash_tool(room.root, sandbox=named(whole), git="read-write")
    output = await run(bash, "mkdir sub; touch sub/.mcp.json; git init -q sub; git init -q --bare bare")
    assert output.is_error
    assert [path.name.partition("-")[0] for path in (room.root / "sub").iterdir() if path.name != ".git"] == [
        ".mcp.json.refused"
    ]
    assert (room.root / "sub/.git/HEAD").exists()
    assert (room.root / "bare/HEAD").exists()


async def test_it_is_set_aside_also_where_the_call_is_cancelled(room: Room, whole: Confinement) -> None:
    work = asyncio.create_task(
        run(bash_tool(room.root, sandbox=named(whole)), "mkdir sub; touch sub/.mcp.json ready; sleep 60")
    )
    await until((room.root / "ready").exists)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert [path.name.partition("-")[0] for path in (room.root / "sub").iterdir()] == [".mcp.json.refused"]


@pytest.mark.parametrize(
    "command",
    [
        "echo x > sub/.mcp.json",
        "rm sub/.mcp.json",
        "touch deep/er/.steersman/new",
        "mv deep old",
        "chmod 777 sub/.mcp.json",
    ],
)
async def test_what_is_there_below_cannot_be_written(room: Room, whole: Confinement, command: str) -> None:
    for name in ("sub", "deep/er/.steersman"):
        (room.root / name).mkdir(parents=True)
    (room.root / "sub/.mcp.json").write_text("{}")
    for git in ("read-only", "read-write"):
        output = await run(bash_tool(room.root, sandbox=named(whole), git=git), command)
        assert output.details["exit_code"] == 1
        assert (room.root / "sub/.mcp.json").read_text() == "{}"
        assert list((room.root / "deep/er/.steersman").iterdir()) == []


async def test_a_path_that_was_named_is_open(room: Room, whole: Confinement) -> None:
    (room.root / "sub").mkdir()
    bash = bash_tool(room.root, sandbox=named(whole), writable=[room.root / "sub/.mcp.json"])
    assert not (await run(bash, "echo x > sub/.mcp.json")).is_error
    assert (room.root / "sub/.mcp.json").read_text() == "x\n"


@pytest.mark.parametrize(
    ("changed", "now", "settled"),
    [
        (7_200_000_001, 7_250_000_000, False),
        (7_200_000_001, 7_350_000_000, True),
        # Times in whole seconds: for the rest of the second, and on some file systems of the next, nothing is seen.
        (7_000_000_000, 7_350_000_000, False),
        (7_000_000_000, 8_900_000_000, False),
        (7_000_000_000, 10_100_000_000, True),
    ],
)
def test_a_folder_is_read_again_as_long_as_its_time_may_stay_the_same(changed: int, now: int, settled: bool) -> None:
    assert is_settled(changed, now) is settled


async def test_too_many_folders_to_look_through_are_told(room: Room, whole: Confinement) -> None:
    bash = bash_tool(room.root, sandbox=named(whole))
    output = await run(bash, "mkdir -p d/{1..20005}")
    assert "so not all were searched" in text(output)
    assert "so not all were searched" not in text(await run(bash, "true"))
