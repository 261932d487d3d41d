"""Starts the command in processes forked from one that has imported it: importing is most of the cost of a start.

Each command is still a process of its own, with its own file descriptors, environment, session and terminal. What
depends on the start of the interpreter itself, such as `PYTHONIOENCODING`, is started from scratch.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import IO, Any, Literal, NoReturn, TextIO, TypeAlias, cast

import msgspec

COMMAND = [sys.executable, "-m", "steersman"]
PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

_PRELOADED = (
    "steersman.cli.main",
    "steersman.cli.run.once",
    "steersman.cli.chat.screen",
    "steersman.cli.chat.start",
    "steersman.cli.evals.eval_command",
    "steersman.cli.render.terminal_view",
    "steersman.cli.serving.serve",
    "steersman.cli.sessions.subcommand",
    "steersman.cli.setup.doctor",
    "steersman.cli.setup.models",
    "steersman.agent.named",
    "steersman.agent.session_link",
    "steersman.loop.tool_calls.approval",
    "steersman.policy.shell.tables",
    "steersman.provider.http.client",
    "steersman.provider.http.pool",
    "steersman.provider.scripted.model",
    "steersman.provider.wires.openai_chat.wire",
    "steersman.session.stores.memory",
    "steersman.tools.builtin.edit_tool",
    "steersman.tools.builtin.fetch_tool",
    "steersman.tools.builtin.glob_tool",
    "steersman.tools.builtin.list_tool",
    "steersman.tools.builtin.read_tool",
    "steersman.tools.builtin.search_tool",
    "steersman.tools.builtin.write_tool",
    "steersman.tools.mcp.connection",
    "genai_prices.data",
    "prompt_toolkit.input.vt100",
    "prompt_toolkit.key_binding.bindings.search",
)
_INTERPRETER = ("PYTHON", "LANG", "LC_")
# A terminal becomes a session's own when its leader opens it.
_OPEN_TERMINAL = (
    "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execvpe(sys.argv[1], sys.argv[1:], os.environ)"
)

Process: TypeAlias = "subprocess.Popen[bytes] | Forked"


class Forked:
    """A forked command, with what the tests need of `subprocess.Popen`."""

    def __init__(self, status: socket.socket, ends: Sequence[IO[bytes] | None]) -> None:
        self.stdin, self.stdout, self.stderr = ends
        self.returncode: int | None = None
        self._status = status
        self.pid = int(status.recv(32))

    def poll(self) -> int | None:
        """Returns the exit code, `None` while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(COMMAND, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def watch_end(self) -> int:
        """Returns a descriptor that is readable once it has ended; it may have ended already, and be reaped."""
        return os.dup(self._status.fileno())

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(self._status.recv(32))
            self._status.close()
        return self.returncode


def start_process(
    arguments: Sequence[str],
    *,
    stdin: int | None,
    stdout: int | None,
    stderr: int | None,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    new_session: bool = True,
    terminal: bool = False,
) -> Process:
    """Starts a program; with `terminal`, its standard input becomes the terminal of its session."""
    arguments = list(arguments)
    if _can_fork(arguments, env) and cwd is not None and env is not None:
        return _server().start(arguments[len(COMMAND) :], (stdin, stdout, stderr), cwd, env, new_session, terminal)
    launch = [sys.executable, "-S", "-E", "-c", _OPEN_TERMINAL] if terminal else []
    return subprocess.Popen(
        [*launch, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
        start_new_session=new_session,
        bufsize=0,
    )


def _can_fork(arguments: Sequence[str], env: Mapping[str, str] | None) -> bool:
    usual = {"LANG": "C.UTF-8"}
    special = {name: value for name, value in (env or {}).items() if name.startswith(_INTERPRETER)}
    return arguments[: len(COMMAND)] == COMMAND and special == usual


class _Server:
    """The process that forks."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[2],
                env={**os.environ, "LANG": "C.UTF-8"},
                stdin=DEVNULL,
            )
        self._socket = ours
        self._lock = threading.Lock()

    def start(
        self,
        arguments: Sequence[str],
        ends: Sequence[int | None],
        cwd: Path,
        env: Mapping[str, str],
        new_session: bool,
        terminal: bool,
    ) -> Forked:
        ours: list[IO[bytes] | None] = []
        theirs: list[int] = []
        opened: list[int] = []
        for number, end in enumerate(ends):
            given, kept = _open_end(number, end)
            theirs.append(given)
            ours.append(kept)
            if given != end:
                opened.append(given)
        request = os.memfd_create("request")
        opened.append(request)
        text = msgspec.json.encode(
            {
                "arguments": [os.fsencode(each).hex() for each in arguments],
                "env": {name: os.fsencode(value).hex() for name, value in env.items()},
                "cwd": str(cwd),
                "new_session": new_session,
                "terminal": terminal,
            }
        )
        os.write(request, text)
        status, answer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with answer, self._lock:
                socket.send_fds(self._socket, [b"start"], [*theirs, answer.fileno(), request])
            return Forked(status, ours)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def stop(self) -> None:
        self._socket.close()
        self._process.wait(10)


def _open_end(number: int, end: int | None) -> tuple[int, IO[bytes] | None]:
    """Returns the descriptor for the command, and the test's end of a pipe."""
    if end == DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if end == PIPE:
        read, write = os.pipe()
        return (read, open(write, "wb", buffering=0)) if number == 0 else (write, open(read, "rb", buffering=0))
    return (number if end is None else end), None


_started: list[_Server] = []


def _server() -> _Server:
    if not _started:
        _started.append(_Server())
    return _started[0]


def stop_server() -> None:
    """Ends the process that forks, if it was started."""
    while _started:
        _started.pop().stop()


# In the process that forks


def serve(listening: socket.socket) -> None:
    """Forks a command for each request, and reports its process id and its exit code."""
    for name in _PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, _note_signal)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listening, woken], [], [])
        if woken in ready:
            os.read(woken, 512)
            _reap(running)
        if listening in ready:
            data, descriptors, _, _ = socket.recv_fds(listening, 16, 5)
            if not data:
                return
            status = socket.socket(fileno=descriptors[3])
            pid = os.fork()
            if pid == 0:
                # Their numbers are going to be those of other files, which these objects must not close.
                for each in (listening, status, *running.values()):
                    each.detach()
                _become(descriptors)
            status.send(str(pid).encode())
            running[pid] = status
            for descriptor in (*descriptors[:3], descriptors[4]):
                os.close(descriptor)


