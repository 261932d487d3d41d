"""What a session that is open in this server does for other processes: hears them, and tells them what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from steersman.events.stream import EventStream
from steersman.loop.entry import Start, start_run
from steersman.session.orders import Order
from steersman.tools.threads import call_soon_in
from steersman.types.continuation import Initial

if TYPE_CHECKING:
    from steersman.server.hub import Hub
    from steersman.server.live import LiveSession
    from steersman.session.relay import Relay
    from steersman.session.session import Session

# A session is opened to do something there, such as `continue`, which starts a run or does not. After so many seconds
# that is done.
_PATIENCE = 0.3


class OrderStarts:
    """Starts a run for each message that is heard while none goes on, and for the answer to one of these questions.

    The questions are those that a restart has cut off; a run that is aborted ends them. `follow` is called with the
    stream of the run.
    """

    def __init__(
        self,
        live: LiveSession,
        questions: Collection[str],
        follow: Callable[[EventStream[Any], Literal["wait"]], object],
    ) -> None:
        self._live = live
        self._questions = questions
        self._follow = follow
        loop = asyncio.get_running_loop()
        live.session.listening.on_order = lambda order: call_soon_in(loop, self.hear, order)

    def hear(self, order: Order) -> None:
        """Do what was heard (called in the event loop, as the other)."""
        self._note(order)
        self._start(order)

    def hear_early(self, order: Order) -> None:
        """The same for what was heard while the session was opened: what it was opened for comes first."""
        self._note(order)
        asyncio.get_running_loop().call_later(_PATIENCE, self._start, order)

    def _note(self, order: Order) -> None:
        if order.key is not None and order.message is None:
            self._live.note_order(order.key, order.approval_id or order.id)

    def _start(self, order: Order) -> None:
        live, agent = self._live, self._live.agent
        if live.is_busy or live.draining or live.session.closed:
            return
        if order.message is not None and len(agent.inbox):
            self._follow(start_run(agent, Start((), Initial(), silent=True)), "wait")
        elif order.approval_id in self._questions or (order.kind == "abort" and self._questions):
            self._follow(agent.continue_(), "wait")


def hear_while_opening(session: Session, opened: Mapping[str, LiveSession]) -> None:
    """Let a session that is being opened do what it hears meanwhile, once it is among those that are open."""
    loop = asyncio.get_running_loop()

    def hear(order: Order) -> None:
        if (live := opened.get(session.id)) is not None:
            live.orders.hear_early(order)

    session.listening.on_order = lambda order: call_soon_in(loop, hear, order)


def feed_followers(session: Session, hub: Hub) -> None:
    """Let those that follow the session in other processes see what the hub shows, under the same positions."""
    loop = asyncio.get_running_loop()

    def feed(relay: Relay) -> Callable[[], None]:
        call_soon_in(loop, hub.feed, relay)
        return lambda: call_soon_in(loop, hub.stop_feeding, relay)

    session.listening.set_feed(feed)
