"""Starts the supervisor with a plan. Orders and the report go through pipes of their own, never through arguments."""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from steersman.types.errors import ToolError

if TYPE_CHECKING:
    from subprocess import Popen


DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Where things are, who the user is, how to write: nothing that opens a door.
ALLOWED = frozenset(
    (
        "COLUMNS", "GOROOT", "HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "NVM_DIR", "PATH",
        "PYENV_ROOT", "PYENV_VERSION", "RUSTUP_HOME", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM", "TMPDIR", "TZ",
        "USER", "VIRTUAL_ENV",
    )
)  # fmt: skip
_ALLOWED_PREFIX = "LC_"


def build_child_environment(
    extra: Mapping[str, str] | None = None, *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The allowed variables of `source` (our own environment), then `extra`; there is always a PATH and a charset.

    Keys never pass: a variable goes through because its name is on the list, not because it looks harmless.
    """
    source = os.environ if source is None else source
    found = {name: value for name, value in source.items() if name in ALLOWED or name.startswith(_ALLOWED_PREFIX)}
    found["PATH"] = clean_search_path(found.get("PATH", ""))
    if not (found.get("LC_ALL") or found.get("LC_CTYPE") or found.get("LANG")):
        found["LANG"] = "C.UTF-8"
    found.update(extra or {})
    return found


def clean_search_path(path: str) -> str:
    """A PATH of absolute folders: an empty or relative one would run what lies in the working folder."""
    return os.pathsep.join([folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]) or DEFAULT_PATH


# The supervisor is outside the sandbox, so nothing that a command could have changed since may be part of it: its code
# is read once, now, and it runs on the Python beneath a virtual environment, without `site` and without our variables.
_PROGRAM = """
import marshal, sys
stream = sys.stdin.buffer
code, plan = marshal.load(stream), marshal.load(stream)
supervisor, enforcement = {"__name__": "supervisor"}, {"__name__": "enforcement"}
exec(code[0], supervisor)
exec(code[1], enforcement)
supervisor["main"](plan, enforcement["build_sandbox"], enforcement["restore_guards"])
"""
_CODE = marshal.dumps(
    [compile(Path(__file__).with_name(name).read_bytes(), name, "exec") for name in ("supervisor.py", "enforcement.py")]
)
_PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable or "")
# The bare plan: no walls.
UNCONFINED: Mapping[str, Any] = {
    "view": None,
    "capabilities": None,
    "landlock": None,
    "seccomp": b"",
    "seccomp_file": b"",
    "wrapped": False,
    "guarded": (),
}

# The letters the supervisor knows: ask everything to end, kill everything.
TERMINATE, KILL = b"t", b"k"

_PIPE = 1 << 20


class RunningSupervisor:
    """A supervisor at work: `output` and `report` are to be read, `orders` takes its letters. To be closed."""

    __slots__ = ("orders", "output", "process", "report")

    def __init__(self, process: Popen[bytes], orders: int, report: int) -> None:
        self.process = process
        self.orders = orders
        self.report = report
        self.output = cast(IO[bytes], process.stdout).fileno()

    def close(self) -> None:
        """Close our ends of the pipes, which kills what still runs, and wait for the supervisor to be gone."""
        os.close(self.orders)
        os.close(self.report)
        cast(IO[bytes], self.process.stdout).close()
        self.process.wait()


def launch(plan: Mapping[str, Any]) -> RunningSupervisor:
    """Start the supervisor and hand it the plan; `ToolError` where no process can be started."""
    # Only a call that runs something pays for this import.
    import subprocess

    if sys.platform != "linux":
        raise ToolError(f"Commands can be run on Linux only so far, and this is {sys.platform}.")
    if not os.path.isfile(_PYTHON):
        raise ToolError(f"Nothing can be run: this Python does not know its own program (it says {_PYTHON!r}).")
    orders, our_orders = os.pipe()
    our_report, report = os.pipe()
    try:
        process = subprocess.Popen(
            [_PYTHON, "-I", "-S", "-c", _PROGRAM, str(orders), str(report)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(orders, report),
            cwd="/",
            env=_build_supervisor_environment(),
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
        pass  # it died at once; the missing report tells
    return launched


def _build_supervisor_environment() -> dict[str, str]:
    """For the supervisor, which is a Python of ours and not the command: what it takes to start it, and no more."""
    libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    return {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", **libraries}


def _enlarge_pipe(pipe: int) -> None:
    """Room for more output between two looks: a flood then costs a sixteenth of the system calls."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
    except (OSError, AttributeError):
        pass  # no room for it, or not Linux: it works as it is


def parse_report(data: bytes) -> dict[str, Any] | None:
    """What the supervisor said; `None` when it did not come to that."""
    try:
        return cast(dict[str, Any], marshal.loads(data)) if data else None
    except (EOFError, ValueError, TypeError):
        return None
