"""The command as a real process: with a home and a project of its own, and a strict server on loopback for a model."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeAlias, cast

import msgspec
from tests.cli.fork_server import COMMAND, Process, start_process

from steersman.session.session import Session
from steersman.testing.grammar import check_events
from steersman.testing.servers import StrictServer
from steersman.types.events import AgentEnd, AgentEvent
from steersman.types.wire import decode

MODEL = "openai-chat:gpt-x"
PATIENCE = 60.0
"""Seconds after which a test gives up on a process; nothing takes that long unless it hangs."""

Flow: TypeAlias = Literal["stdout", "stderr"]
Stdin: TypeAlias = bytes | None
"""What is piped in: `None` is an empty standard input that is no terminal."""


@dataclass(frozen=True, slots=True)
class Place:
    """A machine with nothing on it: `home` for everything the command keeps, `project` for the folder it is run in."""

    home: Path
    project: Path

    @property
    def sessions(self) -> list[Path]:
        """The session files there are."""
        return sorted((self.home / "state" / "steersman" / "sessions").glob("*.db"))


def make_place(folder: Path) -> Place:
    """An empty home and an empty project in a folder."""
    place = Place(folder / "home", folder / "project")
    place.home.mkdir()
    place.project.mkdir()
    return place


@dataclass(frozen=True, slots=True)
class Done:
    """How the command ended, and what it wrote."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output, which has to be UTF-8."""
        return self.stdout.decode()

    @property
    def errors(self) -> str:
        """Standard error, which has to be UTF-8."""
        return self.stderr.decode()

    @property
    def runs(self) -> list[list[AgentEvent]]:
        """The runs of a stream-json output, each of them checked against the grammar."""
        return runs_of(self.stdout)

    @property
    def events(self) -> list[AgentEvent]:
        """The events of the only run of a stream-json output."""
        runs = self.runs
        assert len(runs) == 1, f"expected one run, got {len(runs)}"
        return runs[0]

    @property
    def json(self) -> Any:
        """The object of a json output."""
        return msgspec.json.decode(self.stdout)


def command_line(args: Sequence[str], server: StrictServer | None = None) -> list[str]:
    """The command with these arguments; where a server is given, its model is chosen first."""
    chosen = ["--model", MODEL] if server is not None and "--model" not in args else []
    return [*COMMAND, *chosen, *args]


