"""A real terminal for tests: a command in a pty, its screen as a person sees it, and the bytes as they came."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

import pyte
from pyte.screens import wcwidth
from tests.cli.fork_server import Forked, start_process

KEYS: dict[str, bytes] = {
    "enter": b"\r",
    "alt+enter": b"\x1b\r",
    "esc": b"\x1b",
    "tab": b"\t",
    "backspace": b"\x7f",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    **{f"ctrl+{letter}": bytes([number]) for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz", start=1)},
}
Seen: TypeAlias = "str | Callable[[Terminal], object]"


class _Screen(pyte.HistoryScreen):
    """A screen that answers what it is asked, as where the cursor is."""

    answer: Callable[[bytes], None]

    def write_process_input(self, data: str) -> None:
        self.answer(data.encode())

    @property
    def rows(self) -> list[str]:
        """The lines, without blanks at their ends: those of `display`, for which each blank cell is looked at too."""
        return [self._render(self.buffer[number]) for number in range(self.lines)]

    def _render(self, row: Mapping[int, Any]) -> str:
        shown: list[str] = []
        hidden = -1  # the second cell of a wide character
        for column in range(min(self.columns, max(row, default=-1) + 1)):
            if column != hidden:
                text = row[column].data
                shown.append(text)
                hidden = column + 1 if not text.isascii() and wcwidth(text[0]) == 2 else -1
        return "".join(shown).rstrip()

    def shorten(self, rows: int) -> None:
        """Become less high as terminals do: lines at the top scroll away as far as the cursor needs it."""
        row = self.cursor.y
        gone = max(0, row - rows + 1)
        self.cursor.y = self.lines - 1
        for _ in range(gone):
            self.index()
        self.cursor.y = row - gone
        for line in range(rows, self.lines):
            self.buffer.pop(line, None)
        self.lines = rows


class Terminal:
    """A command that runs in a terminal of `columns` by `rows`; waiting is for what is seen, never for time."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        patience: float = 30.0,
    ) -> None:
        self.raw = bytearray()
        self._window: list[str] | None = None
        self._gone: list[str] | None = None
        self.patience = patience
        self.screen: Any = _Screen(columns, rows, history=5000)
        self.screen.answer = self.send
        self._stream = pyte.ByteStream(self.screen)
        self._master, self._slave = pty.openpty()
        self._ends = [self._master, self._slave]
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self._slave)
        self.process = start_process(
            arguments,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=None if env is None else {"TERM": "xterm-256color", **env},
            cwd=cwd,
            terminal=True,
        )
        started = self.process
        self._exit = started.watch_end() if isinstance(started, Forked) else os.pidfd_open(started.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            # The whole session of the terminal, which is the command's own.
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._exit)
        self._close()

    # What a person does

    def type(self, text: str) -> None:
        """Type a text, without Enter."""
        self.send(text.encode())

    def press(self, *keys: str) -> None:
        """Press keys by their names, one after another."""
        for key in keys:
            self.send(KEYS[key])

    def enter(self, text: str) -> None:
        """Type a text and then Enter, once the text is there: what comes in one piece may be taken for a paste."""
        self.type(text)
        self.wait_for(text[-10:])
        self.press("enter")

    def paste(self, text: str) -> None:
        """Paste a text, as terminals with bracketed paste send it."""
        self.send(b"\x1b[200~" + text.encode() + b"\x1b[201~")

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._master, view) :]

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size; what runs in it is told."""
        if rows < self.screen.lines:
            self.screen.shorten(rows)
        self.screen.resize(rows, columns)
        self._window = self._gone = None
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself."""
        os.kill(self.process.pid, number)

    def close_window(self) -> int:
        """Close the window while the command runs in it; its exit code."""
        self._close()
        return self.process.wait(self.patience)

    # What a person sees

    @property
    def lines(self) -> list[str]:
        """The lines of the window, without blanks at their ends."""
        if self._window is None:
            self._window = cast(list[str], self.screen.rows)
        return self._window

    @property
    def shown(self) -> str:
        """The window as one text."""
        return "\n".join(self.lines)

    @property
    def scrollback(self) -> list[str]:
        """The lines that have left the window at its top."""
        if self._gone is None:
            columns = self.screen.columns
            self._gone = [
                "".join(row[column].data for column in range(min(columns, max(row, default=-1) + 1))).rstrip()
                for row in self.screen.history.top
            ]
        return self._gone

    @property
    def everything(self) -> str:
        """Scrollback and window as one text."""
        return "\n".join([*self.scrollback, *self.lines])

    @property
    def cursor_shown(self) -> bool:
        """Whether the cursor is to be seen."""
        return not self.screen.cursor.hidden

    @property
    def cursor_line(self) -> str:
        """The line that the cursor is in."""
        return self.lines[cast(int, self.screen.cursor.y)]

    @property
    def modes(self) -> set[int]:
        """The private modes that are on, such as 2004 for bracketed paste."""
        return {mode >> 5 for mode in self.screen.mode if mode > 1 << 5}

    @property
    def as_before(self) -> bool:
        """Whether the line settings of the terminal are those from before the command."""
        return termios.tcgetattr(self._slave) == self.before

    def wait_for(self, seen: Seen) -> float:
        """Read until the window shows a text, or a condition holds; how many seconds that took."""
        begun = time.monotonic()
        until = begun + self.patience
        while not self._sees(seen):
            left = until - time.monotonic()
            if left <= 0:
                self._catch_up()
                if self._sees(seen):
                    break
                raise AssertionError(f"Waited {until - begun:g}s for {seen!r} and saw:\n{self.everything}")
            if not self._read(left) and self.process.poll() is not None and not self._read(0):
                if self._sees(seen):
                    break
                raise AssertionError(f"It ended while waiting for {seen!r}. It had shown:\n{self.everything}")
        return time.monotonic() - begun

    def ended(self) -> int:
        """Read until the command has ended; its exit code."""
        until = time.monotonic() + self.patience
        while self.process.poll() is None:
            left = until - time.monotonic()
            assert left > 0, f"It did not end. It shows:\n{self.everything}"
            self._read(left)
        self._catch_up()
        return self.process.wait()

    def _close(self) -> None:
        while self._ends:
            os.close(self._ends.pop())

    def _sees(self, seen: Seen) -> bool:
        return seen in self.shown if isinstance(seen, str) else bool(seen(self))

    def _catch_up(self) -> None:
        """Read what is there already: the last look may be a while ago."""
        while self._read(0):
            pass

    def _read(self, seconds: float) -> bool:
        """Wait for output, or for the end; whether there was output."""
        watched = [self._master] if self.process.returncode is not None else [self._master, self._exit]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._master not in ready:
            return False
        data = os.read(self._master, 65536)
        self.raw += data
        self._stream.feed(data)
        self._window = self._gone = None
        return bool(data)
