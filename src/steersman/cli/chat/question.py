"""A question about a tool call on the screen: one at a time, answered by a word and Enter, and never by accident.

It does not break into a sentence that is being typed, drops what was typed before it could be read, and takes neither a
paste nor a line that came in one piece for a yes.
"""

from __future__ import annotations

import asyncio
import sys
import termios

from steersman.cli.terminal.approval import SETTLING, Answer, answer_of
from steersman.types.content import ToolCall

QUIET = 0.5
"""Seconds without a key after which somebody counts as not typing."""


class Question:
    """A question that is open, and what has been said to it so far."""

    def __init__(self, call: ToolCall, why: str) -> None:
        loop = asyncio.get_running_loop()
        self.call = call
        self.why = why
        self.note = ""
        self.preface = ""
        self.pasted = False
        self.answer: asyncio.Future[Answer] = loop.create_future()
        self._clock = loop.time
        self._shown: float | None = None
        self._seen = True

    def shown(self) -> bool:
        """It can be read now, and so can what is typed; whether that is so for the first time."""
        self._seen = True
        if self._shown is not None:
            return False
        self._shown = self._clock()
        forget_typed()
        return True

    @property
    def settled(self) -> bool:
        """Whether it takes answers yet."""
        return self._shown is not None and self._clock() - self._shown >= SETTLING

    def changed(self, text: str) -> None:
        """The answer that is being typed is another one."""
        self._seen = False
        self.note = ""
        self.preface = ""
        self.pasted = self.pasted and bool(text)

    def take(self, line: str) -> bool:
        """Answer with a line that Enter ended; whether that was an answer."""
        answer = Answer(yes=False, words=line.strip()) if self.pasted and line.strip() else answer_of(line)
        if answer.yes and not self._seen:
            self.note = "That came in one piece. Press Enter to say yes."
            return False
        self.give(answer)
        return True

    def give(self, answer: Answer) -> None:
        """Answer it, unless it is answered."""
        if not self.answer.done():
            self.answer.set_result(answer)


def forget_typed() -> None:
    """Drop what the terminal holds of keys that were pressed and not read."""
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):  # not a terminal, or closed: it holds nothing
        return
