"""Calls a user who looks elsewhere: by the bell, or by a notification of the terminal, with fixed words.

A user who has just pressed a key is there, and is not called.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from steersman.cli.setup.settings import Notify

AFTER = 10.0
"""The usual seconds without a key after which a user is called."""

WAITS, DONE = "Steersman waits for your answer.", "Steersman is done."
BELL = "\x07"


def build_call(how: Notify, text: str, environment: Mapping[str, str] = os.environ) -> str:
    """What is sent to the terminal; empty for one that cannot call.

    `auto` is a notification (OSC 9, or 777) where the terminal is known to show it, and the bell elsewhere.
    """
    name, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if how == "off" or name in ("", "dumb", "unknown"):
        return ""
    # A multiplexer does not pass a notification on, and marks a window that rings.
    inside = "TMUX" in environment or name.startswith(("screen", "tmux"))
    knows_777 = name.startswith(("foot", "rxvt"))
    knows_9 = program in ("iTerm.app", "WezTerm", "ghostty") or name.startswith(("xterm-kitty", "xterm-ghostty"))
    if how == "bell" or (how == "auto" and (inside or not (knows_777 or knows_9))):
        return BELL
    return f"\x1b]777;notify;Steersman;{text}{BELL}" if knows_777 else f"\x1b]9;{text}{BELL}"


class Attention:
    """Calls the user once no key has been pressed for a while, as long as there is a reason."""

    def __init__(self, how: Notify | None, after: float | None, send: Callable[[str], None]) -> None:
        self._how: Notify = "auto" if how is None else how
        self._after = AFTER if after is None else after
        self._send = send
        self._last_key = float("-inf")

    def note_key(self) -> None:
        """Notes that the user is there."""
        self._last_key = asyncio.get_running_loop().time()

    def call_when_done(self) -> None:
        """Calls a user who has pressed no key for a while that a run is done."""
        if self._count_left() <= 0:
            self._call(DONE)

    def call_while(self, waits: Callable[[], bool]) -> None:
        """Calls the user once no key has been pressed for a while, if the question is open then."""
        if not waits():
            return
        if (left := self._count_left()) > 0:
            asyncio.get_running_loop().call_later(left, self.call_while, waits)
        else:
            self._call(WAITS)

    def _count_left(self) -> float:
        return self._last_key + self._after - asyncio.get_running_loop().time()

    def _call(self, text: str) -> None:
        if said := build_call(self._how, text):
            self._send(said)
