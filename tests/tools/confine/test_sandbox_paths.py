"""Which places a confined command is given: named ones, and never a folder that has a user's home in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.tools.confine.rooms import Room

from steersman.tools.confine.folder_snapshot import FolderSnapshot
from steersman.tools.confine.program_folders import leave_out
from steersman.tools.confine.protected_paths import ProtectedPaths, SandboxPaths, find_sandbox_paths, select_nested
from steersman.tools.confine.sandbox import Confinement, build_bubblewrap_command, build_landlock_rules
from steersman.types.errors import ToolError


def given(root: Path, path: str = "/usr/bin", **settings: Any) -> SandboxPaths:
    settings.setdefault("own", ())
    return find_sandbox_paths(str(root), [], {"PATH": path}, **settings)


@pytest.mark.parametrize("folder", ["/", "/home", "/root", "~", "~/..", "//", "/usr/.."])
def test_a_path_that_leads_through_a_home_gives_nothing_of_it(tmp_path: Path, folder: str) -> None:
    wide = os.path.expanduser(folder)
    assert given(tmp_path, f"/usr/bin:{wide}").readable == given(tmp_path).readable


def test_folders_of_programs_are_readable(tmp_path: Path) -> None:
    for name in ("root", "bin"):
        (tmp_path / name).mkdir()
    found = given(tmp_path / "root", f"/usr/bin:{tmp_path}/bin:{tmp_path}/missing:relative")
    assert str(tmp_path / "bin") in found.readable
    assert "/usr" in found.readable
    assert [path for path in found.readable if not os.path.isabs(path) or not os.path.exists(path)] == []


@pytest.mark.parametrize("way", ["root/bin", "root/bin/../bin", "beside/bin", "through", "root/up/../bin"])
def test_a_folder_of_programs_in_the_workspace_is_not_followed(tmp_path: Path, way: str) -> None:
    """docs/security.md: the rest of your home cannot be read. A command may make a folder of PATH a link to it."""
    root, home = tmp_path / "root", tmp_path / "home"
    for folder in (root, home / ".ssh"):
        folder.mkdir(parents=True)
    (root / "bin").symlink_to("../home/.ssh")
    (root / "up").symlink_to("..")
    (tmp_path / "beside").symlink_to(root)
    (tmp_path / "through").symlink_to("beside/bin")
    path = f"{tmp_path}/{way}"
    assert given(root, f"/usr/bin:{path}").readable == given(root).readable
    assert given(root, readable=[path]).readable == given(root).readable


def test_folders_in_the_workspace_have_no_mount_of_their_own(tmp_path: Path) -> None:
    """docs/bash.md: a command cannot write outside. It may replace what is in the workspace by a link."""
    (tmp_path / "cache").mkdir()
    assert given(tmp_path, writable=[str(tmp_path / "cache")]).writable == (str(tmp_path),)


def test_nothing_secret_is_on_the_list(tmp_path: Path) -> None:
    secrets = (
        "shadow",
        "gshadow",
        "sudoers",
        "ssl/private",
        "ssh",
        "security",
        "NetworkManager",
        "docker",
        "kubernetes",
    )
    found = given(tmp_path).readable
    assert "/etc" not in found
    assert [name for name in secrets if f"/etc/{name}" in found] == []
    assert [path for path in found if path in ("/", "/home", "/root", "/var", "/run", "/tmp", "/dev")] == []


def test_what_is_not_there_is_not_given(tmp_path: Path) -> None:
    found = given(tmp_path, readable=["/no/such/place"], writable=["/nor/this"])
    assert "/no/such/place" not in found.readable
    assert found.writable == (str(tmp_path),)


def pins(root: Path, **settings: Any) -> dict[str, bool]:
    return {os.path.relpath(path, root): writable for path, writable in given(root, **settings).protected.pinned}


def test_what_is_protected_is_pinned_after_what_lies_above_it(tmp_path: Path) -> None:
    for name in (".git/modules/sub", ".steersman", "deep/er/.git", "store", "own/venv"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    (tmp_path / "store/settings").touch()
    (tmp_path / ".mcp.json").symlink_to("store/settings")
    found = pins(tmp_path, own=[str(tmp_path / "own/venv")])
    assert list(found.items()) == [
        (".git", False),
        (".steersman", False),
        ("deep", True),
        ("deep/er", True),
        ("deep/er/.git", False),
        ("own", True),
        ("own/venv", False),
        ("store", True),
        ("store/settings", False),
        ("sub", True),
        ("sub/.git", False),
    ]


def test_a_repository_that_can_be_written_keeps_its_settings(tmp_path: Path) -> None:
    for name in (".git/hooks", "sub/.git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".git/config").touch()
    assert pins(tmp_path, git="read-write") == {".git": True, ".git/config": False, ".git/hooks": False}
    guarded = [os.path.relpath(path, tmp_path) for path, *_ in given(tmp_path, git="read-write").protected.guarded]
    assert guarded == [".steersman", ".mcp.json", ".git/commondir", ".git/config.worktree", ".git/info"]


def test_what_was_allowed_by_name_is_not_pinned(tmp_path: Path) -> None:
    (tmp_path / ".steersman").mkdir()
    (tmp_path / ".git/modules/sub").mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    everything = {".git": False, ".steersman": False, "sub": True, "sub/.git": False}
    assert pins(tmp_path) == everything
    assert pins(tmp_path, writable=[str(tmp_path)]) == everything
    assert pins(tmp_path, writable=[str(tmp_path / ".git"), str(tmp_path / ".steersman")]) == {
        "sub": True,
        "sub/.git": False,
    }


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (".steersman", "a" * 300),
        (".steersman", ".steersman"),
        (".mcp.json", "/etc/hosts"),
        (".mcp.json", "missing/too"),
        (".git", "."),
        (".git", ".."),
    ],
    ids=["too long", "itself", "outside", "nowhere", "the workspace", "above it"],
)
def test_a_protected_name_may_be_any_link(tmp_path: Path, name: str, target: str) -> None:
    (tmp_path / name).symlink_to(target)
    found = given(tmp_path).protected
    assert found.pinned == ()
    assert sorted(os.path.basename(path) for path, *_ in found.guarded) == [".git", ".mcp.json", ".steersman"]
    assert [text for _, text, _, _ in found.guarded if text is not None] == [target]


@pytest.mark.parametrize("pointer", [b"gitdir: \0", b"gitdir:", b"", b"\xff", b"gitdir: " + b"x/" * 5_000])
def test_a_pointer_that_leads_nowhere_is_no_trouble(tmp_path: Path, pointer: bytes) -> None:
    (tmp_path / ".git").write_bytes(pointer)
    assert pins(tmp_path) == {".git": False}


def names_below(root: Path, **settings: Any) -> list[str]:
    return sorted(os.path.relpath(path, root) for path in FolderSnapshot(str(root), **settings).refresh())


def test_protected_names_are_found_wherever_they_are_and_not_in_links(tmp_path: Path) -> None:
    for name in (".git/modules/x/.git", "a/.git", "a/b/c/.git", "d/node_modules/e/.git", "a/.steersman", "g/.GIT"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "d/.mcp.json").touch()
    (tmp_path / ".mcp.json").touch()
    (tmp_path / "f").mkdir()
    (tmp_path / "f/.git").symlink_to("../a/.git")
    (tmp_path / "link").symlink_to("a")
    found = ["a/.git", "a/.steersman", "a/b/c/.git", "d/.mcp.json", "d/node_modules/e/.git", "f/.git", "g/.GIT"]
    assert names_below(tmp_path) == found
    assert names_below(tmp_path, skipped=[str(tmp_path / "d")]) == [name for name in found if name[0] != "d"]
    assert names_below(tmp_path, most=1) == []


def test_repositories_without_the_name_are_found_by_their_form(tmp_path: Path) -> None:
    """git takes such a folder for a repository too, also the workspace itself."""
    for name in ("objects", "refs", "bare/objects", "bare/refs", "part/refs", "linked"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("HEAD", "bare/HEAD", "part/HEAD", "linked/HEAD", "linked/commondir"):
        (tmp_path / name).touch()
    assert names_below(tmp_path) == ["HEAD", "bare/HEAD", "linked/HEAD"]


def test_a_snapshot_sees_every_change(tmp_path: Path) -> None:
    """Although it reads only the folders with another time stamp or inode."""
    for name in ("a/b", "c/.git", "d"):
        (tmp_path / name).mkdir(parents=True)
    snapshot = FolderSnapshot(str(tmp_path))

    def look() -> list[str]:
        return sorted(os.path.relpath(path, tmp_path) for path in snapshot.refresh())

    assert look() == ["c/.git"]
    (tmp_path / "a/b/.mcp.json").touch()
    assert look() == ["a/b/.mcp.json", "c/.git"]
    (tmp_path / "a/b").rename(tmp_path / "d/b")
    assert look() == ["c/.git", "d/b/.mcp.json"]
    # Another folder under the same name, with the times of the old one.
    times = (tmp_path / "a").stat()
    (tmp_path / "e/.git").mkdir(parents=True)
    (tmp_path / "a").rmdir()
    (tmp_path / "e").rename(tmp_path / "a")
    os.utime(tmp_path / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert look() == ["a/.git", "c/.git", "d/b/.mcp.json"]
    (tmp_path / "c/.git").rmdir()
    assert look() == ["a/.git", "d/b/.mcp.json"]
    assert snapshot.is_complete


def test_what_cannot_be_protected_is_told(tmp_path: Path) -> None:
    found = [str(tmp_path / name) for name in ("a/.git", "b/.git", "c/.mcp.json", "d/HEAD")]
    assert select_nested(str(tmp_path), found, "read-only") == found
    assert select_nested(str(tmp_path), found, "read-write") == found[2:3]
    with pytest.raises(ToolError, match=r"^There are more than 2 repositories, .* in the workspace .*git='read-write'"):
        select_nested(str(tmp_path), found, "read-only", most=2)


SECRETS = """
    .asdf/.git/config .cargo/credentials.toml .cargo/config.toml .local/share/uv/credentials/credentials.toml
    .local/share/pipx/logs/log .nvm/.git/config .pyenv/.git/config .rustup/tmp/x .volta/hooks.json .npmrc
    .npm/_logs/log .sdkman/etc/config .local/share/fnm/state .netrc .pypirc .gem/credentials
