"""Synchronous fan-out to subscribers."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable
from typing import TypeAlias

from steersman.types.events import AgentEvent, MessageUpdate

Subscriber: TypeAlias = Callable[[AgentEvent], object]
SubscriptionId: TypeAlias = int

_log = logging.getLogger("steersman")
_ids = itertools.count(1)
_NO_IDS: frozenset[SubscriptionId] = frozenset()


class Dispatcher:
    """Subscribers in registration order.

    A subscriber that raises is reported and removed. Each dispatch works on the subscribers there were when it began,
    so that subscribing and unsubscribing inside a callback take effect with the next event.
    """

    __slots__ = (
        "__weakref__", "_answering", "_subscribers", "_whole", "callbacks", "delta_callbacks", "dispatching",
        "has_held_events", "on_unanswered",
    )  # fmt: skip

    def __init__(self) -> None:
        self._subscribers: dict[SubscriptionId, Subscriber] = {}
        self.callbacks: tuple[tuple[SubscriptionId, Subscriber], ...] = ()
        # Those that also want each delta of an answer.
        self.delta_callbacks = self.callbacks
        self._whole: frozenset[SubscriptionId] = _NO_IDS
        self._answering: frozenset[SubscriptionId] = _NO_IDS
        # Whether a subscriber is being called, and whether it gave rise to an event that must wait for this one.
        self.dispatching = self.has_held_events = False
        # Called when the last subscriber that answers questions has gone.
        self.on_unanswered: Callable[[], object] | None = None

    @property
    def answers(self) -> bool:
        """Whether a subscriber answers questions."""
        return bool(self._answering)

    def subscribe(self, callback: Subscriber, *, answers: bool = False, deltas: bool = True) -> SubscriptionId:
        """Call the callback with every event from now on; `answers` says that it sees to answers to questions.

        Without `deltas` it gets no `message_update`, and where no other subscriber wants them none is built.
        """
        if not callable(callback):
            raise TypeError(f"subscribe() takes a function of one event, got {callback!r}.")
        called = getattr(callback, "__call__", None)  # noqa: B004  # an object may be async only in its __call__
        if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called):
            raise TypeError(
                f"subscribe() takes a plain function, got the async function {callback!r}. "
                "Iterate over the EventStream to await between events."
            )
        number = next(_ids)
        if answers:
            self._answering |= {number}
        if not deltas:
            self._whole |= {number}
        self._subscribers[number] = callback
        self._set_callbacks()
        return number

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """Remove a subscriber; unknown ids are ignored, because one that raised was removed already."""
        if self._subscribers.pop(subscription, None) is not None:
            self._whole -= {subscription}
            self._set_callbacks()
            if subscription in self._answering:
                self._answering -= {subscription}
                if not self._answering and self.on_unanswered is not None:
                    self.on_unanswered()

    def _set_callbacks(self) -> None:
        self.callbacks = callbacks = tuple(self._subscribers.items())
        self.delta_callbacks = (
            tuple([item for item in callbacks if item[0] not in self._whole]) if self._whole else callbacks
        )

    def dispatch(self, event: AgentEvent) -> list[str] | None:
        """Call every subscriber with the event; returns the failures, if any, and an empty list for held events."""
        callbacks = self.delta_callbacks if type(event) is MessageUpdate else self.callbacks
        if not callbacks:
            return None
        failures: list[str] | None = None
        outer, self.dispatching = self.dispatching, True
        for number, callback in callbacks:
            try:
                callback(event)
            except BaseException as error:  # noqa: BLE001  # whatever a watcher does, even exiting, the run goes on
                self.unsubscribe(number)
                failures = [*(failures or ()), f"{callback!r} raised {type(error).__name__}: {error}"]
                _log.error("A subscriber raised on %s and was removed.", event.type, exc_info=error)
        self.dispatching = outer
        if self.has_held_events and not outer:
            self.has_held_events = False
            return failures or []
        return failures
