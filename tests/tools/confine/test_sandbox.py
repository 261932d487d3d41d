"""The walls around a command, tried from inside with real files, sockets and processes. Each kind this machine has."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.confine.rooms import Room, python

import steersman
from steersman.tools.confine import seccomp
from steersman.tools.confine.protected_paths import SandboxPaths, find_sandbox_paths
from steersman.tools.confine.sandbox import MIN_LANDLOCK_ABI, Confinement, confinement, read_landlock_abi
from steersman.types.errors import ToolError


def test_the_workspace_and_a_temporary_folder_can_be_written(room: Room, walls: Confinement) -> None:
    command = """
        set -e; echo a > new; mkdir -p deep/er; mv new deep/er/moved; ln -s er deep/link; cat deep/link/moved
        chmod 755 deep; touch -d yesterday deep; rm -r deep; ls
        f=$(mktemp); echo b > $f; cat $f; echo c > /dev/null; head -c 2 /dev/urandom | wc -c
    """
    # Walls that can mount hold the name HEAD with an empty folder, so that the workspace becomes no bare repository.
    held = "HEAD\n" if walls.kind == "bubblewrap" or walls.namespaces else ""
    assert room.run(walls, command) == (f"a\n{held}b\n2\n", 0)


def test_a_workspace_may_be_in_shared_memory(whole: Confinement) -> None:
    """docs/bash.md: no shared memory of other programs. The temporary folder (TMPDIR) may be there as well."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        room = Room(Path(os.path.realpath(folder)))
        (room.root / "sub" / ".git").mkdir(parents=True)
        output, _ = room.run(whole, f"echo a > new; touch sub/.git/new; cat new {room.secret}; ls -A /dev/shm")
        assert output.splitlines()[1:] == ["a", f"cat: {room.secret}: No such file or directory", room.root.parts[3]]
        assert sorted(os.listdir(room.root)) == ["new", "sub"]
        assert os.listdir(room.root / "sub" / ".git") == []


# The mounts are in namespaces of their own, where we are root as in a container.
READ_ONLY_MOUNT = """
import subprocess, sys
from pathlib import Path
from tests.tools.confine.rooms import Room, walls_of

room = Room(Path(sys.argv[1]))
(room.root / "data").mkdir()
subprocess.run(["mount", "--bind", room.outside, room.root / "data"], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", room.root / "data"], check=True)
print(room.run(walls_of(sys.argv[2]), "touch new && echo x > data/secret || cat data/secret"))
"""


def test_what_is_mounted_read_only_in_the_workspace_stays_so(tmp_path: Path, whole: Confinement) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces of users here, to mount something in")
    line = [*alone, sys.executable, "-c", READ_ONLY_MOUNT, os.path.realpath(tmp_path), whole.kind]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ("Read-only file system" in done.stdout, "canary" in done.stdout) == (True, True), done


@pytest.mark.parametrize(
    "command",
    [
        "cat OUTSIDE/secret",
        "ls OUTSIDE",
        "cat ../outside/secret",
        "ln -s OUTSIDE/secret link; cat link",
        "ln OUTSIDE/secret hard; cat hard",
        "cat /proc/self/root/OUTSIDE/secret",
        "cat /proc/self/cwd/../outside/secret",
        "exec 5< OUTSIDE/secret && cat <&5",
        "cp OUTSIDE/secret .; cat secret",
        "tar c OUTSIDE/secret",
        "cat /proc/$PPID/root/OUTSIDE/secret",
        python('import os; print(os.open("OUTSIDE/secret", os.O_RDONLY))'),
        "cat ~root/.ssh/id_* ~root/.aws/credentials ~root/.bashrc ~root/.profile",
        "cat /etc/shadow",
        "cat /etc/gshadow",
        "ls ~root/ /home/*",
        "cat /dev/sda /dev/vda /dev/mem /proc/kcore",
    ],
)
def test_what_is_outside_cannot_be_read(room: Room, walls: Confinement, command: str) -> None:
    text, code = room.run(walls, command.replace("OUTSIDE", str(room.outside)))
    assert "canary" not in text
    assert code != 0


