"""Paths that try to leave a workspace: none is read, changed or made, by any tool, whatever the kernel can do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steersman.tools.builtin.changes import Edit
from steersman.tools.builtin.edit_tool import edit_tool
from steersman.tools.builtin.read_tool import read_tool
from steersman.tools.builtin.write_tool import write_tool
from steersman.tools.confine.workspace import Workspace, WorkspaceError
from steersman.types.tools import ToolOutput

CANARY = "canary-4c1f never to be seen"

LINKS = {
    "file": "../outside/canary.txt",
    "file_absolute": "{out}/canary.txt",
    "folder": "../outside",
    "folder_absolute": "{out}",
    "folder_dotted": "./../outside/.",
    "folder_slashes": "..//outside///",
    "chain_1": "file",
    "chain_2": "chain_1",
    "up": "..",
    "up_absolute": "{ws}/..",
    "up_and_down": "../ws/../outside",
    "prefix": "{ws}2",
    "everything": "/",
    "everything_twice": "//",
    "src/up": "../..",
    "src/out": "../../outside/canary.txt",
    "process_root": "/proc/self/root",
    "process_folder": "/proc/self/cwd",
    "descriptor": "/dev/fd/0",
    "standard_input": "/proc/self/fd/0",
    "zeros": "/dev/zero",
    "dangling": "../outside/made.txt",
    "dangling_absolute": "{out}/made.txt",
    "dangling_folder": "../outside/made",
    "missing_then_up": "nowhere/../../outside/canary.txt",
    "src/hop": "../folder/canary.txt",
}

# Each leads out, or would if it led anywhere; each must be refused.
ESCAPES = [
    "../outside/canary.txt",
    "./../outside/canary.txt",
    ".././outside/./canary.txt",
    "..//outside//canary.txt",
    "src/../../outside/canary.txt",
    "src/./.././../outside/canary.txt",
    "src/deep/../../../outside/canary.txt",
    "src//..//..//outside//canary.txt",
    "../ws/../outside/canary.txt",
    "../ws2/canary.txt",
    "../../{tmp_name}/outside/canary.txt",
    "../../../../../../../../../../../../../../../../../../../../..{out}/canary.txt",
    "..",
    "../",
    "../..",
    "../outside",
    "../outside/",
    "../outside/made.txt",
    "../outside/made/deep.txt",
    "../outside/canary.txt/",
    "../outside/canary.txt/.",
    "src/../..",
    "nowhere/../../outside/canary.txt",
    "src/file.txt/../../../outside/canary.txt",
    "{out}/canary.txt",
    "/{out}/canary.txt",
    "//{out}/canary.txt",
    "/.{out}/canary.txt",
    "/..{out}/canary.txt",
    "{out}/made.txt",
    "{ws}/../outside/canary.txt",
    "{ws}/./../outside/canary.txt",
    "{ws}/src/../../outside/canary.txt",
    "{ws}2/canary.txt",
    "{ws}2/made.txt",
    "{ws}/../ws2/canary.txt",
    "{ws}/..",
    "/",
    "/etc/passwd",
    "/etc/shadow",
    "/proc/self/environ",
    "/proc/self/mem",
    "/proc/self/root{out}/canary.txt",
    "/proc/self/cwd/../outside/canary.txt",
    "/proc/thread-self/root{out}/canary.txt",
    "/proc/self/fd/0",
    "/dev/fd/0",
    "/dev/stdin",
    "/dev/zero",
    "/dev/tty",
    "~",
    "~/",
    "~/.ssh/id_rsa",
    "~root/.ssh/id_rsa",
    "~/../../../../../../../..{out}/canary.txt",
    "src/file.txt\0",
    "../outside/canary.txt\0",
    "{out}/canary.txt\0.png",
    "\0",
    "\udcff/../../outside/canary.txt",
    "\ud83d",
    "file",
    "file/",
    "file_absolute",
    "chain_1",
    "chain_2",
    "folder/canary.txt",
    "folder/made.txt",
    "folder/made/deep.txt",
    "folder/../outside/canary.txt",
    "folder/../ws/src/file.txt",
    "folder_absolute/canary.txt",
    "folder_dotted/canary.txt",
    "folder_slashes/canary.txt",
    "up/outside/canary.txt",
    "up/ws/../outside/canary.txt",
    "up_absolute/outside/canary.txt",
    "up_and_down/canary.txt",
    "prefix/canary.txt",
    "prefix/made.txt",
    "everything{out}/canary.txt",
    "everything_twice{out}/canary.txt",
    "src/up/outside/canary.txt",
    "src/out",
    "src/../src/up/../outside/canary.txt",
    "src/hop",
    "{ws}/file",
    "{ws}/folder/canary.txt",
    "process_root{out}/canary.txt",
    "process_folder/canary.txt",
    "descriptor",
    "standard_input",
    "zeros",
    "dangling",
    "dangling_absolute",
    "dangling_folder/made.txt",
    "missing_then_up",
    "x" * 300,
    "src/" + "y" * 256,
    "a/" * 3_000 + "canary.txt",
    "../" * 2_000 + "outside/canary.txt",
]

# These look like ways out and are names like any other: what they make stays inside.
LOOKALIKES = [
    "..%2foutside%2fcanary.txt",
    "%2e%2e/outside/canary.txt",
    "%252e%252e/outside/canary.txt",
    "..\\outside\\canary.txt",
    "....//outside/canary.txt",
    ".../outside/canary.txt",
    ". ./outside/canary.txt",
    " ../outside/canary.txt",
    ".. /outside/canary.txt",
    "\uff0e\uff0e/outside/canary.txt",
    "..\u2215outside\u2215canary.txt",
    "..;/outside/canary.txt",
    "file://{out}/canary.txt",
    "$HOME/canary.txt",
    "`pwd`/canary.txt",
    "$(pwd)/canary.txt",
    "~nobody-of-this-name/canary.txt",
    "~canary.txt",
    "-/canary.txt",
    "\\\\?\\canary.txt",
    "C:/canary.txt",
]


def tree(folder: Path) -> dict[str, Any]:
    """All that is in a folder: what, with which rights, changed when, with which content."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_nlink, status.st_mtime_ns, content)
    return found


