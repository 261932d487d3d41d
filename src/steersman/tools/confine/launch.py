"""Starts child processes: builds their environment variables from an allow-list, and launches the supervisor.

The supervisor gets its plan on stdin; orders and its report go through pipes of their own, never through arguments.
"""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, cast

from steersman.safe_start import clean_environment
from steersman.tools.confine.changed_folders import is_of_command
from steersman.tools.confine.links import leads_through
from steersman.types.errors import ToolError

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Paths, the user's name, the locale: nothing that gives access to anything.
ALLOWED = frozenset(
    (
        "COLUMNS", "GOROOT", "HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "NVM_DIR", "PATH",
        "PYENV_ROOT", "PYENV_VERSION", "RUSTUP_HOME", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM", "TMPDIR", "TZ",
        "USER", "VIRTUAL_ENV",
    )
)  # fmt: skip
_ALLOWED_PREFIX = "LC_"
MARK = "STEERSMAN_CALL"
"""The environment variable that marks the processes of a call, to find them when the supervisor is gone."""


def build_child_environment(
    extra: Mapping[str, str] | None = None, *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Build the environment variables of a child: the allowed ones of `source` (our own environment), then `extra`.

    There is always a PATH and a locale. Keys never pass: a variable is copied because its name is on the allow-list,
    not because it looks harmless.
    """
    source = os.environ if source is None else source
    found = {name: value for name, value in source.items() if name in ALLOWED or name.startswith(_ALLOWED_PREFIX)}
    found["PATH"] = clean_search_path(found.get("PATH", ""))
    if not (found.get("LC_ALL") or found.get("LC_CTYPE") or found.get("LANG")):
        found["LANG"] = "C.UTF-8"
    found.update(extra or {})
    return found


def clean_search_path(path: str) -> str:
    """Keep the absolute folders of a PATH: an empty or relative one would run programs of the working folder."""
    return os.pathsep.join([folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]) or DEFAULT_PATH


def find_program(name: str, path: str, *, outside: Iterable[str]) -> str | None:
    """Find a program to run without a sandbox; `None` if it is not there, or in one of the folders of `outside`.

    Nor is one taken that is where commands of this program could write, or that is found by a link in any of these
    folders, which are real paths: a command may have made the link, and so have chosen any program.
    """
    found = shutil.which(name, path=clean_search_path(path))
    return None if found is None or leads_through(found, outside) or is_of_command(found) else found


# The supervisor runs outside the sandbox, so a command must not be able to change its code: it is read once, at import,
# and runs on the base Python of a virtual environment, without `site` and without our environment variables.
_PROGRAM = """
import marshal, sys
stream = sys.stdin.buffer
code, plan = marshal.load(stream), marshal.load(stream)
supervisor, enforcement = {"__name__": "supervisor"}, {"__name__": "enforcement"}
exec(code[0], supervisor)
exec(code[1], enforcement)
supervisor["main"](plan, *[enforcement[name] for name in ("hold_names", "build_sandbox", "restore_guards")])
"""
_CODE = marshal.dumps(
    [compile(Path(__file__).with_name(name).read_bytes(), name, "exec") for name in ("supervisor.py", "enforcement.py")]
)
PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable or "")
"""The base Python of a virtual environment: the link to it may be in the workspace, where a command may replace it."""
# The plan of a command without a sandbox, whose standard input is empty.
UNCONFINED: Mapping[str, Any] = {
    "view": None,
    "capabilities": None,
    "landlock": None,
    "seccomp": b"",
    "seccomp_file": b"",
    "in_place": [],
    "by_descriptor": False,
    "devices": (),
    "wrapped": False,
    "guarded": (),
    "held": (),
    "input": b"",
}

# The orders to the supervisor: send SIGTERM to every process, send SIGKILL.
TERMINATE, KILL = b"t", b"k"

_PIPE_BYTES = 1 << 20
_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class RunningSupervisor:
    """A supervisor that runs: read `output` and `report`, write to `orders`, then call `close`."""

    __slots__ = ("errors", "orders", "output", "process", "report")

    def __init__(self, process: subprocess.Popen[bytes], orders: int, report: int) -> None:
        self.process = process
        self.orders = orders
        self.report = report
        self.output = cast(IO[bytes], process.stdout).fileno()
        self.errors = None if process.stderr is None else process.stderr.fileno()

    def close(self) -> None:
        """Close our ends of the pipes, which kills what still runs, and reap the supervisor."""
        os.close(self.orders)
        os.close(self.report)
        cast(IO[bytes], self.process.stdout).close()
        if self.process.stderr is not None:
            self.process.stderr.close()
        self.process.wait()


def launch(plan: Mapping[str, Any], *, separate_errors: bool = False) -> RunningSupervisor:
    """Start the supervisor with a plan; `ToolError` where no process can be started.

    Standard error comes with the output, unless `separate_errors` gives it a pipe of its own.
    """
    if sys.platform != "linux":
        raise ToolError(f"Commands can be run on Linux only so far, and this is {sys.platform}.")
    if not os.path.isfile(PYTHON):
        raise ToolError(f"Nothing can be run: the path of this Python is unknown (sys.executable is {PYTHON!r}).")
    orders, our_orders = os.pipe()
    our_report, report = os.pipe()
    try:
        process = subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", _PROGRAM, str(orders), str(report)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if separate_errors else subprocess.STDOUT,
            pass_fds=(orders, report),
            cwd="/",
            env=build_supervisor_environment(plan["in_place"]) | _find_mark(plan["env"]),
            start_new_session=True,
        )
    except OSError as error:
        os.close(our_orders)
        os.close(our_report)
        raise ToolError(f"No process could be started: {error}.") from error
    finally:
        os.close(orders)
        os.close(report)
    launched = RunningSupervisor(process, our_orders, our_report)
    _enlarge_pipe(launched.output)
    try:
        with cast(IO[bytes], process.stdin) as stdin:
            stdin.write(_CODE + marshal.dumps(dict(plan)))
    except BrokenPipeError:
        pass  # it died at once, so there will be no report
    return launched


def _find_mark(environment: Mapping[str, str]) -> dict[str, str]:
    """Find the mark of a call: the processes between the supervisor and the command have it as well."""
    return {MARK: environment[MARK]} if MARK in environment else {}


def build_supervisor_environment(writable: Iterable[str]) -> dict[str, str]:
    """Build the environment variables that Python itself needs to start the supervisor, and no others.

    Without folders of libraries that this command may write, or an earlier one in another workspace: the supervisor
    runs outside the sandbox.
    """
    libraries = clean_environment({name: os.environ[name] for name in _LIBRARIES if name in os.environ})
    for name, folders in libraries.items():
        libraries[name] = os.pathsep.join(
            folder for folder in folders.split(os.pathsep) if not leads_through(folder, writable)
        )
    return {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", **{name: found for name, found in libraries.items() if found}}


def _enlarge_pipe(pipe: int) -> None:
    """Enlarge the pipe's buffer, so that large output needs a sixteenth of the system calls."""
    import fcntl  # not on every system that imports this module

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (OSError, AttributeError):
        pass  # over the user's limit, or not Linux: it works with the usual size


def parse_report(data: bytes) -> dict[str, Any] | None:
    """Decode the supervisor's report; `None` when it died before it could report."""
    try:
        return cast(dict[str, Any], marshal.loads(data)) if data else None
    except (EOFError, ValueError, TypeError):
        return None


def kill_marked(mark: str) -> None:
    """Kill the processes with the mark of a call in their environment variables, after the supervisor has died."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit():
                with open(f"/proc/{entry}/environ", "rb") as file:
                    found = wanted in file.read().split(b"\0")
                if found:
                    os.kill(int(entry), 9)
        except OSError:
            continue  # already ended, or of another user
