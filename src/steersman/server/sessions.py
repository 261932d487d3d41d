"""The sessions of a server: which exist for a user, which are open here, and the agents they are made with."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from steersman.agent.agent import Agent
from steersman.server.hub import RING_BYTES, Hub
from steersman.server.live import LiveSession
from steersman.server.outline import SERVED, Outline, read_outline
from steersman.server.settings import change_settings
from steersman.server.watched_handle import WatchedHandle
from steersman.session.session import Session
from steersman.session.stores.store import Handle, SessionError, SessionNotFound, Store, Summary, is_session_id
from steersman.types.errors import describe_exception

AgentFactory: TypeAlias = Callable[[], "Agent[Any] | Awaitable[Agent[Any]]"]
Agents: TypeAlias = "Agent[Any] | AgentFactory | Mapping[str, AgentFactory | Agent[Any]]"

ReadT = TypeVar("ReadT")

_log = logging.getLogger("steersman.server")

_OWNER = re.compile(r"u[0-9a-f]{16}\.")
DEFAULT_AGENT = "default"


@dataclass(frozen=True, slots=True)
class Listed:
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
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self.agents = _read_agents(agents)
        self.store = store
        # Those that `configure` may choose.
        self.models = models
        self.live: dict[str, LiveSession] = {}
        self.hubs: dict[str, Hub] = {}
        self.draining = False
        self._ring_bytes = ring_bytes
        self._approval_timeout = approval_timeout
        self._outlines: dict[str, tuple[int, Outline]] = {}
        # Held while a session is opened, closed or deleted; a lock is there as long as it is used.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    # Opening

    async def create(self, user: str | None, agent: str | None = None, *, key: str | None = None) -> LiveSession:
        """A new session for an agent, the first one by default; the same `key` gives the same session.

        Raises `ValueError` for an unknown agent.
        """
        name = next(iter(self.agents)) if agent is None else agent
        if name not in self.agents:
            raise ValueError(f"No agent named {name!r}. Agents here: {', '.join(map(repr, self.agents))}.")
        suffix = secrets.token_hex(10) if key is None else hashlib.sha256(f"session {key}".encode()).hexdigest()[:20]
        return await self._finish(self._open_alone(f"{_make_prefix(user)}{suffix}", name))

    async def open(self, user: str | None, id: str) -> LiveSession:
        """A session to act on; raises `SessionNotFound`, or `SessionBusy` if another program writes to it."""
        self.check_owner(user, id)
        return self.live.get(id) or await self._finish(self._open_alone(id))

    async def open_named(self, user: str | None, name: str, agent: str | None = None) -> LiveSession:
        """The session that a client calls by a name of its own; a new one, of the first agent, if there is none."""
        id = _find_id(name, user)
        return await self._finish(self._open_alone(id, next(iter(self.agents)) if agent is None else agent))

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
            elif id not in self.live:
                await hub.refresh()
            return hub

    async def _finish(self, work: Coroutine[Any, Any, ReadT]) -> ReadT:
        """Wait for work that goes on if the one who waits leaves: a session that is half open would stay locked."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _open_alone(self, id: str, new_for: str | None = None) -> LiveSession:
        """Open a session, once; one that is not there is created if there is an agent that it is `new_for`."""
        async with self._locks.setdefault(id, asyncio.Lock()):
            if (live := self.live.get(id)) is not None:
                return live
            try:
                return await self._open(id, await asyncio.to_thread(self.store.open, id))
            except SessionNotFound:
                if new_for is None:
                    raise
            return await self._open(id, await asyncio.to_thread(self.store.create, id), new_for)

    def _scan(self, hub: Hub) -> None:
        handle = self.store.open(hub.session_id, write=False)
        try:
            hub.scan(handle)
        finally:
            handle.close()

    async def _open(self, id: str, handle: Handle, agent_name: str | None = None) -> LiveSession:
        try:
            if (hub := self.hubs.get(id)) is None:
                hub = Hub(id, self.store, ring_bytes=self._ring_bytes)
                await asyncio.to_thread(hub.scan, handle)
                self.hubs[id] = hub
            else:
                await hub.refresh()  # another program may have written to it
            outline = await asyncio.to_thread(read_outline, handle.lines())
            session = await asyncio.to_thread(Session, WatchedHandle(handle, hub.add_records))
        except BaseException:
            handle.close()
            raise
        try:
            if agent_name is not None:
                outline.agent = agent_name
                session.recorder.add(SERVED, {"agent": agent_name})
            agent = await self._make_agent(outline, session)
        except BaseException:
            session.close()
            raise
        live = self.live[id] = LiveSession(agent, session, hub, outline)
        await session.save()
        return live

    async def _make_agent(self, outline: Outline, session: Session) -> Agent[Any]:
        """An agent for a session; a session of an agent that is no longer here goes on with the first one."""
        name = outline.agent
        made = self.agents.get(name) or next(iter(self.agents.values()))
        agent: Any = cast(Agent[Any], made).variant() if isinstance(made, Agent) else made()
        if inspect.isawaitable(agent):
            agent = await agent
        if not isinstance(agent, Agent):
            raise TypeError(f"The factory of the agent {name!r} returned {agent!r}, which is no Agent.")
        agent = cast(Agent[Any], agent)
        if agent.config.approval is not None:
            # What one session is allowed from now on is not allowed in another one.
            agent.configure(approval=agent.config.approval.copy())
        if self._approval_timeout is not None:
            agent.configure(approve_timeout=self._approval_timeout)
        try:
            change_settings(agent, outline.settings, self.models)
        except ValueError as error:
            _log.warning("The session %r goes on without what was configured before: %s", session.id, error)
        agent.configure(session=session)
        return agent

    # Reading

    async def list_summaries(self, user: str | None) -> Sequence[Summary]:
        """The sessions of a user, the most recently used first."""
        found = await asyncio.to_thread(self.store.list)
        mine = [summary for summary in found if _belongs_to(summary.id, user)]
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
        return Listed(summary, "waiting" if outline.questions else "idle", outline.agent)

    async def find_outline(self, summary: Summary) -> Outline:
        """The outline of a session that is not open here; read again only when it has grown."""
        known = self._outlines.get(summary.id)
        if known is None or known[0] != summary.records:
            known = summary.records, await asyncio.to_thread(self._read, summary.id, read_outline)
            self._outlines[summary.id] = known
        return known[1]

    def _read(self, id: str, read: Callable[[Iterator[tuple[int, bytes]]], ReadT]) -> ReadT:
        handle = self.store.open(id, write=False)
        try:
            return read(handle.lines())
        finally:
            handle.close()

    def check_owner(self, user: str | None, id: str) -> None:
        """Raise `SessionNotFound` for an id that is none, or of a session of another user."""
        if not is_session_id(id) or not _belongs_to(id, user):
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
            if hub.watchers and id not in self.live:
                try:
                    await hub.refresh()
                except SessionError as error:
                    _log.error("The events of %r could not be read: %s", id, error)

    async def close_idle(self, only: str | None = None) -> None:
        """Close the sessions that no run and no watcher uses, or just one, so that other programs can open them."""
        for id, live in list(self.live.items()):
            if only not in (None, id):
                continue
            async with self._locks.setdefault(id, asyncio.Lock()):
                if not live.is_busy and not live.hub.watchers and self.live.get(id) is live:
                    del self.live[id]
                    await live.close()
        for id, hub in list(self.hubs.items()):
            async with self._locks.setdefault(id, asyncio.Lock()):
                if not hub.watchers and id not in self.live and self.hubs.get(id) is hub:
                    del self.hubs[id]

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

    def _forget(self, id: str) -> None:
        self.live.pop(id, None)
        self._outlines.pop(id, None)
        if (hub := self.hubs.pop(id, None)) is not None:
            hub.close()