@pytest.mark.parametrize(
    "command",
    [
        "echo x > OUTSIDE/new",
        "echo x >> OUTSIDE/secret",
        "echo x > ../outside/secret",
        "rm OUTSIDE/secret",
        "mv OUTSIDE/secret .",
        "mv OUTSIDE/secret OUTSIDE/other",
        "mkdir OUTSIDE/folder",
        "ln -s OUTSIDE way; echo x > way/new",
        "ln -s OUTSIDE/new way; echo x > way",
        "truncate -s 0 OUTSIDE/secret",
        "ln file OUTSIDE/hard",
        "mkfifo OUTSIDE/fifo",
        ": >> /usr/bin/env",
        ": >> /etc/hosts",
        ": >> ~root/.profile",
        "x=$(cat /proc/sys/kernel/core_pattern); echo $x > /proc/sys/kernel/core_pattern",
        "x=$(cat /proc/sys/kernel/printk); echo $x > /proc/sys/kernel/printk",
        python('import os; os.truncate("OUTSIDE/secret", 0)'),
    ],
)
def test_what_is_outside_cannot_be_written(room: Room, walls: Confinement, command: str) -> None:
    (room.root / "file").write_text("x")
    _, code = room.run(walls, command.replace("OUTSIDE", str(room.outside)))
    assert code != 0
    assert {path.name: path.read_text() for path in room.outside.iterdir()} == {"secret": "canary"}


@pytest.mark.parametrize("command", ["chmod 777", "chown 1:1", "touch -d 2000-01-01", "setfattr -n user.x -v y"])
def test_permissions_and_times_outside_stay(room: Room, whole: Confinement, command: str) -> None:
    before = room.secret.stat()
    room.run(whole, f"{command} {room.secret}")
    assert room.secret.stat() == before


@pytest.mark.parametrize("way", ["/dev/full", "/dev/null", "/dev/stdin", "/proc/1/fd/0"])
def test_the_modes_and_times_of_devices_stay(room: Room, whole: Confinement, way: str) -> None:
    """docs/bash.md: permissions and times outside do not change. The superuser owns /dev/null, which is also stdin."""
    paths = ("/dev/full", "/dev/null")
    before = [(os.stat(path).st_mode, os.stat(path).st_atime_ns, os.stat(path).st_ctime_ns) for path in paths]
    command = (
        f"touch -a -d 2001-01-01 {way}; chmod 666 {way}; chown 0:0 {way}; echo x > /dev/null && cat < {way} | head -c 1"
    )
    output, _ = room.run(whole, command)
    assert [(os.stat(path).st_mode, os.stat(path).st_atime_ns, os.stat(path).st_ctime_ns) for path in paths] == before
    assert "cannot create /dev/null" not in output


def test_more_places_can_be_given(room: Room, walls: Confinement) -> None:
    command = f"cat {room.secret}; (echo more > {room.outside}/new) 2>/dev/null"
    assert room.run(walls, command, readable=[str(room.outside)]) == ("canary", 1)
    assert room.run(walls, command, writable=[str(room.outside)]) == ("canary", 0)
    assert (room.outside / "new").read_text() == "more\n"


