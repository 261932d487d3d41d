"""A server's process: lines of bounded length, immediate notice of its end, and no processes left afterwards."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections import deque
from collections.abc import Callable
from shutil import which
from typing import cast

import anyio

from steersman.tools.confine.launch import build_child_environment, clean_search_path
from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.spec import StdioServer
from steersman.tools.threads import call_in_thread

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_CLOSED_INPUT, _CLOSED_OUTPUT = "it closed its input", "it closed its output"
_EXITED, _STOPPED = "it exited", "it was stopped"
_STDERR_TAIL = 16_384
# Bytes of lines that wait to be read; beyond this, output stays in the pipe. Each line costs more than its bytes.
_MAX_WAITING_BYTES = 1024 * 1024
_LINE_COST = 64
# The last output may still be in the pipe when the process has exited; a grandchild may hold the pipe open for ever.
_LAST_WORDS_SECONDS = 0.2
# First stdin is closed, then SIGTERM is sent, each with a time in seconds to take effect; then SIGKILL.
_WAYS_TO_END = ((None, 1.0), (signal.SIGTERM, 0.5))
_CLOSE_SECONDS = 2.0


class LineTooLong(Exception):
    """A line is longer than the limit."""


class LineBuffer:
    """Splits bytes into lines; an unfinished line is kept as parts, so that a long line is copied only once."""

    __slots__ = ("_held", "_limit", "_parts")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are now complete, without their ends; `LineTooLong` for one over the limit."""
        pieces = data.split(b"\n")
        rest = pieces.pop()
        lines: list[bytes] = []
        for piece in pieces:
            self._hold(piece)
            lines.append(b"".join(self._parts))
            self._parts.clear()
            self._held = 0
        self._hold(rest)
        return lines

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._limit:
            self._parts.clear()
            raise LineTooLong
        if piece:
            self._parts.append(piece)


