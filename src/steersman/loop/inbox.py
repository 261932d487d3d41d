"""The inbox of an agent: steering and follow-ups wait here until a run takes them, each exactly once.

The functions at the end are the one way into the log: what is pending is added first, before anything else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from steersman.loop.config import GetMessagesFn, QueueMode, SteeringPolicy, resolve
from steersman.loop.option_checks import check_one_of
from steersman.policy.filters import apply_filters
from steersman.types.events import AgentEvent, InputRejected, MessageEnd, MessageStart
from steersman.types.ids import new_id
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    ExtensionMessage,
    ToolResultMessage,
    UserMessage,
    to_message,
)

if TYPE_CHECKING:
    from steersman.loop.run import Run

QueueKind: TypeAlias = Literal["steering", "follow_up"]
ReceiptStatus: TypeAlias = Literal["accepted", "next_run", "delivered", "returned"]


_URGENCY: tuple[SteeringPolicy, ...] = ("cancel", "skip", "wait")
_KINDS: tuple[QueueKind, ...] = ("steering", "follow_up")
# Inboxes with no sources, no messages or the same modes share these; they are replaced, never changed.
_NO_SOURCES: dict[QueueKind, GetMessagesFn | None] = dict.fromkeys(_KINDS)
_NO_MESSAGES: dict[QueueKind, list[QueuedMessage]] = {"steering": [], "follow_up": []}
_NONE: frozenset[str] = frozenset()
_BOTH: frozenset[str] = frozenset(_KINDS)
_get_timestamp = attrgetter("timestamp")


class Receipt:
    """What became of a queued message: `accepted` for this run, left for the `next_run`, `delivered` or `returned`."""

    __slots__ = ("message", "status")

    def __init__(self, message: AgentMessage, status: ReceiptStatus) -> None:
        self.message = message
        self.status: ReceiptStatus = status

    def __repr__(self) -> str:
        return f"Receipt({self.status!r})"


class QueuedMessage(msgspec.Struct, frozen=True):
    """One message that waits; `id` is what a session knows it by."""

    kind: QueueKind
    message: AgentMessage
    receipt: Receipt
    mode: SteeringPolicy | None = None
    id: str = ""
    key: str | None = None


class InboxListener(Protocol):
    """Called when something happens to a queued message, in order and under the lock: must not raise or block."""

    def on_accept(self, item: QueuedMessage, /) -> None: ...
    def on_delivery_start(self, item: QueuedMessage, /) -> None: ...
    def on_delivery_end(self, item: QueuedMessage, entry_id: str, /) -> None: ...
    def on_return(self, item: QueuedMessage, /) -> None: ...


class Queues(msgspec.Struct, frozen=True):
    """What waits, as messages."""

    steering: list[AgentMessage]
    follow_up: list[AgentMessage]


class Inbox:
    """The two queues of an agent. Adding is safe from any thread; only the loop takes."""

    __slots__ = ("_keys", "_lock", "_one_at_a_time", "_open", "_queues", "_sources", "listener", "new_id", "on_arrival")

    def __init__(self, *, steering_mode: QueueMode = "all", follow_up_mode: QueueMode = "all") -> None:
        self._queues: dict[QueueKind, list[QueuedMessage]] = _NO_MESSAGES
        self._one_at_a_time = _NONE
        if steering_mode == follow_up_mode == "one-at-a-time":
            self._one_at_a_time = _BOTH
        else:
            self.set_modes(steering=steering_mode, follow_up=follow_up_mode)
        self._sources: dict[QueueKind, GetMessagesFn | None] = _NO_SOURCES
        self._keys: dict[str, Receipt] | None = None
        self._lock = threading.Lock()
        self._open = False
        self.listener: InboxListener | None = None
        # Makes the id of a message that a session is to know: the source of the run, once there is one.
        self.new_id: Callable[[str], str] = new_id
        self.on_arrival: Callable[[], None] | None = None

    def copy_empty(self) -> Inbox:
        """Another one with the same modes and nothing in it."""
        inbox = Inbox()
        inbox._one_at_a_time = self._one_at_a_time
        return inbox

    def add(
        self,
        kind: QueueKind,
        message: AgentMessage,
        *,
        mode: SteeringPolicy | None = None,
        key: str | None = None,
        id: str = "",
    ) -> Receipt:
        """Queue a message; the same key twice is one message. `id` is what a session is to know it by."""
        with self._lock:
            known = None if key is None or self._keys is None else self._keys.get(key)
            if known is not None and known.status != "returned":
                return known
            receipt = Receipt(message, "accepted" if self._open else "next_run")
            if key is not None:
                self._keys = {} if self._keys is None else self._keys
                self._keys[key] = receipt
            id = id or ("" if self.listener is None else self.new_id("queued"))
            item = QueuedMessage(kind, message, receipt, mode, id, key)
            self._get_own_queues()[kind].append(item)
            if self.listener is not None:
                self.listener.on_accept(item)
            notify = self.on_arrival
        if notify is not None and kind == "steering":
            notify()
        return receipt

    def find_receipt(self, key: str) -> Receipt | None:
        """The receipt of the message with this key, unless the message was returned."""
        with self._lock:
            known = None if self._keys is None else self._keys.get(key)
        return None if known is None or known.status == "returned" else known

    @property
    def delivered_keys(self) -> list[str]:
        """The keys of the messages that were delivered, the oldest first."""
        with self._lock:
            return [key for key, receipt in (self._keys or {}).items() if receipt.status == "delivered"]

    def set_modes(self, *, steering: QueueMode | None = None, follow_up: QueueMode | None = None) -> None:
        """Deliver one message at a time, or all at once; `None` leaves a mode as it is."""
        for kind, mode in zip(_KINDS, (steering, follow_up), strict=True):
            if mode is not None:
                check_one_of(f"{kind}_mode", mode, ("one-at-a-time", "all"))
                one = mode == "one-at-a-time"
                self._one_at_a_time = self._one_at_a_time | {kind} if one else self._one_at_a_time - {kind}

    def open(self, *, steering: GetMessagesFn | None, follow_up: GetMessagesFn | None) -> None:
        """Accept messages for a run from now on; its callbacks are further sources of the same queues."""
        with self._lock:
            self._sources = {"steering": steering, "follow_up": follow_up}
            self._open = True
            self._set_status("accepted")

    def close(self, *, only_if_empty: bool = False) -> bool:
        """Accept messages for the next run; looking and closing are one atomic step. Returns whether it is closed."""
        with self._lock:
            if only_if_empty and (self._queues["steering"] or self._queues["follow_up"]):
                return False
            self._open = False
            self._sources = _NO_SOURCES
            self.on_arrival = None
            self._set_status("next_run")
            return True

    def may_have(self, kind: QueueKind) -> bool:
        """Whether something waits, or there is a callback to poll."""
        return bool(self._queues[kind]) or self._sources[kind] is not None

    @property
    def has_steering(self) -> bool:
        """Whether a steering message waits."""
        return bool(self._queues["steering"])

    def has_source(self, kind: QueueKind) -> bool:
        """Whether there is a callback to poll."""
        return self._sources[kind] is not None

    async def poll(self, kind: QueueKind) -> None:
        """Queue what the run's callback returns."""
        source = self._sources[kind]
        if source is not None:
            for value in await resolve(source()) or ():
                self.add(kind, to_message(value))

    def find_urgency(self, default: SteeringPolicy) -> SteeringPolicy | None:
        """The mode of the most urgent steering message, without taking it; `None` when there is none."""
        if not self._queues["steering"]:
            return None
        with self._lock:
            modes = {item.mode or default for item in self._queues["steering"]}
        return next((mode for mode in _URGENCY if mode in modes), None)

    def take(self, kind: QueueKind) -> list[QueuedMessage]:
        """The next message, or all of them, by the queue's mode."""
        queue = self._queues[kind]
        if not queue:
            return []
        with self._lock:
            if not queue:
                return []
            if kind in self._one_at_a_time:
                return [queue.pop(0)]
            taken = list(queue)
            queue.clear()
            return taken

    def requeue(self, items: Sequence[QueuedMessage]) -> None:
        """Put messages that were taken and not delivered back at the front of their queue."""
        with self._lock:
            for item in reversed(items):
                if self.listener is not None and not item.id:
                    # A prompt that no filter has let in yet: from now on it waits here.
                    item = msgspec.structs.replace(item, id=self.new_id("queued"))
                    self.listener.on_accept(item)
                self._get_own_queues()[item.kind].insert(0, item)
                item.receipt.status = "accepted" if self._open else "next_run"

    def restore(self, items: Sequence[QueuedMessage], delivered: Mapping[str, Receipt]) -> None:
        """Queue what waited when an earlier program ended; `delivered` are receipts by key of what it delivered.

        The listener is not called: it knows these messages.
        """
        with self._lock:
            for item in items:
                self._get_own_queues()[item.kind].append(item)
            keyed = {item.key: item.receipt for item in items if item.key is not None}
            if keyed or delivered:
                self._keys = {**(self._keys or {}), **delivered, **keyed}

    def start_delivery(self, item: QueuedMessage) -> None:
        """Report that a message is about to be added to the log."""
        if self.listener is not None:
            self.listener.on_delivery_start(item)

    def deliver(self, item: QueuedMessage, entry_id: str) -> None:
        """Report that a message is in the log."""
        item.receipt.status = "delivered"
        if self.listener is not None:
            self.listener.on_delivery_end(item, entry_id)

    def reject(self, item: QueuedMessage) -> None:
        """Report that a message is not delivered."""
        item.receipt.status = "returned"
        if self.listener is not None:
            self.listener.on_return(item)

    def withdraw(self) -> list[AgentMessage]:
        """Take everything back; the receipts say `returned`."""
        with self._lock:
            items = [*self._queues["steering"], *self._queues["follow_up"]]
            self._queues["steering"].clear()
            self._queues["follow_up"].clear()
            for item in items:
                self.reject(item)
        return [item.message for item in items]

    @property
    def queued(self) -> Queues:
        """What waits."""
        with self._lock:
            return Queues(*([item.message for item in self._queues[kind]] for kind in ("steering", "follow_up")))

    @property
    def items(self) -> list[QueuedMessage]:
        """What waits, with receipts."""
        with self._lock:
            return [*self._queues["steering"], *self._queues["follow_up"]]

    def __len__(self) -> int:
        return len(self._queues["steering"]) + len(self._queues["follow_up"])

    def _get_own_queues(self) -> dict[QueueKind, list[QueuedMessage]]:
        """The queues to add to; called under the lock."""
        if self._queues is _NO_MESSAGES:
            self._queues = {"steering": [], "follow_up": []}
        return self._queues

    def _set_status(self, status: ReceiptStatus) -> None:
        for queue in self._queues.values():
            for item in queue:
                item.receipt.status = status


