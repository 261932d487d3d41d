"""The chat on a terminal: what is finished goes into the scrollback, what still changes stays above the input line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.styles import Style

from steersman.cli.chat.console import Console
from steersman.cli.chat.conversation import Breaking, Conversation, Kind
from steersman.cli.chat.input import ChatCompleter, KeptHistory
from steersman.cli.chat.layout import state_line, waiting_lines
from steersman.cli.chat.question import QUIET, Question
from steersman.cli.exits import DONE, HUNG_UP, INTERRUPTED
from steersman.cli.setup.startup import Outfit
from steersman.cli.terminal.approval import CHOICES, SETTLING, Answer, describe
from steersman.cli.terminal.columns import wrapped
from steersman.cli.terminal.sanitize import one_line
from steersman.cli.terminal.stderr import amount
from steersman.policy.approval import Approved
from steersman.types.content import ToolCall
from steersman.types.events import AgentEvent
from steersman.types.model import Model

if TYPE_CHECKING:
    from steersman.cli.render import Show
    from steersman.provider.local.weights.disk import Progress

FRAME = 0.04
"""The least seconds between two pictures; a spinner turns every second or third."""

ESC_SECONDS, ALT_SECONDS = 0.04, 0.02
"""How long Esc waits for the rest of an arrow's bytes, and then for the key it may belong to, as in Alt+Enter."""


