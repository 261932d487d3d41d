"""The chat drawn on a terminal: finished output goes into the scrollback, live output stays above the input line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.styles import DynamicStyle

from steersman.cli.chat.asking import Questions
from steersman.cli.chat.attention import Attention
from steersman.cli.chat.commands import escape_text, is_command, is_own_command, run_command, unescape_text
from steersman.cli.chat.console import Console, take_in_steps
from steersman.cli.chat.conversation import Conversation, CtrlC, Kind, truncate_lines
from steersman.cli.chat.custom_commands import CustomCommand
from steersman.cli.chat.drafts import Pastes, attach_files
from steersman.cli.chat.input import ChatCompleter, ChatHistory, build_key_bindings
from steersman.cli.chat.keyboard import read_more_keys
from steersman.cli.chat.layout import build_layout, build_style, get_vi_mode, render_state, render_waiting
from steersman.cli.chat.own_command import OwnCommands, describe_to_model
from steersman.cli.chat.preparing import Preparation
from steersman.cli.chat.question import Question
from steersman.cli.chat.todo_list import render_todo, restore_todo
from steersman.cli.exits import DONE, HUNG_UP, INTERRUPTED
from steersman.cli.setup.settings import Settings
from steersman.cli.setup.startup import StartedAgent
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.policy.approval import Approved, Mode
from steersman.tools.builtin.todo import read_todo
from steersman.types.content import ToolCall
from steersman.types.events import AgentEnd, AgentEvent, ToolExecutionEnd
from steersman.types.model import Model

if TYPE_CHECKING:
    from steersman.cli.render import RunDisplay
    from steersman.cli.setup.file_history import FileHistory
    from steersman.cli.setup.mcp_files import McpFiles


FRAME = 0.04
"""The least seconds between two frames; the spinner turns every second or third frame."""

CYCLE: tuple[Mode, ...] = ("ask", "accept-edits", "plan")
"""The modes that Shift+Tab goes through."""

ESC_SECONDS, ALT_SECONDS = 0.04, 0.02
"""How long Esc waits for the rest of an escape sequence, and then for the key it may belong to, as in Alt+Enter."""


class Screen:
    """The screen of a chat: the view of a conversation, and what its commands work on."""

    def __init__(
        self,
        started: StartedAgent,
        show: RunDisplay,
        *,
        color: bool,
        history_file: Path,
        custom: Mapping[str, CustomCommand],
    ) -> None:
        self.started = started
        self.custom = custom
        self.show = show
        self.color = color
        self.pastes = Pastes()
        self.conversation = Conversation(started.agent, self)
        self.conversation.shorten = show.shorten = self._shorten_sent
        self.questions = Questions(self)
        self.hint = ""
        self.live = ""
        self.todo = restore_todo(started.agent)
        self.input = Buffer(
            name="input",
            multiline=True,
            history=ChatHistory(history_file),
            completer=ChatCompleter(started, custom),
            complete_while_typing=True,
            on_text_changed=lambda _: self._clear_hint(),
        )
        self.output = Console(color=color, gone=lambda: self.leave(HUNG_UP))
        self.printed: list[str] = []
        self._breaking = CtrlC()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._preparation = Preparation(started, self._show_hint, lambda text: self.say("notice", text))
        self.attention = Attention(started.settings.notify, started.settings.notify_after, self.send_control)
        self._own_commands = OwnCommands(started.workspace)
        self._own: asyncio.Task[Any] | None = None
        self.app: Application[int] = Application(
            layout=build_layout(self),
            key_bindings=build_key_bindings(self),
            output=self.output,
            min_redraw_interval=FRAME,
            erase_when_done=True,
            style=DynamicStyle(build_style),
            editing_mode=EditingMode.VI if started.settings.vim else EditingMode.EMACS,
            color_depth=self.output.get_default_color_depth(),
            before_render=lambda _: self._print_finished(),
            after_render=lambda _: self._finish_draw(),
        )
        read_more_keys(self.app.input)
        self.app.ttimeoutlen, self.app.timeoutlen = ESC_SECONDS, ALT_SECONDS
        self.app.key_processor.before_key_press.add_handler(lambda _: self._note_key())

    # The view of the conversation

    def show_event(self, event: AgentEvent) -> None:
        """Shows an event of the run."""
        self.show.show_event(event)
        if type(event) is ToolExecutionEnd and (items := read_todo(event.result)) is not None:
            self.todo = items
        elif type(event) is AgentEnd:
            self.attention.call_when_done()
        self.refresh()

    def say(self, kind: Kind, text: str) -> None:
        """Shows a line that is not part of the run."""
        self.show.say(kind, text)
        self.refresh()

    def put_back(self, text: str) -> None:
        """Returns text that did not reach the model to the input, before what is being typed."""
        text = escape_text(self.pastes.collapse(text))
        whole = f"{text}\n{self.input.text}" if self.input.text else text
        self.input.document = Document(whole, len(whole))
        self.refresh()

    def _shorten_sent(self, text: str) -> str:
        """Returns what is shown of a text that was sent: a long paste as its placeholder, and the first lines."""
        return truncate_lines(self.pastes.collapse(text))

    def refresh(self) -> None:
        """Redraws soon."""
        self.app.invalidate()

    def show_last_exchange(self, asked: str, said: str) -> None:
        """Shows the last exchange of an earlier session."""
        if asked:
            self.show.say("user", asked)
        if said:
            self.show.say("answer", said)

    # Used by commands

    def leave(self, code: int = 0) -> None:
        """Ends the chat; aborts the current run."""
        self.conversation.interrupt()
        if self.app.is_running and not cast(Any, self.app.future).done():
            self.app.exit(result=code)

    def change_mode(self, mode: Mode) -> None:
        """Changes what needs approval; an open question that this answers is over."""
        self.conversation.change_mode(mode)
        self.questions.judge_again()

    def cycle_mode(self) -> None:
        """Changes to the next mode; `bypass` is only chosen by name."""
        mode = self.conversation.mode
        self.change_mode(CYCLE[(CYCLE.index(mode) + 1) % len(CYCLE)] if mode in CYCLE else CYCLE[0])

    async def prepare(self, model: Model) -> None:
        """Loads an embedded model; the status line shows the progress."""
        await self._preparation.load(model)

    def get_system_prompt(self, model: Model) -> str:
        """Returns the system prompt for a model."""
        return self.started.get_system_prompt(model)

    @property
    def settings(self) -> Settings:
        """The settings of the user and of the project."""
        return self.started.settings

    def toggle_vim(self) -> None:
        """Changes between the keys of vi and those of Emacs."""
        vim = self.app.editing_mode is EditingMode.EMACS
        self.app.editing_mode = EditingMode.VI if vim else EditingMode.EMACS
        how = "Esc leaves insert mode; in normal mode it interrupts a run" if vim else "as in most line editors"
        self.say("notice", f"The keys are those of {'vi' if vim else 'Emacs'}: {how}.")

    @property
    def mcp(self) -> McpFiles | None:
        """The MCP servers of the agent."""
        return self.started.mcp

    @property
    def workspace(self) -> Path:
        """The folder of the agent."""
        return self.started.workspace

    @property
    def files(self) -> FileHistory | None:
        """What the runs changed in files."""
        return self.started.files

    def send_control(self, sequence: str) -> None:
        """Sends a control sequence of the chat's own to the terminal."""
        self.output.write_raw(sequence)
        self.output.flush()

    # Questions

    @property
    def question(self) -> Question | None:
        """The open question, if there is one."""
        return self.questions.open

    async def approve(self, call: ToolCall, why: str) -> bool | Approved:
        """Asks for approval of a tool call."""
        return await self.questions.approve(call, why)

    async def confirm(self, question: str, content: str = "") -> bool:
        """Asks for a yes."""
        return await self.questions.confirm(question, content)

    # Input

    def submit(self, text: str, *, later: bool = False) -> None:
        """Sends what was typed: a command, a prompt, steering, or with `later` a follow-up."""
        words = text.strip()
        if not words:
            return
        self._breaking.reset()
        if is_command(words):
            self.show.say("user", words)
            self._start_task(self._run_command(words))
            return
        if is_own_command(words):
            self.show.say("user", words)
            self._own = self._start_task(self._run_own_command(words[1:].strip()))
            return
        words = unescape_text(words)
        # Only what is seen in the input names files, not a long paste.
        attached = attach_files(words, self.workspace, self.started.agent.config.approval)
        send = self.conversation.follow_up if later else self.conversation.send
        send(self.pastes.expand(words), attached)

    async def _run_command(self, words: str) -> None:
        await run_command(self, words)
        # A command may lead to another part of the conversation, with a list of its own.
        self.todo = restore_todo(self.started.agent)
        self.refresh()

    async def _run_own_command(self, command: str) -> None:
        """Runs a command of the user, shows its output, and lets the model read it."""
        self._show_hint(f"Running {command} · Esc stops it")
        try:
            event = await self._own_commands.run(command)
        except asyncio.CancelledError:
            self.say("notice", "The command was stopped.")
            return
        finally:
            self._own = None
            self._show_hint("")
        self.show.show_event(event)
        self.conversation.add_note(describe_to_model(event))
        self.refresh()

    @property
    def busy(self) -> bool:
        """Whether there is something to interrupt."""
        return self.conversation.running or self._preparation.running or self._own is not None

    def expand(self) -> None:
        """Shows the whole output of the last tool call, then of all calls of the run."""
        self.show.expand()
        self.refresh()

    def note_typing(self) -> None:
        """Notes that the user goes on typing, so that the next Ctrl-C is a first one."""
        self._breaking.reset()

    def interrupt(self) -> None:
        """Aborts the run and the loading of a model; answers an open question with no."""
        if self._own is not None:
            self._own.cancel()
        if self._preparation.running:
            self._preparation.stop()
            self.say("notice", f"The model stays {sanitize_line(self.conversation.agent.config.model.name)}.")
        self.questions.refuse()
        self.conversation.interrupt()

    def interrupt_or_leave(self) -> None:
        """Handles Ctrl-C: aborts the run or clears the line; a second one leaves."""
        if self._breaking.is_repeated():
            self.leave(self._breaking.code)
        elif self.busy:
            self._breaking.press(INTERRUPTED if self.conversation.running else DONE)
            self.interrupt()
        elif self.input.text:
            self.input.reset()
        else:
            self._breaking.press(DONE)
            self._show_hint("Press Ctrl-C again, or Ctrl-D, to leave.")

    # Drawing

    def _render_live(self, size: Size) -> str:
        """Renders the live part of the run, in the rows that the rest leaves free."""
        if self.question is not None or not self.conversation.running:
            return ""
        rows = (
            size.rows
            - len(self.render_waiting())
            - len(self.render_todo())
            - min(self.input.document.line_count, size.rows // 3)
            - 4
        )
        return self.show.render_live(size.columns, max(1, rows)).rstrip("\n")

    def render_waiting(self) -> list[str]:
        """Renders the queued texts, one line each."""
        return render_waiting(self.conversation.waiting, self.output.get_size().columns)

    def render_todo(self) -> list[str]:
        """Renders the list of what is to do."""
        size = self.output.get_size()
        return render_todo(self.todo, size.columns, size.rows)

    def render_state(self) -> str:
        """Renders the status line."""
        vim = get_vi_mode() if self.app.editing_mode is EditingMode.VI else ""
        return render_state(self.conversation, self.hint, self.output.get_size().columns, vim=vim)

    def _print_finished(self) -> None:
        """Writes finished output into the scrollback, above everything that is redrawn."""
        size = self.output.get_size()
        text = "".join(self.printed)
        self.printed.clear()
        if self.question is None:
            # Nothing moves while a question is open: it stays right above its answer.
            text += self.show.take_finished(size.columns)
            if self.show.page.waiting:
                self.refresh()  # the next frame goes on; keys are read before it
        self.live = self._render_live(size)
        drawn = self.app.renderer.last_rendered_screen
        wanted = self.app.layout.container.preferred_height(size.columns, size.rows).preferred
        self.output.hold()
        if text or (drawn is not None and wanted < drawn.height):
            self.app.renderer.erase()
        if text:
            self.output.write_raw(text.replace("\n", "\r\n"))

    def _finish_draw(self) -> None:
        self.output.release()
        self.questions.note_shown()

    # Inside

    def _note_key(self) -> None:
        self.questions.note_key()
        self.attention.note_key()

    def _show_hint(self, text: str) -> None:
        self.hint = text
        self.refresh()

    def _clear_hint(self) -> None:
        self.hint = ""

    def _start_task(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self) -> int:
        """Shows the chat until the user leaves; returns the exit code."""
        ticking = asyncio.create_task(self._tick())
        try:
            return await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:  # the terminal was closed
            return HUNG_UP
        finally:
            self.output.end_bracketed_paste()
            self.output.release()
            ticking.cancel()
            if self._own is not None:
                self._own.cancel()
                await asyncio.wait([self._own])
            self.conversation.interrupt()
            await self.conversation.wait_until_idle()
            self.output.write_raw("".join(self.printed))
            async for finished in take_in_steps(self.show, self.output):
                self.output.write_raw(finished)
                self.output.release()
            self.output.release()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self.conversation.running and self.question is None:
                self.refresh()