def add_message(run: Run, message: AgentMessage) -> str:
    """Add a message to the log, with its events; returns its entry id."""
    if not message.timestamp:
        message = msgspec.structs.replace(message, timestamp=run.clock())
    run.emit_message(MessageStart, message)
    entry_id = run.append(message)
    run.emit_message(MessageEnd, message)
    return entry_id


def add_results(run: Run, results: Sequence[ToolResultMessage]) -> None:
    """Add the results of tool calls to the log; where only a reader gets their events, it gets all at once."""
    if not run.is_only_read:
        for result in results:
            add_message(run, result)
        return
    loop_id, now, seq = run.loop_id, run.clock(), run.seq
    if not all(map(_get_timestamp, results)):
        results = [result if result.timestamp else msgspec.structs.replace(result, timestamp=now) for result in results]
    run.append_results(results)
    events: list[AgentEvent] = []
    for result in results:
        events += (MessageStart(loop_id, seq, now, result), MessageEnd(loop_id, seq + 1, now, result))
        seq += 2
    run.seq = seq
    run.channel.push_all(events)


def open_inbox(run: Run) -> None:
    """Accept queued messages for this run from now on; its callbacks and its message provider are further sources."""
    config, provider = run.config, run.config.message_provider
    run.inbox.new_id = run.new_id
    run.inbox.open(
        steering=config.get_steering_messages or (provider.poll_steering if provider is not None else None),
        follow_up=config.get_follow_up_messages or (provider.poll_follow_up if provider is not None else None),
    )