def environment(
    place: Place, server: StrictServer | None = None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What the process is told, and nothing of the machine the tests run on apart from its `PATH`."""
    told = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(place.home),
        "XDG_CONFIG_HOME": str(place.home / "config"),
        "XDG_STATE_HOME": str(place.home / "state"),
        "XDG_CACHE_HOME": str(place.home / "cache"),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    if server is not None:
        told |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": server.key or "none"}
    return told | dict(more or {})


def run_command(
    args: Sequence[str],
    *,
    place: Place,
    server: StrictServer | None = None,
    stdin: Stdin = None,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Run the command to its end, with pipes around it."""
    with spawn(args, place=place, server=server, env=env, stdin=subprocess.PIPE, new_session=False) as started:
        with contextlib.suppress(BrokenPipeError):  # it need not read its input
            started.send(stdin or b"")
            started.hang_up()
        return started.wait()


def shell(
    script: str, *, place: Place, server: StrictServer | None = None, env: Mapping[str, str] | None = None
) -> Done:
    """Run a shell script in which `$STEERSMAN` is the command: for redirections and pipelines."""
    words = " ".join(command_line([], server))
    done = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=place.project,
        env={**environment(place, server, env), "STEERSMAN": words},
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@dataclass(slots=True)
class _Heard:
    """What has come out of one end of a process so far."""

    data: bytearray = field(default_factory=bytearray)
    ended: bool = False


class Started:
    """The command while it runs. Leaving the `with` block ends it, whatever it does."""

    def __init__(self, process: Process, *, reading: bool) -> None:
        self.process = process
        self._news = threading.Condition()
        self._heard: dict[Flow, _Heard] = {"stdout": _Heard(), "stderr": _Heard()}
        flows: list[Flow] = ["stdout", "stderr"] if reading else ["stderr"]
        self._threads = [self._listen(flow) for flow in flows if getattr(process, flow) is not None]

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.process.pid

    def said(self, flow: Flow = "stdout") -> bytes:
        """What has come out so far."""
        with self._news:
            return bytes(self._heard[flow].data)

    def wait_for(self, words: bytes | str, flow: Flow = "stdout", *, times: int = 1) -> bytes:
        """Wait until it has said these words, `times` times in all; what it has said until then."""
        wanted = words.encode() if isinstance(words, str) else words
        heard = self._heard[flow]

        def enough() -> bool:
            return heard.data.count(wanted) >= times or heard.ended

        with self._news:
            assert self._news.wait_for(enough, PATIENCE), f"{words!r} did not come; {self._so_far()}"
            assert heard.data.count(wanted) >= times, f"{words!r} never came; {self._so_far()}"
            return bytes(heard.data)

    def send(self, data: bytes | str) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(data.encode() if isinstance(data, str) else data)
        self.process.stdin.flush()

    def send_line(self, **fields: Any) -> None:
        """Write one JSON object as a line to its standard input."""
        self.send(msgspec.json.encode(fields) + b"\n")

    def hang_up(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait_until_stuck(self) -> None:
        """Wait until the pipe, which has no reader, is full."""
        assert self.process.stdout is not None
        capacity = fcntl.fcntl(self.process.stdout, fcntl.F_GETPIPE_SZ)
        output = self.process.stdout

        def waiting() -> int:
            return struct.unpack("i", fcntl.ioctl(output, termios.FIONREAD, b"\0\0\0\0"))[0]

        # A page of a pipe may stay half empty: what is written next has to fit in whole.
        wait_until(lambda: waiting() >= capacity // 2 - 4096, f"a full pipe; {self._so_far()}")

    def wait(self) -> Done:
        """Wait until it has ended."""
        code = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        return Done(code, self.said("stdout"), self.said("stderr"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(PATIENCE)
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            if end is not None:
                with contextlib.suppress(OSError):  # what was still to be written goes nowhere
                    end.close()

    def _listen(self, flow: Flow) -> threading.Thread:
        end = cast(IO[bytes], getattr(self.process, flow))
        thread = threading.Thread(target=self._read, args=(end.fileno(), self._heard[flow]), daemon=True)
        thread.start()
        return thread

    def _read(self, descriptor: int, heard: _Heard) -> None:
        while True:
            try:
                data = os.read(descriptor, 1 << 16)
            except OSError:  # a terminal whose other end is gone
                data = b""
            with self._news:
                heard.data += data
                heard.ended = not data
                self._news.notify_all()
            if not data:
                return

    def _so_far(self) -> str:
        return f"stdout {bytes(self._heard['stdout'].data)!r}, stderr {bytes(self._heard['stderr'].data)!r}"


def spawn(
    args: Sequence[str],
    *,
    place: Place,
    server: StrictServer | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    reading: bool = True,
    new_session: bool = True,
) -> Started:
    """Start the command in a session of its own; with `reading=False` its standard output is not read.

    `stdin=subprocess.PIPE` lets the test write to it.
    """
    process = start_process(
        command_line(args, server),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=place.project,
        env=environment(place, server, env),
        new_session=new_session,
    )
    return Started(process, reading=reading)


def runs_of(output: bytes) -> list[list[AgentEvent]]:
    """The runs of a stream-json output: every line is an event, every run is whole and holds to the grammar."""
    assert output.endswith(b"\n") or not output, f"the last line is cut: {output[-200:]!r}"
    runs: list[list[AgentEvent]] = [[]]
    for line in output.splitlines():
        event = cast(AgentEvent, decode(line))
        runs[-1].append(event)
        if type(event) is AgentEnd:
            runs.append([])
    assert runs.pop() == [], "the output goes on after the last agent_end"
    for run in runs:
        check_events(run)
    return runs


def ends_of(place: Place) -> list[str]:
    """How the runs of the session used last ended, as it is written there."""
    (file,) = place.sessions
    with Session.open(file, write=False) as session:
        return [record.payload["end_reason"] for record in session.records() if record.type == "run_end"]


def new_marker() -> str:
    """Seconds that no other process sleeps: a search for them finds no process of another test or run."""
    return f"9{secrets.randbelow(10**8):08}"


def processes_with(marker: str) -> list[int]:
    """The processes that have this text in their command line, the one that asks apart."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return sorted(found)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds that no event announces; pauses between two looks leave the processor to others."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        pause.wait(0.01)


def wait_for_process(marker: str, count: int = 1) -> None:
    """Wait until processes have this text in their command line, so many of them."""
    wait_until(lambda: len(processes_with(marker)) >= count, f"{count} processes with {marker!r}")


def wait_until_gone(marker: str) -> None:
    """Wait until no process has this text in its command line; it fails when some stay."""
    wait_until(lambda: not processes_with(marker), f"the end of {processes_with(marker)}")


_NOISE = re.compile(r"Traceback|Exception ignored|Task was destroyed|never awaited|ResourceWarning|Error in ")


def assert_calm(done: Done) -> None:
    """Nothing that is meant for programmers was shown."""
    for data in (done.stdout, done.stderr):
        assert not _NOISE.search(data.decode(errors="replace")), data.decode(errors="replace")
