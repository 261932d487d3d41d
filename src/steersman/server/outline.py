"""What the server has to know of a session's records: its agent, settings, open questions, queue and receipts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman.server.log_events import RunSpans, describe_record
from steersman.session.records import CONFIGURED, SERVED, Payload, Record, decode
from steersman.session.settings import merge_settings

RECEIPT = "receipt"
"""The type of the record of an answered request that had an idempotency key."""
REFUSED = "refused"
"""The status of a receipt that takes back the one before it: what it was for could not begin."""

_MARKS = tuple(
    f'"{name}"'.encode()
    for name in (
        "approval_requested",
        "approval_resolved",
        "accepted",
        "order",
        "queue_id",
        "imported",
        SERVED,
        RECEIPT,
        CONFIGURED,
    )
)


@dataclass(slots=True)
class Outline:
    """The agent of a session, its settings, what waits (questions and queued messages, by id), and receipts by key."""

    agent: str = ""
    settings: Payload = field(default_factory=dict[str, Any])
    queued: dict[str, Payload] = field(default_factory=dict[str, Payload])
    last: int = 0
    questions: dict[str, Payload] = field(default_factory=dict[str, Payload])
    receipts: dict[str, Payload] = field(default_factory=dict[str, Payload])
    resolved: set[str] = field(default_factory=set[str])
    asked: dict[str, str] = field(default_factory=dict[str, str])
    """By the ids of the questions since the end of the last run: the calls they are about (`find_asked_call`)."""
    said: set[str] = field(default_factory=set[str])
    """The keys of messages that were taken."""
    in_run: bool = False

    def add(self, record: Record, loop_id: str) -> None:
        """Follow one more record."""
        fields: Any = record.payload
        self._follow_queue(record, fields)
        match record.type:
            case "run_start" | "run_end":
                # A run that goes on after a crash asks its questions again, under the same ids.
                self.questions.clear()
                self.in_run = record.type == "run_start"
                if not self.in_run:
                    # One that was not asked again, because the run was aborted or steered, is over as well.
                    self.resolved |= self.asked.keys()
                    self.asked.clear()
            case "event" if fields.get("type") == "approval_requested":
                id, call = str(fields.get("approval_id")), find_asked_call(fields)
                # Under another id because the call would do something else by now: the answer to the old one is void.
                self.resolved |= list_replaced(self.asked, id, call)
                self.questions[id] = describe_record(record, loop_id)
                self.asked[id] = call
            case "event" if fields.get("type") == "approval_resolved":
                self.questions.pop(str(fields.get("approval_id")), None)
                self.resolved.add(str(fields.get("approval_id")))
            case "served":
                self.agent = str(fields.get("agent", ""))
                self.in_run = False  # a server has opened the session: a run from before it is cut
            case "order" if fields.get("key") is not None and fields.get("kind") not in ("steering", "follow_up"):
                receipt = {"id": fields.get("approval_id") or fields.get("id"), "status": "accepted"}
                self.receipts.setdefault(str(fields["key"]), {**receipt, "key": fields["key"]})
            case "receipt" if fields.get("status") == REFUSED:
                self.receipts.pop(str(fields.get("key")), None)
            case "receipt":
                self.receipts[str(fields.get("key"))] = fields
            case "configured":
                self.add_settings(fields)
            case _:
                pass

    def _follow_queue(self, record: Record, fields: Any) -> None:
        if record.type == "accepted":
            if fields.get("key") is not None:
                self.said.add(str(fields["key"]))
            self.queued[record.id] = {"id": record.id, "kind": fields.get("kind"), "message": fields.get("message")}
        elif record.type == "imported":
            # Queued messages, questions and receipts of another place are not acted on here.
            for known in (self.queued, self.questions, self.receipts, self.asked, self.resolved, self.said):
                known.clear()
            self.in_run = False
        elif (queue_id := fields.get("queue_id")) is not None:
            self.queued.pop(str(queue_id), None)  # delivered or returned

    def takes_answer(self, approval_id: str) -> bool:
        """Whether an answer to a question counts: it is open, or a run that goes on is about to ask it again."""
        return approval_id in self.questions or approval_id in self.asked.keys() - self.resolved

    def add_settings(self, changes: Payload) -> None:
        """Add what `configure` has changed to what it had changed before."""
        self.settings = merge_settings(self.settings, changes)

    def list_queued(self) -> list[Payload]:
        """The queued messages in the order in which a run takes them."""
        return sorted(self.queued.values(), key=lambda item: item["kind"] != "steering")


def find_asked_call(fields: Mapping[str, Any]) -> str:
    """The call that a question is about; empty for that of a sub-agent, which is not asked about again."""
    return str(fields.get("tool_call_id")) if fields.get("parent_tool_call_id") is None else ""


def list_replaced(asked: Mapping[str, str], id: str, call: str) -> set[str]:
    """The questions, by id, in whose place one about this call is asked now."""
    return {before for before, about in asked.items() if call and about == call and before != id}


def read_outline(lines: Iterable[tuple[int, bytes]]) -> Outline:
    """The outline of encoded records; only those that matter are decoded."""
    outline, spans = Outline(), RunSpans()
    for seq, line in lines:
        outline.last = seq
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
