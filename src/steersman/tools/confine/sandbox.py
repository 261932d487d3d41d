"""Chooses the sandbox of a command: bubblewrap where it works, else Landlock with seccomp, else commands are refused.

A sandbox counts only after a trial: each kind runs once around a command that tries to break out.
"""

from __future__ import annotations

import functools
import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from steersman.tools.confine import seccomp
from steersman.tools.confine.enforcement import SECCOMP_FD
from steersman.tools.confine.launch import DEFAULT_PATH, UNCONFINED, launch, parse_report
from steersman.tools.confine.protected_paths import SandboxPaths, find_sandbox_paths
from steersman.tools.confine.scratch import Scratch
from steersman.types.errors import ToolError

Sandbox: TypeAlias = Literal["auto", "bubblewrap", "landlock", "off"]
Kind: TypeAlias = Literal["bubblewrap", "landlock", "off", "none"]
SANDBOXES: tuple[Sandbox, ...] = get_args(Sandbox)

# What root needs to work with the files of other users in the folders it may write. Without CAP_FSETID, a setuid file
# that is written loses its bit, as it does for every other user.
FILE_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3}

# Before this version, a file that may not be opened can still be truncated.
MIN_LANDLOCK_ABI = 3
LANDLOCK_SIGNALS_ABI = 6

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 0x1, 0x2, 0x4, 0x8
_MAKE_CHAR, _MAKE_BLOCK, _IOCTL_DEV = 0x40, 0x800, 0x8000
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
_ALL_SCOPES = 0x1 | 0x2  # abstract sockets, signals
_CREATE_RULESET, _ASK_VERSION = 444, 1
# What bubblewrap puts into /dev, with the right to write: root owns it, and could change its mode and times.
_BOUND_DEVICES = tuple(f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero"))

_TRIAL_SECONDS = 10.0
_TRIAL = '(exec 3< "$1") 2>/dev/null && exit 91; (: > "$2") 2>/dev/null && exit 92; : > "$3" || exit 93'
_TRIAL_WORDS = {
    91: "a file outside could be read",
    92: "a file outside could be written",
    93: "the workspace could not be written",
}
_FILE_CAPABILITIES = sum(1 << number for number in FILE_CAPABILITIES.values())
_INTERNET = (seccomp.INET, seccomp.INET6, seccomp.NETLINK)

_FILES = "files: only the workspace and a temporary folder can be written; home folders and secrets cannot be read"
_NETWORK = "network: none but its own loopback, unless it is allowed"
_NO_SOCKETS = "network: no sockets at all, unless it is allowed"
_UNIX = "local services: no Unix sockets, so neither a container engine nor a message bus can be reached"
_HIDDEN = "local services: sockets outside the workspace are hidden"
_PROCESSES = "processes: those outside cannot be signalled, traced or read"
_PRIVILEGES = "privileges: none can be gained, and those of root are given up except over files"
_SETUID = "setuid files: none can be made"
_UNFILTERED = (
    "there is no seccomp filter for this processor: Unix sockets in the workspace can be connected to, and setuid "
    "files can be made"
)
_GIT = (
    "protected in the workspace: its git repositories (only their hooks and settings with git='read-write'), "
    ".steersman, .mcp.json, the Python we run from, and our session stores and settings"
)
_NEW_GIT = (
    "a repository, .steersman or .mcp.json that a command makes in a subfolder is there until the command is over, and "
    "is set aside then; names beyond the nearest 20,000 folders, and what a project itself keeps for git to run "
    "(core.hooksPath) are not protected"
)
_OPEN_GIT = "git repositories, .steersman, .mcp.json and the Python we run from can be written in the workspace"
_ATTRIBUTES = "permissions, owners and times of files outside can be changed where the user may do that"
_SIGNALS = "processes of the same user outside can be signalled"
_SURVIVING = "a command whose processes fork faster than they can be found may leave some running, and then says so"
_LISTED = "names and command lines of other processes can be seen"
_SIDE_BY_SIDE = (
    "commands that run at the same time in one workspace, or in workspaces inside each other, may reach files outside: "
    "this bubblewrap has no --bind-fd, which version 0.10 has"
)
_LIMITS = "processor time, memory and disk space are not limited"


@dataclass(frozen=True, slots=True)
class Confinement:
    """The sandbox of this machine and why it was chosen; what it covers and what it does not.

    The kind `none` means that no sandbox works here, so commands are refused; `off` means that none is wanted.
    """

    kind: Kind
    reason: str
    covers: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    namespaces: bool = False
    abi: int = 0
    own_processes: bool = False

    @property
    def holds_names(self) -> bool:
        """Whether no command can make a repository of the workspace itself while it runs."""
        return self.kind == "bubblewrap" or self.namespaces

    def plan(
        self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, where: SandboxPaths, *, allow_network: bool
    ) -> dict[str, Any]:
        """Build the plan with which the supervisor runs a command in this sandbox; `ToolError` where there is none."""
        common = {**UNCONFINED, "argv": list(argv), "env": dict(environment), "cwd": cwd}
        if self.kind == "off":
            return common
        common["guarded"] = where.protected.guarded
        common["in_place"] = where.list_real()
        match self.kind:
            case "bubblewrap":
                return {**common, **_plan_bubblewrap(argv, cwd, where, allow_network=allow_network)}
            case "landlock":
                return {**common, **self._plan_landlock(where, allow_network=allow_network)}
            case "none":
                raise ToolError(f"Commands are not run here: {self.reason}")

    def _plan_landlock(self, where: SandboxPaths, *, allow_network: bool) -> dict[str, Any]:
        view = {
            "own_network": not allow_network,
            "own_processes": self.own_processes,
            "writable": list(where.writable),
            "pinned": list(where.protected.pinned),
            "held": list(where.protected.held),
        }
        families = _INTERNET if allow_network or self.namespaces else ()
        return {
            "view": view if self.namespaces else None,
            "wrapped": self.namespaces and self.own_processes,
            "held": list(where.protected.held) if self.namespaces else [],
            "capabilities": _FILE_CAPABILITIES,
            "landlock": build_landlock_rules(where, self.abi, own_memory=self.namespaces),
            "seccomp": seccomp.build_filter(
                families, setgid=_is_shared_by_group(where), shared=self.namespaces, alone=False
            ),
        }


def _plan_bubblewrap(argv: Sequence[str], cwd: str, where: SandboxPaths, *, allow_network: bool) -> dict[str, Any]:
    # Unix sockets in the workspace, abstract ones of a shared network, and VSOCK lead past mounts and namespaces.
    filtered = seccomp.build_filter(_INTERNET, setgid=_is_shared_by_group(where)) if seccomp.is_supported() else b""
    line = build_bubblewrap_command(
        find_bubblewrap() or "bwrap",
        where,
        cwd,
        argv,
        allow_network=allow_network,
        root=os.geteuid() == 0,
        seccomp=bool(filtered),
    )
    # Bubblewrap enters the workspace itself, so it starts in the root folder.
    held = list(where.protected.held)
    by_descriptor = _binds_descriptors()
    return {
        "argv": line,
        "cwd": "/",
        "seccomp_file": filtered,
        "by_descriptor": by_descriptor,
        "devices": [path for path in _BOUND_DEVICES if os.path.exists(path)] if os.geteuid() == 0 else [],
        "wrapped": True,
        "held": held,
    }


def _is_shared_by_group(where: SandboxPaths) -> bool:
    """Whether the workspace is a setgid folder, where copying a folder sets the bit again."""
    return bool(where.writable) and bool(os.stat(where.writable[0]).st_mode & stat.S_ISGID)


def confinement(sandbox: Sandbox = "auto") -> Confinement:
    """Find the sandbox that works on this machine. The first call takes a moment, because it runs a trial."""
    if sandbox not in SANDBOXES:
        raise ValueError(f"sandbox is one of {', '.join(map(repr, SANDBOXES))}, got {sandbox!r}.")
    if sandbox == "off":
        reason = "The sandbox was switched off: a command can do whatever its user can."
        return Confinement("off", reason, (), ("everything",))
    probes = {"bubblewrap": _probe_bubblewrap, "landlock": _probe_landlock}
    found = [probe() for kind, probe in probes.items() if sandbox in ("auto", kind)]
    working = [each for each in found if each.kind != "none"]
    if working:
        before = [each.reason for each in found[: found.index(working[0])]]
        first = working[0]
        reason = " ".join([*before, first.reason])
        return replace(first, reason=reason)
    advice = (
        "Install bubblewrap (for example `apt install bubblewrap`). In a program of your own, if a command may do "
        "whatever its user can, sandbox='off' switches the sandbox off; the command `steersman` has no such switch."
    )
    return Confinement("none", " ".join([*(each.reason for each in found), advice]), (), ("everything",))


@functools.cache
def _probe_bubblewrap() -> Confinement:
    if sys.platform != "linux":
        return Confinement("none", f"Bubblewrap is for Linux, this is {sys.platform}.")
    if find_bubblewrap() is None:
        return Confinement("none", "Bubblewrap is not installed.")
    filtered = seccomp.is_supported()
    works = Confinement(
        "bubblewrap",
        "Bubblewrap is installed and works.",
        (_FILES, _NETWORK, *((_UNIX, _SETUID) if filtered else (_HIDDEN,)), _PROCESSES, _PRIVILEGES, _GIT),
        (_NEW_GIT, *(() if filtered else (_UNFILTERED,)), *(() if _binds_descriptors() else (_SIDE_BY_SIDE,)), _LIMITS),
    )
    trouble = _try_sandbox(works)
    return Confinement("none", f"Bubblewrap is installed and does not work: {trouble}.") if trouble else works


@functools.cache
def _probe_landlock() -> Confinement:
    version = read_landlock_abi()
    if version == 0:
        return Confinement("none", "This kernel has no Landlock, or it is switched off.")
    if version < MIN_LANDLOCK_ABI:
        return Confinement("none", f"The Landlock of this kernel is too old (version {version}, needs 3: Linux 6.2).")
    if not seccomp.is_supported():
        return Confinement("none", "There is no seccomp filter for this processor yet.")
    separate = Confinement(
        "landlock",
        f"Landlock (version {version}) with seccomp and namespaces works.",
        (_FILES, _NETWORK, _UNIX, _SETUID, _PROCESSES, _PRIVILEGES, _GIT),
        (_NEW_GIT, _LIMITS),
        namespaces=True,
        abi=version,
        own_processes=True,
    )
    trouble = _try_sandbox(separate)
    if not trouble:
        return separate
    scoped = version >= LANDLOCK_SIGNALS_ABI
    more = (_PROCESSES,) if scoped else ()
    less = (() if scoped else (_SIGNALS,)) + (_LISTED, _SURVIVING, _LIMITS)
    whole = Confinement(
        "landlock",
        f"Landlock (version {version}) with seccomp and namespaces works; one of processes does not ({trouble}).",
        (_FILES, _NETWORK, _UNIX, _SETUID, *more, _PRIVILEGES, _GIT),
        (_NEW_GIT, *less),
        namespaces=True,
        abi=version,
    )
    trouble = _try_sandbox(whole)
    if not trouble:
        return whole
    part = Confinement(
        "landlock",
        f"Landlock (version {version}) with seccomp works; namespaces do not ({trouble}).",
        (_FILES, _NO_SOCKETS, _UNIX, _SETUID, *more, _PRIVILEGES),
        (_OPEN_GIT, _ATTRIBUTES, *less),
        abi=version,
    )
    trouble = _try_sandbox(part)
    return Confinement("none", f"Landlock is there and does not work: {trouble}.") if trouble else part


def _try_sandbox(found: Confinement) -> str:
    """Run a command that tries to break out of the sandbox; return what went wrong, or an empty text."""
    scratch = Scratch()
    try:
        root, outside = scratch.make_folder("root"), scratch.make_folder("outside")
        secret = os.path.join(outside, "secret")
        with open(secret, "wb"):
            pass
        argv = ["/bin/sh", "-c", _TRIAL, "sh", secret, os.path.join(outside, "new"), os.path.join(root, "new")]
        environment = {"PATH": DEFAULT_PATH}
        plan = found.plan(argv, environment, root, find_sandbox_paths(root, (), environment), allow_network=False)
        return _run_trial(plan)
    except (OSError, ToolError) as error:
        return str(error)
    finally:
        scratch.close()


def _run_trial(plan: Mapping[str, Any]) -> str:
    launched = launch(plan)
    try:
        poll = select.poll()
        poll.register(launched.report, select.POLLIN)
        if not poll.poll(_TRIAL_SECONDS * 1000):
            return f"the trial took longer than {_TRIAL_SECONDS:g} seconds"
        report = parse_report(os.read(launched.report, 65_536)) or {"error": "the supervisor died"}
        said = os.read(launched.output, 4_096).decode("utf-8", "replace").strip()
    finally:
        launched.close()
    if "error" in report:
        return str(report["error"])
    code = os.waitstatus_to_exitcode(report["status"])
    return _TRIAL_WORDS.get(code, f"exit code {code}{': ' + said if said else ''}") if code else ""


def find_bubblewrap() -> str | None:
    """Find bubblewrap in the folders of the system, where no project can put its own."""
    return shutil.which("bwrap", path=DEFAULT_PATH)


@functools.cache
def _binds_descriptors() -> bool:
    """Whether bubblewrap binds file descriptors, and so refuses a folder that is exchanged while it works."""
    try:
        done = subprocess.run(
            [find_bubblewrap() or "bwrap", "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": DEFAULT_PATH},
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--ro-bind-fd" in done.stdout + done.stderr


def build_bubblewrap_command(
    bwrap: str, places: SandboxPaths, cwd: str, argv: Sequence[str], *, allow_network: bool, root: bool, seccomp: bool
) -> list[str]:
    """Build the command line. Later bind mounts cover earlier ones: programs, the workspace, its protected paths."""
    found = [bwrap, "--unshare-all", "--new-session", "--cap-drop", "ALL"]
    if allow_network:
        found.append("--share-net")
    if root:
        for name in FILE_CAPABILITIES:
            found += ["--cap-add", name]
    if seccomp:
        found += ["--seccomp", str(SECCOMP_FD)]
    # Read-only: through /proc/sys, a command of root could make the kernel run a program of its choice.
    found += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in places.readable:
        if path != "/proc":
            found += ["--ro-bind-try", path, path]
    for path in places.writable:
        found += ["--bind", path, path]
    for path, writable in places.protected.pinned:
        found += ["--bind" if writable else "--ro-bind", path, path]
    for path in places.protected.held:
        found += ["--ro-bind-try", path, path]
    return [*found, "--remount-ro", "/", "--chdir", cwd, "--", *argv]


def read_landlock_abi() -> int:
    """Read the kernel's Landlock ABI version; 0 where there is no Landlock."""
    if sys.platform != "linux":
        return 0
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    return max(0, call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION)))


def build_landlock_rules(places: SandboxPaths, version: int, *, own_memory: bool) -> dict[str, Any]:
    """Build the ruleset: read and execute for programs, everything but making devices where the command may write.

    `own_memory` says that the command has its own /dev/shm, so that it may use it.
    """
    handled = _list_handled_rights(version)
    anything = handled & ~(_MAKE_CHAR | _MAKE_BLOCK)
    rules = [
        *((path, _READ) for path in places.readable),
        *((path, anything) for path in places.writable),
        *((path, _DEVICE & handled) for path in places.devices),
        ("/dev", _READ_DIR),
        *([("/dev/shm", anything)] if own_memory else []),
    ]
    return {"handled": handled, "scoped": _ALL_SCOPES if version >= LANDLOCK_SIGNALS_ABI else 0, "rules": rules}


def _list_handled_rights(version: int) -> int:
    """List the rights that the version knows: thirteen from version 1 on, then REFER, TRUNCATE and IOCTL_DEV."""
    return 0x1FFF | (0x2000 if version >= 2 else 0) | (0x4000 if version >= 3 else 0) | (0x8000 if version >= 5 else 0)
