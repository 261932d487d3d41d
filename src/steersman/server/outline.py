"""What a list shows about a session that is not open here, read from its records: its agent and its open questions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman.server.log_events import RunSpans, describe_record
from steersman.session.records import Payload, Record, decode

SERVED = "served"
"""The type of the record that says which agent a session was made for."""
RECEIPT = "receipt"
"""The type of the record of an answered request that had an idempotency key."""
REFUSED = "refused"
"""The status of a receipt that takes back the one before it: what it was for could not begin."""

_MARKS = tuple(f'"{name}"'.encode() for name in ("approval_requested", "approval_resolved", SERVED, RECEIPT))


@dataclass(slots=True)
class Outline:
    """The agent of a session, the questions that wait for an answer, by id, and the receipts by key."""

    agent: str = ""
    questions: dict[str, Payload] = field(default_factory=dict[str, Payload])
    receipts: dict[str, Payload] = field(default_factory=dict[str, Payload])
    resolved: set[str] = field(default_factory=set[str])
    in_run: bool = False

    def add(self, record: Record, loop_id: str) -> None:
        """Follow one more record."""
        fields: Any = record.payload
        match record.type:
            case "run_start" | "run_end":
                # A run that goes on after a crash asks its questions again, under the same ids.
                self.questions.clear()
                self.in_run = record.type == "run_start"
            case "event" if fields.get("type") == "approval_requested":
                self.questions[str(fields.get("approval_id"))] = describe_record(record, loop_id)
            case "event" if fields.get("type") == "approval_resolved":
                self.questions.pop(str(fields.get("approval_id")), None)
                self.resolved.add(str(fields.get("approval_id")))
            case "served":
                self.agent = str(fields.get("agent", ""))
            case "receipt" if fields.get("status") == REFUSED:
                self.receipts.pop(str(fields.get("key")), None)
            case "receipt":
                self.receipts[str(fields.get("key"))] = fields
            case _:
                pass


def read_outline(lines: Iterable[tuple[int, bytes]]) -> Outline:
    """The outline of encoded records; only those that matter are decoded."""
    outline, spans = Outline(), RunSpans()
    for seq, line in lines:
        marked = any(mark in line for mark in _MARKS)
        if not marked and b'"run_' not in line:
            continue
        try:
            record = decode(line)
        except (ValueError, msgspec.DecodeError):
            continue  # a damaged record says nothing
        if record.type in ("run_start", "run_end"):
            spans.add(seq, record.type, str(record.payload.get("loop_id") or ""))
        outline.add(record, spans.find(seq))
    return outline
