"""Answers to questions as records: an answer is kept before a run goes on with it."""

from __future__ import annotations

from typing import Literal

from steersman.loop.questions import Answer
from steersman.session.orders import Order
from steersman.types.ids import new_id


def make_answer(
    kind: Literal["approve", "deny"],
    approval_id: str,
    *,
    by: str,
    reason: str = "",
    remember: bool = False,
    key: str | None = None,
) -> Order:
    """An answer to the question with this id, as the log keeps it."""
    return Order(
        kind=kind, id=new_id("queued"), key=key, approval_id=approval_id, reason=reason, remember=remember, by=by
    )


def read_answer(order: Order) -> Answer:
    """The answer of an order, as an agent takes it."""
    return Answer("approved" if order.kind == "approve" else "denied", order.by, order.reason, order.remember)