def test_programs_work(room: Room, walls: Confinement) -> None:
    command = f"""
        set -e; {sys.executable} -c 'import ssl, sqlite3, subprocess; print(subprocess.run(["echo", "sub"]).returncode)'
        sort <<< $'b\\na'; cat <(echo sub); id -u; date > /dev/null; nproc > /dev/null; getent hosts localhost | wc -l
    """
    text, code = room.run(walls, command)
    assert (text, code) == (f"sub\n0\na\nb\nsub\n{os.getuid()}\n1\n", 0)


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_the_network_is_off_unless_it_is_allowed(room: Room, walls: Confinement, listener: int) -> None:
    connect = python(f'import socket; socket.create_connection(("127.0.0.1", {listener}), 5); print("connected")')
    text, code = room.run(walls, f"{connect} 2>&1 | tail -1")
    assert (text.split(":")[0], code) in [("ConnectionRefusedError", 0), ("PermissionError", 0)]
    by_bash, code = room.run(walls, f"echo hi > /dev/tcp/127.0.0.1/{listener}")
    assert code != 0
    assert "connected" not in by_bash
    assert room.run(walls, connect, allow_network=True) == ("connected\n", 0)


@pytest.mark.parametrize("allow_network", [False, True])
def test_other_families_of_sockets_are_closed(room: Room, walls: Confinement, *, allow_network: bool) -> None:
    """VSOCK leads to the host of a virtual machine, past every namespace; others into rarely used kernel code."""
    attempt = (
        "import socket\nfor f in range(64):\n try: socket.socket(f, 1); print(f)\n except PermissionError: pass\n "
    )
    text, _ = room.run(walls, python(f"{attempt}except OSError: print(f)"), allow_network=allow_network)
    internet = {"2", "10", "16"}
    assert set(text.split()) == (internet if allow_network or walls.namespaces or walls.kind == "bubblewrap" else set())


