"""The activity of a session: opens it, runs it, and tells Temporal that it is alive.

Whether it takes the session over is decided here: the first attempt waits for another writer to close it, and so does
one that follows an attempt which has closed it. Any other knows that the worker before it is gone, or is to be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from steersman.agent.named import DEFAULT_AGENT, make_named_agent
from steersman.agent.outside import restore_settings
from steersman.durable.attempts import MAX_ATTEMPTS, Attempts
from steersman.durable.held_handle import HeldHandle
from steersman.durable.job import ACTIVITY, FORMAT, IDLE, WAITING, Fields, Job, Outcome, read_job, to_fields
from steersman.durable.questions import read_questions
from steersman.durable.supervised import SupervisedSession
from steersman.session.orders import Order, read_orders
from steersman.session.session import Session
from steersman.session.session_queue import SessionQueue
from steersman.session.stores.store import (
    QUEUE_PAGE,
    Handle,
    SessionBusy,
    SessionError,
    SessionNotFound,
    SharedStore,
    StoreFailed,
    is_shared,
)
from steersman.types.errors import describe_exception

_log = logging.getLogger("steersman.durable")

# Seconds that a run waits for a store that does not answer.
_PATIENCE = 30.0
# The part of a heartbeat after which Temporal is told again that a worker is alive; each time is a request to it.
_BEATS = 0.4
_LONGEST_DELAY = 10.0
_STOPPED = "WorkerStopped"


class SessionRunner:
    """Runs sessions as activities, with these agents by name and this store."""

    def __init__(self, agents: dict[str, Any], store: SharedStore, rest_after: float) -> None:
        self.store = store
        self._agents = agents
        self._rest_after = rest_after

    @activity.defn(name=ACTIVITY)
    async def run_session(self, fields: Fields) -> Fields:
        """Run the session of a job until nothing is queued; raises `ApplicationError` if it cannot."""
        attempts = Attempts()
        try:
            job = read_job(fields)
        except msgspec.ValidationError as error:
            skew = _SkewError(f"This worker cannot read its job: {error}. Update the worker.")
            raise _make_error(activity.info().activity_id, skew, attempts) from error
        beating = asyncio.get_running_loop().create_task(_beat(attempts, _BEATS * job.heartbeat))
        try:
            attempts.check()
            return to_fields(await self._run(job, attempts))
        except asyncio.CancelledError:
            raise
        except ApplicationError as error:
            if error.type == _STOPPED:
                attempts.forgive()
            raise
        except Exception as error:  # whatever it is, Temporal is told what to do about it
            raise _make_error(job.session_id, error, attempts) from error
        finally:
            beating.cancel()

    async def _run(self, job: Job, attempts: Attempts) -> Outcome:
        if job.format > FORMAT:
            raise _SkewError(f"Its job is of version {job.format}, and this worker knows {FORMAT}: update the worker.")
        take_over, last = not attempts.is_first, Outcome(job.session_id, IDLE)
        while True:
            supervised = await self._open(job, attempts, take_over=take_over)
            try:
                outcome = await self._drive(supervised, attempts)
            except BaseException:
                await asyncio.shield(asyncio.to_thread(supervised.close))
                raise
            has_more = await asyncio.shield(asyncio.to_thread(self._close, supervised, outcome))
            if supervised.handle.failure is not None:
                raise StoreFailed(supervised.handle.failure)
            if supervised.session.taken is not None and outcome.end_reason != WAITING:
                raise ApplicationError(supervised.session.taken, type="SessionTaken", non_retryable=True)
            last = last if outcome.end_reason == IDLE else outcome
            if not has_more:
                return last
            take_over = False

    async def _drive(self, supervised: SupervisedSession, attempts: Attempts) -> Outcome:
        """Drive a session to its rest; a cancel from Temporal aborts or cuts its run."""
        driving = asyncio.get_running_loop().create_task(supervised.drive())
        try:
            await asyncio.wait([driving])
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:
                supervised.abort()
                await asyncio.wait([driving])
                return await driving
            if details is not None and details.worker_shutdown:
                if await supervised.cut("The worker stops; another one goes on with the run."):
                    attempts.note_closed()
                await asyncio.wait([driving])
                raise ApplicationError("The worker stops.", type=_STOPPED) from None
            supervised.lose("This worker has lost the run: Temporal has given it to another one.")
            await asyncio.wait([driving])
            raise
        return await driving

    # Opening

    async def _open(self, job: Job, attempts: Attempts, *, take_over: bool) -> SupervisedSession:
        session, handle = await self._finish_opening(self._open_session(job, take_over=take_over))
        try:
            _check_records(session)
            recorded = session.recorder.index.agent_name
            name = self._choose_agent(job.agent or recorded)
            agent = await make_named_agent(name, self._agents[name])
            restore_settings(agent, session.recorder.index.settings, session.id)
            supervised = SupervisedSession(agent, session, handle, job, self._rest_after, attempts.note_progress)
            await asyncio.to_thread(supervised.attach, name if name != recorded else None)
        except BaseException as error:
            await asyncio.shield(asyncio.to_thread(session.__exit__))
            if isinstance(error, _SkewError):
                attempts.note_closed()
            raise
        return supervised

    async def _open_session(self, job: Job, *, take_over: bool) -> _Opened:
        loop = asyncio.get_running_loop()
        if take_over:
            return await asyncio.to_thread(lambda: _hold(self.store.take_over(job.session_id), loop))
        # A worker that Temporal has told to stop closes the session within a heartbeat or two.
        deadline = asyncio.get_running_loop().time() + 2 * job.heartbeat
        while True:
            try:
                return await asyncio.to_thread(lambda: _hold(self.store.open(job.session_id), loop))
            except SessionBusy:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def _finish_opening(self, opening: Coroutine[Any, Any, _Opened]) -> _Opened:
        """Wait for a session to be opened; one that is cancelled meanwhile is closed again, once it is open."""
        task = asyncio.get_running_loop().create_task(opening)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_close_opened)
            raise

    def _choose_agent(self, name: str | None) -> str:
        if name is None and DEFAULT_AGENT in self._agents:
            return DEFAULT_AGENT
        if name is None and len(self._agents) == 1:
            return next(iter(self._agents))
        if name is None or name not in self._agents:
            raise _SkewError(f"No agent named {name!r} in this worker. Agents here: {', '.join(self._agents)}.")
        return name

    def _close(self, supervised: SupervisedSession, outcome: Outcome) -> bool:
        """Close a session; whether there is something to do: what was queued meanwhile, or an answer."""
        supervised.close()
        if supervised.handle.failure is not None or (
            supervised.session.taken is not None and outcome.end_reason != WAITING
        ):
            return False  # another worker looks
        if supervised.has_more:
            return True
        if self._find_queued(supervised):
            return True
        return outcome.end_reason == WAITING and any(
            each.is_answered for each in read_questions(self.store, supervised.session.id)
        )

    def _find_queued(self, supervised: SupervisedSession) -> Sequence[Order]:
        """What was queued into a session by the time it had been closed, or later."""
        left = supervised.handle.left
        if left is not None and len(left) < QUEUE_PAGE:
            return read_orders(left)
        with SessionQueue(self.store, supervised.session.id) as queue:
            return queue.waiting()


class _Opened(NamedTuple):
    session: Session
    handle: HeldHandle


class _SkewError(SessionError):
    """This worker cannot run the session, and another one may."""


def _hold(handle: Handle, loop: asyncio.AbstractEventLoop) -> _Opened:
    assert is_shared(handle)
    held = HeldHandle(handle, _PATIENCE)
    session = Session(held)  # which closes the handle if it fails
    journal = session.recorder.journal
    assert journal is not None
    journal.write_in(loop)
    return _Opened(session, held)


def _check_records(session: Session) -> None:
    """Raise if a newer version has written to the session: what this one does not know may change what it means."""
    if unknown := session.recorder.index.unknown:
        kinds = ", ".join(map(repr, sorted(unknown)))
        raise _SkewError(f"It has records of kinds that this worker does not know: {kinds}. Update the worker.")


def _close_opened(task: asyncio.Task[_Opened]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().session.__exit__()


async def _beat(attempts: Attempts, pause: float) -> None:
    """Tell Temporal again and again that this worker is alive; from the event loop, so that a blocked one is not."""
    while True:
        await asyncio.sleep(pause)  # the time of the first one is that of the start
        attempts.beat()


def _make_error(session_id: str, error: Exception, attempts: Attempts) -> ApplicationError:
    """The error for Temporal: whether to try again, and when."""
    text = f"The session {session_id!r} cannot be run: {describe_exception(error)}"
    _log.error("%s", text)
    # A store that is away comes back; whatever else is wrong is given a few attempts, unless it cannot change: during
    # an update, another worker may be able to run it.
    is_away = isinstance(error, StoreFailed)
    if is_away:
        attempts.forgive()
    elif isinstance(error, _SkewError):
        attempts.beat()
    final = not is_away and (attempts.in_vain >= MAX_ATTEMPTS or isinstance(error, SessionBusy | SessionNotFound))
    delay = min(_LONGEST_DELAY, 0.5 * 2 ** min(attempts.number, 10)) if is_away else 1.0
    return ApplicationError(
        text,
        type=type(error).__name__,
        non_retryable=final,
        next_retry_delay=timedelta(seconds=delay),
        category=ApplicationErrorCategory.BENIGN,  # it is logged here, without a traceback
    )
