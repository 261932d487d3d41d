"""A session that is open in another process: what people do with it here is queued for that one.

The answers are those of a session that is open here: the same receipts, the same errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from math import inf
from typing import Any, Protocol

from steersman.agent.outside import check_offered
from steersman.server.live import Approvals, LiveSession
from steersman.server.outline import Outline, read_outline
from steersman.server.receipts import Receipt, make_receipt
from steersman.session.session_queue import Queued, SessionQueue
from steersman.session.stores.store import FollowedStore, SessionError, SharedStore, make_busy_error
from steersman.types.errors import AgentBusy, SteersmanError, UnknownApproval
from steersman.types.messages import AgentMessage, require_content

# Seconds until the first look whether something was heard, and between later ones, which are further and further apart.
_FIRST_LOOK, _LONGEST = 0.05, 5.0
# After so many looks it is left to the next process that opens the session.
_LOOKS = 12

_log = logging.getLogger("steersman.server")


class Home(Protocol):
    """What a session needs of the server that it is not open in."""

    async def read_session(self, id: str, read: Callable[[Any], Outline]) -> Outline:
        """What a function reads from the encoded records of a session."""
        ...

    async def open_session(self, id: str) -> LiveSession:
        """Open a session here; raises `SessionBusy` while it is open elsewhere."""
        ...

    def start_task(self, work: Coroutine[Any, Any, None], /) -> None:
        """Do something that goes on by itself."""
        ...


class RemoteSession:
    """One session of another process. Methods that act return a receipt once what they queued is saved."""

    def __init__(self, id: str, store: SharedStore, home: Home) -> None:
        self.id = id
        self.is_used = False
        self.checked_at = -inf
        """When it was last known to be open elsewhere, on the clock of the event loop."""
        self._store = store
        self._home = home
        self._queue: SessionQueue | None = None
        self._opening = asyncio.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether the other process has it."""
        return True

    async def is_running(self) -> bool:
        """Whether the run that the records have no end of goes on: the other process is there."""
        return not isinstance(self._store, FollowedStore) or await asyncio.to_thread(self._store.has_writer, self.id)

    # Speaking

    async def prompt(self, message: AgentMessage, *, key: str | None = None, approvals: Approvals = "wait") -> Receipt:
        """Start a run there with a message; raises `AgentBusy` while one goes on."""
        outline = await self._read_outline()
        if await self._is_known(key, outline):
            return make_receipt(self.id, key)
        if isinstance(self._store, FollowedStore) and not await asyncio.to_thread(self._store.has_writer, self.id):
            live = await self._home.open_session(self.id)
            return await live.prompt(message, key=key, approvals=approvals)
        if outline.in_run:
            raise AgentBusy("A run is going on in this session. Use steer or follow_up, or wait until it has ended.")
        if approvals == "deny":
            raise make_busy_error(self.id)  # what is queued cannot say how questions are answered
        return await self.steer(message, key=key)

    async def steer(
        self, message: AgentMessage, *, mode: Any = None, key: str | None = None, approvals: Approvals = "wait"
    ) -> Receipt:
        """Steer the run there; without one it starts one."""
        await self._check_approvals(approvals, key)
        content, receipt = require_content(message), make_receipt(self.id, key)
        return await self._send(receipt, lambda queue: queue.steer(content, mode, key=key, id=receipt["id"]))

    async def follow_up(
        self, message: AgentMessage, *, key: str | None = None, approvals: Approvals = "wait"
    ) -> Receipt:
        """Queue a message for the end of the run there; without one it starts one."""
        await self._check_approvals(approvals, key)
        content, receipt = require_content(message), make_receipt(self.id, key)
        return await self._send(receipt, lambda queue: queue.follow_up(content, key=key, id=receipt["id"]))

    async def _check_approvals(self, approvals: Approvals, key: str | None) -> None:
        """Raise `SessionBusy` for a new message that would start a run and wants its questions denied.

        What is queued cannot say how questions are answered.
        """
        if approvals == "wait":
            return
        outline = await self._read_outline()
        if not outline.in_run and not await self._is_known(key, outline):
            raise make_busy_error(self.id)

    async def abort(self, *, key: str | None = None) -> Receipt:
        """Interrupt the run there, if there is one."""
        if (known := await self._find_receipt(key)) is not None:
            return known
        receipt = make_receipt(self.id, key)
        return await self._send(receipt, lambda queue: queue.abort(key=key, id=receipt["id"]))

    async def configure(
        self, changes: Mapping[str, Any], models: Collection[str], *, key: str | None = None
    ) -> Receipt:
        """Change settings of the agent there, from its next turn on; raises `ValueError` for what is not offered.

        If no process has the session open, the next one that does hears of it.
        """
        if "model" in changes:
            check_offered(changes["model"], models)
        if (known := await self._find_receipt(key)) is not None:
            return known
        queue, receipt = await self._open_queue(), make_receipt(self.id, key)
        await asyncio.to_thread(lambda: queue.configure(**changes, key=key, id=receipt["id"]))
        return receipt

    # Answering questions

    async def approve(self, approval_id: str, *, by: str, remember: bool = False, key: str | None = None) -> Receipt:
        """Approve a tool call; a second answer changes nothing. Raises `UnknownApproval` for a question never asked."""
        return await self._answer(
            approval_id, key, lambda queue: queue.approve(approval_id, remember=remember, by=by, key=key)
        )

    async def deny(self, approval_id: str, reason: str = "", *, by: str, key: str | None = None) -> Receipt:
        """Deny a tool call; raises as `approve` does."""
        return await self._answer(approval_id, key, lambda queue: queue.deny(approval_id, reason, by=by, key=key))

    async def _answer(self, approval_id: str, key: str | None, add: Callable[[SessionQueue], Queued]) -> Receipt:
        outline = await self._read_outline()
        receipt = {"id": approval_id, "status": "accepted"}
        if (known := await self._find_receipt(key, outline)) is not None:
            return known
        if outline.takes_answer(approval_id):
            return await self._send(receipt, add)
        if approval_id in outline.resolved:
            return {**receipt, "status": "resolved"}
        raise UnknownApproval(f"No tool call waits for the approval {approval_id!r:.200}.")

    # Queueing

    async def _send(self, receipt: Receipt, add: Callable[[SessionQueue], Queued]) -> Receipt:
        queue = await self._open_queue()
        queued = await asyncio.to_thread(add, queue)
        if queued.is_new and isinstance(self._store, FollowedStore):
            self._home.start_task(self._see_to(queued.number, self._store))
        return receipt

    async def _see_to(self, number: int, store: FollowedStore) -> None:
        """See that something is heard: if the other process closes the session or dies before, it is opened here."""
        pause = _FIRST_LOOK
        try:
            for _ in range(_LOOKS):
                await asyncio.sleep(pause)
                pause = min(_LONGEST, pause * 2)
                queue = await self._open_queue()
                if number not in [order.number for order in await asyncio.to_thread(queue.waiting)]:
                    return
                if not await asyncio.to_thread(store.has_writer, self.id):
                    live = await self._home.open_session(self.id)
                    live.start_queued()
                    return
        except (SessionError, SteersmanError) as error:
            _log.warning("What was queued into the session %r waits there: %s", self.id, error)

    async def _find_receipt(self, key: str | None, outline: Outline | None = None) -> Receipt | None:
        """The receipt of what was done there under this key before."""
        if key is None:
            return None
        known = (outline or await self._read_outline()).receipts.get(key)
        return None if known is None else {"id": str(known["id"]), "status": str(known["status"])}

    async def _is_known(self, key: str | None, outline: Outline) -> bool:
        """Whether a message was said under this key, here or elsewhere, and perhaps not heard yet."""
        if key is None or key in outline.said:
            return key is not None
        queue = await self._open_queue()
        return any(order.key == key for order in await asyncio.to_thread(queue.waiting))

    async def _open_queue(self) -> SessionQueue:
        self.is_used = True
        async with self._opening:
            if self._queue is None:
                self._queue = await asyncio.to_thread(SessionQueue, self._store, self.id)
            return self._queue

    async def _read_outline(self) -> Outline:
        return await self._home.read_session(self.id, read_outline)

    async def close(self) -> None:
        """Close what was opened to queue."""
        async with self._opening:
            queue, self._queue = self._queue, None
            if queue is not None:
                await asyncio.to_thread(queue.close)
