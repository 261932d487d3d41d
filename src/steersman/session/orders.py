"""Orders: what other processes want of the writer of a session.

An order waits in the queue of the store. The writer takes it over into the log, and the store removes it from the queue
in the same transaction: after a crash it is in one of the two, never in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from steersman.session.records import Payload, to_json_value
from steersman.session.settings import Configure
from steersman.types.messages import AgentMessage

OrderKind: TypeAlias = Literal["steering", "follow_up", "abort", "approve", "deny", "configure"]
KINDS: Final = frozenset(("steering", "follow_up", "abort", "approve", "deny", "configure"))


class Order(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something to hear: a message, an abort, the answer to a question, or settings.

    `number` is its place in the queue, `reason` why a call is denied, or why the settings were refused.
    """

    kind: OrderKind
    id: str
    number: int = 0
    key: str | None = None
    message: AgentMessage | None = None
    mode: Literal["skip", "cancel", "wait"] | None = None
    approval_id: str = ""
    reason: str = ""
    remember: bool = False
    by: str = ""
    settings: Configure | None = None

    def describe(self) -> Payload:
        """The order for the log, without the message, which has a record of its own."""
        fields = to_json_value(self)
        fields.pop("message", None)
        return fields


class UnreadableOrder(ValueError):
    """What is queued is no order that this version knows."""


class _Head(msgspec.Struct, frozen=True):
    kind: str


_heads: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)
_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


def read_order(number: int, data: bytes) -> Order:
    """The order with this number; raises `UnreadableOrder` for one of a newer version and for damage."""
    try:
        kind = _heads.decode(data).kind
        if kind not in KINDS:
            raise UnreadableOrder(
                f"It is of the kind {kind!r}, which this version does not know. It stays queued: update this program."
            )
        return msgspec.structs.replace(_orders.decode(data), number=number)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableOrder(f"It is damaged, and stays queued: {error}") from error


def read_orders(rows: Iterable[tuple[int, bytes]]) -> list[Order]:
    """The orders of these rows, without what this version does not know."""
    found: list[Order] = []
    for number, data in rows:
        try:
            found.append(read_order(number, data))
        except UnreadableOrder:
            continue  # the one who hears the others reports it
    return found


def find_answer(fields: Payload) -> Order | None:
    """The order of a record, if it is the answer to a question."""
    try:
        order = msgspec.convert(fields, Order)
    except msgspec.ValidationError:
        return None
    return order if order.kind in ("approve", "deny") else None
