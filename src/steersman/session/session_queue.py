"""`SessionQueue`: speaks to a session that another process writes, or none at the moment.

    with SessionQueue("sessions.db", "my-session") as queue:
        queue.steer("Look at the tests first.")

What is queued is in the store when a method returns. The agent that has the session open hears it at once; if there is
none, the next one that opens the session does. Everything is heard once and in the order of its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Self, Unpack

import msgspec

from steersman.provider.models.registry import find_known_keys
from steersman.session.opening import Where, create_empty, make_first_records, open_store
from steersman.session.orders import Order, OrderKind, read_orders
from steersman.session.records import redact_values, to_json_value
from steersman.session.settings import Configure, SettingChanges
from steersman.session.stores.store import QueuedStore, SharedStore
from steersman.types.guards import is_instance
from steersman.types.ids import new_id
from steersman.types.messages import MessageLike, require_content, to_message


class Queued(NamedTuple):
    """What was queued: its number, and whether it is new. The same key again gives the number it had before."""

    number: int
    is_new: bool


class SessionQueue:
    """The queue of an existing session, in a file or a store. Methods block; use one in each process or thread.

    A `key` makes something idempotent: queued twice under one key, from whichever process, it is heard once.
    """

    def __init__(self, where: Where, id: str) -> None:
        store = open_store(where)
        if not isinstance(store, SharedStore):
            raise TypeError(f"This store has no queues: {store!r}. It needs open_queue() and take_over().")
        self.id = id
        self._queue = store.open_queue(id)

    def steer(
        self,
        x: MessageLike,
        mode: Literal["skip", "cancel", "wait"] | None = None,
        *,
        key: str | None = None,
        id: str | None = None,
    ) -> Queued:
        """Queue a message for the start of the next turn, or of the next run if none is going on.

        `x` is a string, a message or a dict. Tool calls of the running turn are skipped or cancelled, by `mode`.
        The message has this `id` in the queue of the agent, or a new one.
        """
        if mode not in (None, "skip", "cancel", "wait"):
            raise ValueError(f"mode is 'skip', 'cancel', 'wait' or None, got {mode!r}.")
        return self._send("steering", key, id, message=require_content(to_message(x)), mode=mode)

    def follow_up(self, x: MessageLike, *, key: str | None = None, id: str | None = None) -> Queued:
        """Queue a message, given as for `steer`, for when the agent would otherwise stop."""
        return self._send("follow_up", key, id, message=require_content(to_message(x)))

    def abort(self, *, key: str | None = None, id: str | None = None) -> Queued:
        """Interrupt the run. One that a crash has left unfinished is interrupted when it is continued."""
        return self._send("abort", key, id)

    def approve(
        self, approval_id: str, *, remember: bool = False, by: str = "application", key: str | None = None
    ) -> Queued:
        """Let a tool call run that waits for approval. After a crash this counts when the question is asked again."""
        return self._send("approve", key, None, approval_id=approval_id, remember=remember, by=by)

    def deny(self, approval_id: str, reason: str = "", *, by: str = "application", key: str | None = None) -> Queued:
        """Deny a tool call that waits for approval; the model reads the reason."""
        return self._send("deny", key, None, approval_id=approval_id, reason=reason, by=by)

    def configure(
        self,
        *,
        key: str | None = None,
        id: str | None = None,
        **settings: Unpack[SettingChanges],
    ) -> Queued:
        """Change settings of the agent, for this session from the next turn on; raises `ValueError` for unknown ones.

        `limits` are `max_turns`, `max_total_tokens`, `max_duration` and `max_cost`. What the agent refuses is logged
        there. Nothing of it starts a run.
        """
        try:
            checked = msgspec.convert(settings, Configure)
        except msgspec.ValidationError as error:
            raise ValueError(f"These settings cannot be changed so: {error}. Got {settings!r:.500}.") from error
        return self._send("configure", key, id, settings=checked)

    def waiting(self) -> Sequence[Order]:
        """What no agent has heard yet, by number; without what this version does not know."""
        return read_orders(self._queue.waiting())

    def close(self) -> None:
        """Close the connection to the store; closing twice does nothing."""
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, kind: OrderKind, key: str | None, id: str | None, **fields: object) -> Queued:
        return Queued(*self._queue.add(*_encode_order(kind, key, id, fields)))


def create_with_prompt(
    store: SharedStore,
    session_id: str,
    prompt: MessageLike,
    *,
    key: str | None = None,
    id: str | None = None,
    agent_name: str | None = None,
) -> Queued:
    """Make a session for others to open, with the name of its agent and a first message; raises `SessionExists`.

    That may be the one that this has made: its answer may be lost, and a store tries again. So queue it with the same
    `id` then.
    """
    message = require_content(to_message(prompt))
    if isinstance(store, QueuedStore):
        order = _encode_order("follow_up", key, id, {"message": message})
        store.create_and_queue(session_id, make_first_records(session_id, agent_name), *order)
        return Queued(1, is_new=True)
    create_empty(store, session_id, agent_name=agent_name)
    with SessionQueue(store, session_id) as queue:
        return queue.follow_up(message, key=key, id=id)


def _encode_order(kind: OrderKind, key: str | None, id: str | None, fields: Mapping[str, object]) -> tuple[str, bytes]:
    """The key of an order and its data, without secrets."""
    texts = {name: value for name, value in fields.items() if name in ("approval_id", "reason", "by")}
    for name, value in (("key", "" if key is None else key), *texts.items()):
        if not is_instance(value, str):
            raise TypeError(f"{name} is a string, got {value!r}.")
    id = new_id("queued") if id is None else id
    order = to_json_value(msgspec.convert({"kind": kind, "id": id, "key": key}, Order))
    order.update({name: to_json_value(value) for name, value in fields.items() if value is not None})
    secrets = find_known_keys()
    data = msgspec.json.encode(redact_values(order, secrets) if secrets else order)
    # An order without a key gets one of its own, so that a store may try again after a lost connection.
    return f"id:{id}" if key is None else f"key:{key}", data
