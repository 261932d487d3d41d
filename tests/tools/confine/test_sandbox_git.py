"""A command cannot choose what git will run for the user: tried with real repositories of every form.

After each attempt, git is asked outside the sandbox about every folder, as a prompt or an editor does it all the time.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.tools.builtin.shells import run, text, until
from tests.tools.confine.rooms import Room, walls_of

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.enforcement import restore_guards
from steersman.tools.confine.launch import build_child_environment, launch
from steersman.tools.confine.protected_paths import find_sandbox_paths, record_guard
from steersman.tools.confine.sandbox import Confinement, Sandbox, confinement

pytestmark = pytest.mark.real_time

GIT = "git -c init.defaultBranch=main -c user.name=A -c user.email=a@b.c"
# One repository of every form: its own, nested ones, by a link, by a link through a link, by a file, by a file through
# a link, by a file that leads nowhere yet, by a file that leads above a folder, a submodule, a work tree.
BUILD = f"""
    set -e; {GIT} init -q .; echo a > a; git add a; {GIT} commit -qm first
    mkdir -p sub deep/er/repo linked hop separate through nowhere later spare above way lib/bar tree store
    for each in sub/ deep/er/repo/ store/linked store/separate store/through store/above; do cp -r .git $each.git; done
    ln -s ../store/linked.git linked/.git; ln -s store alias; ln -s ../alias/linked.git hop/.git
    echo 'gitdir: ../store/separate.git' > separate/.git; echo 'gitdir: ../no/such' > nowhere/.git
    ln -s store other; echo 'gitdir: ../other/through.git' > through/.git
    echo 'gitdir: ../spare/such' > later/.git; echo 'gitdir: ../way/../store/above.git' > above/.git
    mkdir -p modules; cp -r .git modules/bar; mkdir -p .git/modules/lib; mv modules/bar .git/modules/lib/bar
    echo 'gitdir: ../../.git/modules/lib/bar' > lib/bar/.git; git -C lib/bar config core.worktree ../../../../lib/bar
    {GIT} worktree add -q tree/work 2>&1; rmdir modules
    echo 'gitdir: ../../.git/worktrees/work' > tree/work/.git
"""
FOLDERS = [
    ".",
    "sub",
    "deep/er/repo",
    "linked",
    "hop",
    "separate",
    "through",
    "nowhere",
    "later",
    "above",
    "lib/bar",
    "tree/work",
]
# `evil FOLDER` makes what git would run. It ends as a file that says so.
EVIL = r"""
    lines='[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = "touch PWNED; false"\n'
    evil() { mkdir -p $1; printf "$lines" > $1/config; }
    fake() { rm -rf $1; cp -r .git $1; evil $1; }
"""
ATTACKS = {
    "settings": "evil .git",
    "a folder that shares its settings": "fake e; echo ../e > .git/commondir",
    "moved and made again": "mv .git old; cp -r old .git; evil .git",
    "settings of one work tree": "git config extensions.worktreeConfig true; evil e; cp e/config .git/config.worktree",
    "hard link": "ln .git/config c; evil e; cat e/config > c",
    "a nested one": "evil sub/.git",
    "a nested one's shared settings": "fake e; echo ../../e > sub/.git/commondir",
    "the folder of a nested one": "mv sub old; cp -r old sub; evil sub/.git",
    "a folder above a nested one": "mv deep old; cp -r old deep; evil deep/er/repo/.git",
    "a link above a nested one": "mv deep old; cp -r old new; evil new/er/repo/.git; ln -s new deep",
    "what a link leads to": "evil store/linked.git",
    "in the place of a link": "rm linked/.git; fake linked/.git",
    "another link": "fake e; ln -sfn ../e linked/.git",
    "a link on the way": "cp -r store new; fake new/linked.git; ln -sfn new alias",
    "a folder on the way": "mv store old; cp -r old store; evil store/linked.git; evil store/separate.git",
    "what a file leads to": "evil store/separate.git",
    "another file": "fake e; echo 'gitdir: ../e' > separate/.git",
    "in the place of a file": "fake e; echo 'gitdir: ../e' > f; mv -f f separate/.git",
    "a link on the way of a file": "cp -r store $TMPDIR/new; evil $TMPDIR/new/through.git; ln -sfn $TMPDIR/new other",
    "where a file leads": "mkdir -p no; fake no/such",
    "a link where a file leads": "mv spare old; mkdir new; fake new/such; ln -s new spare",
    "a link for a folder above which a file leads": (
        "mkdir -p new/in new/store; fake new/store/above.git; mv way old; ln -s new/in way"
    ),
    "a submodule": "cp lib/bar/.git f; evil .git/modules/lib/bar",
    "the folders of submodules": "fake e; mv .git/modules old; mkdir -p .git/modules/lib; mv e .git/modules/lib/bar",
    "a work tree": "rm tree/work/.git; fake tree/work/.git",
    "the folders of work trees": "fake e; mv .git/worktrees old; mkdir -p .git/worktrees; mv e .git/worktrees/work",
    "a work tree's shared settings": "fake e; echo $PWD/e > .git/worktrees/work/commondir",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["bash", "-c", BUILD], cwd=folder, check=True, timeout=60, env=environment)
    return folder


@pytest.fixture
def city(room: Room, built: Path) -> Room:
    shutil.copytree(built, room.root, symlinks=True, dirs_exist_ok=True)
    return room


def pwned(city: Room) -> bool:
    """Ask git about every folder, outside; whether it ran what a command had put there."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_OPTIONAL_LOCKS": "0"}
    for folder in FOLDERS:
        where = city.root / folder
        if where.is_dir():
            subprocess.run(["git", "status"], cwd=where, env=environment, capture_output=True, timeout=30, check=False)
    return (city.outside / "pwned").exists()


