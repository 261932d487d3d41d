"""Stdin and stdout for a protocol: lines in, messages out, and nothing else ever on stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from steersman.cli.terminal.stdin import LineReader
from steersman.cli.terminal.stdout import OutputWriter


class Stdio:
    """The two ends. `ended` is set at the end of the input, when the reader of the output is gone, and by a signal."""

    def __init__(self, output: OutputWriter, ended: asyncio.Event) -> None:
        self.output = output
        self.ended = ended
        self._reader: LineReader | None = None

    def read_lines(self, receive: Callable[[bytes | None], None]) -> None:
        """Begin to read; `None` is a line that was too long."""
        self._reader = LineReader(sys.stdin.fileno(), receive, self.ended.set)
        self._reader.start()


@asynccontextmanager
async def take_stdio() -> AsyncGenerator[Stdio]:
    """Take stdin and stdout. What else is written to stdout, also by child processes, goes to stderr meanwhile."""
    sys.stdout.flush()
    own = os.dup(sys.stdout.fileno())
    os.set_inheritable(own, False)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    ended = asyncio.Event()
    output = OutputWriter(own, on_failure=lambda _: ended.set(), max_bytes=8 << 20)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        yield Stdio(output, ended)
        output.drop_if_stalled(1.0)
        await output.drain()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        output.close()
        sys.stdout.flush()
        os.dup2(own, sys.stdout.fileno())
        os.close(own)