def _read_agents(agents: Agents) -> dict[str, Any]:
    found: dict[Any, Any] = {DEFAULT_AGENT: agents}
    if isinstance(agents, Mapping):
        found = dict(cast(Mapping[Any, Any], agents))
    if not found:
        raise ValueError("A server needs at least one agent: Server({'name': make_agent}).")
    for name, made in found.items():
        if not isinstance(name, str) or not (isinstance(made, Agent) or callable(made)):
            raise TypeError(
                f"agents is an Agent, a function that makes one, or a dict of these by name, got {name!r}: {made!r}."
            )
    return found


def _make_prefix(user: str | None) -> str:
    """The beginning of the ids of a user's sessions, so that owners are known without opening them."""
    return "" if user is None else f"u{hashlib.sha256(user.encode()).hexdigest()[:16]}."


def _find_id(name: str, user: str | None) -> str:
    """The id of the session that a user calls by a name: the name itself, if it can be one."""
    if is_session_id(name) and _belongs_to(name, user):
        return name
    id = f"{_make_prefix(user)}{name}"
    if is_session_id(id) and _OWNER.match(name) is None:
        return id
    return f"{_make_prefix(user)}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _belongs_to(id: str, user: str | None) -> bool:
    if user is None:
        return _OWNER.match(id) is None
    return id.startswith(_make_prefix(user))
