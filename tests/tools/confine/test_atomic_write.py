"""Files replaced whole: the old content or the new one, whatever happens, and no other user reads it on the way."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from steersman.tools.confine.file_versions import KnownVersion, SeenVersions, digest, lock_file
from steersman.tools.confine.workspace import StaleFile, Workspace, WorkspaceError, WriteResult

START = """
import os, resource, signal, sys
from steersman.tools.confine.workspace import *
workspace = Workspace(sys.argv[1])
"""


def python(script: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", START + textwrap.dedent(script), *map(str, arguments)]


def test_a_kill_in_the_middle_of_a_write_leaves_the_old_content(tmp_path: Path) -> None:
    """failures.md K5, L24: the system kills the process at its 5,000,000th byte; what it left, only its owner reads."""
    script = """
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
    workspace.replace("a.txt", b"x" * 10_000_000)
    """
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "a.txt").chmod(0o666)
    for _ in range(2):
        done = subprocess.run(python(script, tmp_path), capture_output=True, timeout=60, check=False)
        assert -done.returncode == signal.SIGXFSZ, done.stderr
    assert (tmp_path / "a.txt").read_text() == "old"
    left = sorted(path for path in tmp_path.iterdir() if path.name != "a.txt")
    assert [stat.S_IMODE(path.stat().st_mode) for path in left] == [0o600, 0o600]
    names = [re.fullmatch(r"\.([0-9a-f]{32})\.tmp", path.name) for path in left]
    assert len({name[1] for name in names if name is not None}) == 2


def test_a_kill_at_any_time_leaves_one_content_or_the_other(tmp_path: Path) -> None:
    """failures.md K5"""
    script = """
    size = 300_000
    print("ready", flush=True)
    while True:
        workspace.replace("a.txt", b"1" * size)
        print(flush=True)
        workspace.replace("a.txt", b"2" * size)
        print(flush=True)
    """
    (tmp_path / "a.txt").write_bytes(b"2" * 300_000)
    for rounds in range(6):
        with subprocess.Popen(python(script, tmp_path), stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(1 + rounds):
                writer.stdout.readline()
            writer.kill()
        content = (tmp_path / "a.txt").read_bytes()
        assert (len(content), len(set(content))) == (300_000, 1)


def test_a_write_that_fails_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """failures.md K5"""
    script = """
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
    try:
        workspace.replace("a.txt", b"x" * 10_000_000)
    except WorkspaceError as refused:
        print(refused)
    """
    (tmp_path / "a.txt").write_text("old")
    done = subprocess.run(python(script, tmp_path), capture_output=True, text=True, timeout=60, check=False)
    words = "'a.txt' was not written: it would be too large. What was there before is unchanged.\n"
    assert (done.stdout, done.stderr) == (words, "")
    assert ((tmp_path / "a.txt").read_text(), os.listdir(tmp_path)) == ("old", ["a.txt"])


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o755), (0o600, 0o600), (0o640, 0o640), (0o4755, 0o755)])
def test_the_mode_is_kept_and_rights_of_the_owner_are_not_lent(tmp_path: Path, before: int, after: int) -> None:
    """failures.md K5: a program that runs with its owner's rights does not keep them with another content."""
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(before)
    Workspace(tmp_path).replace("a", b"new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == after


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
def test_the_owner_is_kept(tmp_path: Path) -> None:
    """failures.md K5"""
    (tmp_path / "a").write_text("old")
    os.chown(tmp_path / "a", 12345, 54321)
    (tmp_path / "a").chmod(0o664)
    Workspace(tmp_path).replace("a", b"new")
    found = (tmp_path / "a").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 54321, 0o664)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_and_its_folders_have_the_rights_that_new_files_have(tmp_path: Path, mask: int) -> None:
    """failures.md L24"""
    script = "os.umask(int(sys.argv[2])); workspace.replace('new/a.txt', b'')"
    subprocess.run(python(script, tmp_path, str(mask)), timeout=60, check=True)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "new/a.txt")]
    assert modes == [0o777 & ~mask, 0o666 & ~mask]


def test_an_access_list_is_kept(tmp_path: Path) -> None:
    """failures.md K5: without it the mode would give the group what was meant for one user on the list."""
    (tmp_path / "a").write_text("old")
    entries = [
        (0x01, 6, 0xFFFFFFFF),
        (0x02, 6, 12345),
        (0x04, 0, 0xFFFFFFFF),
        (0x10, 6, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    ]
    packed = b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, rights, who in entries
    )
    access = (2).to_bytes(4, "little") + packed
    try:
        os.setxattr(tmp_path / "a", "system.posix_acl_access", access)
    except OSError:
        pytest.skip("no access lists on this file system")
    Workspace(tmp_path).replace("a", b"new")
    assert os.getxattr(tmp_path / "a", "system.posix_acl_access") == access


