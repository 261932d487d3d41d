"""How the agent that has a session hears of what other processes queue into it: at once, each once, and by number."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from weakref import WeakMethod, ref

from steersman.session.index import Index
from steersman.session.journal import JournalWriter
from steersman.session.orders import Order, UnreadableOrder, read_order
from steersman.session.stores.store import Handle, Problem, SessionError, SessionTaken, SharedHandle
from steersman.types.errors import describe_exception

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
        self._stop: Callable[[], None] | None = None
        self.on_order: Callable[[Order], object] | None = None
        """Called in any thread after an order was heard: an agent that rests may have something to do now."""

    def start(self, deliver: Callable[[Order], None], taken: Callable[[str], None]) -> None:
        """Give what other processes queue to an agent, first what waits already; `taken` is told of a takeover.

        Both are methods, held weakly, and may be called in any thread.
        """
        journal, handle = self._journal, self._handle
        if journal is None or not isinstance(handle, SharedHandle):
            return
        told = WeakMethod(taken)
        journal.on_taken = lambda text: None if (tell := told()) is None else tell(text)
        listener = OrderListener(handle, WeakMethod(deliver), journal.give_up, self._report)
        listening = ref(self)
        listener.on_order = lambda order: (
            None if (me := listening()) is None or me.on_order is None else me.on_order(order)
        )
        self._stop = handle.watch_queue(listener.look)
        listener.look()

    def stop(self) -> None:
        """Hear nothing more: what is queued from here on waits for the next agent."""
        if self._stop is not None:
            self._stop()
            self._stop = None

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
