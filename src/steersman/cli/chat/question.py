"""An open question about a tool call: one at a time, answered with a word and Enter, and never by accident.

It waits while the user is typing, ignores keys typed before it could be read, and takes neither a paste nor a line that
arrived in one piece as a yes.
"""

from __future__ import annotations

import asyncio
import sys
import termios

from steersman.cli.terminal.approval import SETTLING, ApprovalAnswer, ApprovalRequest, Confirmation, parse_answer

QUIET = 0.5
"""Seconds without a key after which the user is not typing."""

CONFIRM = "The line arrived in one piece. Press Enter to confirm yes."


class Question:
    """An open question and the answer so far."""

    def __init__(self, request: ApprovalRequest | Confirmation) -> None:
        loop = asyncio.get_running_loop()
        self.request = request
        self.note = ""
        self.preface = ""
        self.pasted = False
        self.answer: asyncio.Future[ApprovalAnswer] = loop.create_future()
        self._clock = loop.time
        self._shown: float | None = None
        self._seen = True

    def mark_shown(self) -> bool:
        """Notes that the question is on the screen; returns whether this is the first time."""
        self._seen = True
        if self._shown is not None:
            return False
        self._shown = self._clock()
        discard_typed_input()
        return True

    @property
    def settled(self) -> bool:
        """Whether it accepts answers yet."""
        return self._shown is not None and self._clock() - self._shown >= SETTLING

    def mark_edited(self, text: str) -> None:
        """Notes that the typed answer changed."""
        self._seen = False
        self.note = ""
        self.preface = ""
        self.pasted = self.pasted and bool(text)

    def answer_with(self, line: str) -> bool:
        """Answers with a typed line; returns whether it counted as an answer."""
        pasted = self.pasted and bool(line.strip())
        answer = ApprovalAnswer(yes=False, words=line.strip()) if pasted else parse_answer(line, self.request)
        if isinstance(answer, str):
            self.note = answer
            return False
        if answer.yes and not self._seen:
            self.note = CONFIRM
            return False
        self.resolve(answer)
        return True

    def resolve(self, answer: ApprovalAnswer) -> None:
        """Sets the answer, unless there is one."""
        if not self.answer.done():
            self.answer.set_result(answer)


def discard_typed_input() -> None:
    """Discards keys that the terminal holds and that were not read."""
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):  # not a terminal, or closed
        return
