"""What a session that is open in this server does for other processes: hears them, and tells them what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
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


def follow_orders(
    live: LiveSession, questions: Collection[str], follow: Callable[[EventStream[Any], Literal["wait"]], object]
) -> None:
    """Start a run for each message that is heard while none goes on, and for the answer to one of these questions.

    The questions are those that a restart has cut off; a run that is aborted ends them. `follow` is called with the
    stream of the run.
    """
    loop, agent = asyncio.get_running_loop(), live.agent

    def start(order: Order) -> None:
        if order.key is not None and order.message is None:
            live.note_order(order.key, order.approval_id or order.id)
        if live.is_busy or live.draining or live.session.closed:
            return
        if order.message is not None and len(agent.inbox):
            follow(start_run(agent, Start((), Initial(), silent=True)), "wait")
        elif order.approval_id in questions or (order.kind == "abort" and questions):
            follow(agent.continue_(), "wait")

    live.session.listening.on_order = lambda order: call_soon_in(loop, start, order)


def feed_followers(session: Session, hub: Hub) -> None:
    """Let those that follow the session in other processes see what the hub shows, under the same positions."""
    loop = asyncio.get_running_loop()

    def feed(relay: Relay) -> Callable[[], None]:
        call_soon_in(loop, hub.feed, relay)
        return lambda: call_soon_in(loop, hub.stop_feeding, relay)

    session.listening.set_feed(feed)