class Screen:
    """What a person sees and types. It is the front of a conversation, and the room its commands work in."""

    def __init__(self, outfit: Outfit, show: Show, *, color: bool, history_file: Path) -> None:
        from steersman.cli.chat.keys import key_bindings
        from steersman.cli.chat.layout import layout

        self.outfit = outfit
        self.show = show
        self.color = color
        self.conversation = Conversation(outfit.agent, self)
        self.question: Question | None = None
        self.hint = ""
        self.live = ""
        self.input = Buffer(
            name="input",
            multiline=True,
            history=KeptHistory(history_file),
            completer=ChatCompleter(outfit),
            complete_while_typing=True,
            on_text_changed=lambda _: self._forget_hint(),
        )
        self.answer = Buffer(name="answer", multiline=False, on_text_changed=lambda _: self._answering())
        self.output = Console(color=color, gone=lambda: self.leave(HUNG_UP))
        self._printed: list[str] = []
        self._turn = asyncio.Lock()
        self._last_key = float("-inf")
        self._breaking = Breaking()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._preparing: asyncio.Task[Any] | None = None
        self.app: Application[int] = Application(
            layout=layout(self),
            key_bindings=key_bindings(self),
            output=self.output,
            min_redraw_interval=FRAME,
            erase_when_done=True,
            style=Style.from_dict({"dim": "fg:ansibrightblack", "mark": "bold fg:ansicyan"}),
            color_depth=self.output.get_default_color_depth(),
            before_render=lambda _: self._print_finished(),
            after_render=lambda _: self._drawn(),
        )
        self.app.ttimeoutlen, self.app.timeoutlen = ESC_SECONDS, ALT_SECONDS
        self.app.key_processor.before_key_press.add_handler(self._key_pressed)

    # The front of the conversation

    def hear(self, event: AgentEvent) -> None:
        """Show what happens in the run."""
        self.show.hear(event)
        self.refresh()

    def say(self, kind: Kind, text: str) -> None:
        """Show a line that is not of the run."""
        self.show.say(kind, text)
        self.refresh()

    def put_back(self, text: str) -> None:
        """Give back what was typed and not heard, in front of what is being typed."""
        whole = f"{text}\n{self.input.text}" if self.input.text else text
        self.input.document = Document(whole, len(whole))
        self.refresh()

    def refresh(self) -> None:
        """Draw again soon."""
        self.app.invalidate()

    def recall(self, asked: str, said: str) -> None:
        """Show the last of an earlier session."""
        from steersman.cli.render import markdown

        width = self.output.get_size().columns
        if asked:
            self.show.say("user", asked)
        answer = markdown(said, width, self.color) if said else ""
        self._printed.append(f"{self.show.finished(width)}\n{answer}\n")

    # What commands need

    def leave(self, code: int = 0) -> None:
        """End the chat; a run that goes on is interrupted."""
        self.conversation.interrupt()
        if self.app.is_running and not cast(Any, self.app.future).done():
            self.app.exit(result=code)

    async def prepare(self, model: Model) -> None:
        """Get an embedded model ready; the line below the input says how far it is.

        It may take minutes: whoever names another model meanwhile, or interrupts, does not want this one any more.
        """
        self._stop_preparing()
        self._preparing = task = asyncio.current_task()
        try:
            await self.outfit.prepare(model, self._progress)
        finally:
            if self._preparing is task:
                self._preparing = None
                self._hint("")

    @property
    def preparing(self) -> bool:
        """Whether a model is being got ready."""
        return self._preparing is not None

    def _stop_preparing(self) -> None:
        task, self._preparing = self._preparing, None
        if task is not None:
            task.cancel()
            self._hint("")

    def words_for(self, model: Model) -> str:
        """The system prompt that a model gets here."""
        return self.outfit.words_for(model)

    # Questions

    async def approve(self, call: ToolCall, why: str) -> bool | Approved:
        """Ask about a tool call; words instead of an answer are a no that steers."""
        async with self._turn:
            await self._quiet()
            answer = await self._asked(Question(call, why))
        if answer.words:
            self.conversation.send(answer.words)
        return answer.verdict

    async def _quiet(self) -> None:
        """Wait until nobody is in the middle of typing."""
        clock = asyncio.get_running_loop().time
        while (left := self._last_key + QUIET - clock()) > 0:  # noqa: ASYNC110  # keys come at any time, and only the last one counts
            await asyncio.sleep(left)

    async def _asked(self, question: Question) -> Answer:
        size = self.output.get_size()
        text = describe(question.call, question.why, self.outfit.workspace, size.columns, color=self.color)
        self._printed.append(f"{self.show.finished(size.columns)}\n{text}\n")
        if (lines := text.count("\n") + 1) > size.rows - 6:
            question.preface = f"All {lines} lines of it are above; scroll up to read them. "
        self.answer.reset()
        self.question = question
        self.app.layout.focus(self.answer)
        self.refresh()
        try:
            answer = await question.answer
        except asyncio.CancelledError:
            self.show.say("notice", "This is no longer asked.")
            raise
        finally:
            self.question = None
            self.app.layout.focus(self.input)
            self.refresh()
        said = "always" if answer.remember else "yes" if answer.yes else "no"
        self.say("notice", f"You said {said}." if not answer.words else f"You said no: {answer.words}")
        return answer

    @property
    def choices(self) -> str:
        """What can be answered, in lines."""
        question = self.question
        text = CHOICES if question is None else question.note or f"{question.preface}{CHOICES}"
        return "\n".join(wrapped(text, self.output.get_size().columns))

    @property
    def answer_mark(self) -> str:
        """The sign before an answer, which is there once one is taken."""
        return "? " if self.question is not None and self.question.settled else "  "

    # What is typed

    def submit(self, text: str, *, later: bool = False) -> None:
        """Send what was typed: a command, a prompt, steering, or with `later` a follow-up."""
        from steersman.cli.chat.commands import is_command, obey, spoken

        words = text.strip()
        if not words:
            return
        self._breaking.forget()
        if is_command(words):
            self._start(obey(self, words))
        elif later:
            self.conversation.follow_up(spoken(words))
        else:
            self.conversation.send(spoken(words))

    def typed(self) -> None:
        """Somebody goes on typing: a Ctrl-C before that was one of its own."""
        self._breaking.forget()

    def interrupt(self) -> None:
        """Stop the run, and getting a model ready; a question that is open is answered with no."""
        if self.preparing:
            self._stop_preparing()
            self.say("notice", f"The model stays {one_line(self.conversation.agent.config.model.name)}.")
        if self.question is not None:
            self.question.give(Answer(yes=False))
        self.conversation.interrupt()

    def break_off(self) -> None:
        """Ctrl-C: interrupt what goes on or clear the line; a second one leaves."""
        if self._breaking.again():
            self.leave(self._breaking.code)
        elif self.conversation.running or self.preparing:
            self._breaking.first(INTERRUPTED if self.conversation.running else DONE)
            self.interrupt()
        elif self.input.text:
            self.input.reset()
        else:
            self._breaking.first(DONE)
            self._hint("Ctrl-C once more leaves, and so does Ctrl-D.")

    # Drawing

    def _live(self, size: Size) -> str:
        """The part of the run that still changes, in as many rows as the rest leaves free."""
        if self.question is not None or not self.conversation.running:
            return ""
        rows = size.rows - len(self.waiting()) - min(self.input.document.line_count, size.rows // 3) - 4
        return self.show.live(size.columns, max(1, rows)).rstrip("\n")

    def waiting(self) -> list[str]:
        """What waits to be heard, a line each."""
        return waiting_lines(self.conversation.waiting, self.output.get_size().columns)

    def state(self) -> str:
        """The line at the bottom."""
        return state_line(self.conversation, self.hint, self.output.get_size().columns)

    def _print_finished(self) -> None:
        """Put what is finished into the scrollback, above everything that is drawn from here on."""
        size = self.output.get_size()
        text = "".join(self._printed)
        self._printed.clear()
        if self.question is None:
            # Under an open question nothing moves: what is asked stays right above the answer.
            text += self.show.finished(size.columns)
        self.live = self._live(size)
        drawn = self.app.renderer.last_rendered_screen
        wanted = self.app.layout.container.preferred_height(size.columns, size.rows).preferred
        self.output.hold()
        if text or (drawn is not None and wanted < drawn.height):
            self.app.renderer.erase()
        if text:
            self.output.write_raw(text.replace("\n", "\r\n"))

    def _drawn(self) -> None:
        self.output.release()
        if self.question is not None and self.question.shown():
            asyncio.get_running_loop().call_later(SETTLING, self.refresh)

    # Inside

    def _progress(self, news: Progress) -> None:
        if news.notice:
            self.say("notice", news.what)
        else:
            self._hint(f"{news.what} {amount(news.done, news.total)}")

    def _key_pressed(self, _: object) -> None:
        self._last_key = asyncio.get_running_loop().time()

    def _answering(self) -> None:
        if self.question is not None:
            self.question.changed(self.answer.text)

    def _hint(self, text: str) -> None:
        self.hint = text
        self.refresh()

    def _forget_hint(self) -> None:
        self.hint = ""

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self) -> int:
        """Show the chat until somebody leaves; the exit code."""
        ticking = asyncio.create_task(self._tick())
        try:
            return await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:  # the keyboard is gone
            return HUNG_UP
        finally:
            ticking.cancel()
            self.conversation.interrupt()
            await self.conversation.over()
            self.output.write_raw("".join(self._printed) + self.show.finished(self.output.get_size().columns))
            self.output.release()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self.conversation.running and self.question is None:
                self.refresh()