class Site:
    """A workspace with ways out of it, and what is outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "ws"
        self.outside = folder / "outside"
        self.sibling = folder / "ws2"
        for made in (self.root / "src" / "deep", self.outside, self.sibling):
            made.mkdir(parents=True)
        (self.root / "src" / "file.txt").write_text("inside\n")
        for place in (self.outside, self.sibling):
            (place / "canary.txt").write_text(CANARY)
        for name, target in LINKS.items():
            os.symlink(self.fill(target), self.root / name)
        self.before = self.around()

    def fill(self, path: str) -> str:
        return path.format(ws=self.root, out=self.outside, tmp_name=self.folder.name)

    def around(self) -> list[Any]:
        return [tree(self.outside), tree(self.sibling), sorted(os.listdir(self.folder))]


@pytest.fixture(scope="module", params=["openat2", "walk"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Workspace]:
    site = Site(tmp_path_factory.mktemp("site"))
    return site, Workspace(site.root, openat2=request.param == "openat2")


@pytest.fixture(autouse=True)
def nothing_outside_changes(site: tuple[Site, Workspace]) -> Iterator[None]:
    yield
    assert site[0].around() == site[0].before


def attempt(workspace: Workspace, action: str, path: str) -> ToolOutput:
    match action:
        case "read":
            return read_tool(workspace)(path)
        case "write":
            return write_tool(workspace)(path, "overwritten")
        case _:
            return edit_tool(workspace)(path, [Edit("canary-4c1f", "changed")])


def test_the_corpus_is_large() -> None:
    assert len(set(ESCAPES)) == len(ESCAPES) >= 60
    assert len(set(LOOKALIKES)) == len(LOOKALIKES) >= 20


@pytest.mark.parametrize("action", ["read", "write", "edit"])
@pytest.mark.parametrize("path", ESCAPES, ids=lambda path: ascii(path)[:60])
def test_no_path_leads_out_of_the_workspace(site: tuple[Site, Workspace], path: str, action: str) -> None:
    """failures.md L1, L2, L3, K8"""
    with pytest.raises(WorkspaceError) as refused:
        attempt(site[1], action, site[0].fill(path))
    assert "canary-4c1f" not in str(refused.value)


@pytest.mark.parametrize("path", LOOKALIKES, ids=ascii)
def test_what_only_looks_like_a_way_out_is_a_name_inside(site: tuple[Site, Workspace], path: str) -> None:
    """failures.md L1"""
    path, workspace = site[0].fill(path), site[1]
    write_tool(workspace)(path, "written")
    edit_tool(workspace)(path, [Edit("written", "edited")])
    assert read_tool(workspace)(path).content == "edited"
    assert workspace.relative(path) == str((site[0].root / path).resolve().relative_to(site[0].root))


@pytest.mark.parametrize("path", ["folder", "up", "everything", "..", "../outside", "/", "{out}", "prefix"])
def test_no_folder_outside_is_opened_or_listed(site: tuple[Site, Workspace], path: str) -> None:
    """failures.md L1, L2"""
    for ask in (site[1].open_folder, site[1].scan, site[1].stat, site[1].relative, site[1].open):
        with pytest.raises(WorkspaceError):
            ask(site[0].fill(path))
