"""An agent that is talked to: what is typed becomes a prompt, steering or a follow-up, and none of it is lost.

It adds nothing to the loop: everything here goes through what `Agent` offers to everyone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

from steersman.agent.agent import Agent
from steersman.cli.exits import line_of
from steersman.events.stream import EventStream
from steersman.types.events import AgentEvent, MessageStart, TurnStart
from steersman.types.messages import AgentMessage, UserMessage
from steersman.types.result import RunResult
from steersman.types.usage import Usage

Kind: TypeAlias = Literal["user", "notice", "error"]

_TWICE = 1.5
"""Seconds within which a second Ctrl-C belongs to the first."""

_LONG = 24
"""Lines of a prompt that are shown when it is sent."""


class Front(Protocol):
    """Where a conversation is seen and typed."""

    def hear(self, event: AgentEvent) -> None:
        """Show what happens in the run."""
        ...

    def say(self, kind: Kind, text: str) -> None:
        """Show a line that is not of the run."""
        ...

    def put_back(self, text: str) -> None:
        """Give back what was typed and not heard, to be changed or sent again."""
        ...

    def refresh(self) -> None:
        """Something about the conversation is different now."""
        ...


class Conversation:
    """The runs of an agent, one after another, shown on a front."""

    def __init__(self, agent: Agent, front: Front) -> None:
        self.agent = agent
        self.usage = Usage()
        self.last: RunResult | None = None
        # The system prompt from the next run on, where it is another one.
        self.next_words: str | None = None
        self._front = front
        self._run: asyncio.Task[None] | None = None
        self._turn = 0

    @property
    def running(self) -> bool:
        """Whether a run goes on."""
        return self._run is not None

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """What was typed and is not heard yet: how it was meant, and its words."""
        queued = self.agent.queued
        named = (("steering", queued.steering), ("then", queued.follow_up))
        return [(name, message.text) for name, messages in named for message in messages]

    # What a person does

    def send(self, text: str) -> None:
        """Say something: it steers the run that goes on, or begins one."""
        if self.running:
            self._queue(self.agent.steer, text)
        else:
            self.begin(lambda: self.agent.prompt(text))

    def follow_up(self, text: str) -> None:
        """Say something that is heard when the agent would stop."""
        if self.running:
            self._queue(self.agent.follow_up, text)
        else:
            self.begin(lambda: self.agent.prompt(text))

    def interrupt(self) -> None:
        """Stop the run, if there is one."""
        self.agent.abort()

    def begin(self, start: Callable[[], EventStream]) -> None:
        """Start a run and show it; what stands in its way is told."""
        if self.next_words is not None:
            self.agent.context.system_prompt, self.next_words = self.next_words, None
        try:
            stream = start()
        except Exception as error:  # noqa: BLE001  # a wrong id, an empty prompt, a closed session: said, and the chat goes on
            self._front.say("error", line_of(error))
            return
        self._run = asyncio.create_task(self._follow(stream))
        self._front.refresh()

    async def over(self) -> None:
        """Wait for the run, and for those that follow from it."""
        while self._run is not None:
            await asyncio.wait([self._run])

    # Inside

    def _queue(self, add: Callable[[str], object], text: str) -> None:
        try:
            add(text)
        except Exception as error:  # noqa: BLE001  # the session may be closed by now: the words go back to where they were typed
            self._front.say("error", line_of(error))
            self._front.put_back(text)
        self._front.refresh()

    async def _follow(self, stream: EventStream) -> None:
        result: RunResult | None = None
        failure: Exception | None = None
        try:
            async for event in stream:
                self._front.hear(event)
                self._tell_prompt(event)
            result = await stream
        except Exception as error:  # noqa: BLE001  # a mistake, in a setting or in what shows it, ends this run and not the chat
            self.agent.abort()
            await self.agent.wait_for_idle()
            failure = error
        self._run = None
        if failure is not None:
            self._front.say("error", line_of(failure))
        if result is not None:
            self.last = result
            self.usage += result.usage
        self._settle(result)
        self._front.refresh()

    def _tell_prompt(self, event: AgentEvent) -> None:
        """What begins a run is shown as it is heard; what is heard later, the front shows by itself."""
        if type(event) is TurnStart:
            self._turn = event.turn_index
        elif type(event) is MessageStart and self._turn == 0:
            message = event.message
            if isinstance(message, UserMessage) and not message.synthetic and message.text.strip():
                self._front.say("user", abridged(message.text))

    def _settle(self, result: RunResult | None) -> None:
        """What was not heard: after a good end it begins the next run, otherwise it goes back to who typed it."""
        if not self.waiting:
            return
        if result is not None and result.end_reason == "done":
            self.begin(self.agent.continue_)
        else:
            self.take_back()

    def take_back(self) -> None:
        """Put everything that waits back where it was typed."""
        words = texts(self.agent.clear_queue())
        if words:
            self._front.put_back("\n".join(words))


class Breaking:
    """Ctrl-C, once and twice: `code` is the exit code for the second, 130 where the first one stopped a run."""

    def __init__(self) -> None:
        self.code = 0
        self._at = float("-inf")

    def again(self) -> bool:
        """Whether one came just before."""
        return asyncio.get_running_loop().time() - self._at < _TWICE

    def first(self, code: int) -> None:
        """One came; another one soon means to leave."""
        self.code, self._at = code, asyncio.get_running_loop().time()

    def forget(self) -> None:
        """Something else was typed since: the next one is a first one."""
        self._at = float("-inf")


def abridged(text: str) -> str:
    """A text as it is shown again to who wrote it: of a long one, the first lines."""
    lines = text.split("\n")
    if len(lines) <= _LONG:
        return text
    kept = lines[: _LONG - 1]
    return "\n".join([*kept, f"... and {len(lines) - len(kept)} more lines"])


def texts(messages: Iterable[AgentMessage]) -> list[str]:
    """The words of messages that have any."""
    return [message.text for message in messages if message.text]
