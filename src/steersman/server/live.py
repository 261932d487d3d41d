"""A session that is open in this server: its agent, its events, and what people may do with it.

A run belongs to the server: it goes on when the one who started it leaves, and only `abort` stops it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from steersman.agent.agent import Agent
from steersman.events.dispatch import SubscriptionId
from steersman.events.stream import EventStream
from steersman.loop.entry import Start, start_run
from steersman.server.hub import Hub
from steersman.server.outline import RECEIPT, REFUSED, Outline
from steersman.session.session import Session
from steersman.types.continuation import Initial
from steersman.types.errors import AgentBusy, UnknownApproval, describe_exception
from steersman.types.events import AgentEvent, ApprovalRequested, ApprovalResolved
from steersman.types.ids import new_id
from steersman.types.messages import AgentMessage, require_content
from steersman.types.wire import encode

Status: TypeAlias = Literal["idle", "running", "waiting"]
Receipt: TypeAlias = dict[str, str]
Approvals: TypeAlias = Literal["wait", "deny"]
ResultT = TypeVar("ResultT")

_log = logging.getLogger("steersman.server")


class LiveSession:
    """One open session. Methods that act return a receipt, `{"id", "status"}`, once what they did is saved."""

    def __init__(self, agent: Agent[Any], session: Session, hub: Hub, outline: Outline) -> None:
        self.agent = agent
        self.session = session
        self.hub = hub
        self.agent_name = outline.agent
        self.draining = False
        self._starting = asyncio.Lock()
        self._starts: set[asyncio.Task[Any]] = set()
        # What fronts keep beside an open session, by name.
        self.beside: dict[str, Any] = {}
        self._outline = outline
        self._task: asyncio.Task[None] | None = None
        self._answering: SubscriptionId | None = None
        # Answers to questions of a run that has yet to ask them again after a restart.
        self._early_answers: dict[str, Callable[[], object]] = {}
        assert session.recorder.journal is not None
        hub.attach(session.recorder.journal)
        agent.subscribe(hub.add_event)
        agent.subscribe(self._follow_event)

    @property
    def status(self) -> Status:
        """What the session is doing; `waiting` is for an answer to a question."""
        if self.agent.open_approvals if self.agent.is_running else self._outline.questions:
            return "waiting"
        return "running" if self.agent.is_running else "idle"

    def describe_questions(self) -> list[Any]:
        """The questions that wait for an answer, as events: of the run, or of one that a restart has interrupted."""
        if self.agent.is_running:
            return [msgspec.Raw(encode(event)) for event in self.agent.open_approvals]
        return list(self._outline.questions.values())

    @property
    def is_busy(self) -> bool:
        """Whether a run goes on."""
        return self.agent.is_running or self._task is not None

    async def settle(self) -> None:
        """Wait for a run that has told its end and is about to be over."""
        run = self.agent.current_run
        if self._task is not None and (run is None or run.ending.is_closing):
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
        if (known := self._find_known(key)) is not None:
            return known
        await self.settle()
        if self.is_busy:
            raise AgentBusy("A run is going on in this session. Use steer or follow_up, or wait until it has ended.")
        if loop_id is not None:
            self.agent.context.loop_id = loop_id
        return await self._say("steering", message, key, approvals)

    async def steer(self, message: AgentMessage, *, mode: Any = None, key: str | None = None) -> Receipt:
        """Steer the run; without one it starts one."""
        return self._find_known(key) or await self._say("steering", message, key, "wait", mode)

    async def follow_up(self, message: AgentMessage, *, key: str | None = None) -> Receipt:
        """Queue a message for the end of the run; without one it starts one."""
        return self._find_known(key) or await self._say("follow_up", message, key, "wait")

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
        receipt = self._make_receipt(key)
        self.agent.inbox.add(kind, require_content(message), mode=mode, key=key, id=receipt["id"])
        if not self.is_busy:
            self._follow(start_run(self.agent, Start((), Initial(), silent=True)), approvals)
        await self.session.save()
        return receipt

    # Controlling runs

    async def abort(self) -> Receipt:
        """Interrupt the run, if there is one."""
        self.agent.abort()
        return self._make_receipt(None)

    async def resume(self, *, key: str | None = None, approvals: Approvals = "wait") -> Receipt:
        """Go on after an error, an abort or a restart."""
        return await self._start_keyed("continue", key, self.agent.continue_, approvals)

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
        if (known := self._find_known(key)) is not None:
            return known
        if self.is_busy:
            raise AgentBusy("A run is going on in this session. Wait until it has ended, or abort it.")
        receipt = self._make_receipt(key)
        stream = start()
        stream.channel.detach()  # watchers read the hub
        if key is not None:
            self._keep_receipt(action, key, receipt)
        self._follow(stream, approvals)
        await self.session.save()
        return receipt

    # Answering questions

    async def approve(self, approval_id: str, *, by: str, remember: bool = False) -> Receipt:
        """Approve a tool call; the run goes on if a restart has interrupted it."""
        return await self._answer(approval_id, lambda: self.agent.approve(approval_id, by=by, remember=remember))

    async def deny(self, approval_id: str, reason: str = "", *, by: str) -> Receipt:
        """Deny a tool call; the run goes on if a restart has interrupted it."""
        return await self._answer(approval_id, lambda: self.agent.deny(approval_id, reason, by=by))

    async def _answer(self, approval_id: str, answer: Callable[[], bool]) -> Receipt:
        """Answer a question; a second answer changes nothing. Raises `UnknownApproval` for a question never asked."""
        receipt = {"id": approval_id, "status": "accepted"}
        if not self.agent.is_running and approval_id in self._outline.questions:
            self._early_answers[approval_id] = answer
            await self.resume()
            return receipt
        try:
            if not answer():
                receipt["status"] = "resolved"
        except UnknownApproval:
            if not self.was_resolved(approval_id):
                raise
            receipt["status"] = "resolved"
        await self.session.save()
        return receipt

    def was_resolved(self, approval_id: str) -> bool:
        """Whether a question with this id was asked and answered in this session."""
        return approval_id in self._outline.resolved

    def _follow_event(self, event: AgentEvent) -> None:
        if isinstance(event, ApprovalResolved):
            self._outline.resolved.add(event.approval_id)
        if isinstance(event, ApprovalRequested) and event.approval_id in self._early_answers:
            answer = self._early_answers.pop(event.approval_id)
            asyncio.get_running_loop().call_soon(self._give_early_answer, answer)

    def _give_early_answer(self, answer: Callable[[], object]) -> None:
        try:
            answer()
        except UnknownApproval:
            _log.info("A question of %r was resolved before its answer came.", self.session.id)

    # Following runs

    def _follow(self, stream: EventStream[Any], approvals: Approvals) -> None:
        self._outline.questions.clear()
        self._set_answering(answers=approvals == "wait")
        self._task = asyncio.get_running_loop().create_task(self._wait_for_end(stream))

    async def _wait_for_end(self, stream: EventStream[Any]) -> None:
        """Wait for the run to end; messages that came too late for it start the next one."""
        try:
            result = await stream
        except Exception as error:  # noqa: BLE001  # a mistake in the configuration of the agent must not end the server
            _log.error("A run of %r could not start: %s", self.session.id, describe_exception(error))
            return
        finally:
            self._task = None
            self._early_answers.clear()
            self.hub.wake()
        if len(self.agent.inbox) and result.end_reason in ("done", "terminated") and not self.draining:
            self._follow(start_run(self.agent, Start((), Initial(), silent=True)), "wait")

    def _set_answering(self, *, answers: bool) -> None:
        """Say whether questions wait for an answer, or are denied at once."""
        if answers and self._answering is None:
            self._answering = self.agent.subscribe(_ignore, answers=True)
        elif not answers and self._answering is not None:
            self.agent.unsubscribe(self._answering)
            self._answering = None

    async def wait_until_idle(self) -> None:
        """Return once no run goes on."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Close the session. A run that still goes on is cut as by a crash: it can be resumed, its questions too."""
        self.draining = True
        self.hub.detach()
        await asyncio.to_thread(self.session.__exit__)
        self.agent.abort()
        await self.wait_until_idle()

    # Receipts

    def is_known(self, key: str) -> bool:
        """Whether something was said under this key."""
        return self._find_known(key) is not None

    def name_queued(self, key: str) -> str:
        """The id that a message has in the queue, if it is said under this key."""
        return self._make_receipt(key)["id"]

    def find_note(self, key: str) -> Mapping[str, Any] | None:
        """What a front has noted under a key."""
        return self._outline.receipts.get(key)

    def list_notes(self) -> Mapping[str, Mapping[str, Any]]:
        """All notes and receipts by their keys, the oldest first."""
        return self._outline.receipts

    @contextmanager
    def note(self, key: str, fields: Mapping[str, Any]) -> Generator[None]:
        """Note something in the log under a key, to be found after a restart as well; taken back if it fails."""
        note = {"status": "accepted", **fields, "key": key}
        self._outline.receipts[key] = note
        self.session.recorder.add(RECEIPT, note)
        try:
            yield
        except Exception:
            del self._outline.receipts[key]
            self.session.recorder.add(RECEIPT, {"key": key, "status": REFUSED})
            raise

    def _find_known(self, key: str | None) -> Receipt | None:
        if key is None:
            return None
        if self.agent.inbox.find_receipt(key) is not None:
            return self._make_receipt(key)
        known: Mapping[str, Any] | None = self._outline.receipts.get(key)
        return None if known is None else {"id": str(known["id"]), "status": str(known["status"])}

    def _make_receipt(self, key: str | None) -> Receipt:
        """A receipt; with a key its id follows from the key, so that it is the same after a restart."""
        if key is None:
            return {"id": new_id("queued"), "status": "accepted"}
        digest = hashlib.sha256(f"{self.session.id}\n{key}".encode()).hexdigest()
        return {"id": f"queued_{digest[:24]}", "status": "accepted"}

    def _keep_receipt(self, action: str, key: str, receipt: Receipt) -> None:
        fields = {"key": key, "action": action, **receipt}
        self._outline.receipts[key] = fields
        self.session.recorder.add(RECEIPT, fields)


def _ignore(_: AgentEvent) -> None:
    """The hub shows the events."""
