"""Sessions as files people can read: one line of JSON for each record, with a checksum of the line at its end.

A line that somebody wrote by hand may leave the checksum out. What is damaged is told and kept in a file beside, what
follows is read; nothing in a file is code, and no approval is taken from one.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec

from steersman.session.records import FORMAT, Record, decode
from steersman.session.store import (
    Handle,
    NewerFormat,
    Problem,
    SessionDamaged,
    SessionError,
    Store,
    StoreFailed,
    checked_id,
    is_id,
)
from steersman.types.ids import new_id

_SUM = re.compile(rb',"crc":"([0-9a-f]{8})"\}\s*\Z')
_SUM_INSIDE = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_START = re.compile(rb'\{"id":"[^"]*","parent":(?:null|"[^"]*"),"seq":[0-9]+,"type":"')
_MOST = 16
_NEVER_TAKEN = frozenset(("approval", "approvals"))
_GROUP = 256
# Line breaks of Unicode, which some programs take for the end of a line.
_BREAKS = {b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029", b"\xc2\x85": b"\\u0085"}


class _Handwritten(Record, frozen=True, forbid_unknown_fields=True):
    """A record without a checksum, which has to be a record and nothing else."""


_handwritten: msgspec.json.Decoder[_Handwritten] = msgspec.json.Decoder(_Handwritten)


@dataclass(frozen=True, slots=True)
class Imported:
    """A session that was read from a file, and what was wrong with the file."""

    session_id: str
    records: int
    problems: tuple[Problem, ...]


def export_jsonl(handle: Handle, file: str | os.PathLike[str] | BinaryIO, /) -> int:
    """Write all records of a session to a file, which is complete or not there; returns how many."""
    try:
        if isinstance(file, str | os.PathLike):
            return _export_to(handle, Path(file))
        return _export(handle, file)
    except OSError as error:
        raise StoreFailed(f"The session {handle.session_id!r} could not be exported: {error.strerror}.") from error


def import_jsonl(file: str | os.PathLike[str], store: Store, /, *, session_id: str | None = None) -> Imported:
    """Make a session of a file, under its own id or another one; the file stays as it is."""
    source = Path(file)
    try:
        with source.open("rb") as stream:
            reading = _Reading(session_id, source)
            first = next(reading.records(stream), None)
            if first is None:
                raise SessionDamaged(f"There is no record of a session in {str(source)!r}.")
            stream.seek(0)
            reading = _Reading(first.payload["session_id"], source)
            handle = store.create(first.payload["session_id"])
            try:
                count = _append(handle, reading.records(stream))
                # From here on it is known that what is above was said elsewhere: no call that is open there is run.
                handle.append([Record(new_id("record"), None, count + 1, "imported", time.time(), {})])
            except BaseException:
                handle.close()
                store.delete(handle.session_id)  # a part of a session would look like all of it
                raise
            handle.close()
        reading.keep_damaged()
    except OSError as error:
        raise SessionError(f"The file {str(source)!r} could not be imported: {error.strerror}.") from error
    return Imported(handle.session_id, count, tuple(reading.problems))


def to_line(line: bytes) -> bytes:
    """An encoded record as a line of a file."""
    for character, escaped in _BREAKS.items():
        if character in line:
            line = line.replace(character, escaped)
    return b'%s,"crc":"%08x"}\n' % (line[:-1], crc32(line[:-1]))


def from_line(line: bytes) -> Record:
    """The record of a line of a file; `ValueError` when it is none, or not what was written."""
    found = _SUM.search(line)
    if found is None:
        try:
            return _handwritten.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"it is no record: {error}") from error
    if int(found[1], 16) != crc32(line[: found.start()]):
        raise ValueError('its checksum is wrong; if it was changed on purpose, remove the field "crc"')
    return decode(line)


def _export_to(handle: Handle, path: Path) -> int:
    if path.exists() and not path.is_file():
        raise StoreFailed(f"The session {handle.session_id!r} could not be exported: {str(path)!r} is not a file.")
    file, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(file, "wb") as stream:
            count = _export(handle, stream)
            os.fsync(file)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return count


def _export(handle: Handle, stream: BinaryIO) -> int:
    count = 0
    for _, line in handle.lines():
        stream.write(to_line(line))
        count += 1
    stream.flush()
    return count


def _append(handle: Handle, records: Iterable[Record]) -> int:
    group: list[Record] = []
    for record in records:
        group.append(record)
        if len(group) == _GROUP:
            handle.append(group)
            group = []
    handle.append(group)
    return handle.last_seq


class _Reading:
    """One reading of a file from its beginning; `problems` is complete when it is over."""

    def __init__(self, session_id: str | None, source: Path) -> None:
        self.session_id = session_id if session_id is None else checked_id(session_id)
        self.problems: list[Problem] = []
        self._source = source
        self._damaged: list[bytes] = []
        self._ids: set[str] = set()
        self._parents: set[str] = set()
        self._given = 0
        self._seen = 0

    def records(self, stream: Iterable[bytes]) -> Iterator[Record]:
        """The records, numbered without gaps; where some are missing one stands in for them and says so."""
        for number, line in enumerate(stream, 1):
            for record in self._found(number, line):
                refused = self._refused(record)
                if refused is not None:
                    self._leave_out(f"line {number}", refused, line)
                    continue
                if self._given == 0:
                    yield from self._begin(record)
                if record.seq > self._seen + 1:
                    yield self._gap(record)
                self._seen = record.seq
                yield self._numbered(_taken(record, self.session_id))

    def keep_damaged(self) -> None:
        """Write what could not be read to a file beside the one it is from."""
        if self._damaged:
            kept = self._source.with_name(self._source.name + ".damaged")
            file = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as stream:
                stream.writelines(piece.rstrip(b"\n") + b"\n" for piece in self._damaged)

    def _found(self, number: int, line: bytes) -> Iterator[Record]:
        """The record of a line, or those that can be made out in one that is damaged, as where two ran together."""
        if not line.strip():
            return
        try:
            yield from_line(line)
            return
        except ValueError as error:
            reason = str(error)
        rest: list[bytes] = []
        at = 0
        for start, end, record in _inside(line):
            rest.append(line[at:start])
            at = end
            reason = "it is no record, though there is one in the same line"
            yield record
        rest.append(line[at:])
        torn = not line.endswith(b"\n") and at < len(line)
        where, text = ("the end", "it was not written to its end") if torn else (f"line {number}", reason)
        self._leave_out(where, text, *(piece for piece in rest if piece.strip()))

    def _refused(self, record: Record) -> str | None:
        """Why a record cannot be taken. Whoever comes after its children would make a circle of them."""
        if record.seq <= self._seen:
            return f"its number {record.seq} does not follow {self._seen}"
        if record.id in self._ids or record.id in self._parents:
            return f"there is a record {record.id!r} already, or one that says it follows it"
        self._ids.add(record.id)
        if record.parent is not None and record.parent not in self._ids:
            self._parents.add(record.parent)
        return None

    def _begin(self, first: Record) -> Iterator[Record]:
        """Settle what the session is called, and give it a first record if it has none."""
        named = first.payload.get("session_id") if first.type == "session" else None
        self.session_id = self.session_id or (str(named) if is_id(named) else new_id("session"))
        if first.type != "session":
            payload = {"format": FORMAT, "session_id": self.session_id, "created": first.time}
            yield self._numbered(Record(new_id("record"), None, 0, "session", first.time, payload))
            self._seen = min(1, first.seq - 1)

    def _gap(self, record: Record) -> Record:
        first, last = self._seen + 1, record.seq - 1
        where = f"record {first}" if first == last else f"records {first} to {last}"
        self.problems.append(Problem(where, "Missing; what follows is kept."))
        return self._numbered(Record(new_id("damage"), None, 0, "damage", record.time, {"first": first, "last": last}))

    def _numbered(self, record: Record) -> Record:
        self._given += 1
        return msgspec.structs.replace(record, seq=self._given)

    def _leave_out(self, where: str, why: str, *pieces: bytes) -> None:
        self._damaged.extend(pieces)
        text = f"Left out, and kept in {self._source.name + '.damaged'!r}: {why}."
        self.problems.append(Problem(where, text))


def _inside(line: bytes) -> Iterator[tuple[int, int, Record]]:
    """The places and records with a right checksum in a line that is damaged as a whole."""
    starts = [found.start() for found in _START.finditer(line)][:_MOST]
    at = 0
    for found in list(_SUM_INSIDE.finditer(line))[:_MOST]:
        for start in starts:
            if at <= start < found.start() and int(found[1], 16) == crc32(line[start : found.start()]):
                yield start, found.end(), decode(line[start : found.end()])
                at = found.end()
                break


def _taken(record: Record, session_id: str | None) -> Record:
    """A record as it is kept: an approval stays behind, and the first one has the id of the session."""
    if record.type in _NEVER_TAKEN:
        return msgspec.structs.replace(record, type="left_out", payload={"type": record.type})
    if record.type != "session":
        return record
    written = str(record.payload.get("format", FORMAT))
    if written.partition(".")[0] != FORMAT.partition(".")[0]:
        raise NewerFormat(
            f"The session {session_id!r} was written in format {written}, and this version reads {FORMAT}; update it."
        )
    return msgspec.structs.replace(record, payload={**record.payload, "session_id": session_id})
