"""Lines typed on a terminal as they come, without a thread that would wait for ever."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import termios
from collections import deque
from types import TracebackType
from typing import Self


class Lines:
    """The lines of a file descriptor, for as long as it is entered; `next` gives `None` at the end."""

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
        """The next line without its end; `None` when there are no more."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        line = self._waiting[0]
        if line is not None:  # the end stays the end
            self._waiting.popleft()
        return line

    def forget(self) -> None:
        """Drop what was typed so far and not asked for."""
        with contextlib.suppress(termios.error):  # no terminal: nothing waits in one
            termios.tcflush(self._source, termios.TCIFLUSH)
        self._begun = ""
        self._waiting = deque(line for line in self._waiting if line is None)

    def _read(self) -> None:
        try:
            data = os.read(self._source, 65536)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._source)
        *lines, self._begun = (self._begun + self._decoder.decode(data, final=not data)).split("\n")
        self._waiting.extend(lines)
        if not data:
            self._waiting.extend([self._begun, None] if self._begun else [None])
        self._news.set()