def add_pending(run: Run) -> None:
    """Add all pending messages to the log."""
    while run.pending:
        item = run.pending.pop(0)
        message = item.message if type(item) is QueuedMessage else item
        assert not isinstance(message, QueuedMessage)
        if type(item) is QueuedMessage:
            run.inbox.start_delivery(item)
        entry_id = add_message(run, message)
        if type(item) is QueuedMessage:
            run.inbox.deliver(item, entry_id)
        if run.repeats is not None and type(message) is UserMessage and not message.synthetic:
            run.repeats.reset()


def is_answered(messages: Sequence[AgentMessage]) -> bool:
    """Whether the conversation ends with a complete answer, so that nothing is left to do."""
    last = next((message for message in reversed(messages) if type(message) is not ExtensionMessage), None)
    return type(last) is AssistantMessage and not last.failed and not last.tool_calls


async def take_queued(run: Run, kind: QueueKind, *, at: int = 0) -> bool:
    """Make the next steering messages or follow-ups pending, before injections; returns whether any is pending."""
    items = run.inbox.take(kind)
    if not items and run.inbox.has_source(kind):
        await run.inbox.poll(kind)
        items = run.inbox.take(kind)
    if not items:
        return False
    if run.config.input_filters:
        await _filter_queued(run, items, at)
    else:
        run.pending[at:at] = items
    return bool(run.pending)


async def _filter_queued(run: Run, items: list[QueuedMessage], at: int) -> None:
    # Nothing is lost while the filters work: if the run ends meanwhile, these go back to the queue.
    run.filtering = items
    kept = await apply_filters(run.config.input_filters, [item.message for item in items])
    run.filtering, run.refused = [], kept.rejected
    if kept.rejected is not None:
        for item in items:
            run.inbox.reject(item)
        run.emit(InputRejected, reason=kept.rejected, source=items[0].kind)
        return
    let_in = [
        msgspec.structs.replace(item, message=message) for item, message in zip(items, kept.messages, strict=False)
    ]
    run.pending[at:at] = [*let_in, *kept.messages[len(items) :]]
