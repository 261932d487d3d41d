"""A workspace: what is inside it is reached by every honest path, and what cannot be done is said in words."""

from __future__ import annotations

import errno
import os
import random
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.confine.rooms import open_files

from steersman.tools.confine.file_versions import digest
from steersman.tools.confine.path_errors import translate_os_error
from steersman.tools.confine.syscalls import has_openat2
from steersman.tools.confine.workspace import (
    Entry,
    MissingPath,
    OutsideWorkspace,
    ProtectedPath,
    StaleFile,
    TooLarge,
    Workspace,
    WorkspaceError,
    WriteResult,
    WrongKind,
)


@pytest.fixture(params=["openat2", "walk"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    root = tmp_path / "ws"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("one\n")
    if request.param == "openat2" and not has_openat2():
        pytest.skip("the kernel has no openat2")
    return Workspace(root, openat2=request.param == "openat2")


@pytest.fixture(autouse=True)
def no_descriptor_is_left_open() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() - before == set()


def emptied(workspace: Workspace) -> Callable[[str], WriteResult]:
    def empty(path: str) -> WriteResult:
        return workspace.replace(path, b"")

    return empty


def run(script: str, *arguments: str, ordinary: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own; as an ordinary user, whom permissions concern, where this one is not."""
    start = "import os, sys, difflib, unicodedata\nfrom steersman.tools.confine.workspace import *\n"
    if ordinary:
        start += "os.geteuid() == 0 and (os.setgroups([]), os.setgid(65534), os.setuid(65534))\n"
    command = [sys.executable, "-c", start + textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize(
    "path",
    [
        "src/a.txt",
        "./src/a.txt",
        "src//a.txt",
        "src/../src/a.txt",
        "src/deep/../a.txt",
        "{ws}/src/a.txt",
        "//{ws}/src/./a.txt",
        "link",
        "absolute_link",
        "folder_link/a.txt",
        "folder_link/../src/a.txt",
        "chain",
        "src/back",
        "hard",
    ],
)
def test_every_honest_path_leads_to_the_file(workspace: Workspace, path: str) -> None:
    root = workspace.root
    (root / "src" / "deep").mkdir()
    (root / "link").symlink_to("src/a.txt")
    (root / "absolute_link").symlink_to(root / "src" / "a.txt")
    (root / "folder_link").symlink_to("src/")
    (root / "chain").symlink_to("folder_link/../link")
    (root / "src" / "back").symlink_to("../src/./a.txt")
    os.link(root / "src" / "a.txt", root / "hard")
    path = path.format(ws=root)
    assert workspace.read_bytes(path, limit=100) == b"one\n"
    assert workspace.relative(path) == ("hard" if path == "hard" else "src/a.txt")
    assert workspace.key(path) == workspace.key("src/a.txt")
    assert set(workspace.keys(path)) & set(workspace.keys("src/a.txt"))
    assert workspace.stat(path).st_ino == (root / "src" / "a.txt").stat().st_ino


def test_the_root_may_be_given_through_a_link_and_named_by_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("one")
    (tmp_path / "alias").symlink_to("real")
    workspace = Workspace(tmp_path / "alias")
    assert workspace.root == tmp_path / "real"
    assert workspace.read_bytes(f"{tmp_path}/alias/a.txt", limit=10) == b"one"
    assert workspace.read_bytes(f"{tmp_path}/real/a.txt", limit=10) == b"one"


def test_a_path_from_home_leads_inside_when_the_workspace_is_there(tmp_path: Path) -> None:
    """failures.md L1"""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("one")
    script = """
    workspace = Workspace("~/project")
    print(workspace.read_bytes("~/project/a.txt", limit=10))
    workspace.replace("~canary", b"")
    try:
        workspace.replace("~/b.txt", b"")
    except OutsideWorkspace as refused:
        print("refused")
    """
    done = run(script, env={**os.environ, "HOME": str(tmp_path)})
    assert (done.stdout, done.stderr) == ("b'one'\nrefused\n", "")
    assert sorted(os.listdir(tmp_path)) == ["project"]
    assert sorted(os.listdir(tmp_path / "project")) == ["a.txt", "~canary"]


def test_a_folder_is_listed_with_kinds_and_links_are_not_followed(workspace: Workspace) -> None:
    root = workspace.root
    (root / "link").symlink_to("/")
    os.mkfifo(root / "pipe")
    (root / "b.txt").write_text("")
    assert workspace.scan() == [
        Entry("b.txt", "file"),
        Entry("link", "link"),
        Entry("pipe", "other"),
        Entry("src", "folder"),
    ]
    folder = workspace.open_folder("src")
    assert os.listdir(folder) == ["a.txt"]
    os.close(folder)


def test_what_is_not_there_is_told_with_what_is_nearly_there(workspace: Workspace) -> None:
    (workspace.root / "README.md").write_text("")
    for path, words in {
        "src/b.txt": "'src/b.txt' does not exist. Similar names in 'src': 'a.txt'.",
        "Readme.txt": "'Readme.txt' does not exist. Similar names in '.': 'README.md'.",
        "scr/a.txt": "'scr/a.txt' does not exist. There is no 'scr' in '.'. Similar names in '.': 'src'.",
        "nothing/like/it": "'nothing/like/it' does not exist. There is no 'nothing' in '.'.",
    }.items():
        for ask in (workspace.open, workspace.stat, workspace.open_folder, workspace.scan):
            with pytest.raises(MissingPath) as refused:
                ask(path)
            assert str(refused.value) == words


def test_a_file_for_a_folder_and_the_other_way_round(workspace: Workspace) -> None:
    for ask, path, words in [
        (workspace.open, "src", "'src' is a folder, not a file."),
        (workspace.open, "src/", "'src/' is a folder, not a file."),
        (workspace.open, "", "'' is a folder, not a file."),
        (workspace.open, "src/a.txt/", "'src/a.txt/' names a folder. Give the path of a file."),
        (workspace.open_folder, "src/a.txt", "'src/a.txt' is not a folder."),
        (workspace.stat, "src/a.txt/b", "'src/a.txt/b' goes through 'a.txt', which is not a folder."),
    ]:
        with pytest.raises(WrongKind) as refused:
            ask(path)
        assert str(refused.value) == words
    with pytest.raises(WrongKind, match=r"^'src' is a folder, not a file\.$"):
        workspace.replace("src", b"")
    with pytest.raises(WrongKind, match=r"^'new/' names a folder\. Give the path of a file\.$"):
        workspace.replace("new/", b"")
    assert workspace.scan() == [Entry("src", "folder")]


@pytest.fixture(params=["pipe", "socket", "device", "link to a pipe"])
def oddity(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[str]:
    path = workspace.root / "odd"
    match request.param:
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener, chdir(workspace.root):
                listener.bind("odd")
                yield "odd"
            return
        case "device":
            try:
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # the one of /dev/zero, which has no end
            except PermissionError:
                pytest.skip("only the superuser makes devices")
        case "pipe":
            os.mkfifo(path)
        case _:
            os.mkfifo(workspace.root / "src" / "pipe")
            path.symlink_to("src/pipe")
    yield "odd"


def chdir(folder: Path) -> Chdir:
    return Chdir(folder)


class Chdir:
    """Another current folder for a while: the name of a socket must be short."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        self.before = os.getcwd()
        os.chdir(self.folder)

    def __exit__(self, *_: object) -> None:
        os.chdir(self.before)


def test_what_is_no_regular_file_is_refused_without_waiting(workspace: Workspace, oddity: str) -> None:
    """failures.md K8, L3: the pipe has no writer, so opening it would wait for ever."""
    before = (workspace.root / oddity).stat()
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        with pytest.raises(WrongKind, match=r"^'odd' is (a named pipe|a socket|a device), not a regular file\.$"):
            workspace.open(oddity, flags)
    with pytest.raises(WrongKind, match=r"^'odd' is not a regular file\. It is left as it is\.$"):
        workspace.replace(oddity, b"")
    assert (workspace.root / oddity).stat() == before


@pytest.mark.parametrize("path", ["proc/self/environ", "proc/self/mem", "sys/kernel/uevent_seqnum", "dev/zero"])
def test_what_the_kernel_makes_up_is_no_file_even_where_everything_is_the_workspace(path: str) -> None:
    """failures.md L3: the environment holds the keys of this very process."""
    for openat2 in (True, False):
        workspace = Workspace("/", openat2=openat2)
        with pytest.raises(WorkspaceError):
            workspace.open(path)
        with pytest.raises(WorkspaceError):
            workspace.replace(path, b"")


def test_magic_links_are_not_followed_as_magic(tmp_path: Path) -> None:
    """failures.md L3: a deleted file can still be reached by the link of its descriptor."""
    secret = tmp_path / "secret"
    secret.write_text("canary")
    with secret.open() as held:
        secret.unlink()
        path = f"proc/{os.getpid()}/fd/{held.fileno()}"
        assert Path(f"/{path}").read_text() == "canary"
        for openat2 in (True, False):
            with pytest.raises(WorkspaceError):
                Workspace("/", openat2=openat2).open(path)
            with pytest.raises(OutsideWorkspace):
                Workspace("/proc", openat2=openat2).open(path.removeprefix("proc/"))


def test_links_that_lead_in_a_circle_are_told(workspace: Workspace) -> None:
    """failures.md K8"""
    (workspace.root / "a").symlink_to("b")
    (workspace.root / "b").symlink_to("a")
    (workspace.root / "me").symlink_to("me")
    (workspace.root / "deeper").symlink_to("deeper/deeper")
    for path in ("a", "b/x", "me", "deeper"):
        for action in (workspace.open, emptied(workspace)):
            with pytest.raises(WorkspaceError, match="symbolic links that lead in a circle"):
                action(path)


def test_long_names_and_paths_are_told(workspace: Workspace) -> None:
    """failures.md K8"""
    for action in (workspace.open, workspace.stat, workspace.scan, emptied(workspace)):
        with pytest.raises(WorkspaceError, match="has a name that is too long"):
            action("n" * 256)
        with pytest.raises(WorkspaceError, match=r"is too long \(5,001 bytes\)"):
            action("n/" * 2_500 + "n")


def test_a_name_as_long_as_names_may_be_can_be_written(workspace: Workspace) -> None:
    """failures.md K8: the temporary name is no longer than the real one."""
    name = "n" * 255
    assert workspace.replace(name, b"new") == WriteResult(created=True, other_names=0)
    assert workspace.replace(name, b"newer") == WriteResult(created=False, other_names=0)
    assert workspace.read_bytes(name, limit=10) == b"newer"


def test_a_deep_path_needs_few_descriptors(tmp_path: Path) -> None:
    """failures.md K8"""
    script = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    deep = "d/" * 300
    for openat2 in (True, False):
        workspace = Workspace(sys.argv[1], openat2=openat2)
        workspace.replace(deep + f"{openat2}/file", b"deep")
        print(workspace.read_bytes(deep + "../" * 100 + "d/" * 100 + f"{openat2}/file", limit=10))
    """
    done = run(script, str(tmp_path))
    assert (done.stdout.split(), done.stderr) == (["b'deep'"] * 2, "")


def test_folders_made_for_a_file_that_could_not_be_made_are_taken_back(tmp_path: Path) -> None:
    """failures.md K5"""
    script = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    workspace = Workspace(sys.argv[1])
    try:
        workspace.replace("new/deep/folder/file", b"more than ten bytes")
    except WorkspaceError as refused:
        print(refused)
    """
    (tmp_path / "old").mkdir()
    done = run(script, str(tmp_path))
    words = "'new/deep/folder/file' was not written: it would be too large. What was there before is unchanged.\n"
    assert (done.stdout, done.stderr, os.listdir(tmp_path)) == (words, "", ["old"])


def test_a_workspace_whose_folder_is_gone_or_another_says_so(workspace: Workspace) -> None:
    """failures.md K8: the folder of the workspace deleted, moved, replaced by a link."""
    root = workspace.root
    moved = root.with_name("moved")
    root.rename(moved)
    for action in (workspace.open, workspace.stat, workspace.scan, emptied(workspace)):
        with pytest.raises(WorkspaceError, match="is gone: its folder was moved or deleted"):
            action("src/a.txt")
    root.symlink_to(moved)
    with pytest.raises(WorkspaceError, match="is gone: its folder was moved or deleted"):
        workspace.open("src/a.txt")
    root.unlink()
    root.mkdir()
    with pytest.raises(WorkspaceError, match="is gone: another folder has taken its place"):
        workspace.open("src/a.txt")
    assert workspace.key("src/a.txt") == "path:src/a.txt"


def test_a_workspace_is_a_folder_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Workspace(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="A workspace is a folder"):
        Workspace(tmp_path / "file")
    with pytest.raises(TypeError, match=r"'protected' is a list of names, got '\.git'"):
        Workspace(tmp_path, protected=".git")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an ordinary user can reach too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def test_permissions_are_told_and_a_read_only_file_is_not_replaced(open_folder: Path) -> None:
    """failures.md K8: a rename would replace a file that may not be written; who made it read-only meant it."""
    (open_folder / "secret").write_text("old")
    (open_folder / "secret").chmod(0o000)
    (open_folder / "fixed").write_text("old")
    (open_folder / "fixed").chmod(0o444)
    (open_folder / "closed").mkdir(mode=0o000)
    (open_folder / "shut").mkdir(mode=0o755)
    (open_folder / "shut" / "mine").write_text("old")
    (open_folder / "shut" / "mine").chmod(0o666)
    (open_folder / "shut").chmod(0o555)
    script = """
    workspace = Workspace(sys.argv[1])
    for action, path in [
        (workspace.open, "secret"), (workspace.open, "closed/x"), (workspace.scan, "closed"),
        (lambda path: workspace.replace(path, b"new"), "fixed"),
        (lambda path: workspace.replace(path, b"new"), "shut/mine"),
        (lambda path: workspace.replace(path, b"new"), "shut/new"),
        (lambda path: workspace.replace(path, b"new"), "closed/new"),
    ]:
        try:
            print(action(path))
        except WorkspaceError as refused:
            print(refused)
    """
    done = run(script, str(open_folder), ordinary=True)
    general = "is not allowed by its permissions or those of its folder."
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            f"'secret' {general}",
            f"'closed/x' {general}",
            f"'closed' {general}",
            "'fixed' is not writable by its permissions. Ask for them to be changed first.",
            f"'shut/mine' {general}",
            f"'shut/new' {general}",
            f"'closed/new' {general}",
        ],
        "",
    )
    (open_folder / "closed").chmod(0o755)
    (open_folder / "secret").chmod(0o644)
    assert [(open_folder / name).read_text() for name in ("secret", "fixed", "shut/mine")] == ["old"] * 3
    assert sorted(os.listdir(open_folder / "shut")) == ["mine"]


def test_odd_surroundings_change_nothing(tmp_path: Path) -> None:
    """failures.md K9: no locale, no home, no PATH, no terminal."""
    script = """
    workspace = Workspace(".")
    workspace.replace("ünï/ço∂é.txt", "naïve".encode())
    print(ascii(workspace.relative("ünï/ço∂é.txt")), workspace.read_bytes("ünï/ço∂é.txt", limit=10))
    try:
        print(workspace.open("~/x"))
    except WorkspaceError as refused:
        print(type(refused).__name__)
    """
    found = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    done = run(script, cwd=tmp_path, env={"LANG": "C", "LC_ALL": "C", **found}, stdin=subprocess.DEVNULL)
    assert (done.stdout.splitlines(), done.stderr) == (
        [f"{'ünï/ço∂é.txt'!a} {'naïve'.encode()!r}", "OutsideWorkspace"],
        "",
    )
    assert (tmp_path / "ünï" / "ço∂é.txt").read_text(encoding="utf-8") == "naïve"


def test_bytes_are_read_up_to_a_limit(workspace: Workspace) -> None:
    (workspace.root / "ten").write_bytes(b"0123456789")
    assert workspace.read_bytes("ten", limit=10) == b"0123456789"
    with pytest.raises(TooLarge, match=r"^'ten' is too large: more than 9 bytes\.$"):
        workspace.read_bytes("ten", limit=9)


def test_extra_roots_are_read_by_absolute_path_and_not_written(workspace: Workspace, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "a.txt").write_text("extra")
    (extra / "out").symlink_to("../ws/src/a.txt")
    (workspace.root / "link").symlink_to(extra / "a.txt")
    both = Workspace(workspace.root, extra_roots=[extra])
    assert both.read_bytes(f"{extra}/a.txt", limit=10) == b"extra"
    assert both.relative(f"{extra}/a.txt") == f"{extra}/a.txt"
    for path in (f"{extra}/out", f"{extra}/../ws/src/a.txt", "link"):
        with pytest.raises(OutsideWorkspace):
            both.open(path)
    for path in (f"{extra}/a.txt", f"{extra}/new.txt"):
        with pytest.raises(ProtectedPath, match="is in a folder that can be read but not written"):
            both.replace(path, b"new")
    assert sorted(os.listdir(extra)) == ["a.txt", "out"]


def test_a_file_opened_for_writing_is_checked_before_it_is_cut_off(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md L3: other names of a file may be anywhere."""
    canary = tmp_path / "canary"
    canary.write_text("canary")
    os.link(canary, workspace.root / "hard")
    with pytest.raises(WorkspaceError, match=r"'hard' has 2 names \(hard links\)"):
        workspace.open("hard", os.O_WRONLY | os.O_TRUNC)
    (workspace.root / "dangling").symlink_to(tmp_path / "made")
    with pytest.raises(OutsideWorkspace):
        workspace.open("dangling", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(ProtectedPath):
        workspace.open(".git", os.O_WRONLY | os.O_CREAT)
    descriptor = workspace.open("src/a.txt", os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, b"cut")
    os.close(descriptor)
    descriptor = workspace.open("src/new.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(descriptor)
    assert (workspace.root / "src" / "a.txt").read_text() == "cut"
    assert canary.read_text() == "canary"
    assert sorted(os.listdir(tmp_path)) == ["canary", "ws"]


def test_a_file_is_only_replaced_while_it_is_what_was_expected(workspace: Workspace) -> None:
    """failures.md K4"""
    before = digest(b"one\n")
    assert workspace.replace("src/a.txt", b"two\n", expect=before) == WriteResult(created=False, other_names=0)
    for path in ("src/a.txt", "src/none.txt"):
        with pytest.raises(StaleFile, match="has changed since it was last read here"):
            workspace.replace(path, b"three\n", expect=before)
    assert workspace.read_bytes("src/a.txt", limit=10) == b"two\n"
    assert workspace.scan("src") == [Entry("a.txt", "file")]


def test_a_file_may_be_written_through_a_link_that_stays_a_link(workspace: Workspace) -> None:
    """failures.md K5"""
    root = workspace.root
    (root / "link").symlink_to("src/a.txt")
    (root / "dangling").symlink_to("made/by/link.txt")
    workspace.replace("link", b"through")
    workspace.replace("dangling", b"through")
    assert [(root / name).is_symlink() for name in ("link", "dangling")] == [True, True]
    assert [(root / name).read_text() for name in ("src/a.txt", "made/by/link.txt")] == ["through", "through"]


def test_the_other_names_of_a_file_keep_the_old_content(workspace: Workspace, tmp_path: Path) -> None:
    """failures.md L3: a hard link to a file outside is read, and never changed through."""
    canary = tmp_path / "canary"
    canary.write_text("canary")
    os.link(canary, workspace.root / "hard")
    assert workspace.read_bytes("hard", limit=10) == b"canary"
    assert workspace.replace("hard", b"new") == WriteResult(created=False, other_names=1)
    assert (canary.read_text(), (workspace.root / "hard").read_text()) == ("canary", "new")


MANY_WORDS: list[tuple[int, type[WorkspaceError]]] = [
    (errno.ENOENT, MissingPath),
    (errno.EACCES, WorkspaceError),
    (errno.EISDIR, WrongKind),
    (errno.ENOSPC, WorkspaceError),
    (errno.EIO, WorkspaceError),
]


@pytest.mark.parametrize(("number", "kind"), MANY_WORDS)
def test_whatever_the_system_says_becomes_words_with_the_path(number: int, kind: type[WorkspaceError]) -> None:
    told = translate_os_error(OSError(number, os.strerror(number)), "some/file")
    assert type(told) is kind
    assert str(told).startswith("'some/file'")
    assert str(told).endswith(".")


SWAPPER = """
import ctypes, os, sys, threading
one, other, target = map(os.fsencode, sys.argv[1:])
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
rename = ctypes.CDLL(None).renameat2
print("swapping", flush=True)
while os.path.isdir(target):
    rename(-100, one, -100, other, 2)  # both at once: a name that is a folder now is a link now
while True:
    os.symlink(target, other)
    os.rename(other, one)
    with open(other, "wb") as file:
        file.write(b"one\\n")
    os.rename(other, one)
"""


@pytest.mark.parametrize("swapped", ["a folder on the way", "the file itself"])
def test_a_link_that_is_swapped_in_never_leads_out(workspace: Workspace, tmp_path: Path, swapped: str) -> None:
    """failures.md L2: the time between a check and its use. Another process lets a name be now this and now that."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("canary")
    one, other, target = workspace.root / "src", workspace.root / "other", outside
    if swapped == "the file itself":
        one, target = one / "a.txt", outside / "a.txt"
    else:
        other.symlink_to(target)
    actions = [
        lambda: workspace.read_bytes("src/a.txt", limit=100).decode(),
        lambda: "written" if workspace.replace("src/a.txt", b"one\n") else "",
        lambda: "made" if workspace.replace(f"src/made/{turn}", b"") else "",
    ]
    seen: dict[str, int] = {}
    command = [sys.executable, "-c", SWAPPER, str(one), str(other), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        for turn in range(30_000):
            try:
                result = actions[turn % 3]()
            except WorkspaceError as refused:
                result = type(refused).__name__
            seen[result] = seen.get(result, 0) + 1
            if turn > 300 and {"one\n", "written", "made", "OutsideWorkspace"} <= set(seen):
                break
    assert {"one\n", "written", "made", "OutsideWorkspace"} <= set(seen)
    assert set(seen) <= {"one\n", "written", "made", "OutsideWorkspace", "WorkspaceError"}
    assert [(path.name, path.read_text()) for path in sorted(outside.iterdir())] == [("a.txt", "canary")]


def in_mount_namespace(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script that may mount, for itself alone; skipped where that is not allowed."""
    allowed = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*allowed, "mount", "-t", "tmpfs", "none", arguments[0]], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no mounts without privileges here")
    start = "import os, subprocess, sys\nfrom steersman.tools.confine.workspace import *\n"
    command = [*allowed, sys.executable, "-c", start + textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_mounted_beneath_the_root_belongs_to_it(tmp_path: Path) -> None:
    """failures.md L3: a mount is made by the owner of the machine; a link in it still leads nowhere outside."""
    for name in ("ws/mounted", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "elsewhere" / "a.txt").write_text("mounted")
    (tmp_path / "elsewhere" / "link").symlink_to("../../canary")
    (tmp_path / "canary").write_text("canary")
    script = """
    subprocess.run(["mount", "--bind", sys.argv[2], sys.argv[1] + "/mounted"], check=True)
    for openat2 in (True, False):
        workspace = Workspace(sys.argv[1], openat2=openat2)
        print(workspace.read_bytes("mounted/a.txt", limit=10))
        for path in ("mounted/link", "mounted/../../canary"):
            try:
                print(workspace.read_bytes(path, limit=10))
            except OutsideWorkspace:
                print("outside")
    """
    done = in_mount_namespace(script, str(tmp_path / "ws"), str(tmp_path / "elsewhere"))
    assert (done.stdout.split(), done.stderr) == (["b'mounted'", "outside", "outside"] * 2, "")


def test_a_full_disk_leaves_the_old_content(tmp_path: Path) -> None:
    """failures.md K5"""
    script = """
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", sys.argv[1]], check=True)
    workspace = Workspace(sys.argv[1])
    workspace.replace("a.txt", b"old")
    for path in ("a.txt", "new/folder/b.txt"):
        try:
            workspace.replace(path, b"x" * 1_000_000)
        except WorkspaceError as refused:
            print(refused)
    print(workspace.read_bytes("a.txt", limit=100), [name for name, _ in workspace.scan()])
    """
    done = in_mount_namespace(script, str(tmp_path))
    words = "was not written: the disk is full. What was there before is unchanged."
    assert (done.stdout.splitlines(), done.stderr) == (
        [f"'a.txt' {words}", f"'new/folder/b.txt' {words}", "b'old' ['a.txt']"],
        "",
    )


def test_similar_names_are_found_soon_whatever_a_project_calls_its_files(tmp_path: Path) -> None:
    """Names of the same letters in another order are compared for longest."""
    letters = random.Random(1)

    def make_name() -> str:
        return "".join(letters.choice("ab") for _ in range(198))

    for _ in range(3_000):
        (tmp_path / make_name()).touch()
    wanted = make_name()
    start = time.process_time()
    with pytest.raises(MissingPath):
        Workspace(tmp_path).read_bytes(wanted, limit=1)
    assert time.process_time() - start < 2
