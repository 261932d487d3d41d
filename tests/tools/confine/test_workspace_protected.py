"""Protected names: readable and never writable, however they are spelled or reached."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from steersman.tools.builtin.changes import Edit
from steersman.tools.builtin.edit_tool import edit_tool
from steersman.tools.builtin.read_tool import read_tool
from steersman.tools.builtin.write_tool import write_tool
from steersman.tools.confine.workspace import PROTECTED, ProtectedPath, Workspace
from steersman.tools.confine.write_protection import normalize_name


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    root = tmp_path / "ws"
    for folder in (".git/hooks", ".steersman", "lib/.git", "src", "stored"):
        (root / folder).mkdir(parents=True)
    for file in (".git/config", ".git/hooks/pre-commit", ".steersman/settings.toml", ".mcp.json", "lib/.git/config"):
        (root / file).write_text("original\n")
    (root / "to_git").symlink_to(".git")
    (root / "to_config").symlink_to(".git/config")
    (root / "src" / "to_hooks").symlink_to("../.git/hooks")
    (root / "to_servers").symlink_to(root / ".mcp.json")
    (root / "to_new_hook").symlink_to(".git/hooks/post-checkout")
    return Workspace(root, openat2=request.param)


READABLE = [
    ".git/config",
    "./.git//config",
    "src/../.git/config",
    "{ws}/.git/config",
    ".git/hooks/pre-commit",
    "lib/.git/config",
    ".steersman/settings.toml",
    ".mcp.json",
    "to_git/config",
    "to_git/hooks/../config",
    "to_config",
    "src/to_hooks/pre-commit",
    "to_servers",
]
NEW = [
    ".git/hooks/post-commit",
    ".git/new/folder/file",
    ".gitt/../.git/x",
    "src/.git",
    "src/.git/config",
    "deep/new/.git/config",
    ".steersman/new",
    "src/.mcp.json",
    "to_new_hook",
    "src/to_hooks/post-commit",
    ".GIT/config",
    ".Git/hooks/post-commit",
    ".giT",
    ".MCP.JSON",
    ".Steersman/x",
    ".git./config",
    ".git /config",
    ".git. . /config",
    ".git::$INDEX_ALLOCATION/config",
    ".g\u200cit/config",
    ".\uff47\uff49\uff54/config",
    ".g\u0131t/../.git/config",
    "GIT~1/config",
    "git~2",
]


def everything(root: Path) -> dict[str, str | None]:
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


@pytest.mark.parametrize("path", READABLE)
def test_a_protected_file_is_read_and_not_written(workspace: Workspace, path: str) -> None:
    """failures.md L25"""
    path = path.format(ws=workspace.root)
    before = everything(workspace.root)
    assert read_tool(workspace)(path).content == "original"
    attempts: list[Callable[[], object]] = [
        lambda: write_tool(workspace)(path, "changed"),
        lambda: edit_tool(workspace)(path, [Edit("original", "changed")]),
        lambda: workspace.open(path, os.O_WRONLY),
        lambda: workspace.open(path, os.O_RDWR | os.O_TRUNC),
    ]
    for attempt in attempts:
        with pytest.raises(ProtectedPath, match="it can be read but not written"):
            attempt()
    assert everything(workspace.root) == before


@pytest.mark.parametrize("path", NEW, ids=ascii)
def test_nothing_new_is_made_at_a_protected_name(workspace: Workspace, path: str) -> None:
    """failures.md L25: also by another case, and by what some file systems take for the same name."""
    if path.startswith((".gitt", ".g\u0131t")):
        os.mkdir(workspace.root / path.partition("/")[0])
    before = everything(workspace.root)
    for attempt in (
        lambda: write_tool(workspace)(path, "made"),
        lambda: workspace.open(path, os.O_WRONLY | os.O_CREAT),
    ):
        with pytest.raises(ProtectedPath):
            attempt()
    assert everything(workspace.root) == before


@pytest.mark.parametrize("path", [".gitignore", ".github/workflows/x.yml", "git/config", "mcp.json", ".gitattributes"])
def test_names_that_only_begin_alike_are_written(workspace: Workspace, path: str) -> None:
    assert write_tool(workspace)(path, "made").details["created"] is True


@pytest.mark.parametrize("pointer", ["link", "relative file", "absolute file"])
def test_the_real_folder_behind_a_protected_name_is_protected_too(tmp_path: Path, pointer: str) -> None:
    """failures.md L25: git keeps its folder elsewhere, and a link or a file says where."""
    (tmp_path / "stored" / "hooks").mkdir(parents=True)
    match pointer:
        case "link":
            (tmp_path / ".git").symlink_to("stored")
        case "relative file":
            (tmp_path / ".git").write_text("gitdir: ./stored\n")
        case _:
            (tmp_path / ".git").write_text(f"gitdir: {tmp_path}/stored\n")
    workspace = Workspace(tmp_path)
    for path in ("stored/config", "stored/hooks/pre-commit", ".git"):
        with pytest.raises(ProtectedPath, match=r"is protected by '\.git'"):
            workspace.replace(path, b"")
    workspace.replace("stored2", b"")
    assert (sorted(os.listdir(tmp_path / "stored")), os.listdir(tmp_path / "stored" / "hooks")) == (["hooks"], [])


def test_a_link_with_a_protected_name_is_not_written_through_wherever_it_is(workspace: Workspace) -> None:
    """failures.md L25"""
    (workspace.root / "src" / ".git").symlink_to("../stored")
    with pytest.raises(ProtectedPath):
        workspace.replace("src/.git/config", b"")
    assert os.listdir(workspace.root / "stored") == []


def test_a_hard_link_to_a_protected_file_leaves_it_as_it_is(workspace: Workspace) -> None:
    """failures.md L3, L25"""
    os.link(workspace.root / ".git" / "config", workspace.root / "notes.txt")
    write_tool(workspace)("notes.txt", "changed")
    assert (workspace.root / ".git" / "config").read_text() == "original\n"


PARTS = [("HEAD", "objects/x", "refs/heads/x"), ("HEAD", "commondir")]


@pytest.mark.parametrize("folder", ["", "new/er/", "src/"])
@pytest.mark.parametrize("parts", [order for parts in PARTS for order in itertools.permutations(parts)])
def test_no_repository_is_made_from_its_parts(workspace: Workspace, folder: str, parts: tuple[str, ...]) -> None:
    """failures.md L25: git takes a folder with these for a repository, whatever its name, and runs what is in it."""
    *first, last = parts
    for part in first:
        assert write_tool(workspace)(folder + part, "ref: refs/heads/main").details["created"] is True
    with pytest.raises(ProtectedPath, match="would be part of a git repository"):
        write_tool(workspace)(folder + last, "ref: refs/heads/main")
    assert not (workspace.root / folder / last).exists()


@pytest.mark.parametrize("path", ["config", "hooks/post-receive", "HEAD", "new/er", "../src/to_bare/config"])
def test_a_repository_of_another_name_is_not_written(workspace: Workspace, path: str) -> None:
    """failures.md L25"""
    for name in ("objects", "refs"):
        (workspace.root / "bare.git" / name).mkdir(parents=True)
    (workspace.root / "bare.git" / "HEAD").touch()
    (workspace.root / "src" / "to_bare").symlink_to("../bare.git")
    before = everything(workspace.root)
    with pytest.raises(ProtectedPath, match="would be part of a git repository"):
        workspace.replace(f"bare.git/{path}", b"")
    assert everything(workspace.root) == before
    Workspace(workspace.root, protected=()).replace("bare.git/config", b"allowed")


def test_of_writes_at_the_same_time_one_is_refused(workspace: Workspace) -> None:
    """failures.md L25: each of them alone would do no harm."""

    def write(path: str) -> bool:
        try:
            workspace.replace(path, b"")
        except ProtectedPath:
            return False
        return True

    with ThreadPoolExecutor(3) as threads:
        for number in range(20):
            done = list(threads.map(write, [f"{number}/{part}" for part in ("HEAD", "objects/x", "refs/x")]))
            assert sorted(done) == [False, True, True]


@pytest.mark.parametrize(
    "parts", [("HEAD/x", "objects/x", "refs/x"), ("HEAD", "objects"), ("objects/x", "refs/x", "x")]
)
def test_what_git_takes_for_no_repository_is_written(workspace: Workspace, parts: tuple[str, ...]) -> None:
    for part in parts:
        assert write_tool(workspace)(part, "made").details["created"] is True


def test_the_python_we_run_from_is_not_written(tmp_path: Path) -> None:
    """docs/security.md: a file tool changes nothing that runs outside the sandbox at once, such as our own packages."""
    venv.create(tmp_path / "env")
    code = "from steersman.tools import Workspace; Workspace('.').replace(input(), b'')"
    attempts = {"env/lib/new.pth": 1, "link/new.pth": 1, "other/env": 0}
    (tmp_path / "link").symlink_to("env/lib")
    for path, status in attempts.items():
        done = subprocess.run(
            [tmp_path / "env" / "bin" / "python", "-c", code],
            input=path,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        assert status == 0 or "is protected by 'env'" in done.stderr


def test_the_folders_of_path_in_the_workspace_are_protected(tmp_path: Path) -> None:
    """A file there would run in place of a program that a rule allows, such as `git status`."""
    for folder in ("env/bin", "tools", "src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to("tools")
    code = "from steersman.tools import Workspace; Workspace('.').replace(input(), b'')"
    search = os.pathsep.join((str(tmp_path / "env/bin"), str(tmp_path / "link"), "new", str(tmp_path), "", "/usr/bin"))
    attempts = {"env/bin/git": "env/bin", "tools/git": "tools", "link/git": "tools", "NEW/git": "new"}
    attempts |= {"src/git": "", "env/other": "", "git": ""}
    for path, protected in attempts.items():
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=path,
            cwd=tmp_path,
            env={**os.environ, "PATH": search, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == bool(protected), done.stderr
        assert not protected or f"is protected by {protected!r}" in done.stderr


def test_what_is_protected_can_be_chosen(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, protected=(*PROTECTED, "Secrets", "conf/keys.toml"))
    for path in ("Secrets/x", "deep/secrets/x", "conf/keys.toml", "Conf/Keys.toml", "conf/keys.toml/x", ".git/x"):
        with pytest.raises(ProtectedPath):
            workspace.replace(path, b"")
    for path in ("conf/other.toml", "deep/conf/keys.toml"):
        workspace.replace(path, b"")
    Workspace(tmp_path, protected=()).replace(".git/config", b"allowed")


@pytest.mark.parametrize(
    ("name", "plain"), [("a:b", "a"), (":", ":"), ("...", "..."), ("\u200b", "\u200b"), ("É", "é")]
)
def test_a_name_is_compared_without_its_disguise(name: str, plain: str) -> None:
    assert normalize_name(name) == plain
