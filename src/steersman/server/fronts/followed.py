"""A session of another process or of a worker, as a front uses one that is open here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from steersman.context.entries import Entry
from steersman.server.hub import Hub
from steersman.server.live import Approvals, LiveSession
from steersman.server.outline import Outline, read_outline
from steersman.server.owners import find_id, make_id
from steersman.server.receipts import Receipt, make_receipt
from steersman.server.remote import RemoteSession
from steersman.server.sessions import Sessions
from steersman.server.supervised import create_for_worker
from steersman.session.session import Session
from steersman.session.stores.store import FollowedStore, SessionBusy, Store
from steersman.types.messages import AgentMessage

ResultT = TypeVar("ResultT")


class FollowedSession:
    """What is known of it is as new as the last `catch_up`; what is done with it is queued."""

    def __init__(self, remote: RemoteSession, hub: Hub, sessions: Sessions) -> None:
        self.hub = hub
        self.entries: Sequence[Entry] = ()
        """The entries of the current branch."""
        self.loop_id: str | None = None
        """The id of the run that goes on; `None` if there is none."""
        self.approve = remote.approve
        self.deny = remote.deny
        self.abort = remote.abort
        self._remote = remote
        self._sessions = sessions
        self._outline = Outline()

    @property
    def is_busy(self) -> bool:
        """Whether a run may go on: its end is known by its record alone, unless the session was opened here since."""
        live = self._sessions.live.get(self._remote.id)
        return live is None or live.is_busy

    async def catch_up(self) -> None:
        """Show all records so far, and read what they say."""
        remote, store = self._remote, self._sessions.store
        await self.hub.refresh()
        self._outline = await self._sessions.read_session(remote.id, read_outline)
        self.entries = await asyncio.to_thread(_read_entries, store, remote.id)
        is_running = self._outline.in_run and await remote.is_running()
        self.loop_id = self.hub.spans.find_last()[1] if is_running else None

    def is_known(self, key: str) -> bool:
        """Whether something was said under this key, and heard."""
        return key in self._outline.said or key in self._outline.receipts

    def name_queued(self, key: str) -> str:
        """The id that a message has in the queue, if it is said under this key."""
        return make_receipt(self._remote.id, key)["id"]

    def describe_questions(self) -> list[Any]:
        """The questions that wait for an answer, as events."""
        return list(self._outline.questions.values())

    def was_resolved(self, approval_id: str) -> bool:
        """Whether a question with this id was asked and answered in this session."""
        return approval_id in self._outline.resolved

    async def prompt(
        self,
        message: AgentMessage,
        *,
        key: str | None = None,
        approvals: Approvals = "wait",
        loop_id: str | None = None,
    ) -> Receipt:
        """Have a run started with a message; raises `AgentBusy` while one goes on."""
        # The process that starts the run names it, and its questions wait: who does not want that denies them.
        del approvals, loop_id
        return await self._remote.prompt(message, key=key)

    async def settle(self) -> None:
        """Return at once: a run whose end has no record goes on."""

    async def wait_until_idle(self) -> None:
        """Return at once: the end of a run is known by its record."""

    async def start_alone(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do something that starts a run; the key of its message sees to it that it is done once."""
        return await work()


def _read_entries(store: Store, id: str) -> Sequence[Entry]:
    with Session.open(store, id, write=False) as session:
        return session.log.entries


@asynccontextmanager
async def open_named(sessions: Sessions, user: str | None, name: str) -> AsyncGenerator[LiveSession | FollowedSession]:
    """The session that a client calls by a name of its own, wherever it is open; a new one if there is none."""
    async with _follow(sessions, user, await _find_named(sessions, user, name)) as found:
        yield found


@asynccontextmanager
async def create(sessions: Sessions, user: str | None, agent: str) -> AsyncGenerator[LiveSession | FollowedSession]:
    """A new session for an agent, which workers run if there is a supervisor."""
    if sessions.supervisor is None:
        yield await sessions.create(user, agent)
        return
    id = make_id(user, None)
    await asyncio.to_thread(create_for_worker, sessions.store, id, agent, "")
    async with _follow(sessions, user, await sessions.find(user, id)) as found:
        yield found


@asynccontextmanager
async def _follow(
    sessions: Sessions, user: str | None, found: LiveSession | RemoteSession
) -> AsyncGenerator[LiveSession | FollowedSession]:
    if isinstance(found, LiveSession):
        yield found
        return
    hub = await sessions.find_hub(user, found.id)
    hub.join()
    try:
        yield FollowedSession(found, hub, sessions)
    finally:
        hub.leave()


async def _find_named(sessions: Sessions, user: str | None, name: str) -> LiveSession | RemoteSession:
    id, store = find_id(name, user), sessions.store
    if sessions.supervisor is not None:
        await asyncio.to_thread(create_for_worker, store, id, next(iter(sessions.agents)), "")
        return await sessions.find(user, id)
    try:
        return await sessions.open_named(user, name)
    except SessionBusy:
        if not isinstance(store, FollowedStore):
            raise
    return await sessions.find(user, id)
