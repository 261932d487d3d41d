"""How the agent that has a session hears of what other processes queue into it: at once, each once, and by number."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakMethod, ref

from steersman.session.index import Index
from steersman.session.journal import JournalWriter
from steersman.session.orders import Order, UnreadableOrder, read_order
from steersman.session.stores.store import (
    QUEUE_PAGE,
    Handle,
    Problem,
    SessionError,
    SessionTaken,
    SharedHandle,
    is_followed,
    is_shared,
)
from steersman.types.errors import describe_exception

if TYPE_CHECKING:
    from steersman.session.relay import Feed, Relay

_log = logging.getLogger("steersman")


class Listening:
    """What an agent hears through its session; for the agent."""

    def __init__(
        self, handle: Handle, journal: JournalWriter | None, index: Index, report: Callable[[Problem], object]
    ) -> None:
        self._handle = handle
        self._journal = journal
        self._index = index
        self._report = report
        self._look: Callable[[], None] | None = None
        self._stops: list[Callable[[], None]] = []
        self._joining = threading.Lock()
        self._feed: Feed | None = None
        self._relay: Relay | None = None
        self.on_order: Callable[[Order], object] | None = None
        """Called in any thread after an order was heard: an agent that rests may have something to do now."""

    def start(self, deliver: Callable[[Order], None], taken: Callable[[str], None]) -> None:
        """Give what other processes queue to an agent, first what waits already; `taken` is told of a takeover.

        Both are methods, held weakly, and may be called in any thread.
        """
        journal, handle = self._journal, self._handle
        if journal is None or not is_shared(handle):
            return
        told = WeakMethod(taken)
        journal.on_taken = lambda text: None if (tell := told()) is None else tell(text)
        listener = OrderListener(handle, WeakMethod(deliver), journal.give_up, self._report)
        listening = ref(self)
        listener.on_order = lambda order: (
            None if (me := listening()) is None or me.on_order is None else me.on_order(order)
        )
        self._look = listener.look
        self._stops.append(handle.watch_queue(listener.look))
        if is_followed(handle):
            self._stops.append(
                handle.watch_followers(lambda: None if (me := listening()) is None else me.tell_followers())
            )
        listener.look()

    def look(self) -> None:
        """Hear now what other processes have queued, which may be on its way. It blocks; for any thread."""
        if self._look is not None:
            self._look()

    def set_feed(self, feed: Feed) -> None:
        """Set what gives the events of runs to those that follow the session in other processes."""
        with self._joining:
            self._feed = feed
            relay = self._relay
        if relay is not None:
            relay.change_feed(feed)

    def tell_followers(self) -> None:
        """A process has begun to follow the session, or asks. For any thread."""
        from steersman.session.relay import Relay  # only needed where sessions are followed

        with self._joining:
            journal, handle = self._journal, self._handle
            if self._feed is None or journal is None or not is_followed(handle):
                return
            if self._relay is None:
                self._relay = Relay(handle, journal, self._feed)
            relay = self._relay
        relay.join()

    def stop(self) -> None:
        """Hear nothing more: what is queued from here on waits for the next agent."""
        for stop in self._stops:
            stop()
        self._stops.clear()
        if self._relay is not None:
            self._relay.stop()

    @property
    def abort_due(self) -> bool:
        """Whether the run that a crash has cut off is to be aborted when it goes on."""
        return self._index.abort_due

    def note_abort(self) -> None:
        """Abort the run that a crash has cut off, if there is one, when it goes on."""
        self._index.abort_due = self._index.unfinished

    @property
    def answers(self) -> Sequence[Order]:
        """The answers to questions that were heard before a crash, and not used."""
        return [*self._index.answers.values()]


class OrderListener:
    """Takes what is queued into a session, in order, and gives it to the agent that has the session."""

    def __init__(
        self,
        handle: SharedHandle,
        deliver: WeakMethod[Callable[[Order], None]],
        give_up: Callable[[SessionTaken], None],
        report: Callable[[Problem], object],
    ) -> None:
        self._handle = handle
        self._deliver = deliver
        self._give_up = give_up
        self._report = report
        self.on_order: Callable[[Order], object] = _ignore
        self._lock = threading.Lock()
        self._taken = 0

    def look(self) -> None:
        """Deliver what was queued since the last look. For any thread; raises nothing."""
        with self._lock:
            try:
                while rows := self._handle.read_queue(self._taken):
                    for number, data in rows:
                        self._take(number, data)
                    if len(rows) < QUEUE_PAGE:
                        break
            except SessionTaken as error:
                self._give_up(error)
            except SessionError as error:
                # It is closed, or the store does not answer: what waits there is read with the next look.
                _log.debug("The queue of %r was not read: %s", self._handle.session_id, error)

    def _take(self, number: int, data: bytes) -> None:
        self._taken = number
        deliver = self._deliver()
        if deliver is None:
            return
        try:
            order = read_order(number, data)
            deliver(order)
            self.on_order(order)
        except UnreadableOrder as error:
            _log.error("Order %d of session %r was not heard. %s", number, self._handle.session_id, error)
            self._report(Problem(f"order {number}", str(error)))
        except Exception as error:  # noqa: BLE001  # whatever one order does, those after it are heard
            _log.error(
                "Order %d of session %r was not heard: %s", number, self._handle.session_id, describe_exception(error)
            )


def _ignore(_: Order) -> None:
    """Nothing is to be called."""
