"""The sessions of a server: which exist for a user, which are open here, and the agents they are made with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from steersman.agent.named import Agents, read_agents
from steersman.server.agents import make_agent
from steersman.server.follower import Follower
from steersman.server.hub import RING_BYTES, Hub
from steersman.server.live import LiveSession
from steersman.server.order_starts import hear_while_opening
from steersman.server.outline import Outline, read_outline
from steersman.server.owners import belongs_to, find_id, make_id
from steersman.server.remote import RemoteSession
from steersman.server.supervised import Supervisor, WorkerSession, check_queues, refuse_to_open
from steersman.server.watched_handle import WatchedHandle
from steersman.session.opening import take_over_handle
from steersman.session.records import SERVED
from steersman.session.session import Session
from steersman.session.stores.store import (
    FollowedStore,
    Handle,
    SessionBusy,
    SessionError,
    SessionNotFound,
    SharedStore,
    Store,
    Summary,
    is_session_id,
)
from steersman.types.errors import describe_exception

ReadT = TypeVar("ReadT")
# Seconds for which a session that is open elsewhere is taken to be so.
_FRESH = 2.0

_log = logging.getLogger("steersman.server")

MAX_OUTLINES: Final = 10_000
"""The most sessions that are not open here whose outlines are kept, for lists."""


class Listed(NamedTuple):
    """One session of a list."""

    summary: Summary
    status: str
    agent: str


class Sessions:
    """All sessions of a store, each open at most once. A session of another user does not exist."""

    def __init__(
        self,
        agents: Agents,
        store: Store,
        *,
        models: Sequence[str] = (),
        approval_timeout: float | None = None,
        supervisor: Supervisor | None = None,
        ring_bytes: int = RING_BYTES,
        max_outlines: int = MAX_OUTLINES,
    ) -> None:
        self.agents = read_agents(agents)
        self.store = store if supervisor is None else check_queues(store)
        # Those that `configure` may choose.
        self.models = models
        self.live: dict[str, LiveSession] = {}
        self.hubs: dict[str, Hub] = {}
        self.draining = False
        # Who has the sessions run elsewhere; without one they are run here.
        self.supervisor = supervisor
        self._ring_bytes = ring_bytes
        self._approval_timeout = approval_timeout
        self._max_outlines = max_outlines
        self._outlines: dict[str, tuple[int, Outline]] = {}
        # Held while a session is opened, closed or deleted; a lock is there as long as it is used.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._remotes: dict[str, RemoteSession] = {}

    # Opening

    async def create(self, user: str | None, agent: str | None = None, *, key: str | None = None) -> LiveSession:
        """A new session for an agent, the first one by default; the same `key` gives the same session.

        Raises `ValueError` for an unknown agent.
        """
        name = next(iter(self.agents)) if agent is None else agent
        if name not in self.agents:
            raise ValueError(f"No agent named {name!r}. Agents here: {', '.join(map(repr, self.agents))}.")
        return await self._finish_opening(make_id(user, key), name)

    async def open(self, user: str | None, id: str) -> LiveSession:
        """A session to act on; raises `SessionNotFound`, or `SessionBusy` if another program writes to it."""
        self.check_owner(user, id)
        return await self.open_session(id)

    async def open_session(self, id: str) -> LiveSession:
        """The same for any user."""
        await self._drop_taken(id)
        return self.live.get(id) or await self._finish_opening(id)

    async def take_over(self, user: str | None, id: str) -> LiveSession:
        """A session to act on, also if another program writes to it, which writes nothing more."""
        self.check_owner(user, id)
        await self._drop_taken(id)
        return self.live.get(id) or await self._finish_opening(id, take_over=True)

    async def find(self, user: str | None, id: str) -> LiveSession | RemoteSession:
        """A session to speak to: open here, or in another process. Raises as `open` for a store without queues."""
        self.check_owner(user, id)
        store = self.store
        if not isinstance(store, SharedStore):
            return await self.open_session(id)
        if self.supervisor is not None:
            return self._remotes.setdefault(id, WorkerSession(id, store, self, self.supervisor))
        now, remote = asyncio.get_running_loop().time(), self._remotes.get(id)
        if id not in self.live and remote is not None and now < remote.checked_at + _FRESH:
            return remote  # it sees itself to what is not heard there
        if id in self.live or not isinstance(store, FollowedStore) or not await asyncio.to_thread(store.has_writer, id):
            try:
                return await self.open_session(id)
            except SessionBusy:
                pass  # opened there meanwhile
        remote = self._remotes.setdefault(id, RemoteSession(id, store, self))
        remote.checked_at = now
        return remote

    async def read_session(self, id: str, read: Callable[[Iterator[tuple[int, bytes]]], ReadT]) -> ReadT:
        """What a function reads from the encoded records of a session, in a thread."""
        return await asyncio.to_thread(self._read, id, read)

    def start_task(self, work: Coroutine[Any, Any, None], /) -> None:
        """Do something that goes on by itself until the server stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def open_named(self, user: str | None, name: str, agent: str | None = None) -> LiveSession:
        """The session that a client calls by a name of its own; a new one, of the first agent, if there is none."""
        return await self._finish_opening(find_id(name, user), next(iter(self.agents)) if agent is None else agent)

    async def find_hub(self, user: str | None, id: str) -> Hub:
        """The events of a session; another program may be writing to it. Begin to watch it before anything else."""
        self.check_owner(user, id)
        if id in self.live:
            return self.hubs[id]
        async with self._locks.setdefault(id, asyncio.Lock()):
            if (hub := self.hubs.get(id)) is None:
                hub = Hub(id, self.store, ring_bytes=self._ring_bytes)
                await asyncio.to_thread(self._scan, hub)
                self.hubs[id] = hub
                await self._follow(hub)
            elif id not in self.live:
                with hub.expect_watcher():
                    await self._follow(hub)
                    await hub.refresh()
            return hub

    async def _follow(self, hub: Hub) -> None:
        """Let a hub see what happens to its session in other processes, if the store can tell."""
        if hub.follower is not None or not isinstance(self.store, FollowedStore):
            return
        follower = Follower(hub, self.store, self._end_watches, self.start_task)
        hub.follower = follower
        try:
            await follower.open()
        except SessionError as error:
            hub.unfollow()
            _log.error("The session %r cannot be followed: %s", hub.session_id, error)

    def _end_watches(self, hub: Hub) -> None:
        """The process that ran the session is gone: watchers come back, and learn that no run goes on."""
        if hub.session_id not in self.live and self.hubs.get(hub.session_id) is hub:
            _log.warning("The process that ran the session %r is gone. It can be continued here.", hub.session_id)
            del self.hubs[hub.session_id]
            hub.close()

    async def _finish(self, work: Coroutine[Any, Any, ReadT]) -> ReadT:
        """Wait for work that goes on if the one who waits leaves: a session that is half open would stay locked."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _finish_opening(self, id: str, new_for: str | None = None, *, take_over: bool = False) -> LiveSession:
        """Open a session; again if it was closed as unused before the one who waits for it could act."""
        live = await self._finish(self._open_alone(id, new_for, take_over=take_over))
        while self.live.get(id) is not live and not self.draining:
            live = await self._finish(self._open_alone(id, new_for))
        return live

    async def _open_alone(self, id: str, new_for: str | None = None, *, take_over: bool = False) -> LiveSession:
        """Open a session, once; one that is not there is created if there is an agent that it is `new_for`."""
        refuse_to_open(id, self.supervisor)
        async with self._locks.setdefault(id, asyncio.Lock()):
            if (live := self.live.get(id)) is not None:
                return live
            if take_over:
                return await self._open(id, await asyncio.to_thread(take_over_handle, self.store, id))
            try:
                return await self._open(id, await asyncio.to_thread(self.store.open, id))
            except SessionNotFound:
                if new_for is None:
                    raise
            return await self._open(id, await asyncio.to_thread(self.store.create, id), new_for)

    def _scan(self, hub: Hub) -> None:
        with closing(self.store.open(hub.session_id, write=False)) as handle:
            hub.scan(handle)

    async def _open(self, id: str, handle: Handle, agent_name: str | None = None) -> LiveSession:
        try:
            if (hub := self.hubs.get(id)) is None:
                hub = Hub(id, self.store, ring_bytes=self._ring_bytes)
                await asyncio.to_thread(hub.scan, handle)
                self.hubs[id] = hub
            else:
                hub.unfollow()
                await hub.refresh()  # another program may have written to it
            outline = await asyncio.to_thread(read_outline, handle.lines())
            session = await asyncio.to_thread(Session, WatchedHandle(handle, hub.add_records))
        except BaseException:
            handle.close()
            raise
        try:
            if agent_name is not None or outline.in_run:  # a run that another process has begun is cut
                outline.agent = agent_name or outline.agent
                session.recorder.add(SERVED, {"agent": outline.agent})
            agent = await make_agent(self.agents, outline, self.models, session.id)
            if self._approval_timeout is not None:
                agent.configure(approve_timeout=self._approval_timeout)
            hear_while_opening(session, self.live)
            agent.configure(session=session)
        except BaseException:
            session.close()
            raise
        live = self.live[id] = LiveSession(agent, session, hub, outline)
        await session.save()
        return live

    # Reading

    async def list_summaries(self, user: str | None) -> Sequence[Summary]:
        """The sessions of a user, the most recently used first."""
        found = await asyncio.to_thread(self.store.list)
        mine = [summary for summary in found if belongs_to(summary.id, user)]
        return sorted(mine, key=lambda summary: (-summary.updated, summary.id))

    async def read(self, user: str | None, id: str, read: Callable[[Iterator[tuple[int, bytes]]], ReadT]) -> ReadT:
        """What a function reads from the encoded records of a session, in a thread."""
        self.check_owner(user, id)
        return await asyncio.to_thread(self._read, id, read)

    async def describe(self, summary: Summary) -> Listed | None:
        """One session as a list shows it; `None` if it was deleted meanwhile."""
        if (live := self.live.get(summary.id)) is not None:
            return Listed(summary, live.status, live.agent_name)
        try:
            outline = await self.find_outline(summary)
        except SessionNotFound:
            return None
        return Listed(summary, await self._find_status(summary.id, outline), outline.agent)

    async def _find_status(self, id: str, outline: Outline) -> str:
        """What a session does that is not open here."""
        if outline.questions:
            return "waiting"
        if not outline.in_run or not isinstance(self.store, FollowedStore):
            return "idle"
        return "running" if await asyncio.to_thread(self.store.has_writer, id) else "idle"

    async def find_outline(self, summary: Summary) -> Outline:
        """The outline of a session that is not open here; read again only when it has grown."""
        known = self._outlines.get(summary.id)
        if known is None or known[0] != summary.records:
            known = summary.records, await asyncio.to_thread(self._read, summary.id, read_outline)
        # The last one is the one that was used last.
        self._outlines.pop(summary.id, None)
        self._outlines[summary.id] = known
        while len(self._outlines) > self._max_outlines:
            del self._outlines[next(iter(self._outlines))]
        return known[1]

    def _read(self, id: str, read: Callable[[Iterator[tuple[int, bytes]]], ReadT]) -> ReadT:
        with closing(self.store.open(id, write=False)) as handle:
            return read(handle.lines())

    def check_owner(self, user: str | None, id: str) -> None:
        """Raise `SessionNotFound` for an id that is none, or of a session of another user."""
        if not is_session_id(id) or not belongs_to(id, user):
            raise SessionNotFound(f"There is no session {id!r:.200}.")

    # Closing

    async def delete(self, user: str | None, id: str) -> None:
        """Delete a session for good; raises `SessionBusy` while a run goes on."""
        self.check_owner(user, id)
        await self._finish(self._delete_alone(id))

    async def _delete_alone(self, id: str) -> None:
        async with self._locks.setdefault(id, asyncio.Lock()):
            if (live := self.live.get(id)) is not None:
                await live.settle()
                live.session.close()  # raises while a run goes on
                self._forget(id)
            await asyncio.to_thread(self.store.delete, id)
            self._forget(id)

    def count_watchers(self) -> int:
        """How many watch now, all sessions together."""
        return sum(hub.watchers for hub in self.hubs.values())

    def beat(self) -> None:
        """Wake all watchers, so that each sends a sign of life."""
        for hub in self.hubs.values():
            hub.wake()

    async def refresh(self) -> None:
        """Show the watchers of sessions that are not open here what other programs have written to them."""
        for id, hub in list(self.hubs.items()):
            await self._drop_taken(id)
            if hub.watchers and id not in self.live:
                try:
                    await self._follow(hub)
                    await hub.refresh()
                except SessionError as error:
                    _log.error("The events of %r could not be read: %s", id, error)

    async def _drop_taken(self, id: str) -> None:
        """Close a session that another process has taken over: from here on it is followed like any other."""
        live = self.live.get(id)
        if live is None or live.session.taken is None:
            return
        async with self._locks.setdefault(id, asyncio.Lock()):
            if self.live.get(id) is live:
                del self.live[id]
                await live.close()
                await self._follow(live.hub)

    async def close_idle(self, only: str | None = None) -> None:
        """Close the sessions that no run and no watcher uses, or just one, so that other programs can open them."""
        for id, live in [one for one in self.live.items() if only in (None, one[0])]:
            async with self._locks.setdefault(id, asyncio.Lock()):
                if not live.is_used and self.live.get(id) is live:
                    del self.live[id]
                    await live.close()
        for id, hub in list(self.hubs.items()):
            async with self._locks.setdefault(id, asyncio.Lock()):
                if not hub.watchers and id not in self.live and self.hubs.get(id) is hub:
                    hub.unfollow()
                    del self.hubs[id]
        for id, remote in list(self._remotes.items()):
            was_used, remote.is_used = remote.is_used, False
            if not was_used and only is None:
                await self._remotes.pop(id).close()

    async def drain(self, grace: float) -> None:
        """Start no more runs, give those that go on some seconds, then cut them: they can be resumed."""
        self.draining = True
        for live in self.live.values():
            live.draining = True
        waiting = [asyncio.ensure_future(live.wait_until_idle()) for live in self.live.values() if live.is_busy]
        if waiting:
            _, left = await asyncio.wait(waiting, timeout=grace)
            for task in left:
                task.cancel()

    async def close(self) -> None:
        """Close all sessions and end all watches."""
        closing = [asyncio.ensure_future(live.close()) for live in self.live.values()]
        if closing:
            await asyncio.wait(closing)
        for task in closing:
            if (error := task.exception()) is not None:
                _log.error("A session could not be closed: %s", describe_exception(error))
        for hub in self.hubs.values():
            hub.close()
        self.live.clear()
        self.hubs.clear()
        for task in list(self._background):
            task.cancel()
            await asyncio.wait([task])
        for id in list(self._remotes):
            await self._remotes.pop(id).close()

    def _forget(self, id: str) -> None:
        self.live.pop(id, None)
        self._outlines.pop(id, None)
        if (hub := self.hubs.pop(id, None)) is not None:
            hub.close()
