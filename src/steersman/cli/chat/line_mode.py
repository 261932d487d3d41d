"""The chat line by line, for terminals that cannot be drawn on: it needs nothing but a keyboard and a printer."""

from __future__ import annotations

import asyncio
import signal
import sys

from steersman.cli.chat.commands import is_command, obey, spoken
from steersman.cli.chat.conversation import Breaking, Conversation, Kind
from steersman.cli.chat.question import Question, forget_typed
from steersman.cli.exits import DONE, HUNG_UP, INTERRUPTED
from steersman.cli.run.output import call_line
from steersman.cli.setup.startup import Outfit
from steersman.cli.terminal.approval import CHOICES, SETTLING, Answer, describe
from steersman.cli.terminal.columns import wrapped
from steersman.cli.terminal.descriptors import STDIN, STDOUT, columns_of
from steersman.cli.terminal.input_lines import Lines
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.policy.approval import Approved
from steersman.types.content import ToolCall
from steersman.types.events import AgentEnd, AgentEvent, MessageEnd, MessageUpdate, ToolExecutionEnd, ToolExecutionStart
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model

PROMPT = "> "


class ByLines:
    """A front of text alone: a line is sent when Enter ends it, and what happens is printed below."""

    def __init__(self, outfit: Outfit, *, color: bool) -> None:
        self.outfit = outfit
        self.conversation = Conversation(outfit.agent, self)
        self._color = color
        self._question: Question | None = None
        self._turn = asyncio.Lock()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._middle = self._gone = False
        self._breaking = Breaking()

    # The front of the conversation

    def hear(self, event: AgentEvent) -> None:
        """Print what happens in the run."""
        match event:
            case MessageUpdate() if event.delta.type == "text_delta":
                self._write(safe(event.delta.delta))
            case MessageUpdate() if event.delta.type == "reset":
                self._print("(It broke off and begins again.)")
            case MessageEnd(message=AssistantMessage() as message):
                self._end_line()
                if message.error_message:
                    self.say("error", message.error_message)
            case ToolExecutionStart():
                self._print(f"- {call_line(event.tool_name, event.args)}")
            case ToolExecutionEnd() if event.is_error:
                self._print(f"  {one_line(event.result.text)[:200]}")
            case AgentEnd() if event.end_reason not in ("done", "error"):
                self._print(f"({event.end_reason}{f': {safe(event.detail)}' if event.detail else ''})")
            case _:
                return

    def say(self, kind: Kind, text: str) -> None:
        """Print lines that are not of the run."""
        if kind != "user":  # what was typed is there already
            self._print(f"{'Error: ' if kind == 'error' else ''}{safe(text)}")

    def put_back(self, text: str) -> None:
        """Nothing can be put into a line that the terminal edits: what was not heard is printed, to be sent again."""
        self._print(f"Not heard, and not sent:\n{safe(text)}")

    def refresh(self) -> None:
        """Offer the next line when the run is over."""
        self._offer()

    def recall(self, asked: str, said: str) -> None:
        """Print the last of an earlier session."""
        self._print(f"{PROMPT}{safe(asked)}\n{safe(said)}")

    # What commands need

    def leave(self, code: int = 0) -> None:
        """End the chat; a run that goes on is interrupted."""
        self.conversation.interrupt()
        if not self._over.done():
            self._over.set_result(code)

    async def prepare(self, model: Model) -> None:
        """Get an embedded model ready."""
        if model.provider == "local":
            self._print("Getting the model ready...")
        await self.outfit.prepare(model)

    def words_for(self, model: Model) -> str:
        """The system prompt that a model gets here."""
        return self.outfit.words_for(model)

    # Questions

    async def approve(self, call: ToolCall, why: str) -> bool | Approved:
        """Ask about a tool call; the next line that is typed is the answer."""
        async with self._turn:
            question = self._question = Question(call, why)
            width = columns_of(STDOUT) or 80
            effect = describe(call, why, self.outfit.workspace, width, color=self._color)
            self._print("\n".join([effect, *wrapped(CHOICES, width)]))
            question.shown()
            try:
                await asyncio.sleep(SETTLING)
                forget_typed()
                self._write("? ")
                answer = await question.answer
            finally:
                self._question = None
        if answer.words:
            self.conversation.send(answer.words)
        return answer.verdict

    # What is typed

    def break_off(self) -> None:
        """Ctrl-C: interrupt the run; a second one leaves."""
        if self._breaking.again():
            self.leave(self._breaking.code)
        elif self.conversation.running:
            self._breaking.first(INTERRUPTED)
            if self._question is not None:
                self._question.give(Answer(yes=False))
            self.conversation.interrupt()
        else:
            self._breaking.first(DONE)
            self._print("Ctrl-C once more leaves, and so does Ctrl-D.")
            self._offer()

    async def run(self) -> int:
        """Take lines until somebody leaves; the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.break_off)
        with Lines(STDIN) as lines:
            taking = asyncio.create_task(self._take(lines))
            try:
                await asyncio.wait([taking, self._over], return_when=asyncio.FIRST_COMPLETED)
            finally:
                taking.cancel()
                loop.remove_signal_handler(signal.SIGINT)
                self.conversation.interrupt()
                await self.conversation.over()
        self._end_line()
        return self._over.result() if self._over.done() else 0

    async def _take(self, lines: Lines) -> None:
        self._offer()
        while (line := await lines.next()) is not None:
            self._middle = False
            while line.endswith("\\") and (more := await lines.next()) is not None:
                line = f"{line[:-1]}\n{more}"
            await self._said(line.strip())
        if self.conversation.running and self._question is None:
            await self.conversation.over()

    async def _said(self, line: str) -> None:
        if line:
            self._breaking.forget()
        if self._question is not None:
            if self._question.settled:
                self._question.take(line)
        elif is_command(line):
            await obey(self, line)
        elif line:
            self.conversation.send(spoken(line))
        self._offer()

    # Printing

    def _offer(self) -> None:
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
        if not text or self._gone:
            return
        self._middle = not text.endswith("\n")
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:  # the window was closed
            self._gone = True
            self.leave(HUNG_UP)
