"""The events of a session's log: each record is one event, and the same one for every watcher at any time.

Records of runs have the names of the events of a run; `messages` of `agent_end` is empty, because each message has its
own `message_end` before it. Other records keep their own names: `session`, `accepted`, `delivered`, `returned`,
`intent`, `leaf`, `label`, `compaction`, ... In all events `seq` is the number of the last record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from steersman.session.records import CONTENT, Payload, Record, decode
from steersman.types.content import replace_surrogates_in_json

_encoder = msgspec.json.Encoder()


class _RunHead(msgspec.Struct, frozen=True, gc=False):
    seq: int
    type: str
    payload: msgspec.Raw


class _LoopId(msgspec.Struct, frozen=True):
    loop_id: str = ""


_run_heads: msgspec.json.Decoder[_RunHead] = msgspec.json.Decoder(_RunHead)
_loop_ids: msgspec.json.Decoder[_LoopId] = msgspec.json.Decoder(_LoopId)


class RunSpans:
    """Which records belong to which run, so that an event from the middle of the log has the id of its run."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ids: list[str] = []

    def scan(self, lines: Iterable[tuple[int, bytes]]) -> int:
        """Read encoded records; returns the number of the last one, 0 for none."""
        last = 0
        for seq, line in lines:
            last = seq
            # Most records are messages, so the line is only decoded if it can be the start or the end of a run.
            if b'"run_' in line:
                try:
                    head = _run_heads.decode(line)
                    if head.type in ("run_start", "run_end"):
                        self.add(head.seq, head.type, _loop_ids.decode(head.payload).loop_id)
                except msgspec.DecodeError:
                    continue  # a damaged record is no start of a run
        return last

    def add(self, seq: int, type: str, loop_id: str) -> None:
        """Note the start or the end of a run."""
        self._starts.append(seq if type == "run_start" else seq + 1)
        self._ids.append(loop_id if type == "run_start" else "")

    def find_start(self, loop_id: str) -> int | None:
        """The number of the record that a run began with; `None` for an unknown run."""
        for start, id in zip(reversed(self._starts), reversed(self._ids), strict=True):
            if id == loop_id:
                return start
        return None

    def find_last(self) -> tuple[int, str]:
        """The record that the last run began with, and its id; 0 and an empty id if there was none."""
        for start, id in zip(reversed(self._starts), reversed(self._ids), strict=True):
            if id:
                return start, id
        return 0, ""

    def find(self, seq: int) -> str:
        """The id of the run that a record belongs to; empty between runs."""
        at = bisect_right(self._starts, seq) - 1
        return self._ids[at] if at >= 0 else ""


def read_line(line: bytes, spans: RunSpans) -> bytes:
    """The event of an encoded record, as JSON."""
    return encode_record(decode(line), spans)


def encode_record(record: Record, spans: RunSpans) -> bytes:
    """The event of a record, as JSON."""
    event = describe_record(record, spans.find(record.seq))
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:  # a lone surrogate
        return _encoder.encode(replace_surrogates_in_json(event))


def describe_record(record: Record, loop_id: str) -> Payload:
    """The event of a record."""
    describe = _DESCRIBERS.get(record.type, _describe_other)
    common = {"loop_id": loop_id, "seq": record.seq, "timestamp": record.time}
    return {**describe(record), **common}


def _describe_message(record: Record) -> Payload:
    fields = {"type": "message_end", "message": record.payload.get("message")}
    return {**fields, "entry_id": record.id, "parent": record.parent, **_pick(record, "queue_id")}


def _describe_run_start(record: Record) -> Payload:
    more = {name: value for name, value in record.payload.items() if name not in ("system_prompt", "tools")}
    return {"type": "agent_start", **more}


def _describe_run_end(record: Record) -> Payload:
    return {"type": "agent_end", "messages": [], **_pick(record, "usage", "end_reason", "detail", "turns")}


def _describe_result(record: Record) -> Payload:
    message: Any = record.payload.get("message") or {}
    return {
        "type": "tool_execution_end",
        "tool_call_id": record.payload.get("tool_call_id"),
        "tool_name": message.get("tool_name"),
        "args": record.payload.get("arguments") or {},
        "result": message,
        "is_error": bool(message.get("is_error")),
        "duration": record.payload.get("duration") or 0.0,
    }


def _describe_prun(record: Record) -> Payload:
    return {"type": "prun_applied", **record.payload, "entry_id": record.id, "parent": record.parent}


def _describe_event(record: Record) -> Payload:
    return {**record.payload, "type": str(record.payload.get("type", "event"))}


def _describe_content(record: Record) -> Payload:
    # Clients load what they want; the content itself would be sent to every watcher.
    return {"type": record.type, "id": record.id}


def _describe_other(record: Record) -> Payload:
    return {"id": record.id, "parent": record.parent, **record.payload, "type": record.type}


def _pick(record: Record, *names: str) -> Payload:
    return {name: record.payload[name] for name in names if name in record.payload}


_DESCRIBERS: dict[str, Callable[[Record], Payload]] = {
    "message": _describe_message,
    "run_start": _describe_run_start,
    "run_end": _describe_run_end,
    "result": _describe_result,
    "event": _describe_event,
    "prun": _describe_prun,
    CONTENT: _describe_content,
}
