"""`Client`: starts supervised sessions and speaks to them, from any process, by the id of the session.

    async with Client(PostgresStore(dsn), "127.0.0.1:7233") as durable:
        await durable.start("order-42", "Look at the order.", agent="clerk")
        await durable.steer("order-42", "Only this year's.")
        print((await durable.wait("order-42")).text)

What is said is in the store before Temporal is asked, so it is neither lost nor doubled, whatever dies in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Literal, Self, TypeVar, Unpack

from temporalio.client import (
    ActivityExecutionDescription,
    ActivityExecutionStatus,
    ActivityFailureError,
    ActivityHandle,
    PendingActivityState,
)
from temporalio.client import Client as TemporalClient
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityAlreadyStartedError, FailureError
from temporalio.service import RPCError, RPCStatusCode

from steersman.durable.connection import RPC_TIMEOUT, connect, describe_rpc_error, find_shared_store, is_passing
from steersman.durable.errors import DurableError
from steersman.durable.job import ACTIVITY, WAITING, Fields, Job, Outcome, read_outcome, to_fields
from steersman.durable.questions import OpenQuestion, read_questions
from steersman.durable.run_state import complete_outcome, goes_on, is_in_run, read_last, rests_on_question
from steersman.session.opening import Where
from steersman.session.session_queue import Queued, SessionQueue, create_with_prompt
from steersman.session.settings import SettingChanges
from steersman.session.stores.store import FollowedStore, SessionExists, StoreFailed
from steersman.types.ids import new_id
from steersman.types.messages import MessageLike

_T = TypeVar("_T")
_SHORTEST_HEARTBEAT = 0.5
_RETRY_SECONDS = 1.0
# Only the heartbeat limits a run.
_LONGEST = timedelta(days=3650)
# A lost worker is replaced at once; an activity that raises says itself when it is to be tried again.
_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=10), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=1)
)
# Seconds between two looks whether a worker that is about to begin or to end has heard what was queued, and whether a
# question was answered: the next look is later, up to the longest.
_LOOK, _LONGEST_LOOK = 0.05, 2.0
# Seconds, and two heartbeats, in which a worker that has a run opens its session or is replaced.
_PATIENCE = 30.0
_OPEN = (ActivityExecutionStatus.RUNNING, ActivityExecutionStatus.PAUSED)


class Client:
    """Speaks to supervised sessions. `store`, `temporal`, `task_queue` and `namespace` are those of the workers.

    A worker that is silent for `heartbeat` seconds is replaced. Every method that says something takes a `key`: said
    twice under one key, it is heard once.
    """

    def __init__(
        self,
        store: Where,
        temporal: str | TemporalClient,
        *,
        task_queue: str = "steersman",
        namespace: str = "default",
        heartbeat: float = 2.0,
    ) -> None:
        if not heartbeat >= _SHORTEST_HEARTBEAT:
            raise ValueError(f"heartbeat is at least {_SHORTEST_HEARTBEAT} seconds, got {heartbeat!r}.")
        self.store = find_shared_store(store)
        self._temporal, self._namespace = temporal, namespace
        self.task_queue = task_queue
        self._heartbeat = heartbeat
        self._client: TemporalClient | None = None

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client = None  # it has no connection to close

    # Speaking

    async def start(
        self, session_id: str, prompt: MessageLike, *, agent: str | None = None, key: str | None = None
    ) -> Queued:
        """Start a run with a prompt; a session that does not exist is created, for this agent of the workers.

        While a run goes on it takes the prompt as a follow-up: a session runs once.
        """
        await self._connect()  # before anything is written: most mistakes are made here
        return await self._tell(
            session_id, await asyncio.to_thread(self._create_or_queue, session_id, prompt, key, agent), agent
        )

    async def steer(
        self,
        session_id: str,
        x: MessageLike,
        mode: Literal["skip", "cancel", "wait"] | None = None,
        *,
        key: str | None = None,
    ) -> Queued:
        """Steer the run of a session; one that rests starts a run with it."""
        return await self._say(session_id, lambda queue: queue.steer(x, mode, key=key))

    async def follow_up(self, session_id: str, x: MessageLike, *, key: str | None = None) -> Queued:
        """Queue a message for the end of the run; a session that rests starts a run with it."""
        return await self._say(session_id, lambda queue: queue.follow_up(x, key=key))

    async def abort(self, session_id: str, *, key: str | None = None) -> Queued:
        """Interrupt the run, if there is one."""
        queued, is_heard = await asyncio.to_thread(self._queue, session_id, lambda queue: queue.abort(key=key))
        if not is_heard and await self.is_running(session_id):
            await self._wake(session_id, number=queued.number)
        return queued

    async def approve(
        self,
        session_id: str,
        approval_id: str,
        *,
        remember: bool = False,
        by: str = "application",
        key: str | None = None,
    ) -> Queued:
        """Let a tool call run that waits for approval."""
        return await self._say(session_id, lambda queue: queue.approve(approval_id, remember=remember, by=by, key=key))

    async def deny(
        self, session_id: str, approval_id: str, reason: str = "", *, by: str = "application", key: str | None = None
    ) -> Queued:
        """Deny a tool call that waits for approval; the model reads the reason."""
        return await self._say(session_id, lambda queue: queue.deny(approval_id, reason, by=by, key=key))

    async def configure(self, session_id: str, *, key: str | None = None, **settings: Unpack[SettingChanges]) -> Queued:
        """Change settings for this session, from the next turn on; it starts no run. Raises `ValueError`.

        A worker that refuses them logs why.
        """

        def send() -> Queued:
            with SessionQueue(self.store, session_id) as queue:
                return queue.configure(key=key, **settings)

        return await asyncio.to_thread(send)

    async def continue_(self, session_id: str) -> None:
        """Go on after an error or an abort, without a new message; while a run goes on this does nothing."""
        last = await asyncio.to_thread(read_last, self.store, session_id)
        await self._wake(session_id, continue_after=last)

    async def wake(self, session_id: str) -> None:
        """Have a worker look at a session: for what was queued in another way, or while Temporal was away."""
        has_writer = await asyncio.to_thread(self._has_writer, session_id)
        await self._wake_unless_heard(session_id, is_heard=has_writer)

    # Looking

    async def is_running(self, session_id: str) -> bool:
        """Whether a run goes on, or waits for a worker or for an answer."""
        found = await self._describe(session_id)
        if found is None:
            return await asyncio.to_thread(rests_on_question, self.store, session_id)
        if found.status == ActivityExecutionStatus.COMPLETED:
            outcome: Fields | None = await found.result()
            rests = outcome is not None and read_outcome(outcome).end_reason == WAITING
            return rests and await asyncio.to_thread(goes_on, self.store, session_id)
        return found.status in _OPEN

    async def wait(self, session_id: str, *, timeout: float | None = None) -> Outcome:
        """Wait until the session rests; how its last run ended. Raises `TimeoutError`, and `DurableError` if it failed.

        Temporal may be restarted meanwhile. A session that Temporal has forgotten is looked up in the store.
        """
        look, last = _LOOK, 0
        async with asyncio.timeout(timeout):
            while True:
                try:
                    outcome = read_outcome(await self._call(lambda client: self._find(client, session_id).result()))
                except _NotThere:
                    outcome = None
                    if await asyncio.to_thread(rests_on_question, self.store, session_id):
                        outcome = Outcome(session_id, WAITING)
                except _Unavailable:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                if outcome is None or outcome.end_reason != WAITING:
                    return await asyncio.to_thread(complete_outcome, self.store, session_id, outcome)
                # Until a worker goes on with the answer, which another program that opens the session may do as well.
                with suppress(StoreFailed):
                    now = await asyncio.to_thread(read_last, self.store, session_id)
                    if now != last and not await asyncio.to_thread(goes_on, self.store, session_id):
                        return await asyncio.to_thread(complete_outcome, self.store, session_id, None)
                    last = now
                await asyncio.sleep(look)
                look = min(_LONGEST_LOOK, 2 * look)

    async def questions(self, session_id: str) -> Sequence[OpenQuestion]:
        """The tool calls that wait for approval."""

        return await asyncio.to_thread(read_questions, self.store, session_id)

    # The store

    def _create_or_queue(
        self, session_id: str, prompt: MessageLike, key: str | None, agent: str | None
    ) -> tuple[Queued, bool]:
        """Queue a prompt into a session, which is made if there is none; also whether a worker has heard of it."""
        id = new_id("queued")
        try:
            return create_with_prompt(self.store, session_id, prompt, key=key, id=id, agent_name=agent), False
        except SessionExists:
            return self._queue(session_id, lambda queue: queue.follow_up(prompt, key=key, id=id))

    def _queue(self, session_id: str, say: Callable[[SessionQueue], Queued]) -> tuple[Queued, bool]:
        """Queue something; also whether a worker has it, or the session open."""
        with SessionQueue(self.store, session_id) as queue:
            queued = say(queue)
            try:
                return queued, self._is_heard(queue, queued.number)
            except StoreFailed:  # it is queued, whatever has happened to the database since then
                return queued, False

    def _is_heard(self, queue: SessionQueue, number: int) -> bool:
        # A worker that has heard it may have closed the session by now.
        return self._has_writer(queue.id) or all(order.number != number for order in queue.waiting())

    def _look(self, job: Job, number: int | None) -> bool:
        """Whether a worker has the session open, or has heard what was queued under a number."""
        if number is not None:
            with SessionQueue(self.store, job.session_id) as queue:
                return self._is_heard(queue, number)
        # After the end of a run, a worker that has the session open may be about to close it.
        return self._has_writer(job.session_id) and (
            job.continue_after is None or is_in_run(self.store, job.session_id)
        )

    def _has_writer(self, session_id: str) -> bool:
        return isinstance(self.store, FollowedStore) and self.store.has_writer(session_id)

    # Temporal

    async def _say(self, session_id: str, say: Callable[[SessionQueue], Queued]) -> Queued:
        return await self._tell(session_id, await asyncio.to_thread(self._queue, session_id, say))

    async def _tell(self, session_id: str, said: tuple[Queued, bool], agent: str | None = None) -> Queued:
        """Tell a worker of what was queued, unless one has heard of it."""
        queued, is_heard = said
        try:
            await self._wake_unless_heard(session_id, agent, queued.number, is_heard=is_heard)
        except DurableError as error:
            raise DurableError(
                f"It is queued in the session {session_id!r} as number {queued.number}, but no worker was told: "
                f"{error} Once Temporal is back, call wake({session_id!r})."
            ) from error
        return queued

    async def _wake_unless_heard(
        self, session_id: str, agent: str | None = None, number: int | None = None, *, is_heard: bool
    ) -> None:
        # A worker that has the session open hears it without Temporal, and looks again after it has closed it.
        if is_heard and (found := await self._describe(session_id)) is not None and found.status in _OPEN:
            return
        await self._wake(session_id, agent, number=number)

    async def _wake(
        self, session_id: str, agent: str | None = None, *, number: int | None = None, continue_after: int | None = None
    ) -> None:
        """Have a worker look at a session that none has open; `number` is that of what was queued.

        The worker of a run that Temporal still knows may not have looked yet, or for the last time: then there is a
        moment to wait until it has opened the session, or its run is over.
        """
        job = Job(session_id, agent, self._heartbeat, continue_after)
        deadline = asyncio.get_running_loop().time() + _PATIENCE + 2 * self._heartbeat
        while not await self._start(job):
            found = await self._describe(session_id)
            if found is not None and found.run_state == PendingActivityState.SCHEDULED:
                return  # it looks when a worker takes it
            if await asyncio.to_thread(self._look, job, number):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise DurableError(f"A worker has the run of {session_id!r}, and neither opens the session nor ends.")
            await asyncio.sleep(_LOOK)

    async def _start(self, job: Job) -> bool:
        """Start the activity of a session; whether there was none."""
        try:
            await self._call(
                lambda client: client.start_activity(
                    ACTIVITY,
                    to_fields(job),
                    id=job.session_id,
                    task_queue=self.task_queue,
                    start_to_close_timeout=_LONGEST,
                    heartbeat_timeout=timedelta(seconds=job.heartbeat),
                    retry_policy=_RETRY,
                    rpc_timeout=RPC_TIMEOUT,
                )
            )
        except ActivityAlreadyStartedError:
            return False
        return True

    async def _describe(self, session_id: str) -> ActivityExecutionDescription | None:
        """The last activity of a session, with its outcome; raises `DurableError` if it is not one of ours."""
        try:
            found = await self._call(
                lambda client: self._find(client, session_id).describe(include_outcome=True, rpc_timeout=RPC_TIMEOUT)
            )
        except _NotThere:
            return None
        if found.status in _OPEN and found.task_queue != self.task_queue:
            raise DurableError(
                f"In this namespace an activity {session_id!r} runs in the task queue {found.task_queue!r}, and not in "
                f"{self.task_queue!r}. Two stores with sessions of the same ids need two namespaces."
            )
        return found

    def _find(self, client: TemporalClient, session_id: str) -> ActivityHandle[Fields]:
        found: ActivityHandle[Fields] = client.get_activity_handle(session_id)
        return found

    async def _connect(self) -> TemporalClient:
        if self._client is None:
            self._client = await connect(self._temporal, self._namespace)
        return self._client

    async def _call(self, ask: Callable[[TemporalClient], Awaitable[_T]]) -> _T:
        """Ask Temporal; raises `DurableError` in words, `_NotThere` where it knows no run of the session."""
        client = await self._connect()
        try:
            return await ask(client)
        except RPCError as error:
            told = describe_rpc_error(error, client.namespace)
            if error.status == RPCStatusCode.NOT_FOUND and "namespace" not in error.message.lower():
                raise _NotThere(str(told)) from error
            if is_passing(error):
                raise _Unavailable(str(told)) from error
            raise told from error
        except ActivityFailureError as error:
            cause = error.cause
            raise DurableError(cause.message if isinstance(cause, FailureError) else str(cause)) from error


class _NotThere(DurableError):
    """Temporal knows no run of the session."""


class _Unavailable(DurableError):
    """Temporal does not answer at the moment."""
