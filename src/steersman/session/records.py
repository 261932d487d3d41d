"""The records of a session: numbered without gaps, each with the id of its parent, one line of JSON each.

The record of a log entry has the id of that entry. Records of unknown types are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

import msgspec

from steersman.context.entries import Entry, MessageEntry
from steersman.types.content import replace_lone_surrogates
from steersman.types.messages import ExtensionMessage
from steersman.types.secrets import redact

FORMAT: Final = "1.0"
"""The version of the format: a session of a newer major is not opened, one of a newer minor is."""

TREE: Final = frozenset(("message", "compaction", "prun", "undo"))
"""The types of records that are nodes of the conversation's tree."""

FROM_QUEUE: Final = frozenset(("accepted", "order"))
"""The types of records that may hold the number of what other processes have queued."""

HEADER: Final = "session"
"""The type of the first record."""

STATE: Final = "state"
"""The type of the record of a change of the state, after the entry that is its parent."""

ARTIFACT: Final = "artifact"
"""The type of the record of saved versions of artifacts, after the entry that is its parent."""

CONTENT: Final = "artifact_content"
"""The type of the record with the content of an artifact; its id has the hash."""

_CONTENT_ID: Final = "sha256_"

TRACE: Final = "trace"
"""The type of the record that names the span of a run, for a link from the next one; only telemetry writes it."""

SERVED: Final = "served"
"""The type of the record that says which agent a session was made for, by its name in a server or worker."""

CONFIGURED: Final = "configured"
"""The type of the record of what was changed of the agent, for this session from then on."""

KINDS: Final = TREE | {
    HEADER, STATE, ARTIFACT, CONTENT, SERVED, TRACE, CONFIGURED, "imported", "leaf", "label", "run_start", "run_end",
    "accepted", "delivered", "returned", "order", "intent", "result", "event", "receipt", "aside", "files_undone",
    "evaluated", "score", "left_out", "damage",
}  # fmt: skip
"""The types of all records that this version writes. A worker does not run a session that has others."""

Payload: TypeAlias = dict[str, Any]


class Record(msgspec.Struct, frozen=True):
    """One thing that happened. `seq` counts from 1; `parent` is the id of the record of the conversation before it."""

    id: str
    parent: str | None
    seq: int
    type: str
    time: float
    payload: Payload


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """The record as one line of JSON, without a line break."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:  # a lone surrogate
        return _encoder.encode(_replace_surrogates(msgspec.to_builtins(record)))


def decode(line: bytes | str) -> Record:
    """The record of a line; raises `ValueError` if it is none."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"Not a record of a session: {error}.") from error


def make_header(session_id: str, created: float) -> Payload:
    """The fields of the first record of a session."""
    return {"format": FORMAT, "session_id": session_id, "created": created}


def make_content_id(digest: str, again: str = "") -> str:
    """The id of the record with the content that has this SHA-256; `again` tells one from an earlier, damaged one."""
    return f"{_CONTENT_ID}{digest}.{again}" if again else _CONTENT_ID + digest


def find_digest(record_id: str) -> str:
    """The hash in the id of a record with a content."""
    return record_id.removeprefix(_CONTENT_ID).partition(".")[0]


def make_title(records: Iterable[Record], longest: int = 80) -> str:
    """The first words of a user in these records, on one line; empty if there are none."""
    for record in records:
        message = record.payload.get("message")
        if record.type != "message" or not isinstance(message, dict):
            continue
        fields = cast(Payload, message)
        words = " ".join(_join_text(fields.get("content")).split())
        if fields.get("role") == "user" and not fields.get("synthetic") and words:
            return replace_lone_surrogates(words if len(words) <= longest else words[: longest - 1].rstrip() + "…")
    return ""


def _join_text(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = cast(list[Any], content) if isinstance(content, list | tuple) else []
    fields = [cast(Payload, block) for block in blocks if isinstance(block, dict)]
    return " ".join(str(block.get("text", "")) for block in fields if block.get("type") == "text")


def _replace_surrogates(value: object) -> object:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, dict):
        return {
            replace_lone_surrogates(str(key)): _replace_surrogates(item)
            for key, item in cast(dict[Any, Any], value).items()
        }
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in cast(list[object], value)]
    return value


def to_json_value(value: object) -> Any:
    """A value as JSON can hold it; the `repr` of what JSON cannot hold."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)


def encode_entry(entry: Entry) -> dict[str, Any]:
    """The fields of an entry, without those that a record has itself."""
    try:
        fields = to_json_value(entry)
    except (TypeError, ValueError):
        # An application's own data may be anything.
        assert isinstance(entry, MessageEntry)
        assert isinstance(entry.message, ExtensionMessage)
        words = repr(entry.message.data)
        fields = to_json_value(
            msgspec.structs.replace(entry, message=msgspec.structs.replace(entry.message, data=words))
        )
    del fields["id"], fields["type"]
    return fields


def redact_values(value: Any, secrets: Iterable[str]) -> Any:
    """A JSON value with the secrets redacted in all its texts and keys."""
    if isinstance(value, str):
        return redact(value, *secrets)
    if isinstance(value, dict):
        return {
            redact_values(key, secrets): redact_values(item, secrets)
            for key, item in cast(dict[str, Any], value).items()
        }
    if isinstance(value, list):
        return [redact_values(item, secrets) for item in cast(list[Any], value)]
    return value
