"""Sessions that workers run in the place of the server: what people do with them here is queued, and a worker is told.

A server with a supervisor opens no session. It shows them all, since it follows the process that runs each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from steersman.server.live import Approvals
from steersman.server.receipts import Receipt, make_receipt
from steersman.server.remote import Home, RemoteSession
from steersman.session.records import SERVED
from steersman.session.session import Session
from steersman.session.session_queue import Queued, SessionQueue
from steersman.session.stores.store import SessionBusy, SessionExists, SharedStore, Store, make_busy_error
from steersman.types.errors import AgentBusy, SteersmanError
from steersman.types.messages import AgentMessage


class Supervisor(Protocol):
    """Who has sessions run by workers, such as `steersman.durable.Client`."""

    async def wake(self, session_id: str) -> None:
        """Have a worker look at a session, in which something was queued."""
        ...

    async def continue_(self, session_id: str) -> None:
        """Have a worker go on with a session, without a new message."""
        ...

    async def is_running(self, session_id: str) -> bool:
        """Whether a run goes on, or waits for a worker or for an answer."""
        ...


class SupervisorFailed(SteersmanError):
    """The supervisor could not be asked; what was said stays queued."""


class WorkerSession(RemoteSession):
    """One session that a worker runs, or will."""

    def __init__(self, id: str, store: SharedStore, home: Home, supervisor: Supervisor) -> None:
        super().__init__(id, store, home)
        self._supervisor = supervisor

    async def prompt(self, message: AgentMessage, *, key: str | None = None, approvals: Approvals = "wait") -> Receipt:
        """Have a run started with a message; raises `AgentBusy` while one goes on."""
        outline = await self._read_outline()
        if await self._is_known(key, outline):
            await self._ask(lambda: self._supervisor.wake(self.id))  # it may have been away when this was first said
            return make_receipt(self.id, key)
        if approvals == "deny":
            raise make_busy_error(self.id)  # what is queued cannot say how questions are answered
        if outline.in_run and await self.is_running():
            raise AgentBusy("A run is going on in this session. Use steer or follow_up, or wait until it has ended.")
        return await self.steer(message, key=key)

    async def resume(self, *, key: str | None = None) -> Receipt:
        """Go on after an error or an abort; raises `AgentBusy` while a run goes on."""
        if await self.is_running():
            raise AgentBusy("A run is going on in this session. Wait until it has ended, or abort it.")
        await self._ask(lambda: self._supervisor.continue_(self.id))
        return make_receipt(self.id, key)

    async def is_running(self) -> bool:
        """Whether a run goes on, or waits for a worker or for an answer."""
        running: list[bool] = []

        async def ask() -> None:
            running.append(await self._supervisor.is_running(self.id))

        await self._ask(ask)
        return running[0]

    async def _send(self, receipt: Receipt, add: Callable[[SessionQueue], Queued]) -> Receipt:
        queue = await self._open_queue()
        await asyncio.to_thread(add, queue)
        await self._ask(lambda: self._supervisor.wake(self.id))
        return receipt

    async def _ask(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except SteersmanError as error:
            raise SupervisorFailed(
                f"No worker could be told: {error} What was said stays queued. Sent again under the same key, it is "
                "heard once."
            ) from error


def create_for_worker(store: Store, id: str, agent: str, title: str) -> None:
    """Create a session for an agent of the workers, if there is none; blocks."""
    try:
        session = Session.create(store, id)
    except SessionExists:
        return
    with session:
        session.recorder.add(SERVED, {"agent": agent})
        if title:
            session.set_title(title)


def check_queues(store: Store) -> SharedStore:
    """The store; raises `TypeError` unless other processes can queue into its sessions."""
    if not isinstance(store, SharedStore):
        raise TypeError(f"Sessions that workers run need a store with queues, such as PostgresStore, got {store!r}.")
    return store


def refuse_to_open(id: str, supervisor: Supervisor | None) -> None:
    """Raise `SessionBusy` for what needs the session itself, if there is a supervisor."""
    if supervisor is None:
        return
    raise SessionBusy(
        f"The session {id!r} is run by workers, and this server opens none. It takes prompts, steering, follow-ups, "
        "aborts, answers, settings and continue over the API and the page, and runs over AG-UI and MCP; a server "
        "without --temporal offers the rest."
    )
