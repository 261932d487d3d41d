"""Which places a confined command is given: named ones, and never a folder that has somebody's home in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steersman.tools.confine import bubblewrap, landlock
from steersman.tools.confine.places import Places, places


def given(root: Path, path: str = "/usr/bin", **settings: list[str]) -> Places:
    return places(str(root), [], {"PATH": path}, own=(), **settings)


@pytest.mark.parametrize("folder", ["/", "/home", "/root", "~", "~/..", "//", "/usr/.."])
def test_a_path_that_leads_through_a_home_gives_nothing_of_it(tmp_path: Path, folder: str) -> None:
    wide = os.path.expanduser(folder)
    assert given(tmp_path, f"/usr/bin:{wide}").readable == given(tmp_path).readable


def test_folders_of_programs_are_readable(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    found = given(tmp_path, f"/usr/bin:{tmp_path}/bin:{tmp_path}/missing:relative")
    assert str(tmp_path / "bin") in found.readable
    assert "/usr" in found.readable
    assert [path for path in found.readable if not os.path.isabs(path) or not os.path.exists(path)] == []


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


def test_what_is_protected_is_pinned_with_what_lies_above_it(tmp_path: Path) -> None:
    for name in (".git/hooks", ".git/modules/sub/hooks", ".steersman"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".git/config", ".git/modules/sub/config", ".mcp.json"):
        (tmp_path / name).touch()
    pinned = {os.path.relpath(path, tmp_path): writable for path, writable in given(tmp_path).pinned}
    assert pinned == {
        ".git": True,
        ".git/hooks": False,
        ".git/config": False,
        ".steersman": False,
        ".mcp.json": False,
        ".git/modules/sub/config": False,
        ".git/modules/sub/hooks": False,
    }
    assert next(iter(pinned)) == ".git"


def test_what_was_allowed_by_name_is_not_pinned(tmp_path: Path) -> None:
    (tmp_path / ".steersman").mkdir()
    assert given(tmp_path).pinned == ((str(tmp_path / ".steersman"), False),)
    assert given(tmp_path, writable=[str(tmp_path / ".steersman")]).pinned == ()


def test_the_rules_of_landlock_give_no_more_than_asked() -> None:
    where = Places(("/usr",), ("/work",), ("/dev/null",))
    assert landlock.wall(where, 7, own_memory=True) == {
        "handled": 0xFFFF,
        "scoped": 3,
        "rules": [("/usr", 0xD), ("/work", 0xF7BF), ("/dev/null", 0x8006), ("/dev", 0x8), ("/dev/shm", 0xF7BF)],
    }
    older = landlock.wall(where, 3, own_memory=False)
    assert older == {
        "handled": 0x7FFF,
        "scoped": 0,
        "rules": [("/usr", 0xD), ("/work", 0x77BF), ("/dev/null", 0x6), ("/dev", 0x8)],
    }


def test_the_command_line_of_bubblewrap() -> None:
    """Also where it is not installed: what is protected comes after what contains it; the network only on demand."""
    where = Places(("/proc", "/usr"), ("/work",), pinned=(("/work/.git", True), ("/work/.git/hooks", False)))
    line = bubblewrap.arguments(
        "/usr/bin/bwrap", where, "/work", ["bash", "-c", "ls"], allow_network=False, root=False, seccomp=True
    )
    assert " ".join(line) == (
        "/usr/bin/bwrap --unshare-all --new-session --cap-drop ALL --seccomp 9 "
        "--proc /proc --remount-ro /proc --dev /dev --tmpfs /tmp --ro-bind-try /usr /usr --bind /work /work "
        "--bind /work/.git /work/.git --ro-bind /work/.git/hooks /work/.git/hooks "
        "--remount-ro / --chdir /work -- bash -c ls"
    )
    shared = bubblewrap.arguments("bwrap", where, "/", ["true"], allow_network=True, root=True, seccomp=False)
    assert "--share-net" in shared
    assert "--seccomp" not in shared
    assert [shared[n + 1] for n, word in enumerate(shared) if word == "--cap-add"] == [
        "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID",
    ]  # fmt: skip
