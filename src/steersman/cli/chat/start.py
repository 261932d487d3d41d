"""The chat: type while it works. It owns no loop behaviour; everything it does, `Agent` offers to everyone.

On a terminal it is drawn with prompt_toolkit, and what it draws is made with rich. A full-screen framework was the
other choice. This one leaves the terminal's own scrollback, search, selection and copy as they are: what is finished is
printed once and belongs to the terminal, there is no alternate screen, and what was said is still there after leaving.
Only the last lines are redrawn: the part of the answer that still changes, what waits to be heard, and an input line in
which one can go on typing while text streams above it. Where there is no such terminal, or the extra is not installed,
the same chat goes line by line.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from steersman.cli.arguments import Options
    from steersman.cli.chat.conversation import Conversation, Kind
    from steersman.cli.setup.startup import Outfit
    from steersman.cli.terminal.signals import Stopping
    from steersman.cli.terminal.stderr import Telling
    from steersman.policy.approval import Approved
    from steersman.types.content import ToolCall

HINT = "Enter sends, and steers while it works. Alt+Enter queues, Esc interrupts, /help has the rest."
PLAIN_HINT = "Enter sends, and steers while it works. Ctrl-C interrupts, /help has the rest."
NO_EXTRA = (
    "This is the plain chat. For the one with an input line, Markdown and completion: pip install 'steersman[cli]'"
)


class _Front(Protocol):
    @property
    def conversation(self) -> Conversation: ...
    def say(self, kind: Kind, text: str) -> None: ...
    def recall(self, asked: str, said: str) -> None: ...
    def leave(self, code: int = 0) -> None: ...
    async def approve(self, call: ToolCall, why: str) -> bool | Approved: ...
    async def run(self) -> int: ...


async def chat(options: Options) -> int:
    """Talk with an agent until somebody leaves; the exit code."""
    from steersman.cli.chat.console import kept_sane
    from steersman.cli.terminal.signals import Stopping, heard
    from steersman.cli.terminal.stderr import Telling

    stopping, telling = Stopping(), Telling(verbose=options.verbose)
    with kept_sane() as restore, heard(stopping.ask, leaving=restore) as signals:
        try:
            code = await _chatted(options, stopping, telling)
        except asyncio.CancelledError as cancel:
            if not stopping.was_it(cancel):
                raise
            code = 0
        finally:
            await telling.close()
    return code if signals.code is None else signals.code


async def _chatted(options: Options, stopping: Stopping, telling: Telling) -> int:
    from steersman.cli.setup.startup import outfit
    from steersman.cli.terminal.approval import trust_on_terminal
    from steersman.cli.terminal.descriptors import STDOUT
    from steersman.cli.terminal.sanitize import one_line
    from steersman.cli.terminal.stderr import Telling

    between, afterwards = _Between(telling), Telling(verbose=options.verbose)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(afterwards.close)
        worn = await stack.enter_async_context(
            outfit(
                options,
                approve=between.approve,
                tell=between.tell,
                progress=telling.progress,
                trust=trust_on_terminal,
                # Before anything is fetched, which may take minutes.
                chosen=lambda choice: telling.say(one_line(choice.why)),
            )
        )
        await telling.close()
        front = between.front = _front(worn, options)
        with stopping.reaching(front.leave):
            code = await front.run()
        between.front, between.telling = None, afterwards
        session = worn.agent.session
        last_words = "" if session is None or not session.tree() else resume_line(session.id)
    if last_words:
        try:
            os.write(STDOUT, f"{last_words}\n".encode())
        except OSError:  # the window was closed, and nobody reads them
            return code
    return code


class _Between:
    """What the agent has to say to a person before there is a front, through it, and after it."""

    def __init__(self, telling: Telling) -> None:
        self.front: _Front | None = None
        self.telling = telling

    def tell(self, line: str) -> None:
        """Show a notice."""
        if self.front is None:
            self.telling.tell(line)
        else:
            self.front.say("notice", line)

    async def approve(self, call: ToolCall, reason: str) -> bool | Approved:
        """Ask; where there is nobody to ask, the answer is no."""
        return False if self.front is None else await self.front.approve(call, reason)


def resume_line(session_id: str) -> str:
    """How to come back."""
    from steersman.cli.terminal.sanitize import one_line

    return f"To go on: steersman -c, or steersman -r {one_line(session_id)}"


def _front(worn: Outfit, options: Options) -> _Front:
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if can_draw():
        from steersman.cli.chat.screen import Screen
        from steersman.cli.render import Show
        from steersman.cli.setup.settings import history_file

        show = Show(color=color, verbose=options.verbose, workspace=worn.workspace)
        front: _Front = Screen(worn, show, color=color, history_file=history_file())
        front.say("notice", HINT)
    else:
        from steersman.cli.chat.line_mode import ByLines

        front = ByLines(worn, color=color)
        front.say("notice", PLAIN_HINT)
        if not _has_extra():
            front.say("notice", NO_EXTRA)
    _greet(front, worn)
    return front


def _greet(front: _Front, worn: Outfit) -> None:
    """Show where an earlier session stopped, and give back what was typed then and never heard."""
    messages = worn.agent.messages
    if messages:
        count = f"{len(messages)} message{'s' if len(messages) > 1 else ''}"
        front.say("notice", f"Going on with a session of {count}; this was the last of it. /tree shows more.")
        asked = next((at for at in reversed(messages) if at.role == "user" and not at.synthetic), None)
        said = next((at for at in reversed(messages) if at.role == "assistant" and at.text), None)
        front.recall("" if asked is None else asked.text, "" if said is None else said.text)
    elif worn.agent.session is not None and worn.agent.session.tree():
        front.say("notice", "Going on with a session at its beginning, where /clear took it. /tree has the way back.")
    front.conversation.take_back()


def can_draw() -> bool:
    """Whether there is a terminal that can be drawn on, and what it is drawn with."""
    from steersman.cli.terminal.descriptors import STDIN, STDOUT, is_terminal

    capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    return capable and is_terminal(STDIN) and is_terminal(STDOUT) and _has_extra()


def _has_extra() -> bool:
    from importlib.util import find_spec

    return find_spec("prompt_toolkit") is not None and find_spec("rich") is not None
