"""One session that a worker has open: its agent, its runs, and how they are cut so that another worker can go on.

A run that is cut ends as by a crash: nothing more is written, and no end is recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from steersman.agent.agent import Agent
from steersman.durable.held_handle import HeldHandle
from steersman.durable.job import IDLE, WAITING, Job, Outcome
from steersman.events.stream import EventStream
from steersman.loop.entry import Start, start_run
from steersman.session.orders import Order
from steersman.session.records import SERVED, to_json_value
from steersman.session.session import Session
from steersman.session.stores.store import SessionTaken
from steersman.types.continuation import Initial
from steersman.types.events import AgentEvent, ApprovalRequested, ToolExecutionEnd, ToolExecutionStart, TurnEnd
from steersman.types.usage import Usage

_GOES_ON = ("done", "terminated")
# What starts a run and what ends it: settings and answers do neither.
_ABOUT_RUNS = ("steering", "follow_up", "abort")
_FOLLOWED = frozenset((ToolExecutionStart, ToolExecutionEnd, ApprovalRequested, TurnEnd))


class SupervisedSession:
    """A session with its agent, in a worker."""

    def __init__(
        self,
        agent: Agent[Any],
        session: Session,
        handle: HeldHandle,
        job: Job,
        rest_after: float,
        note_progress: Callable[[], None],
    ) -> None:
        self.session, self.handle = session, handle
        self._note_progress = note_progress
        self._agent = agent
        self._job = job
        self._rest_after = rest_after
        self._orders: list[Order] = []
        self._running: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.Task[None] | None = None
        self._rests = False
        # What waits after the last run and does not start another one: it waited before its end, or before its abort.
        self._left: set[str] = set()
        # The number of the abort of the run, 0 for none.
        self._abort = 0

    def attach(self, agent_name: str | None) -> None:
        """Give the session to the agent, which hears what is queued; blocks. `agent_name` is recorded if it is new."""
        if agent_name is not None:
            self.session.recorder.add(SERVED, {"agent": agent_name})
        self._abort = self.session.recorder.index.last_abort
        self.session.listening.on_order = self._hear
        self._agent.configure(session=self.session)

    async def drive(self) -> Outcome:
        """Run until nothing is queued any more."""
        self._agent.dispatcher.subscribe(self._follow, answers=True, kinds=_FOLLOWED)
        outcome = Outcome(self.session.id, IDLE, loop_id=self.session.last_loop_id)
        while (started := self._start()) is not None:
            if isinstance(started, Outcome):
                return started
            result = await started
            self._left = self._find_left(result.end_reason)
            if self._rests:
                return Outcome(self.session.id, WAITING, loop_id=self.session.last_loop_id)
            await self.session.save()
            journal = self.session.recorder.journal
            assert journal is not None
            outcome = Outcome(
                self.session.id, result.end_reason, result.detail, self.session.last_loop_id, last=journal.last_saved
            )
            if self.session.taken is not None or result.end_reason not in _GOES_ON:
                break
        return outcome

    @property
    def has_more(self) -> bool:
        """Whether something was heard after the last run had ended."""
        return not self._left.issuperset(self.session.recorder.index.waiting)

    def abort(self) -> None:
        """Interrupt the run; its end is recorded."""
        self._agent.abort()

    async def cut(self, why: str) -> bool:
        """End the run as by a crash, once what has happened so far is saved; whether it is."""
        is_saved = await self.session.save()
        self._give_up(why)
        return is_saved

    def lose(self, why: str) -> None:
        """End the run as by a crash, and wait for the store no more: another worker may have the session by now."""
        self.handle.release()
        self._give_up(why)

    def close(self) -> None:
        """Close the session; blocks."""
        if self._timer is not None:
            self._timer.cancel()
        self._agent.close()
        self.session.__exit__()

    def _give_up(self, why: str) -> None:
        journal = self.session.recorder.journal
        assert journal is not None
        journal.give_up(SessionTaken(why), level=logging.INFO)

    def _hear(self, order: Order) -> None:
        """Note an order, in any thread."""
        if order.kind == "abort":
            self._abort = order.number
        self._orders.append(order)

    def _find_left(self, end_reason: str) -> set[str]:
        """What stays queued after a run; what was said after its abort does not."""
        abort, self._abort = self._abort if end_reason == "aborted" else 0, 0
        waiting = list(self.session.recorder.index.waiting.items())
        return {id for id, fields in waiting if not 0 < abort < fields.get("number", 0)}

    # Starting

    def _start(self) -> EventStream[Any] | Outcome | None:
        """Start the run that is due; `None` if there is none."""
        index, agent = self.session.recorder.index, self._agent
        orders, self._orders[:] = list(self._orders), []
        if index.unfinished and agent.messages:
            return self._continue() or self._close_lost_run()
        if not len(agent.inbox):
            return self._continue() if self._is_continuation_due() else None
        said = [order.kind for order in orders if order.kind in _ABOUT_RUNS]
        if said[-1:] == ["abort"] and not index.unfinished:
            # It came after the prompt, and before the run that it was meant for.
            self._left = set(index.waiting)
            return Outcome(self.session.id, "aborted", "operation aborted", self.session.last_loop_id)
        self._abort = 0
        return start_run(agent, Start((), Initial(), silent=True))

    def _continue(self) -> EventStream[Any] | None:
        """Go on with the conversation; `None` if there is nothing to answer."""
        try:
            stream = self._agent.continue_()
        except ValueError:
            return None
        stream.channel.detach()
        return stream

    def _close_lost_run(self) -> EventStream[Any] | Outcome | None:
        """Record the end of a run that had answered, and whose worker died before it could."""
        index, recorder = self.session.recorder.index, self.session.recorder
        fields = {"loop_id": index.loop_id, "end_reason": "done", "detail": "", "usage": to_json_value(Usage())}
        recorder.add("run_end", fields)
        index.end_run()
        index.unfinished = False
        self._left = set(index.waiting)
        return Outcome(self.session.id, "done", loop_id=index.loop_id)

    def _is_continuation_due(self) -> bool:
        """Whether the conversation is to go on without a message, and no run has started since this was asked for."""
        after = self._job.continue_after
        if after is None:
            return False
        return not any(record.type == "run_start" for record in self.session.records(after))

    # Resting

    def _follow(self, event: AgentEvent) -> None:
        match event:
            case ToolExecutionStart():
                self._running.add(event.tool_call_id)
            case ToolExecutionEnd():
                self._running.discard(event.tool_call_id)
                if self._agent.open_approvals:  # without a question there is nothing to wait for
                    self._plan_rest()
            case TurnEnd():
                # The turn that tells of a call whose worker was lost is not yet one that got anywhere.
                if all(result.details.get("status") != "interrupted" for result in event.tool_results):
                    self._note_progress()
            case ApprovalRequested():
                self._note_progress()  # what takes long now is a person
                self._plan_rest()
            case _:
                pass

    def _plan_rest(self) -> None:
        """Look in a while whether the run only waits for answers."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._rest_after, self._rest_if_waiting)

    def _rest_if_waiting(self) -> None:
        if self._only_waits():
            self._resting = asyncio.get_running_loop().create_task(self._rest())

    async def _rest(self) -> None:
        await self.session.save()
        if self._only_waits():  # it may have been answered meanwhile
            self._rests = True
            self._give_up(f"The run of {self.session.id!r} rests until its question is answered.")

    def _only_waits(self) -> bool:
        """Whether all that the run does is to wait for answers, without a deadline."""
        questions = self._agent.open_approvals
        return bool(questions) and not self._running and all(each.deadline is None for each in questions)