"""
PROGRAMS = """
    .asdf/shims/x .cargo/bin/cargo .local/share/uv/python/x/bin/python .local/share/uv/tools/x/bin/x .nvm/nvm.sh
    .nvm/versions/node/x/bin/node .pyenv/versions/x/bin/python .rustup/toolchains/x/bin/rustc .volta/bin/node
    .local/share/pipx/venvs/x/bin/x .sdkman/candidates/java/x/bin/java go/bin/x
"""


def test_of_the_toolchains_at_home_only_programs_are_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its programs, a toolchain may keep passwords."""
    home = tmp_path / "home"
    for name in (SECRETS + PROGRAMS).split():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "root").mkdir()
    readable = given(tmp_path / "root", f"{home}/.cargo/bin").readable

    def covered(names: str) -> list[str]:
        return [name for name in names.split() if any(Path(home, name).is_relative_to(path) for path in readable)]

    assert covered(SECRETS) == []
    assert covered(PROGRAMS) == PROGRAMS.split()


def test_the_rules_of_landlock_give_no_more_than_asked() -> None:
    where = SandboxPaths(("/usr",), ("/work",), ("/dev/null",))
    assert build_landlock_rules(where, 7, own_memory=True) == {
        "handled": 0xFFFF,
        "scoped": 3,
        "rules": [("/usr", 0xD), ("/work", 0xF7BF), ("/dev/null", 0x8006), ("/dev", 0x8), ("/dev/shm", 0xF7BF)],
    }
    older = build_landlock_rules(where, 3, own_memory=False)
    assert older == {
        "handled": 0x7FFF,
        "scoped": 0,
        "rules": [("/usr", 0xD), ("/work", 0x77BF), ("/dev/null", 0x6), ("/dev", 0x8)],
    }