def attack(city: Room, name: str) -> str:
    return (EVIL + ATTACKS[name]).replace("PWNED", str(city.outside / "pwned"))


@pytest.mark.parametrize("name", ATTACKS)
def test_without_walls_the_attempts_work(city: Room, name: str) -> None:
    """So that the next test tells something."""
    assert not pwned(city)
    city.run(confinement("off"), attack(city, name))
    assert pwned(city)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_command_cannot_choose_what_git_runs(city: Room, whole: Confinement, name: str) -> None:
    """failures.md L25."""
    city.run(whole, attack(city, name))
    assert not pwned(city)


@pytest.mark.parametrize("name", list(ATTACKS)[:5])
def test_nor_where_it_may_commit(city: Room, whole: Confinement, name: str) -> None:
    city.run(whole, attack(city, name), git="read-write")
    assert not pwned(city)


@pytest.mark.parametrize("git", ["read-only", "read-write"])
def test_what_looks_at_a_repository_works(city: Room, walls: Confinement, git: Any) -> None:
    (city.root / "a").write_text("b")
    command = "git status -s -uno && git log --oneline | wc -l && git diff --stat | tail -1; git -C sub log --format=%s"
    text, code = city.run(walls, command, git=git)
    assert (text, code) == (" M a\n1\n 1 file changed, 1 insertion(+), 1 deletion(-)\nfirst\n", 0)


COMMIT = f"{GIT} add a && {GIT} commit -qm second && {GIT} checkout -qb other && git log --format=%s"


def test_commits_are_for_those_who_may_write(city: Room, walls: Confinement) -> None:
    (city.root / "a").write_text("b")
    assert city.run(walls, COMMIT, git="read-write") == ("second\nfirst\n", 0)
    assert city.ended.refused == ()


def named(walls: Confinement) -> Sandbox:
    assert walls.kind != "none"
    return walls.kind


async def test_a_commit_that_is_refused_says_what_to_do(built: Path, tmp_path: Path, whole: Confinement) -> None:
    root = tmp_path / "root"
    shutil.copytree(built, root, symlinks=True)
    output = await run(bash_tool(root, sandbox=named(whole)), "echo b > a; git add a")
    assert text(output).endswith(
        "[exit code 128]\n[git repositories can be read here, but not written or made, so commits, clones and the "
        "like fail; only the user can change that, with bash_tool(git='read-write')]"
    )
    writable = bash_tool(root, sandbox=named(whole), git="read-write")
    assert not (await run(writable, "git add a")).is_error


def test_a_setting_that_does_not_exist_is_told() -> None:
    with pytest.raises(ValueError, match=r"^git is one of 'read-only', 'read-write', got 'commit'\.$"):
        bash_tool(git="commit")  # pyright: ignore[reportArgumentType]  # callers without a type checker


@pytest.fixture
def house(room: Room) -> Room:
    (room.root / ".git/hooks").mkdir(parents=True)
    (room.root / ".git/config").write_text("[core]")
    (room.root / ".mcp.json").write_text("{}")
    (room.root / ".steersman").mkdir()
    (room.root / ".steersman/settings").write_text("{}")
    return room


@pytest.mark.parametrize(
    "command",
    [
        "echo x > .git/hooks/pre-commit",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/old",
        "mkdir .git/info",
        "chmod 777 .git/config",
        "echo x > .mcp.json",
        "rm .mcp.json",
        "mv other .mcp.json",
        "echo x > .steersman/settings",
        "touch .steersman/new",
        "mv .steersman .old",
    ],
)
def test_what_is_protected_in_the_workspace_is_not_written(house: Room, whole: Confinement, command: str) -> None:
    (house.root / "other").write_text("x")
    before = snapshot(house.root)
    assert house.run(whole, command)[1] != 0
    assert snapshot(house.root) == before
    assert house.ended.refused == ()


