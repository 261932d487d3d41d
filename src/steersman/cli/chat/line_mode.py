"""The chat line by line, for terminals that cannot be drawn on; it needs only a keyboard and printed lines."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from steersman.cli.chat.commands import is_command, is_own_command, run_command, unescape_text
from steersman.cli.chat.conversation import Conversation, CtrlC, Kind
from steersman.cli.chat.custom_commands import CustomCommand
from steersman.cli.chat.drafts import attach_files
from steersman.cli.chat.own_command import OwnCommands, describe_to_model
from steersman.cli.chat.question import Question
from steersman.cli.chat.todo_list import render_todo
from steersman.cli.exits import DONE, HUNG_UP, INTERRUPTED
from steersman.cli.run.output import describe_call, summarize_result
from steersman.cli.setup.file_history import FileHistory
from steersman.cli.setup.mcp_files import McpFiles
from steersman.cli.setup.settings import Settings
from steersman.cli.setup.startup import StartedAgent
from steersman.cli.terminal.approval import (
    SETTLING,
    ApprovalAnswer,
    apply_answer,
    describe_confirmation,
    describe_question,
    prepare_request,
)
from steersman.cli.terminal.descriptors import STDIN, STDOUT, count_columns
from steersman.cli.terminal.sanitize import sanitize
from steersman.cli.terminal.stdin import TerminalLines
from steersman.policy.approval import Approved, Mode
from steersman.tools.builtin.todo import read_todo
from steersman.types.content import ToolCall
from steersman.types.events import AgentEnd, AgentEvent, MessageEnd, MessageUpdate, ToolExecutionEnd, ToolExecutionStart
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model

PROMPT = "> "
_ALL_ROWS = 1000

_LOOSENS = re.compile(r"/\s*\S+\s+(accept-edits|bypass)\s*")


class LineChat:
    """A chat view of plain text: Enter sends a line, and output is printed below."""

    def __init__(self, started: StartedAgent, *, color: bool, custom: Mapping[str, CustomCommand]) -> None:
        self.started = started
        self.custom = custom
        self.conversation = Conversation(started.agent, self)
        self._color = color
        self._question: Question | None = None
        self._turn = asyncio.Lock()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._middle = self._gone = False
        self._breaking = CtrlC()
        self._own_commands = OwnCommands(started.workspace)
        self._lines: TerminalLines | None = None

    # The view of the conversation

    def show_event(self, event: AgentEvent) -> None:
        """Prints an event of the run."""
        match event:
            case MessageUpdate() if event.delta.type == "text_delta":
                self._write(sanitize(event.delta.delta))
            case MessageUpdate() if event.delta.type == "reset":
                self._print("(The answer broke off and starts over.)")
            case MessageEnd(message=AssistantMessage() as message):
                self._end_line()
                if message.error_message:
                    self.say("error", message.error_message)
            case ToolExecutionStart():
                self._print(f"- {describe_call(event.tool_name, event.args)}")
            case ToolExecutionEnd():
                listed = render_todo(read_todo(event.result) or (), count_columns(STDOUT) or 80, _ALL_ROWS)
                self._print("\n".join([f"  {line}" for line in [*summarize_result(event), *listed]]))
            case AgentEnd() if event.end_reason not in ("done", "error"):
                self._print(f"({event.end_reason}{f': {sanitize(event.detail)}' if event.detail else ''})")
            case _:
                return

    def say(self, kind: Kind, text: str) -> None:
        """Prints lines that are not part of the run."""
        if kind != "user":  # typed input is on the screen already
            self._print(f"{'Error: ' if kind == 'error' else ''}{sanitize(text)}")

    def put_back(self, text: str) -> None:
        """Prints text that did not reach the model; a terminal cannot put text into its input line."""
        self._print(f"Not sent to the model:\n{sanitize(text)}")

    def refresh(self) -> None:
        """Shows the input mark after a run."""
        self._show_input_mark()

    def show_last_exchange(self, asked: str, said: str) -> None:
        """Prints the last exchange of an earlier session."""
        self._print(f"{PROMPT}{sanitize(asked)}\n{sanitize(said)}")

    # Used by commands

    def leave(self, code: int = 0) -> None:
        """Ends the chat; aborts the current run."""
        self.conversation.interrupt()
        if not self._over.done():
            self._over.set_result(code)

    def change_mode(self, mode: Mode) -> None:
        """Changes what needs approval."""
        self.conversation.change_mode(mode)

    async def prepare(self, model: Model) -> None:
        """Loads an embedded model."""
        if model.provider == "local":
            self._print("Loading the model...")
        await self.started.prepare(model)

    def get_system_prompt(self, model: Model) -> str:
        """Returns the system prompt for a model."""
        return self.started.get_system_prompt(model)

    @property
    def settings(self) -> Settings:
        """The settings of the user and of the project."""
        return self.started.settings

    def toggle_vim(self) -> None:
        """Says that the terminal itself reads lines here."""
        self.say("error", "The plain chat has the keys of the terminal, and no others.")

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
        self._write_raw(sequence)

    # Questions

    async def confirm(self, question: str, content: str = "") -> bool:
        """Asks for a yes."""
        return await self._confirm(describe_confirmation(question, content, count_columns(STDOUT) or 80))

    async def approve(self, call: ToolCall, why: str) -> bool | Approved:
        """Asks for approval of a tool call; the next typed line is the answer."""
        async with self._turn:
            request = await prepare_request(call, why, self.started.agent)
            width = count_columns(STDOUT) or 80
            text = await describe_question(request, self.started.workspace, width, color=self._color)
            question = self._question = Question(request)
            self._print(text)
            question.mark_shown()
            try:
                await asyncio.sleep(SETTLING)
                self._take_answers()
                answer = await question.answer
            finally:
                self._question = None
            verdict, said = apply_answer(answer, request, self.started.agent)
            if answer.scope != "once":
                self.say("notice", said)
        if answer.words:
            self.conversation.send(answer.words)
        return verdict

    # Input

    def interrupt_or_leave(self) -> None:
        """Handles Ctrl-C: aborts the run; a second one leaves."""
        if self._breaking.is_repeated():
            self.leave(self._breaking.code)
        elif self.conversation.running:
            self._breaking.press(INTERRUPTED)
            if self._question is not None:
                self._question.resolve(ApprovalAnswer(yes=False))
            self.conversation.interrupt()
        else:
            self._breaking.press(DONE)
            self._print("Press Ctrl-C again, or Ctrl-D, to leave.")
            self._show_input_mark()

    async def run(self) -> int:
        """Takes lines until the user leaves; returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.interrupt_or_leave)
        with TerminalLines(STDIN) as lines:
            taking = asyncio.create_task(self._read_lines(lines))
            try:
                await asyncio.wait([taking, self._over], return_when=asyncio.FIRST_COMPLETED)
            finally:
                taking.cancel()
                loop.remove_signal_handler(signal.SIGINT)
                self.conversation.interrupt()
                await self.conversation.wait_until_idle()
        self._end_line()
        return self._over.result() if self._over.done() else 0

    async def _read_lines(self, lines: TerminalLines) -> None:
        self._lines = lines
        self._show_input_mark()
        while (line := await lines.next()) is not None:
            self._middle = False
            while line.endswith("\\") and (more := await lines.next()) is not None:
                line = f"{line[:-1]}\n{more}"
            await self._process_line(line.strip())
        if self.conversation.running and self._question is None:
            await self.conversation.wait_until_idle()

    async def _process_line(self, line: str) -> None:
        if line:
            self._breaking.reset()
        if self._question is not None:
            if self._question.settled and not self._question.answer_with(line):
                self._print(self._question.note)
                self._write("? ")
        elif is_command(line):
            if not _LOOSENS.fullmatch(line) or await self._confirm("Less will need your approval then."):
                await run_command(self, line)
        elif is_own_command(line):
            if not await self._confirm("This runs as you, without a sandbox."):
                return
            event = await self._own_commands.run(line[1:].strip())
            self._print("\n".join([f"  {text}" for text in summarize_result(event)]))
            self.conversation.add_note(describe_to_model(event))
        elif line:
            words = unescape_text(line)
            self.conversation.send(words, attach_files(words, self.workspace, self.started.agent.config.approval))
        self._show_input_mark()

    async def _confirm(self, why: str) -> bool:
        """Asks about a line: the terminal does not say whether it was typed, or was one of many in a paste."""
        assert self._lines is not None
        async with self._turn:
            self._print(f"{why} y goes on, anything else does not.")
            await asyncio.sleep(SETTLING)
            self._take_answers()
            answer = await self._lines.next()
            self._middle = False
        return answer is not None and answer.strip().lower() in ("y", "yes")

    def _take_answers(self) -> None:
        """Shows that answers are taken from here on; what was typed before is none, also where a command held it up."""
        if self._lines is not None:
            self._lines.discard_typed()
        self._write("? ")

    # Printing

    def _show_input_mark(self) -> None:
        if not self.conversation.running and not self._middle:
            self._write(PROMPT)

    def _print(self, text: str) -> None:
        self._end_line()
        self._write(f"{text}\n")
        self._middle = False

    def _end_line(self) -> None:
        if self._middle:
            self._write("\n")
            self._middle = False

    def _write(self, text: str) -> None:
        if text:
            self._middle = not text.endswith("\n")
            self._write_raw(text)

    def _write_raw(self, text: str) -> None:
        if self._gone:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:  # the window was closed
            self._gone = True
            self.leave(HUNG_UP)