def test_the_command_line_of_bubblewrap() -> None:
    """Also where it is not installed: what is protected comes after what contains it; the network only on demand."""
    where = SandboxPaths(
        ("/proc", "/usr"), ("/work",), protected=ProtectedPaths((("/work/.git", True), ("/work/.git/hooks", False)))
    )
    line = build_bubblewrap_command(
        "/usr/bin/bwrap", where, "/work", ["bash", "-c", "ls"], allow_network=False, root=False, seccomp=True
    )
    assert " ".join(line) == (
        "/usr/bin/bwrap --unshare-all --new-session --cap-drop ALL --seccomp 200 "
        "--proc /proc --remount-ro /proc --dev /dev --tmpfs /tmp --ro-bind-try /usr /usr --bind /work /work "
        "--bind /work/.git /work/.git --ro-bind /work/.git/hooks /work/.git/hooks "
        "--remount-ro / --chdir /work -- bash -c ls"
    )
    shared = build_bubblewrap_command("bwrap", where, "/", ["true"], allow_network=True, root=True, seccomp=False)
    assert "--share-net" in shared
    assert "--seccomp" not in shared
    assert [shared[n + 1] for n, word in enumerate(shared) if word == "--cap-add"] == [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
    ]


def test_a_home_folder_in_a_folder_of_the_system_is_not_given(
    room: Room, whole: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md: the rest of your home cannot be read. That of a service may be in /opt or /usr."""
    home, other = sorted(path for path in Path("/usr/share").iterdir() if path.is_dir() and not path.is_symlink())[:2]
    monkeypatch.setenv("HOME", str(home))
    readable = given(room.root).readable
    assert not [path for path in readable if path in ("/usr", "/usr/share", str(home))]
    assert {"/usr/bin", "/usr/lib", str(other)} <= {os.path.realpath(path) for path in readable}
    assert room.run(whole, f"ls -d /usr/lib {other}") == (f"/usr/lib\n{other}\n", 0)
    assert room.run(whole, f"ls {home}")[1] != 0


def test_links_beside_a_hidden_home_lead_neither_to_it_nor_out_of_the_system(tmp_path: Path) -> None:
    for name in ("system/home/secret", "system/share/doc", "data"):
        (tmp_path / name).mkdir(parents=True)
    links = {"way": "home", "inside": "home/secret", "round": ".", "fine": "share", "etc": "../data", "up": ".."}
    for name, target in links.items():
        (tmp_path / "system" / name).symlink_to(target)
    found = leave_out(f"{tmp_path}/system", {f"{tmp_path}/system/home"})
    assert sorted(found) == [f"{tmp_path}/system/fine", f"{tmp_path}/system/share"]
    assert [*leave_out(f"{tmp_path}/system/share", {f"{tmp_path}/system/home"})] == [f"{tmp_path}/system/share"]


def test_a_virtual_environment_gives_its_programs_and_not_the_project_around_it(tmp_path: Path) -> None:
    """docs/bash.md: after `python -m venv .`, a project with its secrets is the folder of a Python."""
    for name in ("root", "project/bin", "project/lib"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("pyvenv.cfg", ".env"):
        (tmp_path / "project" / name).write_text("x")
    environment = {"PATH": "/usr/bin", "VIRTUAL_ENV": f"{tmp_path}/project"}
    found = find_sandbox_paths(str(tmp_path / "root"), [], environment, own=()).readable
    inside = {os.path.relpath(path, tmp_path) for path in found if path.startswith(f"{tmp_path}/")}
    assert inside == {"project/bin", "project/lib", "project/pyvenv.cfg"}