def test_a_socket_in_the_workspace_cannot_be_connected_to(
    room: Room, walls: Confinement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program outside may have put it there: a debugger, a database, an agent for keys."""
    monkeypatch.chdir(room.root)  # a socket's path may have 107 bytes only
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        server.bind("stream")
        server.listen()
        server.settimeout(0.1)
        datagrams.bind("datagrams")
        datagrams.settimeout(0.1)
        for allow_network in (False, True):
            connect = 'import socket; socket.socket(socket.AF_UNIX).connect("stream")'
            assert room.run(walls, python(connect), allow_network=allow_network)[1] != 0
            send = 'import socket; socket.socketpair(1, 2)[0].sendto(b"hi", "datagrams")'
            assert room.run(walls, python(send), allow_network=allow_network)[1] != 0
        with pytest.raises(TimeoutError):
            server.accept()
        with pytest.raises(TimeoutError):
            datagrams.recv(10)


SETUID = {
    "chmod": "cp /bin/true f; chmod u+s f",
    "setgid": "cp /bin/true f; chmod 2755 f",
    "install": "install -m 6755 /bin/true f",
    "open": python('import os; os.umask(0); os.open("f", os.O_CREAT, 0o4755)'),
    "fchmod": python('import os; os.fchmod(os.open("f", os.O_CREAT), 0o4755)'),
    "no name yet": python(
        'import os; f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755); '
        'os.link(f"/proc/self/fd/{f}", "f", src_dir_fd=f)'
    ),
    "mknod": python('import os; os.umask(0); os.mknod("f", 0o104755)'),
    "openat2": python(
        "import ctypes, struct; h = struct.pack('QQQ', 0o100, 0o4755, 0); l = ctypes.CDLL(None, use_errno=True); "
        "l.umask(0); exit(l.syscall(437, -100, b'f', h, 24) < 0)".replace("'", '"')
    ),
    "fchmodat2": python(
        'import ctypes, os; os.mknod("f"); l = ctypes.CDLL(None); exit(l.syscall(452, -100, b"f", 0o4755, 0) < 0)'
    ),
    "archive": "mkdir a; cd a; cp /bin/true f; tar c --mode 4755 f > ../t; cd ..; tar xpf t",
}


def list_setuid(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.lstat().st_mode & 0o6000]


@pytest.mark.parametrize("name", SETUID)
def test_no_setuid_file_is_left_behind(room: Room, walls: Confinement, name: str) -> None:
    """It would give the rights of the user who runs us, root perhaps, to every user of the machine."""
    assert room.run(walls, SETUID[name])[1] != 0
    assert list_setuid(room.root) == []


def test_without_walls_the_setuid_attempts_work(room: Room) -> None:
    """So that the test before tells something."""
    for name, command in SETUID.items():
        assert room.run(confinement("off"), command) == ("", 0), name
        assert list_setuid(room.root) == ["f"], name
        shutil.rmtree(room.root)
        room.root.mkdir()


def test_a_setuid_file_that_is_written_loses_its_rights(room: Room, walls: Confinement) -> None:
    (room.root / "f").write_text("old")
    (room.root / "f").chmod(0o6755)
    assert room.run(walls, "echo new > f") == ("", 0)
    assert list_setuid(room.root) == []


def test_a_folder_that_a_group_shares_can_be_copied(room: Room, walls: Confinement) -> None:
    room.root.chmod(0o2775)
    assert room.run(walls, "umask 002; mkdir a; cp -a a b; stat -c %a a b") == ("2775\n2775\n", 0)
    assert room.run(walls, "cp /bin/true f; chmod 4755 f")[1] != 0


def test_a_local_service_cannot_be_asked(room: Room, walls: Confinement) -> None:
    """Neither by a socket in the file system, as a container engine has one, nor by one with an abstract name."""
    name = f"steersman-test-{os.getpid()}"
    # Not beneath the workspace, and short: the path of a socket has few characters.
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as abstract:
            by_path.bind(path)
            by_path.listen()
            abstract.bind(f"\0{name}")
            abstract.listen()
            for address in (f'"{path}"', f'"\\0{name}"'):
                connect = python(f"import socket; socket.socket(socket.AF_UNIX).connect({address}); print(4300 + 21)")
                assert "4321" not in room.run(walls, connect)[0]
                assert "4321" not in room.run(walls, connect, allow_network=True)[0]


def test_pairs_of_sockets_work_and_lead_nowhere(room: Room, walls: Confinement) -> None:
    pair = 'import socket; a, b = socket.socketpair(); a.send(b"hi"); print(b.recv(2).decode())'
    assert room.run(walls, python(pair)) == ("hi\n", 0)


@pytest.mark.parametrize("allow_network", [False, True])
def test_a_pair_of_sockets_cannot_be_sent_elsewhere(
    room: Room, walls: Confinement, monkeypatch: pytest.MonkeyPatch, *, allow_network: bool
) -> None:
    """docs/security.md: no Unix socket can be reached, also not in the workspace. SOCK_RAW makes a datagram socket."""
    monkeypatch.chdir(room.root)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inside, socket.socket(socket.AF_UNIX, 2) as abstract:
        inside.bind("datagrams")
        name = f"steersman-test-{os.getpid()}"
        abstract.bind(f"\0{name}")
        send = f'pair[0].sendto(b"hi", "datagrams"); pair[0].sendto(b"hi", "\\0{name}")'
        room.run(walls, python(f"import socket; pair = socket.socketpair(1, 3); {send}"), allow_network=allow_network)
        for server in (inside, abstract):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.recv(2)


def test_limits_of_processes_outside_cannot_be_set(room: Room, walls: Confinement) -> None:
    """docs/bash.md: when the call returns, everything it started is ended. Without open files, no supervisor does."""
    with subprocess.Popen(["sleep", "60"]) as outside:
        try:
            set_limit = f"import resource; resource.prlimit({outside.pid}, resource.RLIMIT_NOFILE, (5, 5))"
            assert room.run(walls, f"{python(set_limit)} 2>/dev/null")[1] == 1
            assert resource.prlimit(outside.pid, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE)
        finally:
            outside.kill()
    assert room.run(walls, "ulimit -n 77; ulimit -n") == ("77\n", 0)


def test_processes_outside_are_not_scheduled_otherwise(room: Room, walls: Confinement) -> None:
    """docs/bash.md: a command changes neither the priority nor the processors of other processes."""
    # Without capabilities, because the kernel protects a process of root that has more than the command.
    drop = "import ctypes; [ctypes.CDLL(None).prctl(24, number) for number in range(64)]"
    start = f"{drop}; import os; os.execlp('sh', 'sh', '-c', 'echo; exec sleep 60')"
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE) as outside:
        try:
            assert outside.stdout is not None
            outside.stdout.readline()
            for call in (f"sched_setaffinity({outside.pid}, {{0}})", f"setpriority(0, {outside.pid}, 9)"):
                assert room.run(walls, f"{python(f'import os; os.{call}')} 2>/dev/null")[1] == 1
            assert os.getpriority(os.PRIO_PROCESS, outside.pid) == os.getpriority(os.PRIO_PROCESS, 0)
            assert os.sched_getaffinity(outside.pid) == os.sched_getaffinity(0)
        finally:
            outside.kill()
    own = "import os; os.sched_setaffinity(0, {0}); print(os.nice(5))"
    assert room.run(walls, python(own))[1] == 0


def test_shared_memory_of_others_cannot_be_used(room: Room, walls: Confinement) -> None:
    """docs/bash.md: other processes cannot be read. Shared memory by a key is no file, so no rule for files holds."""
    library = ctypes.CDLL(None, use_errno=True)
    library.shmat.restype = ctypes.c_void_p
    library.shmdt.argtypes = [ctypes.c_void_p]
    key = 0x53000000 | os.getpid()
    segment = library.shmget(key, 4096, 0o1600)
    assert segment >= 0
    place = library.shmat(segment, None, 0)
    try:
        ctypes.memmove(place, b"canary", 6)
        load = "import ctypes as c; l = c.CDLL(None); l.shmat.restype = c.c_void_p"
        use = f'p = l.shmat(l.shmget({key}, 4096, 0), None, 0); print(c.string_at(p, 6)); c.memmove(p, b"broken", 6)'
        assert "canary" not in room.run(walls, python(f"{load}; {use}"))[0]
        assert ctypes.string_at(place, 6) == b"canary"
    finally:
        library.shmdt(place)
        library.shmctl(segment, 0, None)


def test_processes_outside_cannot_be_touched(room: Room, walls: Confinement) -> None:
    if walls.kind == "landlock" and walls.abi < 6:
        pytest.skip("Landlock before version 6 does not hold signals back")
    with subprocess.Popen(["sleep", "60"]) as outside:
        try:
            for number in (outside.pid, os.getpid()):
                text, code = room.run(walls, f"kill -TERM {number} 2>/dev/null")
                assert (text, code) == ("", 1)
                text, code = room.run(walls, f"cat /proc/{number}/environ /proc/{number}/maps 2>/dev/null")
                assert (text, code) == ("", 1)
            assert outside.poll() is None
        finally:
            outside.kill()


def test_its_own_processes_can(room: Room, walls: Confinement) -> None:
    end = "sleep 60 & kill -TERM $!; wait $!; echo $?"
    # While a program is about to start, its environment is empty: it is looked at when it has said something.
    look = "coproc sh -c 'echo; read _'; read -u ${COPROC[0]}; grep -c PATH= /proc/$COPROC_PID/environ; kill $!"
    assert room.run(walls, f"{end}; {look}")[0] == "143\n1\n"


def test_no_privilege_can_be_gained(room: Room, walls: Confinement) -> None:
    text, _ = room.run(walls, "grep -E '^(NoNewPrivs|Cap(Prm|Eff|Bnd|Amb)|Seccomp):' /proc/self/status")
    found = {line.split(":")[0]: line.split()[1] for line in text.splitlines()}
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    files = 1 << 0 | 1 << 1 | 1 << 3
    assert [name for name in ("CapPrm", "CapEff", "CapAmb") if int(found[name], 16) & ~files] == []


@pytest.mark.parametrize(
    "call",
    [
        "425, 4, 0",
        "321, 0, 0, 0",
        "250, 0, 0, 0",
        "165, 0, 0, 0, 0, 0",
        "272, 0x10000000",
        "272, 0x20000",
        "304, -100, 0, 0",
    ],
    ids=["io_uring_setup", "bpf", "keyctl", "mount", "unshare user", "unshare mounts", "open_by_handle_at"],
)
def test_calls_into_the_kernel_are_denied(room: Room, walls: Confinement, call: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("The numbers are those of x86_64")
    code = f"import ctypes, os; l = ctypes.CDLL(None, use_errno=True); print(l.syscall({call}), ctypes.get_errno())"
    assert room.run(walls, python(code)) == ("-1 1\n", 0)


def test_the_python_we_run_from_is_protected_in_the_workspace(room: Room, whole: Confinement) -> None:
    """What is written there would run outside the sandbox, in our own process. Who wants it all the same can say so."""
    environment = room.root / ".venv"
    environment.mkdir()
    (environment / "code.py").write_text("ours")
    tamper = "echo evil > .venv/code.py; mv .venv old; echo evil > .venv/new"
    assert room.run(whole, tamper, own=[str(environment)])[1] != 0
    assert {path.name: path.read_text() for path in environment.iterdir()} == {"code.py": "ours"}
    allowed = {"own": [str(environment)], "writable": [str(environment)]}
    assert room.run(whole, "echo new > .venv/code.py", **allowed) == ("", 0)
    assert (environment / "code.py").read_text() == "new\n"


def test_what_looks_after_commands_is_read_once(tmp_path: Path) -> None:
    """It runs outside the sandbox: a change of its files while we run does not change what runs."""
    source = Path(steersman.__file__).parent
    shutil.copytree(source, tmp_path / "steersman", ignore=shutil.ignore_patterns("__pycache__", "provider", "loop"))
    program = textwrap.dedent("""
        import asyncio, pathlib, sys
        from steersman.tools.builtin.bash_tool import bash_tool
        from steersman.tools.confine import launch
        from steersman.tools.output import ToolContext
        from steersman.types.cancel import CancelToken

        async def main():
            bash = bash_tool(".", sandbox="off")
            for name in ("supervisor.py", "enforcement.py"):
                pathlib.Path(launch.__file__).with_name(name).write_text("import os; os.system('touch evil')")
            output = await bash.call({"command": "echo fine"}, ToolContext("1", "bash", CancelToken()))
            print(output.content, end="")

        asyncio.run(main())
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")
    assert not (tmp_path / "evil").exists()


def test_a_wall_that_cannot_be_put_up_means_that_nothing_runs(room: Room, walls: Confinement) -> None:
    argv = ["/bin/bash", "-c", "touch ran"]
    where = find_sandbox_paths(str(room.root), [], {"PATH": "/usr/bin"})
    plan = walls.plan(argv, {"PATH": "/usr/bin"}, str(room.root), where, allow_network=False)
    if walls.kind == "landlock":
        plan["landlock"]["handled"] = 1 << 60
    else:
        plan["argv"].insert(1, "--no-such-option")
    try:
        text, code = room.follow(plan)
        assert (walls.kind, code) == ("bubblewrap", 1)
    except ToolError as error:
        told = "The command was not run: could not put up the sandbox: [Errno 22] landlock_create_ruleset: "
        text = str(error)
        assert text.startswith(told)
    assert not (room.root / "ran").exists()


def test_a_folder_that_is_not_there_means_that_nothing_runs(room: Room) -> None:
    plan = confinement("off").plan(["/bin/true"], {}, "/no/such/folder", SandboxPaths((), ()), allow_network=False)
    with pytest.raises(ToolError, match=r"^The command was not run: could not enter '/no/such/folder': "):
        room.follow(plan)
    plan = confinement("off").plan(["/no/such/shell"], {}, "/", SandboxPaths((), ()), allow_network=False)
    with pytest.raises(ToolError, match=r"^The command was not run: could not start '/no/such/shell': "):
        room.follow(plan)


def test_switched_off_means_that_everything_is_allowed(room: Room) -> None:
    off = confinement("off")
    assert off == Confinement(
        "off", "The sandbox was switched off: a command can do whatever its user can.", (), ("everything",)
    )
    assert room.run(off, f"cat {room.secret}; echo x > {room.outside}/new; cat {room.outside}/new") == ("canaryx\n", 0)


def test_where_nothing_works_a_command_is_refused() -> None:
    nothing = Confinement("none", "Nothing is installed.")
    with pytest.raises(ToolError, match=r"^Commands are not run here: Nothing is installed\.$"):
        nothing.plan(["true"], {}, "/", SandboxPaths((), ()), allow_network=False)


def test_what_applies_is_told_with_its_reasons(walls: Confinement) -> None:
    assert walls.reason.endswith(("works.", "work."))
    covered = [line.split(":")[0] for line in walls.covers]
    assert covered[:3] == ["files", "network", "local services"]
    assert "processor time, memory and disk space are not limited" in walls.not_covered


def test_what_the_kernel_has_is_used() -> None:
    """Or else every test of the walls would be skipped without a notice."""
    if read_landlock_abi() < MIN_LANDLOCK_ABI or not seccomp.is_supported():
        pytest.skip("This kernel has no Landlock that would do, or there is no filter for this processor")
    assert confinement("landlock").kind == "landlock", confinement("landlock").reason


def test_the_first_that_works_is_taken_and_the_others_are_told() -> None:
    found = confinement()
    if confinement("bubblewrap").kind == "bubblewrap":
        assert found == confinement("bubblewrap")
    elif confinement("landlock").kind == "landlock":
        assert found.kind == "landlock"
        assert found.reason == f"Bubblewrap is not installed. {confinement('landlock').reason}"
    else:
        assert found.kind == "none"
        assert "Install bubblewrap" in found.reason
        assert "sandbox='off'" in found.reason
    with pytest.raises(ValueError, match=r"^sandbox is one of 'auto', 'bubblewrap', 'landlock', 'off', got 'jail'"):
        confinement("jail")  # pyright: ignore[reportArgumentType]  # callers without a type checker


MOUNTED = """
    import asyncio, sys
    from steersman import CancelToken, ToolContext
    from steersman.tools import bash_tool

    command = "echo x > 'a b/self/comm'; (: > file) 2>&1; head -c 4 'a b/self/status'"
    bash = bash_tool(".", sandbox=sys.argv[1])
    print(asyncio.run(bash.call({"command": command}, ToolContext("call_1", "bash", CancelToken()))).content)
"""


def test_what_the_kernel_makes_cannot_be_written_where_it_is_mounted(room: Room, whole: Confinement) -> None:
    """As in the tree of another system that root builds: /proc/sys there says which program the kernel runs."""
    (room.root / "a b").mkdir()
    (room.root / "file").touch()
    mounts = "mount --rbind /proc 'a b'; mount --bind /proc/$$/comm file"
    enter = ["unshare", "-rm", "sh", "-ec", f'{mounts}; exec "$@"', "sh"]
    if subprocess.run([*enter, "true"], cwd=room.root, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    words = [*enter, sys.executable, "-c", textwrap.dedent(MOUNTED), whole.kind]
    done = subprocess.run(words, cwd=room.root, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.count("Read-only file system"), "Name" in done.stdout) == (2, True), done.stderr


def test_a_device_in_the_workspace_cannot_be_opened(room: Room, whole: Confinement) -> None:
    """As in the tree of another system that root builds, where it may be a whole disk."""
    try:
        os.mknod(room.root / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")
    output, code = room.run(whole, "head -c 1 zero")
    assert ("Permission denied" in output, code) == (True, 1)