def snapshot(root: Path) -> dict[str, Any]:
    """What is in a folder, with modes; of links, where they lead."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
    return found


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (".steersman", "mkdir {}; echo evil > {}/x"),
        (".mcp.json", "echo evil > {}"),
        (".mcp.json", "ln -s /etc/hosts {}"),
    ],
)
def test_what_was_not_there_is_set_aside(room: Room, walls: Confinement, name: str, make: str) -> None:
    """Nothing can be mounted where nothing is, so it is looked at when the command is over."""
    assert room.run(walls, make.replace("{}", name)) == ("", 0)
    [aside] = [path.name for path in room.root.iterdir()]
    assert aside.startswith(f"{name}.refused-")
    path = str(room.root / name)
    assert room.ended.refused == (f"commands may not make or change {path!r}: what was put there is now {aside!r}",)


def test_a_repository_may_be_made_where_commits_are_allowed(room: Room, walls: Confinement) -> None:
    assert room.run(walls, f"{GIT} init -q . && {GIT} commit -qm a --allow-empty", git="read-write") == ("", 0)
    assert (room.root / ".git/HEAD").exists()
    assert room.ended.refused == ()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (".mcp.json", "rm {0}"),
        (".mcp.json", "rm {0}; echo evil > {0}"),
        (".steersman", "ln -sfn evil {0}"),
        (".git", "mv {0} old; mkdir {0}"),
    ],
)
def test_a_link_is_put_back(room: Room, walls: Confinement, name: str, command: str) -> None:
    (room.root / "real").mkdir()
    (room.root / name).symlink_to("real")
    assert room.run(walls, command.format(name)) == ("", 0)
    assert os.readlink(room.root / name) == "real"
    [words] = room.ended.refused
    assert words.startswith(f"commands may not make or change {str(room.root / name)!r}")
    assert words.endswith(", and the link is back")


@pytest.mark.parametrize(
    ("target", "command"),
    [("real/file", "echo evil > .mcp.json"), ("real/file", "mv real old; mkdir real; echo evil > real/file")],
)
def test_what_a_link_leads_to_is_protected_too(room: Room, whole: Confinement, target: str, command: str) -> None:
    (room.root / "real").mkdir()
    (room.root / target).write_text("{}")
    (room.root / ".mcp.json").symlink_to(target)
    assert room.run(whole, command)[1] != 0
    assert (room.root / ".mcp.json").read_text() == "{}"


def test_a_link_to_nowhere_that_leads_somewhere_now_is_set_aside(room: Room, walls: Confinement) -> None:
    (room.root / ".mcp.json").symlink_to("made/later")
    assert room.run(walls, "mkdir made; echo evil > made/later") == ("", 0)
    assert not os.path.lexists(room.root / ".mcp.json")
    assert len(room.ended.refused) == 1


async def test_a_link_that_no_name_can_have_is_no_trouble(tmp_path: Path, whole: Confinement) -> None:
    """It cannot be looked at, and it is in folders that another user made."""
    (tmp_path / ".steersman").symlink_to("a" * 300)
    output = await run(bash_tool(tmp_path, sandbox=named(whole)), "echo hi")
    assert (output.content, output.is_error) == ("hi\n", False)
    output = await run(bash_tool(tmp_path, sandbox=named(whole)), "mkdir .mcp.json")
    assert text(output).startswith("[commands may not make or change ")
    assert output.is_error


def test_nothing_is_set_aside_through_a_link(tmp_path: Path) -> None:
    """Or a command could have files of other users renamed."""
    root, other = tmp_path / "root", tmp_path / "other"
    (root / "a/b").mkdir(parents=True)
    guarded = record_guard(str(root / "a/b/.git"))
    assert guarded is not None
    (other / "b/.git").mkdir(parents=True)
    (root / "a").rename(root / "old")
    (root / "a").symlink_to(other)
    told = f"{str(root / 'a/b/.git')!r} is not as it was, and could not be put right: look at it before you use it"
    assert restore_guards([guarded]) == [told]
    assert [path.name for path in (other / "b").iterdir()] == [".git"]


async def test_it_is_restored_although_the_call_was_abandoned(room: Room, walls: Confinement) -> None:
    """Also where our program was killed meanwhile: it is the supervisor who looks."""
    environment = build_child_environment({"HOME": str(room.tmp)})
    where = find_sandbox_paths(str(room.root), [], environment)
    argv = ["/bin/bash", "-c", "mkdir .steersman; sleep 1000"]
    launched = launch(walls.plan(argv, environment, str(room.root), where, allow_network=False))
    await until((room.root / ".steersman").exists)
    await asyncio.to_thread(launched.close)
    assert [path.name.partition("-")[0] for path in room.root.iterdir()] == [".steersman.refused"]


def test_many_repositories_are_protected_with_few_open_files(room: Room, whole: Confinement) -> None:
    """docs/bash.md: more than 200 are refused. Bubblewrap gets a file descriptor for each folder on the way to one."""
    for number in range(90):
        (room.root / str(number) / "a" / "b" / ".git").mkdir(parents=True)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        assert room.run(whole, "touch new; touch 7/a/b/.git/new 2>/dev/null || echo kept") == ("kept\n", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_landlock_alone_says_that_it_protects_no_repository() -> None:
    found = walls_of("landlock alone")
    assert found.kind == "landlock"
    whole = confinement("landlock")
    if not whole.namespaces:
        assert any(line.startswith("git repositories, ") for line in whole.not_covered)
    else:
        assert any(line.startswith("protected in the workspace: its git repositories") for line in whole.covers)
