"""Asks the user on the screen of a chat: about a tool call, or for a yes before something else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding.vi_state import InputMode

from steersman.cli.chat.console import take_in_steps
from steersman.cli.chat.question import CONFIRM, QUIET, Question
from steersman.cli.terminal.approval import (
    SETTLING,
    ApprovalAnswer,
    Confirmation,
    apply_answer,
    describe_confirmation,
    describe_in_thread,
    prepare_request,
)
from steersman.cli.terminal.columns import wrap
from steersman.policy.approval import Approved
from steersman.types.content import ToolCall

if TYPE_CHECKING:
    from steersman.cli.chat.screen import Screen


class Questions:
    """The questions of a screen, one at a time: the open one, and the line in which it is answered."""

    def __init__(self, screen: Screen) -> None:
        self.open: Question | None = None
        self.answer = Buffer(name="answer", multiline=False, on_text_changed=lambda _: self._note_edit())
        self._screen = screen
        self._turn = asyncio.Lock()
        self._last_key = float("-inf")

    async def approve(self, call: ToolCall, why: str) -> bool | Approved:
        """Asks for approval of a tool call; text instead of an answer denies the call and steers the run."""
        screen, agent = self._screen, self._screen.started.agent
        async with self._turn:
            await self._wait_for_quiet()
            request = await prepare_request(call, why, agent)
            width = screen.output.get_size().columns
            text = await describe_in_thread(request, screen.started.workspace, width, color=screen.color)
            answer = await self._ask(Question(request), text)
            verdict, said = apply_answer(answer, request, agent)
            screen.say("notice", said)
        if answer.words:
            screen.conversation.send(answer.words)
        return verdict

    async def confirm(self, question: str, content: str = "") -> bool:
        """Asks for a yes, and shows what it is about; anything else is a no."""
        async with self._turn:
            await self._wait_for_quiet()
            text = describe_confirmation(question, content, self._screen.output.get_size().columns)
            return (await self._ask(Question(Confirmation()), text)).yes

    def judge_again(self) -> None:
        """Ends an open question that a change of the mode answers."""
        question = self.open
        says = "ask" if question is None else question.request.judge(self._screen.started.agent)
        if question is None or says == "ask":
            return
        if says == "deny":
            question.resolve(ApprovalAnswer(yes=False))
        else:
            # Shift+Tab leads through this mode to a stricter one: only a mode that stays is a yes.
            asyncio.get_running_loop().call_later(QUIET, self._answer_by_mode, question)

    def enter_answer(self) -> None:
        """Answers an open question with the typed line; one that is no answer gives way to the next."""
        question = self.open
        if question is not None and not question.answer_with(self.answer.text) and question.note != CONFIRM:
            self.answer.reset()

    def refuse(self) -> None:
        """Answers an open question with no."""
        if self.open is not None:
            self.open.resolve(ApprovalAnswer(yes=False))

    @property
    def choices(self) -> str:
        """The possible answers, wrapped."""
        question = self.open
        text = "" if question is None else question.note or f"{question.preface}{question.request.choices}"
        return "\n".join(wrap(text, self._screen.output.get_size().columns))

    @property
    def answer_mark(self) -> str:
        """The mark before the answer, shown once an answer is accepted."""
        return "? " if self.open is not None and self.open.settled else "  "

    def note_key(self) -> None:
        """Notes that the user is typing."""
        self._last_key = asyncio.get_running_loop().time()

    def note_shown(self) -> None:
        """Notes that the screen was drawn, with the open question if there is one."""
        if self.open is not None and self.open.mark_shown():
            asyncio.get_running_loop().call_later(SETTLING, self._screen.refresh)

    def _answer_by_mode(self, question: Question) -> None:
        if question is self.open and question.request.judge(self._screen.started.agent) == "allow":
            question.resolve(ApprovalAnswer(yes=True))

    async def _wait_for_quiet(self) -> None:
        """Waits until the user is not typing."""
        clock = asyncio.get_running_loop().time
        while (left := self._last_key + QUIET - clock()) > 0:  # noqa: ASYNC110  # keys arrive at any time, and only the last one counts
            await asyncio.sleep(left)

    async def _ask(self, question: Question, text: str) -> ApprovalAnswer:
        screen, size = self._screen, self._screen.output.get_size()
        async for finished in take_in_steps(screen.show, screen.output):
            screen.printed.append(finished)
        screen.printed.append(f"\n{text}\n")
        if (lines := text.count("\n") + 1) > size.rows - 6:
            question.preface = f"All {lines} lines are above; scroll up to read them. "
        self.answer.reset()
        self.open = question
        screen.app.layout.focus(self.answer)
        screen.app.vi_state.input_mode = InputMode.INSERT
        screen.attention.call_while(lambda: self.open is question)
        screen.refresh()
        try:
            return await question.answer
        except asyncio.CancelledError:
            screen.show.say("notice", "Approval is no longer needed.")
            raise
        finally:
            self.open = None
            screen.app.layout.focus(screen.input)
            screen.refresh()

    def _note_edit(self) -> None:
        if self.open is not None:
            self.open.mark_edited(self.answer.text)
