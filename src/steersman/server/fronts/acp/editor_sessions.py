"""The sessions of one editor: each has a folder, the agent of that folder, and at most one prompt that is answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from steersman.agent.agent import Agent
from steersman.context.log import Log
from steersman.policy.approval import Approval
from steersman.server.fronts.acp.prompts import ServerOfClient
from steersman.server.live import LiveSession
from steersman.server.sessions import Sessions
from steersman.session.session import Session
from steersman.session.stores.store import Store
from steersman.types.errors import describe_exception
from steersman.types.ids import new_id

_log = logging.getLogger("steersman.server")


@dataclass(frozen=True, slots=True)
class Workplace:
    """The agent of a folder, where its sessions are kept, and the models that it may use."""

    agent: Agent[Any]
    store: Store
    models: Sequence[str] = ()


class Workplaces(Protocol):
    """Knows the folders. `home` is the one for requests that name none."""

    @property
    def home(self) -> Path: ...

    def find_store(self, cwd: Path) -> Store:
        """Where the sessions of a folder are kept."""
        ...

    def start(self, cwd: Path, servers: Sequence[ServerOfClient]) -> AbstractAsyncContextManager[Workplace]:
        """Start the agent of a folder, with these MCP servers beside its own."""
        ...


@dataclass(slots=True, eq=False)
class Turn:
    """A prompt that is being answered, or, if it `is_ours`, open questions that are asked again."""

    is_ours: bool = False
    cancelled: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class OpenSession:
    """One session of an editor. `rejected` are the calls that were rejected for good, by their fingerprints."""

    def __init__(self, cwd: Path, workplaces: Workplaces, servers: Sequence[ServerOfClient]) -> None:
        self.cwd = cwd
        self.turn: Turn | None = None
        self.rejected: set[str] = set()
        self.live: LiveSession
        self.place: Workplace
        self._workplaces = workplaces
        self._servers = servers
        self._closing = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._own_turn: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return self.live.session.id

    @property
    def approval(self) -> Approval | None:
        """The policy of its agent."""
        approval: Any = self.live.agent.config.approval
        return approval

    @property
    def open_questions(self) -> list[Any]:
        """The questions that no run waits for any more. Calls of sub-agents are not run again, so theirs are over."""
        if self.live.is_busy:
            return []
        return [asked for asked in self.live.describe_questions() if asked.get("parent_tool_call_id") is None]

    async def start(self, id: str | None, timeout: float | None = None) -> None:
        """Start the agent, and open the session with this id, a new one if it is `None`."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.get_running_loop().create_task(self._keep(id, timeout, ready))
        try:
            await ready
        except BaseException:
            await self.close()
            raise

    async def _keep(self, id: str | None, timeout: float | None, ready: asyncio.Future[None]) -> None:
        """Hold the agent from its start to its end: both must happen in one task."""
        try:
            async with self._workplaces.start(self.cwd, self._servers) as place:
                self.place = place
                sessions = Sessions(lambda: place.agent, place.store, approval_timeout=timeout)
                try:
                    self.live = await (sessions.create(None) if id is None else sessions.open(None, id))
                    if not ready.done():
                        ready.set_result(None)
                    await self._closing.wait()
                finally:
                    await sessions.close()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def begin_turn(self, work: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
        """Begin a turn that no prompt has asked for."""
        turn = self.turn = Turn(is_ours=True)
        self._own_turn = asyncio.get_running_loop().create_task(self._run_turn(turn, work))

    async def _run_turn(self, turn: Turn, work: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(turn)
        except Exception as error:  # noqa: BLE001  # no request waits for it, so the log is the place to tell
            _log.error("The open questions of %r could not be asked: %s", self.id, describe_exception(error))
        finally:
            if self.turn is turn:
                self.turn = None
            turn.ended.set()

    async def stop_turn(self, turn: Turn) -> None:
        """Stop a turn and its run. Questions that no run waits for stay open."""
        turn.cancelled = True
        if not self.open_questions:
            await self.live.abort()
        self.live.hub.wake()  # a turn that only waits for answers hears of it there

    async def wait_for_turn(self) -> None:
        """Wait for the end of the turn, if there is one."""
        if self.turn is not None:
            await self.turn.ended.wait()

    async def close(self) -> None:
        """Close the session and stop its agent; a session without any message is removed."""
        self._closing.set()
        if self._keeper is not None:
            await asyncio.wait([self._keeper])
            if not self._keeper.cancelled():
                self._keeper.result()
        live = getattr(self, "live", None)
        if live is not None and not live.session.messages:
            await asyncio.to_thread(self.place.store.delete, live.session.id)


def copy_session(store: Store, id: str) -> str:
    """Copy the current branch of a session into a new one, and return its id. It blocks, so call it in a thread."""
    with Session.open(store, id, write=False) as old:
        log = Log.from_entries(old.entries())
        log.copy_state_and_artifacts(old.log)
        title = next((one.title for one in store.list() if one.id == id), "")
        # While the old one is open: the contents of its artifacts are read from there.
        with Session.create(store, new_id("session")) as new:
            new.move_to(log)
            if title:
                new.set_title(title)
            return new.id