def _note_signal(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: the signal wakes the loop through its pipe."""


def _reap(running: dict[int, socket.socket]) -> None:
    for pid, status in list(running.items()):
        found, code = os.waitpid(pid, os.WNOHANG)
        if found:
            del running[pid]
            try:
                status.send(str(os.waitstatus_to_exitcode(code)).encode())
            except OSError:  # the test does not wait for it any more
                pass
            status.close()


def _become(descriptors: Sequence[int]) -> NoReturn:
    """Runs the command in a forked process, as `python -m steersman` does."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(descriptors[4], "rb", closefd=False) as file:
        file.seek(0)
        request: dict[str, Any] = msgspec.json.decode(file.read())
    if request["new_session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    if request["terminal"]:
        os.close(os.open(os.ttyname(0), os.O_RDWR))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update({name: os.fsdecode(bytes.fromhex(value)) for name, value in request["env"].items()})
    time.tzset()
    sys.path[0] = request["cwd"]
    sys.argv = ["steersman", *(os.fsdecode(bytes.fromhex(each)) for each in request["arguments"])]
    sys.stdin = _open_text(0, "r", "surrogateescape")
    sys.stdout = _open_text(1, "w", "surrogateescape")
    sys.stderr = _open_text(2, "w", "backslashreplace", buffering=1)
    from steersman.cli.main import main

    _leave(main())


def _leave(code: int) -> NoReturn:
    """Ends as the interpreter does, except that no module is taken apart: it would copy each page that is shared."""
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # as at every exit
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # as at every exit
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:  # there may be none
                stream.flush()
    except OSError:
        sys.exit(code)  # the interpreter says it in its own way
    os._exit(code)


def _open_text(descriptor: int, mode: Literal["r", "w"], errors: str, *, buffering: int = -1) -> TextIO:
    return cast(TextIO, open(descriptor, mode, buffering, encoding="utf-8", errors=errors, closefd=False))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
