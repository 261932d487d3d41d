"""Reads standard input: a piped prompt, lines typed on a terminal, and lines of a program that drives the command."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import select
import stat
import sys
import termios
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

MAX_INPUT = 4_000_000
"""The most bytes of standard input that become part of a prompt."""

FIRST_BYTE_SECONDS = 3.0
"""How long to wait for the first byte if the prompt was given as an argument."""

MAX_LINE = 16 << 20
"""The most bytes of a line; a longer one is skipped and reported as `None`."""

_CHUNK = 1 << 16


class TerminalLines:
    """Reads lines of a file descriptor without a thread, between `__enter__` and `__exit__`."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._begun = ""
        self._waiting: deque[str | None] = deque()
        self._news = asyncio.Event()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._source, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._source)

    async def next(self) -> str | None:
        """Returns the next line without its line break; `None` at the end of the input."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        line = self._waiting[0]
        if line is not None:  # the end of the input stays in the queue
            self._waiting.popleft()
        return line

    def discard_typed(self) -> None:
        """Discards what was typed so far and not read."""
        with contextlib.suppress(termios.error):  # not a terminal: it holds no typed input
            termios.tcflush(self._source, termios.TCIFLUSH)
        self._begun = ""
        self._waiting = deque(line for line in self._waiting if line is None)

    def _read(self) -> None:
        try:
            data = os.read(self._source, _CHUNK)
        except OSError:  # the terminal was closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._source)
        *lines, self._begun = (self._begun + self._decoder.decode(data, final=not data)).split("\n")
        self._waiting.extend(lines)
        if not data:
            self._waiting.extend([self._begun, None] if self._begun else [None])
        self._news.set()


def read_piped_input(*, patient: bool) -> str:
    """Returns standard input as text, truncated to `MAX_INPUT` bytes; prints notices to standard error.

    If not `patient`, the prompt was given already, and the input must start in time: many programs start others with
    an input that they never write to.
    """
    try:
        file = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):  # closed, as by `<&-`, or replaced by an object without a descriptor
        return ""
    if not patient and not _starts_in_time(file):
        _print_notice(
            f"No input on stdin for {FIRST_BYTE_SECONDS:g} s, so the run starts without it. To wait for a slow "
            "program, add '-' to the prompt; if there is no input, add < /dev/null."
        )
        return ""
    data = _read_up_to(file, MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        _print_notice(f"stdin has more than {MAX_INPUT:,} bytes; the rest is ignored.")
        data = data[:MAX_INPUT] + f"\n[... truncated after {MAX_INPUT:,} bytes ...]".encode()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        _print_notice("stdin is not valid UTF-8; invalid bytes were replaced.")
        text = data.decode("utf-8-sig", "replace")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _starts_in_time(file: int) -> bool:
    """Whether data, or the end of the input, arrives within `FIRST_BYTE_SECONDS`."""
    if stat.S_ISREG(os.fstat(file).st_mode):
        return True
    return bool(select.select([file], [], [], FIRST_BYTE_SECONDS)[0])


def _read_up_to(file: int, most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := _read_chunk(file, min(most, _CHUNK))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _read_chunk(file: int, size: int) -> bytes:
    while True:
        try:
            return os.read(file, size)
        except BlockingIOError:  # another process made the shared descriptor non-blocking
            select.select([file], [], [])


def _print_notice(text: str) -> None:
    print(f"steersman: {text}", file=sys.stderr, flush=True)


class LineReader:
    """Reads lines in a thread, because standard input may be anything, and passes them to the event loop in order."""

    def __init__(self, descriptor: int, on_line: Callable[[bytes | None], None], on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_line = on_line
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._going = threading.Event()
        self._taken = threading.Semaphore(2)
        self._thread = threading.Thread(target=self._run_thread, name="steersman-input", daemon=True)

    def start(self) -> None:
        """Starts reading."""
        self._going.set()
        self._thread.start()

    def pause(self) -> None:
        """Stops reading for now."""
        self._going.clear()

    def resume(self) -> None:
        """Reads again."""
        self._going.set()

    def _run_thread(self) -> None:
        try:
            self._read_lines()
            self._loop.call_soon_threadsafe(self._on_end)
        except RuntimeError:
            return  # the event loop is closed

    def _read_lines(self) -> None:
        begun = bytearray()
        skipping = False
        while data := self._read_chunk():
            first, *rest = data.split(b"\n")
            begun += b"" if skipping else first
            lines: list[bytes | None] = []
            for piece in rest:
                if not skipping:
                    lines.append(bytes(begun) if len(begun) <= MAX_LINE else None)
                skipping = False
                begun[:] = piece
            if len(begun) > MAX_LINE:
                begun.clear()
                skipping = True
                lines.append(None)
            self._hand_over(lines)
        if begun:
            self._hand_over([bytes(begun)])

    def _read_chunk(self) -> bytes:
        self._going.wait()
        while True:
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:  # another process made the shared descriptor non-blocking
                select.select([self._descriptor], [], [])
            except OSError:  # closed, or the terminal is gone
                return b""

    def _hand_over(self, lines: Sequence[bytes | None]) -> None:
        if lines:
            self._taken.acquire()
            self._loop.call_soon_threadsafe(self._deliver, lines)

    def _deliver(self, lines: Sequence[bytes | None]) -> None:
        for line in lines:
            self._on_line(line)
        self._taken.release()
