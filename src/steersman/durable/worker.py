"""`Worker`: a process that runs sessions whose runs Temporal supervises.

    async with Worker({"coder": make_coder}, store=PostgresStore(dsn), temporal="127.0.0.1:7233"):
        ...

Start as many as there is work for, on as many machines: each takes sessions as it has room, and replaces one that dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Self

from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker as TemporalWorker

from steersman.agent.named import Agents, read_agents
from steersman.durable.connection import connect, find_shared_store
from steersman.durable.errors import DurableError
from steersman.durable.run_session import SessionRunner
from steersman.session.opening import Where
from steersman.session.stores.store import ListeningStore

_REST_AFTER = 60.0


class Worker:
    """Runs sessions, each with an agent of its own.

    `agents` is an agent, a function that makes one, or a dict of these by name. `store` is one that all workers can
    reach, `temporal` is `host:port` or a connected `temporalio.client.Client`. At most `max_sessions` run at once. A
    run that only waits for the answer to a question is put aside after `rest_after` seconds, and goes on with it.
    """

    def __init__(
        self,
        agents: Agents,
        store: Where,
        temporal: str | TemporalClient,
        *,
        task_queue: str = "steersman",
        namespace: str = "default",
        max_sessions: int = 100,
        rest_after: float = _REST_AFTER,
    ) -> None:
        if max_sessions < 1:
            raise ValueError(f"max_sessions is a number above 0, got {max_sessions!r}.")
        self._runner = SessionRunner(read_agents(agents), find_shared_store(store), rest_after)
        self._temporal, self._namespace = temporal, namespace
        self._task_queue = task_queue
        self._max_sessions = max_sessions
        self._worker: TemporalWorker | None = None
        self._task: asyncio.Task[None] | None = None
        self._release_store: Callable[[], None] | None = None

    async def run(self, started: Callable[[], object] | None = None) -> None:
        """Run sessions until it is cancelled; then what runs is cut, and other workers go on with it.

        `started` is called once it has reached Temporal and the store.
        """
        async with self:
            if started is not None:
                started()
            assert self._task is not None
            await asyncio.shield(self._task)

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise DurableError("This worker is running already.")
        # A store that cannot be used is told at once, and not with the first session.
        await asyncio.to_thread(self._runner.store.list)
        client = await connect(self._temporal, self._namespace)
        if isinstance(self._runner.store, ListeningStore):
            # Else a session would often connect anew.
            self._release_store = self._runner.store.keep_ready(self._max_sessions)
        self._worker = TemporalWorker(
            client,
            task_queue=self._task_queue,
            activities=[self._runner.run_session],
            max_concurrent_activities=self._max_sessions,
            # By default it is a hash of all modules, which takes longer than all else here.
            build_id="steersman",
            # A worker that hangs still has its polls open, and what it is given by them is lost for a heartbeat.
            max_concurrent_activity_task_polls=1,
            max_heartbeat_throttle_interval=timedelta(seconds=0.5),
        )
        self._task = asyncio.get_running_loop().create_task(self._worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        worker, task, self._worker, self._task = self._worker, self._task, None, None
        assert worker is not None
        assert task is not None
        if not task.done():
            await worker.shutdown()
        await asyncio.wait([task])
        if self._release_store is not None:
            self._release_store()
            self._release_store = None
        if (error := task.exception()) is not None:
            raise DurableError(f"The worker ended: {error}") from error
