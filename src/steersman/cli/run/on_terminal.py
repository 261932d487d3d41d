"""One run on a terminal, and the person at it: a view made for people, who are asked what has to be asked."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.terminal.descriptors import STDOUT
from steersman.cli.terminal.stderr import Telling
from steersman.types.errors import MissingExtra
from steersman.types.result import RunResult

if TYPE_CHECKING:
    from steersman.cli.render import Show, TerminalView
    from steersman.cli.setup.startup import Outfit
    from steersman.events.stream import EventStream
    from steersman.policy.approval import Approved
    from steersman.types.content import ToolCall


class Drawn:
    """Shows runs on a terminal; what is told meanwhile is drawn among the rest."""

    def __init__(self, show: Show, view: TerminalView, telling: Telling) -> None:
        self._show = show
        self._view = view
        self._telling = telling

    async def show(self, stream: EventStream) -> RunResult:
        """Draw a run to its end."""
        self._telling.instead = self._say
        try:
            return await self._view.show(stream)
        finally:
            self._telling.instead = None

    def paused(self) -> AbstractContextManager[None]:
        """Draw nothing while somebody is asked something."""
        return self._view.paused()

    def _say(self, text: str) -> None:
        self._show.say("notice", text)


class Asking:
    """Asks the person at the terminal about a call.

    `settle` waits until what was said before is there, `pause` takes away what is drawn meanwhile, or holds it back.
    """

    def __init__(self) -> None:
        self.settle: Callable[[], Awaitable[None]] | None = None
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext
        self._outfit: Outfit | None = None
        self._color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def wear(self, outfit: Outfit) -> None:
        """Know whose calls these are."""
        self._outfit = outfit

    async def ask(self, call: ToolCall, reason: str) -> bool | Approved:
        """Ask, and let what the person wants instead be heard as steering."""
        from steersman.cli.terminal.approval import ask_on_terminal

        outfit = self._outfit
        if outfit is None:
            return False
        if self.settle is not None:
            await self.settle()
        with self.pause():
            return await ask_on_terminal(
                call, reason, workspace=outfit.workspace, color=self._color, instead=outfit.agent.steer
            )

    async def trust(self, question: str, content: str) -> bool:
        """Ask whether a file of the project may count."""
        from steersman.cli.terminal.approval import trust_on_terminal

        return await trust_on_terminal(question, content)


def on_terminal(telling: Telling, workspace: Path, *, verbose: bool) -> Drawn | None:
    """The view for a terminal; `None` where it is not installed, or the terminal can do nothing but text."""
    if os.environ.get("TERM", "") in ("", "dumb"):
        return None
    try:
        from steersman.cli.render import Show, TerminalView, wants_color

        show = Show(color=wants_color(STDOUT), verbose=verbose, workspace=workspace)
        return Drawn(show, TerminalView(show, fd=STDOUT), telling)
    except MissingExtra:
        return None
