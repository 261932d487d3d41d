"""Lets another program drive the command: reads orders from standard input, one JSON object per line, in order.

`prompt` starts a run, or waits until earlier runs have ended. `steer` and `follow_up` go to the current run, or start
one if there is none. `abort` ends the current run; orders after it are not for that run. `approve` and `deny` answer
the question of a tool call that needs approval. At the end of the input the orders so far are finished, and questions
are denied. A malformed line is reported on standard error and ignored.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from steersman.cli.terminal.stdin import MAX_LINE, LineReader
from steersman.loop.entry import Start, start_run
from steersman.types.continuation import Initial
from steersman.types.errors import SteersmanError, UnknownApproval
from steersman.types.messages import AgentMessage
from steersman.types.result import RunResult
from steersman.types.user_content import read_user_content

if TYPE_CHECKING:
    from steersman.agent.agent import Agent
    from steersman.events.dispatch import SubscriptionId
    from steersman.events.stream import EventStream
    from steersman.types.events import AgentEvent


_MAX_WAITING = 64 << 20
_BY = "stdin"


class Order(msgspec.Struct, frozen=True):
    """One line of the input; unknown keys are ignored."""

    type: Literal["prompt", "steer", "follow_up", "abort", "approve", "deny"]
    content: str | list[dict[str, Any]] | None = None
    mode: Literal["skip", "cancel", "wait"] | None = None
    key: str | None = None
    id: str | None = None
    reason: str = ""
    remember: bool = False

    @property
    def approval_id(self) -> str:
        """The id of the question that is answered; raises `ValueError` if it is missing."""
        if not self.id:
            raise ValueError(f"{self.type!r} needs 'id': the 'approval_id' of an 'approval_requested' event")
        return self.id

    @property
    def dedup_key(self) -> str | None:
        """The key under which a message counts once; a prompt has none."""
        return None if self.type == "prompt" else self.key

    @property
    def message(self) -> AgentMessage:
        """The content as a message; raises `ValueError` if it is missing, empty or malformed."""
        return read_user_content(self.content, self.type)


class RunView(Protocol):
    """Shows runs."""

    async def show(self, stream: EventStream, /) -> RunResult:
        """Shows a run until it ends, and returns its result."""
        ...


def _ignore(_: AgentEvent) -> None:
    """The view shows the events."""


_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


class OrderDriver:
    """Runs what is ordered, one run after another. `last` is the last result, `misread` counts malformed lines.

    `answers` says that the other program sees the questions about tool calls, so that it can answer them.
    """

    def __init__(
        self,
        agent: Agent,
        view: RunView,
        notify: Callable[[str], None],
        conclude: Callable[[RunResult], None],
        *,
        answers: bool = False,
    ) -> None:
        self.last: RunResult | None = None
        self.misread = 0
        self._agent = agent
        self._view = view
        self._notify = notify
        self._conclude = conclude
        self._current: EventStream | None = None
        self._waiting: deque[tuple[Order, AgentMessage, int]] = deque()
        self._size = 0
        self._lines: LineReader | None = None
        self._ended = self._stopped = self._aborted = False
        self._failure: SteersmanError | None = None
        self._answers = answers
        self._answering: SubscriptionId | None = None
        self._news = asyncio.Event()

    async def drive(self, descriptor: int, *, first: str | None = None) -> None:
        """Follows the orders until all are done, or until `stop`.

        Raises `SteersmanError` if no order can be followed any more: another program has taken the session over, say.
        """
        if first is not None:
            self._current = self._agent.prompt(first)
        self._accept_answers()
        self._lines = lines = LineReader(descriptor, self.take_line, self._note_end)
        lines.start()
        while not self._stopped:
            if self._current is not None:
                self.last = await self._view.show(self._current)
                self._conclude(self.last)
                self._current = None
                self._aborted = False
                self._start_next()
            elif self._ended:
                return
            else:
                self._news.clear()
                await self._news.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Aborts the current run and takes no more orders."""
        self._stopped = True
        self._agent.abort()
        self._news.set()

    def take_line(self, line: bytes | None) -> None:
        """Takes one line; `None` stands for one that was too long."""
        if self._stopped or (line is not None and not line.strip()):
            return
        if line is None:
            self._report_misread(f"longer than {MAX_LINE:,} bytes")
            return
        try:
            self._follow_order(_orders.decode(line.removeprefix(BOM_UTF8)), len(line))
        except (ValueError, TypeError, RecursionError) as error:
            self._report_misread(str(error).rstrip("."))
        except SteersmanError as error:
            self._failure = error
            self.stop()
        self._news.set()

    def _follow_order(self, order: Order, size: int) -> None:
        if order.type in ("approve", "deny"):
            self._answer(order)
        elif order.type == "abort":
            self._aborted = self._current is not None
            self._agent.abort()
        elif self._current is None:
            self._current = self._start(order, order.message)
        elif order.type == "prompt" or (self._aborted and not self._waiting):
            # After an abort there is no run to steer, however long its end takes.
            self._queue_prompt(order, order.message, size)
        elif order.dedup_key is None or order.dedup_key not in [one.dedup_key for one, _, _ in self._waiting]:
            self._tell_agent(order, order.message)

    def _start(self, order: Order, message: AgentMessage) -> EventStream | None:
        """Starts a run with a message; `None` if it was taken before under the same key."""
        if order.dedup_key is None:
            return self._agent.prompt(message)
        # Through the queue, whose record of the message has its key.
        before = len(self._agent.inbox)
        self._tell_agent(order, message)
        return start_run(self._agent, Start((), Initial())) if len(self._agent.inbox) > before else None

    def _tell_agent(self, order: Order, message: AgentMessage) -> None:
        if order.type == "steer":
            self._agent.steer(message, order.mode, key=order.key)
        else:
            self._agent.follow_up(message, key=order.key)

    def _queue_prompt(self, order: Order, message: AgentMessage, size: int) -> None:
        self._waiting.append((order, message, size))
        self._size += size
        if self._size > _MAX_WAITING and self._lines is not None:
            self._lines.pause()
            self._refuse_answers()

    def _answer(self, order: Order) -> None:
        agent, approval_id = self._agent, order.approval_id
        try:
            if order.type == "approve":
                counts = agent.approve(approval_id, remember=order.remember, by=_BY)
            else:
                counts = agent.deny(approval_id, order.reason, by=_BY)
        except UnknownApproval:
            self._notify(f"ignored an answer: there is no question with the id {approval_id!r}")
        else:
            if not counts:
                self._notify(f"ignored an answer: the question {approval_id!r} is already resolved")

    def _accept_answers(self) -> None:
        """Lets questions wait for an answer from the input."""
        if self._answers and self._answering is None:
            self._answering = self._agent.subscribe(_ignore, answers=True)

    def _refuse_answers(self) -> None:
        """Denies questions, open and later ones: no line of the input can answer them."""
        if self._answering is not None:
            self._agent.unsubscribe(self._answering)
            self._answering = None

    def _start_next(self) -> None:
        """After a run, starts the next prompt, or messages that came too late for that run."""
        if self._stopped:
            return
        while self._waiting and self._current is None:
            order, message, size = self._waiting.popleft()
            self._size -= size
            if self._size <= _MAX_WAITING and self._lines is not None:
                self._lines.resume()
                self._accept_answers()
            self._current = self._start(order, message)
        if self._current is None and self.last is not None and self.last.end_reason in ("done", "terminated"):
            queued = self._agent.queued
            if queued.steering or queued.follow_up:
                self._current = self._agent.continue_()

    def _note_end(self) -> None:
        """Notes the end of the input."""
        self._ended = True
        self._refuse_answers()
        self._news.set()

    def _report_misread(self, why: str) -> None:
        self.misread += 1
        self._notify(f"ignored a malformed line of the input: {why}")
