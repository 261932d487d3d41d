"""Another program drives the command: standard input is orders, one JSON object a line, taken in the order they come.

`prompt` starts a run, or waits until the runs before it are over. `steer` and `follow_up` are heard by the run that is
going on; where none is, they start one, so nothing that was said waits for what may never come. `abort` ends the run
that is going on and withdraws nothing; what comes behind it is not for that run. At the end of the input what was
ordered is finished. A line that cannot be understood is told on standard error and changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import threading
from base64 import b64decode
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, to_message
from steersman.types.result import RunResult

if TYPE_CHECKING:
    from steersman.agent.agent import Agent
    from steersman.events.stream import EventStream


MAX_INPUT = 4_000_000
"""The most bytes that become part of a prompt."""

FIRST_BYTE_SECONDS = 3.0
"""How long the input may take to begin when there is a prompt without it."""


def piped(*, patient: bool) -> str:
    """What comes on standard input, cut where it is too much; notices are told on standard error.

    Whoever is not patient has a prompt already: many programs start others with an input that nobody writes to.
    """
    try:
        file = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):  # `<&-` leaves none, and a closed or made-up one is none either
        return ""
    if not patient and not _begun(file):
        _tell(
            f"Nothing came on stdin for {FIRST_BYTE_SECONDS:g} s, so the run begins without it. To wait for a slow "
            "program, add '-' to the prompt; to say that there is nothing, add < /dev/null."
        )
        return ""
    data = _read(file, MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        _tell(f"stdin has more than {MAX_INPUT:,} bytes; only so many are read.")
        data = data[:MAX_INPUT] + f"\n[... cut: the first {MAX_INPUT:,} bytes ...]".encode()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        _tell("stdin is not all UTF-8; what is not was replaced.")
        text = data.decode("utf-8-sig", "replace")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _begun(file: int) -> bool:
    """Whether there is something to read, or the end of it, in good time."""
    if stat.S_ISREG(os.fstat(file).st_mode):
        return True
    return bool(select.select([file], [], [], FIRST_BYTE_SECONDS)[0])


def _read(file: int, most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := _piece(file, min(most, 65_536))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _piece(file: int, size: int) -> bytes:
    while True:
        try:
            return os.read(file, size)
        except BlockingIOError:  # somebody who shares it made it so
            select.select([file], [], [])


def _tell(text: str) -> None:
    print(f"steersman: {text}", file=sys.stderr, flush=True)


MAX_LINE = 16 << 20
_MAX_WAITING = 64 << 20
_READ = 1 << 16
_BLOCKS = ("text", "image")


class Order(msgspec.Struct, frozen=True):
    """One line of the input; keys it does not know are left alone."""

    type: Literal["prompt", "steer", "follow_up", "abort"]
    content: str | list[dict[str, Any]] | None = None
    mode: Literal["skip", "cancel", "wait"] | None = None
    key: str | None = None

    @property
    def message(self) -> AgentMessage:
        """What it says, as a message; `ValueError` where it says nothing."""
        if self.content is None:
            raise ValueError(f"{self.type!r} needs 'content', a string or a list of blocks")
        if isinstance(self.content, str):
            return to_message(self.content)
        for block in self.content:
            if block.get("type") not in _BLOCKS:
                raise ValueError(f"a block of 'content' is of type 'text' or 'image', got {block.get('type')!r}")
        message = to_message({"role": "user", "content": self.content})
        # Here, and not when its turn comes: a prompt that waits would then stop all that wait behind it.
        if all(isinstance(block, TextContent) and not block.text.strip() for block in message.content):
            raise ValueError(f"{self.type!r} needs some text or an image")
        for block in message.content:
            if isinstance(block, ImageContent) and not _is_picture(block):
                raise ValueError("an image has its 'data' in base64, and a 'mime_type' such as 'image/png'")
        return message


def _is_picture(block: ImageContent) -> bool:
    """Whether a server could take it: one that none takes would stay in the conversation and end every later run."""
    try:
        return bool(b64decode(block.data, validate=True)) and block.mime_type.startswith("image/")
    except ValueError:
        return False


class View(Protocol):
    """Whoever shows runs."""

    async def show(self, stream: EventStream, /) -> RunResult:
        """Show a run to its end; what it came to."""
        ...


_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


class Driver:
    """Runs, one after another, as they are ordered. `last` is what the last one came to, `misread` counts bad lines."""

    def __init__(
        self, agent: Agent, view: View, tell: Callable[[str], None], conclude: Callable[[RunResult], None]
    ) -> None:
        self.last: RunResult | None = None
        self.misread = 0
        self._agent = agent
        self._view = view
        self._tell = tell
        self._conclude = conclude
        self._current: EventStream | None = None
        self._waiting: deque[tuple[AgentMessage, int]] = deque()
        self._size = 0
        self._lines: Lines | None = None
        self._ended = self._stopped = self._aborted = False
        self._news = asyncio.Event()

    async def drive(self, descriptor: int, *, first: str | None = None) -> None:
        """Do what is ordered until there is nothing more to do, or `stop`."""
        if first is not None:
            self._current = self._agent.prompt(first)
        self._lines = lines = Lines(descriptor, self.hear, self._end)
        lines.start()
        while not self._stopped:
            if self._current is not None:
                self.last = await self._view.show(self._current)
                self._conclude(self.last)
                self._current = None
                self._aborted = False
                self._next()
            elif self._ended:
                return
            else:
                self._news.clear()
                await self._news.wait()

    def stop(self) -> None:
        """End the run that is going on, and take no more orders."""
        self._stopped = True
        self._agent.abort()
        self._news.set()

    def hear(self, line: bytes | None) -> None:
        """Take one line; `None` stands for one that was too long."""
        if self._stopped or (line is not None and not line.strip()):
            return
        if line is None:
            self._misread(f"it is longer than {MAX_LINE:,} bytes")
            return
        try:
            self._take(_orders.decode(line.removeprefix(BOM_UTF8)), len(line))
        except (ValueError, TypeError, RecursionError) as error:
            self._misread(str(error).rstrip("."))
        self._news.set()

    def _take(self, order: Order, size: int) -> None:
        if order.type == "abort":
            self._aborted = self._current is not None
            self._agent.abort()
        elif self._current is None:
            self._current = self._agent.prompt(order.message)
        elif order.type == "prompt" or (self._aborted and not self._waiting):
            # Behind an abort there is no run to steer, however long its end takes.
            self._wait_with(order.message, size)
        elif order.type == "steer":
            self._agent.steer(order.message, order.mode, key=order.key)
        else:
            self._agent.follow_up(order.message, key=order.key)

    def _wait_with(self, message: AgentMessage, size: int) -> None:
        self._waiting.append((message, size))
        self._size += size
        if self._size > _MAX_WAITING and self._lines is not None:
            self._lines.pause()

    def _next(self) -> None:
        """After a run: the next prompt, or what came too late for the run it was meant for."""
        if self._stopped:
            return
        if self._waiting:
            message, size = self._waiting.popleft()
            self._size -= size
            if self._size <= _MAX_WAITING and self._lines is not None:
                self._lines.go_on()
            self._current = self._agent.prompt(message)
        elif self.last is not None and self.last.end_reason in ("done", "terminated"):
            queued = self._agent.queued
            if queued.steering or queued.follow_up:
                self._current = self._agent.continue_()

    def _end(self) -> None:
        """There will be no more orders."""
        self._ended = True
        self._news.set()

    def _misread(self, why: str) -> None:
        self.misread += 1
        self._tell(f"a line of the input was not understood: {why}")


class Lines:
    """Reads lines in a thread, since a standard input can be anything, and gives them to the event loop in order."""

    def __init__(self, descriptor: int, on_line: Callable[[bytes | None], None], on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_line = on_line
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._going = threading.Event()
        self._taken = threading.Semaphore(2)
        self._thread = threading.Thread(target=self._work, name="steersman-input", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._going.set()
        self._thread.start()

    def pause(self) -> None:
        """Read no more for now."""
        self._going.clear()

    def go_on(self) -> None:
        """Read again."""
        self._going.set()

    def _work(self) -> None:
        try:
            self._read()
            self._loop.call_soon_threadsafe(self._on_end)
        except RuntimeError:
            return  # the event loop is closed: nobody listens any more

    def _read(self) -> None:
        begun = bytearray()
        skipping = False
        while data := self._more():
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
            self._give(lines)
        if begun:
            self._give([bytes(begun)])

    def _more(self) -> bytes:
        self._going.wait()
        while True:
            try:
                return os.read(self._descriptor, _READ)
            except BlockingIOError:  # somebody who shares it made it so
                select.select([self._descriptor], [], [])
            except OSError:  # closed, or a terminal that has gone
                return b""

    def _give(self, lines: Sequence[bytes | None]) -> None:
        if lines:
            self._taken.acquire()
            self._loop.call_soon_threadsafe(self._take, lines)

    def _take(self, lines: Sequence[bytes | None]) -> None:
        for line in lines:
            self._on_line(line)
        self._taken.release()
