"""Starts the chat: on a capable terminal the drawn one (`screen`), otherwise line by line (`line_mode`).

The drawn chat uses prompt_toolkit for input and rich for output. Unlike a full-screen program, it has no alternate
screen: finished output is printed once into the terminal's own scrollback, where search, selection and copy work and
which stays after the chat. Only the last lines are redrawn: live output, queued texts and the input line, in which the
user can type while text streams above it. Without such a terminal, or without the extra, the same chat runs line by
line.
"""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from steersman.cli.chat.commands import ALIASES, COMMANDS, Chat
from steersman.cli.chat.conversation import truncate_lines
from steersman.cli.chat.custom_commands import CustomCommand, load_custom_commands
from steersman.cli.chat.drafts import get_typed_text
from steersman.cli.chat.line_mode import LineChat
from steersman.cli.chat.undo_command import find_untold, make_note
from steersman.cli.sessions.saved import find_last_end, shorten_session_id
from steersman.cli.setup.settings import find_history_file, find_theme
from steersman.cli.setup.startup import start_agent
from steersman.cli.terminal.approval import ask_trust_on_terminal
from steersman.cli.terminal.columns import allows_color, wrap
from steersman.cli.terminal.descriptors import STDERR, STDIN, STDOUT, count_columns, is_terminal
from steersman.cli.terminal.numbers import format_count
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.signals import StopRequest, catch_signals
from steersman.cli.terminal.stderr import StderrMessages
from steersman.cli.terminal.theme import use_theme

if TYPE_CHECKING:
    from steersman.cli.arguments import Options
    from steersman.cli.setup.startup import StartedAgent
    from steersman.policy.approval import Approved
    from steersman.types.content import ToolCall
    from steersman.types.messages import AgentMessage

HINT = "Enter sends, or steers during a run. Alt+Enter queues, Esc interrupts, /help lists the rest."
EXPAND = " (Ctrl-O shows all)"
PLAIN_HINT = "Enter sends, or steers during a run. Ctrl-C interrupts, /help lists the rest."
NO_EXTRA = "This is the plain chat. For the full one: pip install 'steersman[cli]'"


_UNFINISHED: Mapping[object, str] = {
    "cut off": "The run of this question was cut off: its program ended before the answer was complete.",
    "aborted": "The run of this question was interrupted.",
    "error": "The run of this question failed.",
    "limit": "The run of this question reached a limit.",
}

_UNDO = b"\x1b[0m\x1b[?2004l\x1b[?25h\r\n"
"""Resets style, bracketed paste and cursor, and starts a new line."""


class _View(Chat, Protocol):
    def show_last_exchange(self, asked: str, said: str) -> None: ...
    async def approve(self, call: ToolCall, why: str) -> bool | Approved: ...
    async def run(self) -> int: ...


async def run_chat(options: Options) -> int:
    """Chats until the user leaves; returns the exit code."""
    stopping, stderr = StopRequest(), StderrMessages(verbose=options.verbose)
    with restore_on_exit() as restore, catch_signals(stopping.request, on_leave=restore) as signals:
        try:
            code = await _start_and_run(options, stopping, stderr)
        except asyncio.CancelledError as cancel:
            if not stopping.consume_cancel(cancel):
                raise
            code = 0
        finally:
            await stderr.close()
    return code if signals.code is None else signals.code


async def _start_and_run(options: Options, stopping: StopRequest, stderr: StderrMessages) -> int:
    callbacks, afterwards = _AgentCallbacks(stderr), StderrMessages(verbose=options.verbose)

    async def ask_trust(question: str, content: str) -> bool:
        # What was told about the file before must not stand between the question and its answer.
        await stderr.flush()
        return await ask_trust_on_terminal(question, content)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(afterwards.close)
        started = await stack.enter_async_context(
            start_agent(
                options,
                approve=callbacks.approve,
                notify=callbacks.notify,
                progress=stderr.show_progress,
                trust=ask_trust,
                # Shown before a download, which may take minutes.
                chosen=lambda choice: stderr.write_lines(
                    "\n".join(wrap(sanitize_line(choice.why), count_columns(STDERR)))
                ),
            )
        )
        use_theme(find_theme(started.settings))
        reserved, notices = (*COMMANDS, *ALIASES), list[str]()
        custom = await load_custom_commands(
            started.workspace, reserved, ask=ask_trust, notify=notices.append, budget=started.budget
        )
        await stderr.close()
        view = callbacks.view = _make_view(started, options, custom)
        for notice in notices:
            view.say("notice", notice)
        with stopping.call_on_stop(view.leave):
            code = await view.run()
        callbacks.view, callbacks.stderr = None, afterwards
        session = started.agent.session
        last_words = (
            ""
            if session is None or not session.tree()
            else format_resume_hint(shorten_session_id(options, started.workspace, session.id))
        )
    if last_words:
        try:
            os.write(STDOUT, f"{last_words}\n".encode())
        except OSError:  # the window was closed
            return code
    return code