def test_many_threads_that_each_add_a_line_lose_none(tmp_path: Path) -> None:
    """failures.md K4: also through another workspace object and another name of the file."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("")
    (tmp_path / "link").symlink_to("sub/a.txt")
    ways = [
        (Workspace(tmp_path), "sub/a.txt"),
        (Workspace(tmp_path), "link"),
        (Workspace(tmp_path / "sub"), "a.txt"),
        (Workspace(tmp_path / "sub", openat2=False), str(tmp_path / "sub" / "a.txt")),
    ]

    def add(number: int) -> None:
        workspace, path = ways[number % len(ways)]
        with workspace.lock(path):
            data = workspace.read_bytes(path, limit=10_000)
            workspace.replace(path, data + b"%d\n" % number, expect=digest(data))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, (tmp_path / "sub" / "a.txt").read_text().split())) == list(range(20))


def test_a_change_from_another_process_is_noticed_up_to_the_last_moment(tmp_path: Path) -> None:
    """failures.md K4"""
    workspace = Workspace(tmp_path)
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "a.txt").write_text("two")
    with pytest.raises(StaleFile):
        workspace.replace("a.txt", b"three", expect=digest(b"one"))
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(WorkspaceError, match="is a folder"):
        workspace.replace("a.txt", b"three", expect=digest(b"two"))


def test_a_file_is_held_by_one_thread_at_a_time_and_by_that_one_twice() -> None:
    held, asked = threading.Event(), threading.Event()
    order: list[str] = []

    def other() -> None:
        held.wait()
        asked.set()
        with lock_file("/a/FILE"):
            order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    with lock_file("/a/file"), lock_file("/another/file"), lock_file("/a/file"):
        held.set()
        asked.wait()
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_a_forked_child_is_not_kept_waiting_by_threads_it_does_not_have(tmp_path: Path) -> None:
    script = """
    import threading, warnings
    warnings.simplefilter("ignore")  # newer Pythons warn of what is tested here
    held, done = threading.Event(), threading.Event()
    def hold():
        with workspace.lock("a.txt"):
            held.set()
            done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        workspace.replace("a.txt", b"child")
        os._exit(0)
    print(os.waitpid(child, 0)[1], workspace.read_bytes("a.txt", limit=10))
    done.set()
    thread.join()
    """
    done = subprocess.run(python(script, tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("0 b'child'\n", "")


def test_what_a_reader_knows_follows_edits_of_others_and_its_own_writes() -> None:
    """failures.md K4"""
    seen = SeenVersions()
    assert seen.look_up("me", "a") is None
    seen.remember("me", "a", "1")
    seen.remember("you", "a", "1")
    seen.record_edit("you", "a", "1", "2")
    assert (seen.look_up("me", "a"), seen.look_up("you", "a")) == (KnownVersion("1", "2"), KnownVersion("2", "2"))
    seen.record_edit("you", "a", "other", "3")
    assert (seen.look_up("me", "a"), seen.look_up("you", "a")) == (KnownVersion("1", "2"), KnownVersion("3", "3"))
    seen.remember("me", "a", None)
    assert (seen.look_up("me", "a"), seen.look_up("me", "b")) == (None, None)


def test_what_was_seen_long_ago_is_forgotten_when_there_is_very_much() -> None:
    """failures.md L20"""
    seen = SeenVersions()
    for number in range(12_000):
        seen.remember("me", str(number), "x")
    assert [seen.look_up("me", str(number)) for number in (0, 1_999, 2_000, 11_999)] == [
        None,
        None,
        KnownVersion("x", "x"),
        KnownVersion("x", "x"),
    ]
    for number in range(1_200):
        seen.remember(str(number), "popular", "x")
    assert [seen.look_up(str(number), "popular") for number in (199, 200)] == [None, KnownVersion("x", "x")]


def test_a_replacement_says_what_it_did(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.replace("new/file", b"1") == WriteResult(created=True, other_names=0)
    os.link(tmp_path / "new" / "file", tmp_path / "other")
    assert workspace.replace("new/file", b"2") == WriteResult(created=False, other_names=1)
    assert workspace.replace("new/file", b"3") == WriteResult(created=False, other_names=0)
