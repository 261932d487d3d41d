"""A session that is open in this server: its agent, its events, and what people may do with it.

A run belongs to the server: it goes on when the one who started it leaves, and only `abort` stops it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from steersman.agent.agent import Agent
from steersman.agent.outside import change_settings
from steersman.context.entries import Entry
from steersman.events.dispatch import SubscriptionId
from steersman.events.stream import EventStream
from steersman.loop.entry import Start, start_run
from steersman.loop.questions import BY_LOOP, Answer
from steersman.server.answers import make_answer, read_answer
from steersman.server.hub import Hub
from steersman.server.order_starts import OrderStarts, feed_followers
from steersman.server.outline import Outline, find_asked_call, list_replaced
from steersman.server.receipts import Receipt, Receipts, make_receipt
from steersman.session.orders import Order
from steersman.session.records import CONFIGURED
from steersman.session.session import Session
from steersman.types.continuation import Initial
from steersman.types.errors import AgentBusy, UnknownApproval, describe_exception
from steersman.types.events import AgentEvent, ApprovalRequested, ApprovalResolved
from steersman.types.messages import AgentMessage, require_content
from steersman.types.wire import encode

Status: TypeAlias = Literal["idle", "running", "waiting"]
Approvals: TypeAlias = Literal["wait", "deny"]
ResultT = TypeVar("ResultT")

_log = logging.getLogger("steersman.server")


class LiveSession(Receipts):
    """One open session. Methods that act return a receipt, `{"id", "status"}`, once what they did is saved."""

    def __init__(self, agent: Agent[Any], session: Session, hub: Hub, outline: Outline) -> None:
        super().__init__(agent, session, outline)
        self.hub = hub
        self.agent_name = outline.agent
        self.draining = False
        self._starting = asyncio.Lock()
        self._starts: set[asyncio.Task[Any]] = set()
        # What fronts keep beside an open session, by name.
        self.beside: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._answering: SubscriptionId | None = None
        self._starts_next = False  # a message came too late for the run that goes on
        # The messages, by id, that want questions denied: of several that start a run, one is enough.
        self._denying: set[str] = set()
        # The questions that a run has yet to ask again after a restart, with their calls.
        self._to_ask_again: dict[str, str] = {}
        assert session.recorder.journal is not None
        hub.attach(session.recorder.journal)
        agent.subscribe(hub.add_event)
        agent.subscribe(self._follow_event)
        self.orders = OrderStarts(self, outline.questions, self._follow)
        feed_followers(session, hub)

    @property
    def status(self) -> Status:
        """What the session is doing; `waiting` is for an answer to a question, and a run is over with `agent_end`."""
        if self.agent.open_approvals if self.agent.is_running else self._outline.questions:
            return "waiting"
        run = self.agent.current_run
        is_over = not self.agent.is_running or (run is not None and run.ending.is_closing)
        return "idle" if is_over else "running"

    def describe_questions(self) -> list[Any]:
        """The questions that wait for an answer, as events: of the run, or of one that a restart has interrupted."""
        if self.agent.is_running:
            return [msgspec.Raw(encode(event)) for event in self.agent.open_approvals]
        return list(self._outline.questions.values())

    @property
    def is_busy(self) -> bool:
        """Whether a run goes on."""
        return self.agent.is_running or self._task is not None

    @property
    def is_used(self) -> bool:
        """Whether a run goes on, a front is about to start one, or somebody watches."""
        return self.is_busy or bool(self._starts) or self.hub.watchers > 0

    @property
    def is_ending(self) -> bool:
        """Whether the run has told its end, or was told to stop: it takes no more messages and is about to be over."""
        run = self.agent.current_run
        return self._task is not None and (run is None or run.ending.is_closing or run.token.cancelled)

    @property
    def loop_id(self) -> str | None:
        """The id of the run that goes on; `None` if there is none."""
        run = self.agent.current_run
        return None if run is None or not self.is_busy else run.loop_id

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries of the current branch."""
        return self.agent.context.log.entries

    async def catch_up(self) -> None:
        """Return once the hub shows all records so far."""
        await self.session.save()

    async def settle(self) -> None:
        """Wait for a run that is about to be over."""
        while self._task is not None and self.is_ending:
            await asyncio.wait([self._task])

    async def start_alone(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do something that starts a run, while no other front does in this session.

        It is done to its end even if the client leaves in the middle, so that a note has its run.
        """
        task = asyncio.get_running_loop().create_task(self._start_alone(work))
        self._starts.add(task)
        task.add_done_callback(self._forget_start)
        return await asyncio.shield(task)

    async def _start_alone(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        async with self._starting:
            return await work()

    def _forget_start(self, task: asyncio.Task[Any]) -> None:
        self._starts.discard(task)
        if not task.cancelled():
            task.exception()  # the client that it was meant for may be gone

    # Speaking

    async def prompt(
        self,
        message: AgentMessage,
        *,
        key: str | None = None,
        approvals: Approvals = "wait",
        loop_id: str | None = None,
    ) -> Receipt:
        """Start a run with a message, under an id of its own or `loop_id`; raises `AgentBusy` while one goes on."""
        if (known := await self.find_receipt(key)) is not None:
            return known
        await self.settle()
        if self.is_busy and key is not None:
            await asyncio.to_thread(self.session.listening.look)  # it may have been sent to another server before
        if (known := await self.find_receipt(key)) is not None:
            return known  # sent twice at once
        if self.is_busy:
            raise AgentBusy("A run is going on in this session. Use steer or follow_up, or wait until it has ended.")
        if loop_id is not None:
            self.agent.context.loop_id = loop_id
        return await self._say("steering", message, key, approvals)

    async def steer(
        self, message: AgentMessage, *, mode: Any = None, key: str | None = None, approvals: Approvals = "wait"
    ) -> Receipt:
        """Steer the run; without one it starts one, and only then `approvals` counts."""
        return await self.find_receipt(key) or await self._say("steering", message, key, approvals, mode)

    async def follow_up(
        self, message: AgentMessage, *, key: str | None = None, approvals: Approvals = "wait"
    ) -> Receipt:
        """Queue a message for the end of the run; without one it starts one, and only then `approvals` counts."""
        return await self.find_receipt(key) or await self._say("follow_up", message, key, approvals)

    async def _say(
        self,
        kind: Literal["steering", "follow_up"],
        message: AgentMessage,
        key: str | None,
        approvals: Approvals,
        mode: Any = None,
    ) -> Receipt:
        """Queue a message, start a run if there is none, and return once the message is saved.

        A prompt is queued as well: its key and its text are one record, so a crash leaves both or none.
        """
        receipt = make_receipt(self.session.id, key)
        self.agent.inbox.add(kind, require_content(message), mode=mode, key=key, id=receipt["id"])
        if approvals == "deny":
            self._denying.add(receipt["id"])
        if not self.is_busy:
            self._follow(self._start_with_queued(), approvals)
        else:
            self._starts_next = self._starts_next or self.is_ending
        await self.session.save()
        return receipt

    def _start_with_queued(self) -> EventStream[Any]:
        """Start a run with the messages that are queued."""
        return start_run(self.agent, Start((), Initial(), silent=True))

    def start_queued(self) -> None:
        """Do what was queued for another process, and was heard when the session was opened here."""
        if self.is_busy or self.draining:
            return
        questions, is_aborted = self._outline.questions, self.session.listening.abort_due
        if len(self.agent.inbox):
            self._follow(self._start_with_queued(), "wait")
        elif questions and (is_aborted or not self.agent.questions.early.keys().isdisjoint(questions)):
            self._follow(self._continue(), "wait")

    # Controlling runs

    async def abort(self, *, key: str | None = None) -> Receipt:
        """Interrupt the run, if there is one; one that a restart has cut while it asked is over, with its questions."""
        if (known := await self.find_receipt(key)) is not None:
            return known
        if not self.is_busy and self._outline.questions:
            self._follow(self._continue(), "wait")
        self.agent.abort()
        return await self.keep_receipt("abort", key, make_receipt(self.session.id, key))

    async def resume(self, *, key: str | None = None, approvals: Approvals = "wait") -> Receipt:
        """Go on after an error, an abort or a restart."""
        return await self._start_keyed("continue", key, self._continue, approvals)

    def _continue(self) -> EventStream[Any]:
        # The server may have been killed after it took the first message and before the run had it.
        if len(self.agent.inbox) and not self.agent.messages:
            return self._start_with_queued()
        return self.agent.continue_()

    async def rerun(self, *, at: str | int | None = None, tag: str | None = None, key: str | None = None) -> Receipt:
        """Repeat the last answer, or the one at an entry."""
        return await self._start_keyed("rerun", key, lambda: self.agent.rerun(tag, at=at))

    async def branch(
        self,
        at: str | int,
        message: AgentMessage | None = None,
        *,
        tag: str | None = None,
        key: str | None = None,
        approvals: Approvals = "wait",
    ) -> Receipt:
        """Go another way from an earlier entry, with a new message where one is needed."""
        prompt = None if message is None else [require_content(message)]
        return await self._start_keyed("branch", key, lambda: self.agent.branch(at, tag, prompt=prompt), approvals)

    async def _start_keyed(
        self, action: str, key: str | None, start: Callable[[], EventStream[Any]], approvals: Approvals = "wait"
    ) -> Receipt:
        """Start a run, unless it was started under this key before."""
        await self.settle()
        if (known := await self.find_receipt(key)) is not None:
            return known
        if self.is_busy:
            raise AgentBusy("A run is going on in this session. Wait until it has ended, or abort it.")
        receipt = make_receipt(self.session.id, key)
        try:
            stream = start()
        except IndexError as error:  # a message index that does not exist
            raise ValueError(str(error)) from error
        self._follow(stream, approvals)
        return await self.keep_receipt(action, key, receipt)

    # Answering questions

    async def approve(self, approval_id: str, *, by: str, remember: bool = False, key: str | None = None) -> Receipt:
        """Approve a tool call; the run goes on if a restart has interrupted it."""
        return await self._answer(make_answer("approve", approval_id, by=by, remember=remember, key=key))

    async def deny(self, approval_id: str, reason: str = "", *, by: str, key: str | None = None) -> Receipt:
        """Deny a tool call; the run goes on if a restart has interrupted it."""
        return await self._answer(make_answer("deny", approval_id, reason=reason, by=by, key=key))

    async def _answer(self, order: Order) -> Receipt:
        """Answer a question; a second answer changes nothing. Raises `UnknownApproval` for a question never asked.

        The answer is a record before the run goes on with it: if the server is killed in between, it still counts.
        """
        await self.settle()
        known, id = await self.find_receipt(order.key), order.approval_id
        receipt = {"id": id, "status": "accepted"}
        early = self.agent.questions.early
        if not self.is_busy and id in self._outline.questions:
            if known is None or id not in early:
                self._keep_answer(order)
            self._follow(self._continue(), "wait")
        elif known is not None:
            return known
        elif id in self._to_ask_again and id not in early:
            self._keep_answer(order)
        elif id not in self._to_ask_again and self._give_answer(order):
            self._note_answer(order)
        else:
            return await self.keep_receipt(order.kind, order.key, {**receipt, "status": "resolved"})
        await self.session.save()
        return receipt

    def _keep_answer(self, order: Order) -> None:
        """Keep the answer to a question until it is asked again."""
        self._note_answer(order)
        self.agent.questions.answer_or_keep(order.approval_id, read_answer(order))

    def _note_answer(self, order: Order) -> None:
        self.session.recorder.record_order(order)
        if order.key is not None:
            self.note_order(order.key, order.approval_id)

    def _give_answer(self, order: Order) -> bool:
        """Give an answer to the agent; returns whether it counts."""
        try:
            return self.agent.questions.answer(order.approval_id, read_answer(order))
        except UnknownApproval:
            if not self.was_resolved(order.approval_id):
                raise
            return False

    def _follow_event(self, event: AgentEvent) -> None:
        if isinstance(event, ApprovalResolved):
            self._outline.resolved.add(event.approval_id)
        if isinstance(event, ApprovalRequested):
            self._deny_unless_answered(event.approval_id)
            call = event.tool_call_id if event.parent_tool_call_id is None else ""
            replaced = list_replaced(self._to_ask_again, event.approval_id, call)
            self._outline.resolved |= replaced
            for id in (event.approval_id, *replaced):
                self._to_ask_again.pop(id, None)

    def _deny_unless_answered(self, approval_id: str) -> None:
        """Deny a question in a run whose questions do not wait, also where a sub-agent would have one wait."""
        question = self.agent.questions.open.get(approval_id)
        if self._answering is None and question is not None and question.answerers:
            question.decide(Answer("denied", BY_LOOP, "nobody waits for the question"))

    # Following runs

    def _follow(self, stream: EventStream[Any], approvals: Approvals) -> None:
        self._to_ask_again.update({id: find_asked_call(asked) for id, asked in self._outline.questions.items()})
        self._outline.questions.clear()
        is_denying = approvals == "deny" or any(item.id in self._denying for item in self.agent.inbox.items)
        self._set_answering(answers=not is_denying)
        stream.channel.detach()  # watchers read the hub
        self._task = asyncio.get_running_loop().create_task(self._wait_for_end(stream))

    async def _wait_for_end(self, stream: EventStream[Any]) -> None:
        """Wait for the run to end; messages that came too late for it start the next one."""
        try:
            result = await stream
            self._outline.resolved |= self._to_ask_again.keys()  # not asked again: the run was aborted or steered
        except Exception as error:  # noqa: BLE001  # a mistake in the configuration of the agent must not end the server
            _log.error("A run of %r could not start: %s", self.session.id, describe_exception(error))
            return
        finally:
            self._task = None
            self._to_ask_again.clear()
            starts_next, self._starts_next = self._starts_next, False
            self.hub.wake()
        goes_on = starts_next or result.end_reason in ("done", "terminated")
        if len(self.agent.inbox) and goes_on and not self.draining:
            self._follow(self._start_with_queued(), "wait")

    def _set_answering(self, *, answers: bool) -> None:
        """Say whether questions wait for an answer, or are denied at once."""
        if answers and self._answering is None:
            self._answering = self.agent.subscribe(lambda _: None, answers=True)  # the hub shows them
        elif not answers and self._answering is not None:
            self.agent.unsubscribe(self._answering)
            self._answering = None

    async def configure(
        self, changes: Mapping[str, Any], models: Collection[str], *, key: str | None = None
    ) -> Receipt:
        """Change settings of the agent and the title, for good; raises `ValueError` for what is not offered."""
        if (known := await self.find_receipt(key)) is not None:
            return known
        settings = {name: value for name, value in changes.items() if name != "title"}
        change_settings(self.agent, settings, models)
        if settings:
            self._outline.add_settings(settings)
            self.session.recorder.add(CONFIGURED, settings)
        if "title" in changes:
            await asyncio.to_thread(self.session.set_title, changes["title"])
        return await self.keep_receipt("configure", key, {"id": self.session.id, "status": "accepted"})

    async def wait_until_idle(self) -> None:
        """Return once no run goes on."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Close the session. A run that still goes on is cut as by a crash: it can be resumed, its questions too."""
        self.draining = True
        self.hub.detach()
        if (journal := self.session.recorder.journal) is not None:
            journal.cut("The server has stopped.")
        await asyncio.to_thread(self.session.__exit__)
        self.agent.abort()
        await self.wait_until_idle()