class ServerProcess(asyncio.SubprocessProtocol):
    """One run of a server's program, in a process group of its own."""

    def __init__(self, max_bytes: int, on_end: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._max_bytes = max_bytes
        self._on_end = on_end
        self._splitter = LineBuffer(max_bytes)
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._reader: asyncio.Future[None] | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self._stopping = False
        self._signalled = False
        self.stderr = b""
        self.status: int | None = None
        self.reason: str | None = None

    @classmethod
    async def start(cls, spec: StdioServer, max_bytes: int, on_end: Callable[[], None]) -> ServerProcess:
        """Start the program with a clean environment; `McpError` says why it cannot be started."""
        process = cls(max_bytes, on_end)
        try:
            program = await call_in_thread(_find_program, spec)
            # Shielded: a start that is cancelled halfway would kill the process and not wait for its end.
            with anyio.CancelScope(shield=True):
                await asyncio.get_running_loop().subprocess_exec(
                    lambda: process,
                    program,
                    *spec.args,
                    env=build_child_environment(spec.env),
                    cwd=spec.cwd,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise McpError(
                f"The program {spec.command!r} cannot be started{_describe_start_error(spec, error)}"
            ) from error
        return process

    @property
    def failure(self) -> str | None:
        """Why the process ended, unless we stopped it."""
        if self.status is not None and self.reason in (_EXITED, _CLOSED_OUTPUT, _CLOSED_INPUT):
            return f"it was ended by signal {-self.status}" if self.status < 0 else f"it exited with {self.status}"
        return None if self.reason == _STOPPED else self.reason

    @property
    def last_words(self) -> str:
        """The end of what it wrote to stderr, in whole lines: a part of a key at its beginning would not be found."""
        text = self.stderr.decode("utf-8", "replace")
        return text if len(self.stderr) < _STDERR_TAIL else text.partition("\n")[2]

    @property
    def pid(self) -> int:
        """The process id, which is also the process group id."""
        return cast(asyncio.SubprocessTransport, self._transport).get_pid()

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """Take what the process wrote."""
        data = cast(bytes, data)
        if fd == _STDERR:
            self.stderr = (self.stderr + data)[-_STDERR_TAIL:]
        elif self.reason is None and not self._stopping:
            self._receive(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """One of the pipes is closed."""
        if fd == _STDOUT:
            self._end(_CLOSED_OUTPUT)
        elif fd == _STDIN and exc is not None:
            self._end(_CLOSED_INPUT)

    def process_exited(self) -> None:
        """The process is over, and reaped."""
        if not self._signalled:
            self.status = cast(asyncio.SubprocessTransport, self._transport).get_returncode()
        if not self._exited.done():
            self._exited.set_result(None)
        asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._end, _EXITED)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is over and all of its pipes are closed."""
        if not self._gone.done():
            self._gone.set_result(None)

    def _receive(self, data: bytes) -> None:
        try:
            lines = self._splitter.feed(data)
        except LineTooLong:
            self.fail(f"it sent a message of more than {self._max_bytes:,} bytes")
            return
        lines = [line for line in lines if line]
        self._lines.extend(lines)
        self._waiting += sum(map(len, lines)) + len(lines) * _LINE_COST
        if self._waiting > _MAX_WAITING_BYTES:
            self._control_pipe(_STDOUT, "pause_reading")
        self._wake()

    def _end(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self._wake()
            self._on_end()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # For the session

    async def read_line(self) -> bytes | None:
        """Read the next line; `None` at the end."""
        while not self._lines:
            if self.reason is not None:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        line = self._lines.popleft()
        self._waiting -= len(line) + _LINE_COST
        if self._waiting <= _MAX_WAITING_BYTES // 2:
            self._control_pipe(_STDOUT, "resume_reading")
        return line

    def write(self, data: bytes) -> None:
        """Send a line without waiting; a server that does not read is given up once too much is buffered."""
        pipe = cast(asyncio.SubprocessTransport, self._transport).get_pipe_transport(_STDIN)
        if self.reason is not None or pipe is None or pipe.is_closing():
            return
        stdin = cast(asyncio.WriteTransport, pipe)
        if stdin.get_write_buffer_size() > self._max_bytes:
            self._end("it does not read its input")
            return
        stdin.write(data + b"\n")

    async def stop(self) -> None:
        """End the process and its whole group within a few seconds."""
        self._stopping = True
        self._end(_STOPPED)
        self._lines.clear()
        self._control_pipe(_STDOUT, "resume_reading")  # the process may be blocked in a write
        self._control_pipe(_STDIN, "close")
        try:
            for number, seconds in _WAYS_TO_END:
                if number is not None:
                    self._send_signal(number)
                if await _wait_for(self._exited, seconds):
                    break
        finally:
            # Its child processes are in its group, and end with it.
            self._send_signal(signal.SIGKILL)
            cast(asyncio.SubprocessTransport, self._transport).close()
        await _wait_for(self._gone, _CLOSE_SECONDS)

    def fail(self, reason: str) -> None:
        """Give up the process: kill it and keep the reason."""
        self._end(reason)
        self._send_signal(signal.SIGKILL)

    def _send_signal(self, number: int) -> None:
        self._signalled = True
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # It has exited, or belongs to another user now.
            return

    def _control_pipe(self, fd: int, action: str) -> None:
        pipe = cast(asyncio.SubprocessTransport, self._transport).get_pipe_transport(fd)
        if pipe is not None and not pipe.is_closing():
            getattr(pipe, action)()


def _find_program(spec: StdioServer) -> str:
    """Find the program; a bare name is looked up in our own PATH, whatever PATH the server gets."""
    if "/" in spec.command:
        return spec.command
    found = which(spec.command, path=clean_search_path(os.environ.get("PATH", "")))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), spec.command)
    return found


def _describe_start_error(spec: StdioServer, error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f": {error}"
    if spec.cwd is not None and error.filename == str(spec.cwd):
        return f" in the folder {str(spec.cwd)!r}: {error.strerror}"
    return f": {error.strerror}"


async def _wait_for(future: asyncio.Future[None], seconds: float) -> bool:
    await asyncio.wait([future], timeout=seconds)
    return future.done()
