"""The conversation with an agent: typed text becomes a prompt, steering or a follow-up, and none of it is lost.

It uses only the public methods of `Agent`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from steersman.agent.agent import Agent
from steersman.cli.chat.drafts import Attachment, build_message, get_typed_text
from steersman.cli.chat.window_use import estimate_window_use
from steersman.cli.exits import describe_error
from steersman.cli.terminal.numbers import count_input_tokens
from steersman.events.stream import EventStream
from steersman.loop.inbox import Receipt
from steersman.policy.approval import Mode
from steersman.types.events import AgentEnd, AgentEvent, InputRejected, MessageStart, TurnStart
from steersman.types.messages import AgentMessage, AssistantMessage, UserMessage
from steersman.types.result import RunResult
from steersman.types.usage import Usage

Kind: TypeAlias = Literal["user", "notice", "error"]

MODES: Mapping[Mode, str] = {
    "ask": "what does more than read needs your approval",
    "accept-edits": "files of this folder are changed without asking, commands still ask",
    "plan": "nothing is changed and no command runs; the model looks around and plans",
    "bypass": "everything runs without asking, except what a rule denies",
}

_TWICE = 1.5
"""Seconds within which a second Ctrl-C leaves."""

_LONG = 24
"""Most lines shown of a prompt that was sent."""


class ChatView(Protocol):
    """Where a conversation is shown and typed."""

    def show_event(self, event: AgentEvent) -> None:
        """Shows an event of the run."""
        ...

    def say(self, kind: Kind, text: str) -> None:
        """Shows a line that is not part of the run."""
        ...

    def put_back(self, text: str) -> None:
        """Returns text that did not reach the model to the input."""
        ...

    def refresh(self) -> None:
        """Redraws after a change of the conversation."""
        ...


class Conversation:
    """The runs of an agent, one after another, shown in a view."""

    def __init__(self, agent: Agent, view: ChatView) -> None:
        self.agent = agent
        self.last: RunResult | None = None
        self._view = view
        self._run: asyncio.Task[None] | None = None
        self._over = False
        self._turn = 0
        self._notes: list[UserMessage] = []
        self._note_heads: set[str] = set()
        self._refused_notes: list[UserMessage] = []
        self._attached: Sequence[Attachment] = ()
        # Of what was queued, until it is known what has become of it.
        self._receipts: list[Receipt] = []
        self.filled: int | None = None
        self.counted: int | None = None
        self.shorten: Callable[[str], str] = truncate_lines

    @property
    def running(self) -> bool:
        """Whether a run is going on."""
        return self._run is not None

    @property
    def usage(self) -> Usage:
        """The usage of the chat so far, also of a run that is going on."""
        return self.agent.usage

    @property
    def mode(self) -> Mode:
        """What needs approval."""
        approval = self.agent.config.approval
        return "bypass" if approval is None else approval.mode

    def change_mode(self, mode: Mode) -> None:
        """Changes what needs approval, from the next call on; shows what that means."""
        approval = self.agent.config.approval
        if approval is None:
            self._view.say("error", "This agent has no approval policy, so it has no modes.")
            return
        approval.mode = mode
        self._view.say("notice", f"The mode is {mode}: {MODES[mode]}.")
        self._view.refresh()

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """Queued texts that the model has not received yet, each with its kind."""
        queued = self.agent.queued
        named = (("steering", queued.steering), ("then", queued.follow_up))
        return [(name, self.shorten(get_typed_text(message))) for name, messages in named for message in messages]

    # Input

    def send(self, text: str, attached: Sequence[Attachment] = ()) -> None:
        """Steers the current run, or starts one."""
        self._send(self.agent.steer, text, attached)

    def follow_up(self, text: str, attached: Sequence[Attachment] = ()) -> None:
        """Queues a text for the end of the current run, or starts one."""
        self._send(self.agent.follow_up, text, attached)

    def add_note(self, message: UserMessage) -> None:
        """Lets the model read a message: the current run now, or else with the next prompt.

        It is not shown, because the user has just seen what it is about.
        """
        self._note_heads.add(get_typed_text(message))
        if self.running:
            self._queue(self.agent.steer, message)
        else:
            self._notes.append(message)

    def drop_notes(self) -> None:
        """Drops the messages that wait for the next prompt: they belong to what the model no longer sees."""
        self._notes = []

    def interrupt(self) -> None:
        """Aborts the current run, if any."""
        self.agent.abort()

    def begin(self, start: Callable[[], EventStream], sent: Sequence[str | UserMessage] = ()) -> None:
        """Starts a run and shows it; shows an error if it cannot start. `sent` is what it is started with."""
        try:
            stream = start()
        except Exception as error:  # noqa: BLE001  # such as an empty prompt or a closed session: shown, and the chat goes on
            self._view.say("error", describe_error(error))
            self._hand_back(sent)
            return
        self._run = asyncio.create_task(self._follow(stream, sent))
        # A run without a prompt, as of `/continue`, gets them too.
        notes, self._notes = self._notes, []
        for note in notes:
            self._queue(self.agent.steer, note)
        self._view.refresh()

    def recount(self) -> None:
        """Estimates what the next request has after another change than a run, until the provider counts again."""
        self.counted = None
        self.filled = estimate_window_use(self.agent) if self.agent.messages else None

    def begin_task(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Begins other work than a run: what is typed meanwhile is sent after it, if it returns `True`."""
        self._run, self._over = asyncio.create_task(self._do(work)), False
        self._view.refresh()

    def show_event(self, event: AgentEvent) -> None:
        """Shows an event of other work."""
        self._view.show_event(event)

    async def wait_until_idle(self) -> None:
        """Waits for the current run and for those it leads to."""
        while self._run is not None:
            await asyncio.wait([self._run])

    async def wait_for_end(self) -> None:
        """Waits for a run that is shown as over, until it is; the session may be written for a while yet."""
        if self._run is not None and self._over:
            await asyncio.wait([self._run])

    # Inside

    def _send(self, add: Callable[[Any], Receipt], text: str, attached: Sequence[Attachment]) -> None:
        message = build_message(text, attached)
        if self.running:
            self._show_attached(attached)
            self._queue(add, message)
            return
        self._attached = attached
        notes, self._notes = self._notes, []
        self.begin(lambda: self.agent.prompt([*notes, message] if notes else message), [*notes, message])

    def _queue(self, add: Callable[[Any], Receipt], message: str | UserMessage) -> None:
        try:
            self._receipts.append(add(message))
        except Exception as error:  # noqa: BLE001  # the session may be closed by now: the text goes back to the input
            self._view.say("error", describe_error(error))
            self._hand_back([message])
        self._view.refresh()

    async def _follow(self, stream: EventStream, sent: Sequence[str | UserMessage]) -> None:
        result: RunResult | None = None
        failure: Exception | None = None
        self._over = False
        try:
            async for event in stream:
                if type(event) is AgentEnd:
                    # Before the run is shown as over: the session may be written for a while yet.
                    self._over = True
                if not self._is_note(event):
                    self._view.show_event(event)
                    self._show_prompt(event)
                if type(event) is InputRejected:
                    self._return_refused_texts()
            result = await stream
        except Exception as error:  # noqa: BLE001  # a bug, in a setting or in the view, ends this run and not the chat
            self.agent.abort()
            await self.agent.wait_for_idle()
            failure = error
        self._run = None
        if failure is not None:
            self._view.say("error", describe_error(failure))
        if result is not None:
            self.last = result
            self.counted = _count_context(result) or self.counted
            self.filled = self.counted or self.filled
            if result.end_reason == "rejected":
                self._hand_back_refused(sent)
        self._return_undelivered(result)
        self._view.refresh()

    async def _do(self, work: Callable[[], Awaitable[bool]]) -> None:
        good = False
        try:
            good = await work()
        except Exception as error:  # noqa: BLE001  # such as a closed session: shown, and the chat goes on
            self._view.say("error", describe_error(error))
        self._run = None
        if self.waiting:
            self.begin(self.agent.continue_) if good else self.return_queued_texts()
        self._view.refresh()

    def _is_note(self, event: AgentEvent) -> bool:
        found = event.message if type(event) is MessageStart else None
        return isinstance(found, UserMessage) and get_typed_text(found) in self._note_heads

    def _show_prompt(self, event: AgentEvent) -> None:
        """Shows the prompt when a run starts; the view itself shows messages that arrive later."""
        if type(event) is TurnStart:
            self._turn = event.turn_index
        elif type(event) is MessageStart and self._turn == 0:
            message = event.message
            if isinstance(message, UserMessage) and not message.synthetic and message.text.strip():
                self._view.say("user", self.shorten(get_typed_text(message)))
                attached, self._attached = self._attached, ()
                self._show_attached(attached)

    def _show_attached(self, attached: Iterable[Attachment]) -> None:
        for item in attached:
            self._view.say("notice", item.about)

    def _return_undelivered(self, result: RunResult | None) -> None:
        """Queued texts start the next run after a good end; otherwise they return to the input."""
        if not self.waiting:
            return
        if result is not None and result.end_reason == "done":
            self.begin(self.agent.continue_)
        else:
            self.return_queued_texts()

    def return_queued_texts(self) -> None:
        """Returns all queued texts to the input."""
        self._return_refused_texts()
        self._hand_back(self.agent.clear_queue())
        self._receipts = []

    def _return_refused_texts(self) -> None:
        """Returns what a filter refused of what was queued."""
        refused = [receipt.message for receipt in self._receipts if receipt.status == "returned"]
        self._receipts = [receipt for receipt in self._receipts if receipt.status in ("accepted", "next_run")]
        if refused:
            self._hand_back_refused(refused)

    def _hand_back_refused(self, messages: Sequence[str | AgentMessage]) -> None:
        """Returns texts that were refused; a note that was refused before may be the reason, so it is left out."""
        kept = [message for message in messages if message not in self._refused_notes]
        if len(kept) < len(messages):
            self._view.say("notice", "The model is not told what your own commands did: that was refused twice.")
        waiting = len(self._notes)
        self._hand_back(kept)
        self._refused_notes = self._notes[waiting:]

    def _hand_back(self, messages: Iterable[str | AgentMessage]) -> None:
        """Returns texts that the model has not read to the input; notes wait for the next prompt."""
        words: list[str] = []
        for message in messages:
            text = message if isinstance(message, str) else get_typed_text(message)
            if isinstance(message, UserMessage) and text in self._note_heads:
                self._notes.append(message)
            elif text:
                words.append(text)
        if words:
            self._view.put_back("\n".join(words))


class CtrlC:
    """Counts Ctrl-C: `code` is the exit code for a second press, 130 if the first one stopped a run."""

    def __init__(self) -> None:
        self.code = 0
        self._at = float("-inf")

    def is_repeated(self) -> bool:
        """Whether Ctrl-C was pressed a moment ago."""
        return asyncio.get_running_loop().time() - self._at < _TWICE

    def press(self, code: int) -> None:
        """Notes a press; another one soon means leave."""
        self.code, self._at = code, asyncio.get_running_loop().time()

    def reset(self) -> None:
        """Forgets the press, after other input."""
        self._at = float("-inf")


def truncate_lines(text: str) -> str:
    """Shortens a long text to its first lines."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= _LONG:
        return text
    kept = lines[: _LONG - 1]
    return "\n".join([*kept, f"... and {len(lines) - len(kept)} more lines"])


def _count_context(result: RunResult) -> int | None:
    """How many tokens the last answer had in its context, with itself, by the provider's count."""
    usages = (at.usage for at in reversed(result.messages) if isinstance(at, AssistantMessage) and at.usage.input)
    usage = next(usages, None)
    return None if usage is None else count_input_tokens(usage) + (usage.output or 0)