class _AgentCallbacks:
    """Passes notices and approvals to the view, and to stderr before and after there is one."""

    def __init__(self, stderr: StderrMessages) -> None:
        self.view: _View | None = None
        self.stderr = stderr

    def notify(self, line: str) -> None:
        """Shows a notice."""
        if self.view is None:
            self.stderr.notify(line)
        else:
            self.view.say("notice", line)

    async def approve(self, call: ToolCall, reason: str) -> bool | Approved:
        """Asks for approval; denies if there is no view."""
        return False if self.view is None else await self.view.approve(call, reason)


def format_resume_hint(session_id: str) -> str:
    """Says how to continue the session."""
    return f"To continue: steersman -c, or steersman -r {sanitize_line(session_id)}"


def _make_view(started: StartedAgent, options: Options, custom: Mapping[str, CustomCommand]) -> _View:
    color = allows_color()
    if can_draw():
        from steersman.cli.chat.screen import Screen
        from steersman.cli.render import RunDisplay

        show = RunDisplay(color=color, verbose=options.verbose, workspace=started.workspace, hint=EXPAND)
        view: _View = Screen(started, show, color=color, history_file=find_history_file(), custom=custom)
        view.say("notice", HINT)
    else:
        view = LineChat(started, color=color, custom=custom)
        view.say("notice", PLAIN_HINT)
        if not _has_extra():
            view.say("notice", NO_EXTRA)
    _greet(view, started)
    return view


def _greet(view: _View, started: StartedAgent) -> None:
    """Shows where a continued session stopped, and returns texts to the input that never reached the model."""
    messages = started.agent.messages
    if messages:
        count = format_count(len(messages), "message")
        view.say("notice", f"Continuing a session of {count}; this was the last exchange. /tree shows more.")
        asked = next((number for number, at in _enumerate_back(messages) if at.role == "user" and not at.synthetic), 0)
        # Only what was said to this question: an earlier answer would look like one to it.
        said = next((at.text for at in reversed(messages[asked:]) if at.role == "assistant" and at.text), "")
        question = truncate_lines(get_typed_text(messages[asked])) if messages[asked].role == "user" else ""
        view.show_last_exchange(question, said)
        view.conversation.recount()
        end = None if started.agent.session is None else find_last_end(started.agent.session)
        if end in _UNFINISHED:
            view.say("notice", f"{_UNFINISHED[end]} /continue goes on with it.")
    elif started.agent.session is not None and started.agent.session.tree():
        view.say("notice", "Continuing a session from its beginning, after /clear. /tree leads back.")
    for text in () if started.agent.session is None else find_untold(started.agent.session):
        view.conversation.add_note(make_note(text))
    view.conversation.return_queued_texts()


def _enumerate_back(messages: Sequence[AgentMessage]) -> Iterator[tuple[int, AgentMessage]]:
    return zip(range(len(messages) - 1, -1, -1), reversed(messages), strict=True)


def can_draw() -> bool:
    """Whether there is a terminal that can be drawn on, and the libraries to draw with."""
    capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    return capable and is_terminal(STDIN) and is_terminal(STDOUT) and _has_extra()


def _has_extra() -> bool:
    return find_spec("prompt_toolkit") is not None and find_spec("rich") is not None


@contextmanager
def restore_on_exit() -> Generator[Callable[[], None]]:
    """Restores the terminal settings on exit, and yields a function that does so at once."""
    try:
        before = termios.tcgetattr(STDIN) if is_terminal(STDIN) else None
    except termios.error:
        before = None

    def restore() -> None:
        try:
            if before is not None and termios.tcgetattr(STDIN) != before:
                termios.tcsetattr(STDIN, termios.TCSANOW, before)
                os.write(STDOUT, _UNDO)
        except (termios.error, OSError):  # the terminal is closed
            return

    try:
        yield restore
    finally:
        restore()
