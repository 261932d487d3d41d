"""Synchronous fan-out to subscribers."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias, get_args

from steersman.types.events import AgentEvent, MessageUpdate

Subscriber: TypeAlias = Callable[[AgentEvent], object]
SubscriptionId: TypeAlias = int
Kinds: TypeAlias = Collection[type[AgentEvent]]
Callbacks: TypeAlias = tuple[tuple[SubscriptionId, Subscriber], ...]

WHOLE_EVENTS: frozenset[type[AgentEvent]] = frozenset(get_args(AgentEvent)) - {MessageUpdate}
"""The classes of all events but the deltas of an answer."""

_ids = itertools.count(1)
# What dispatchers without subscribers share; it is replaced, never changed.
_NO_IDS: frozenset[SubscriptionId] = frozenset()
_NO_KINDS: dict[SubscriptionId, Kinds] = {}
_NO_CALLBACKS: dict[object, Callbacks] = {}


class OpenQuestions(Protocol):
    """The questions that subscribers may answer."""

    def deny_unanswerable(self) -> None:
        """Deny those that no subscriber can answer any more."""
        ...


class Dispatcher:
    """Subscribers in registration order.

    A subscriber that raises is reported and removed. Each dispatch works on the subscribers there were when it began,
    so that subscribing and unsubscribing inside a callback take effect with the next event.
    """

    __slots__ = (
        "__weakref__", "_answering", "_by_kind", "_kinds", "_subscribers", "callbacks", "delta_callbacks",
        "dispatching", "has_held_events", "questions",
    )  # fmt: skip

    def __init__(self) -> None:
        # Each with the kinds of events that it wants, if not all.
        self._subscribers: dict[SubscriptionId, tuple[Subscriber, Kinds | None]] = {}
        self.callbacks: Callbacks = ()
        # Those that also want each delta of an answer.
        self.delta_callbacks = self.callbacks
        # The subscribers that do not want all kinds, and who wants the events of a kind.
        self._kinds = _NO_KINDS
        self._by_kind = _NO_CALLBACKS
        self._answering: frozenset[SubscriptionId] = _NO_IDS
        # Whether a subscriber is being called, and whether it gave rise to an event that must wait for this one.
        self.dispatching = self.has_held_events = False
        # Told when the last subscriber that answers questions has gone.
        self.questions: OpenQuestions | None = None

    @property
    def answers(self) -> bool:
        """Whether a subscriber answers questions."""
        return bool(self._answering)

    def subscribe(self, callback: Subscriber, *, answers: bool = False, kinds: Kinds | None = None) -> SubscriptionId:
        """Call the callback with every event from now on; `answers` says that it sees to answers to questions.

        With `kinds` it gets only events of these classes; one that no subscriber or reader wants is not built.
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
        self._subscribers[number] = callback, kinds
        self._set_callbacks()
        return number

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """Remove a subscriber; unknown ids are ignored, because one that raised was removed already."""
        if self._subscribers.pop(subscription, None) is not None:
            self._set_callbacks()
            if subscription in self._answering:
                self._answering -= {subscription}
                if not self._answering and self.questions is not None:
                    self.questions.deny_unanswerable()

    def _set_callbacks(self) -> None:
        subscribers = list(self._subscribers.items())
        self._by_kind = {}
        self._kinds = {number: kinds for number, (_, kinds) in subscribers if kinds is not None}
        self.callbacks = tuple([(number, callback) for number, (callback, _) in subscribers])
        self.delta_callbacks = self.find_callbacks(MessageUpdate)

    def find_callbacks(self, kind: object) -> Callbacks:
        """The subscribers that want events of this class."""
        if not self._kinds:
            return self.callbacks
        found = self._by_kind.get(kind)
        if found is None:
            kinds = self._kinds
            found = tuple([item for item in self.callbacks if item[0] not in kinds or kind in kinds[item[0]]])
            self._by_kind[kind] = found
        return found

    def dispatch(self, event: AgentEvent) -> list[str] | None:
        """Call every subscriber with the event; returns the failures, if any, and an empty list for held events."""
        callbacks = self.find_callbacks(type(event))
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
                _log_failure(event, error)
        self.dispatching = outer
        if self.has_held_events and not outer:
            self.has_held_events = False
            return failures or []
        return failures


def _log_failure(event: AgentEvent, error: BaseException) -> None:
    from logging import getLogger  # a millisecond at import, and only errors need it

    getLogger("steersman").error("A subscriber raised on %s and was removed.", event.type, exc_info=error)
