"""Exports and imports sessions as JSON Lines: one line of JSON for each record, with a checksum at its end.

A line that was written by hand may leave the checksum out. Damaged lines are reported and kept in a file beside, and
what follows is read. Nothing in a file is run as code, and no approval is taken from one.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec

from steersman.provider.models.registry import find_known_keys
from steersman.session.records import CONTENT, FORMAT, Record, decode, redact_values
from steersman.session.stores.store import (
    Handle,
    Problem,
    SessionDamaged,
    SessionError,
    Store,
    StoreFailed,
    check_format,
    check_session_id,
    describe_range,
    is_session_id,
)
from steersman.types.ids import new_id
from steersman.types.secrets import redact

_SUM = re.compile(rb',"crc":"([0-9a-f]{8})"\}\s*\Z')
_SUM_INSIDE = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_START = re.compile(rb'\{"id":"[^"]*","parent":(?:null|"[^"]*"),"seq":[0-9]+,"type":"')
_MOST = 16
# What decides about permissions: what a server was configured to allow is an approval too, and so is the choice of an
# agent, which has its own tools and rules.
_NEVER_TAKEN = frozenset(("approval", "approvals", "configured", "served"))
_GROUP = 256
_LONGEST_LINE = 256 * 1024 * 1024
_MOST_BESIDE = 1000
_SHORTEST_DATABASE = 16
# The endings of the companion files of a SQLite database; they belong to it even if they do not exist now.
_COMPANIONS = ("-wal", "-shm", "-journal", "-lock", "-ready", "-fresh")
# Line breaks of Unicode, which some programs take for the end of a line.
_BREAKS = {b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029", b"\xc2\x85": b"\\u0085"}


class _UncheckedRecord(Record, frozen=True, forbid_unknown_fields=True):
    """A record without a checksum; unknown fields are refused."""


_handwritten: msgspec.json.Decoder[_UncheckedRecord] = msgspec.json.Decoder(_UncheckedRecord)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """A session that was read from a file, and what was wrong with the file."""

    session_id: str
    records: int
    problems: tuple[Problem, ...]


def export_jsonl(
    handle: Handle,
    file: str | os.PathLike[str] | BinaryIO,
    /,
    *,
    lines: Iterable[tuple[int, bytes]] | None = None,
) -> int:
    """Write all records of a session, or these, to a file, atomically; returns how many."""
    lines = handle.lines() if lines is None else lines
    try:
        if isinstance(file, str | os.PathLike):
            return _export_to(handle, Path(file), lines)
        return _export(lines, file)
    except OSError as error:
        raise StoreFailed(f"The session {handle.session_id!r} could not be exported: {error.strerror}.") from error


def import_jsonl(file: str | os.PathLike[str], store: Store, /, *, session_id: str | None = None) -> ImportResult:
    """Create a session from a file, under its own id or another one; the file is not changed."""
    source = Path(file)
    try:
        with _open_regular(source) as stream:
            reading = _Import(session_id, source)
            first = next(reading.read_records(_read_lines(stream, source)), None)
            if first is None:
                raise SessionDamaged(f"There is no record of a session in {str(source)!r}.")
            stream.seek(0)
            reading = _Import(first.payload["session_id"], source)
            handle = store.create(first.payload["session_id"])
            try:
                count = _append_in_groups(handle, reading.read_records(_read_lines(stream, source)))
                # The first record names this one: until it is written, the import is not finished.
                handle.append([Record(reading.importing, None, count + 1, "imported", time.time(), {})])
            except BaseException:
                handle.close()
                store.delete(handle.session_id)  # a part of a session would look like all of it
                raise
            handle.close()
    except OSError as error:
        raise SessionError(f"The file {str(source)!r} could not be imported: {error.strerror}.") from error
    return ImportResult(handle.session_id, count, tuple(reading.describe_problems()))


def encode_line(line: bytes) -> bytes:
    """An encoded record as a line of a file."""
    for character, escaped in _BREAKS.items():
        if character in line:
            line = line.replace(character, escaped)
    return b'%s,"crc":"%08x"}\n' % (line[:-1], crc32(line[:-1]))


def decode_line(line: bytes) -> Record:
    """Decode a line of a file to its record; raises `ValueError` for anything else, and for a wrong checksum."""
    found = _SUM.search(line)
    if found is None:
        try:
            return _handwritten.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"it is no record: {error}") from error
    if int(found[1], 16) != crc32(line[: found.start()]):
        raise ValueError('its checksum is wrong; if it was changed on purpose, remove the field "crc"')
    return decode(line)


def _export_to(handle: Handle, path: Path, lines: Iterable[tuple[int, bytes]]) -> int:
    if path.exists() and not path.is_file():
        raise StoreFailed(f"The session {handle.session_id!r} could not be exported: {str(path)!r} is not a file.")
    _check_no_database(handle, path)
    file, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(file, "wb") as stream:
            count = _export(lines, stream)
            os.fsync(file)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return count


def _check_no_database(handle: Handle, path: Path) -> None:
    """Refuse to overwrite a SQLite file or a companion of one: it may be the file that holds the session."""
    databases: list[Path] = []
    for place in {path, path.resolve()}:
        names = (place.name.removesuffix(ending) for ending in _COMPANIONS if place.name.endswith(ending))
        databases.extend(place.with_name(name) for name in names if name)
    for database in (*databases, path):
        if database.is_file() and _is_database(database):
            what = "is a database" if database == path else f"belongs to the database {str(database)!r}"
            raise SessionError(
                f"The session {handle.session_id!r} was not exported: {str(path)!r} {what}, which would be lost. "
                "Choose another file."
            )


def _is_database(path: Path) -> bool:
    """Whether the file is a SQLite database; `True` when in doubt."""
    if path.stat().st_size < _SHORTEST_DATABASE:
        return False
    # SQLite is asked because a file that is opened and closed beside it loses the locks that SQLite has on it.
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
        with closing(connection):
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB
    return True


def _open_regular(source: Path) -> BinaryIO:
    """Open a regular file; raises `SessionError` for anything else, such as a pipe, which may never end."""
    _check_regular(source, source.stat())  # before it is opened: that alone may do something to a device
    file = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    stream = os.fdopen(file, "rb")
    try:
        _check_regular(source, os.fstat(file))
    except BaseException:
        stream.close()
        raise
    return stream


def _check_regular(source: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SessionError(f"The file {str(source)!r} could not be imported: it is no regular file.")


def _read_lines(stream: BinaryIO, source: Path) -> Iterator[bytes]:
    """The lines of a file; raises `SessionDamaged` for a line that is too long."""
    number = 0
    while line := stream.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise SessionDamaged(
                f"The file {str(source)!r} could not be imported: line {number} is longer than {_LONGEST_LINE} bytes."
            )
        yield line


def _export(lines: Iterable[tuple[int, bytes]], stream: BinaryIO) -> int:
    count = 0
    for _, line in lines:
        stream.write(encode_line(line))
        count += 1
    stream.flush()
    return count


def _append_in_groups(handle: Handle, records: Iterable[Record]) -> int:
    group: list[Record] = []
    for record in records:
        group.append(record)
        if len(group) == _GROUP:
            handle.append(group)
            group = []
    handle.append(group)
    return handle.last_seq


class _Import:
    """One pass over a file, from its beginning."""

    def __init__(self, session_id: str | None, source: Path) -> None:
        self.session_id = session_id if session_id is None else check_session_id(session_id)
        self.importing = new_id("record")
        # Without those that are words, such as "none" for a local server, which are not redacted anywhere.
        self._keys = sorted((key for key in find_known_keys() if redact(key, key) != key), key=len, reverse=True)
        self._now = time.time()
        self._notes: list[tuple[str, str, bool]] = []
        self._source = source
        self._damaged: list[bytes] = []
        self._ids: set[str] = set()
        self._parents: set[str] = set()
        self._given = 0
        self._seen = 0

    def read_records(self, stream: Iterable[bytes]) -> Iterator[Record]:
        """The records, numbered without gaps; a record of type `damage` takes the place of missing ones."""
        for number, line in enumerate(stream, 1):
            for record in self._read_line(number, line):
                try:
                    record = self._redact(record)
                    refused = self._find_fault(record)
                except RecursionError:
                    refused = "it is nested too deeply"
                if refused is not None:
                    self._leave_out(f"line {number}", refused, line)
                    continue
                if self._given == 0:
                    yield from self._begin(record)
                if record.seq > self._seen + 1:
                    yield self._make_gap_record(record)
                self._seen = record.seq
                yield self._number(self._adapt(record))

    def describe_problems(self) -> Iterator[Problem]:
        """Save what could not be read to a file beside the source, and yield what was wrong."""
        beside, failed = "", None
        try:
            if self._damaged:
                beside = f", and kept in {_save_damaged_pieces(self._source, self._damaged)!r}"
        except OSError as error:  # the session is there all the same
            failed = Problem("what was left out", f"It could not be kept in a file beside: {error.strerror}.")
        for where, text, left_out in self._notes:
            yield Problem(where, f"Left out{beside}: {text}." if left_out else text)
        if failed is not None:
            yield failed

    def _read_line(self, number: int, line: bytes) -> Iterator[Record]:
        """The record of a line; of a damaged line, the intact records inside it, for instance if two were joined."""
        if not line.strip():
            return
        try:
            yield decode_line(line)
            return
        except ValueError as error:
            reason = str(error)
        rest: list[bytes] = []
        at = 0
        for start, end, record in _find_records_inside(line):
            rest.append(line[at:start])
            at = end
            reason = "it is no record, though there is one in the same line"
            yield record
        rest.append(line[at:])
        torn = not line.endswith(b"\n") and at < len(line)
        where, text = ("the end", "it was not written to its end") if torn else (f"line {number}", reason)
        self._leave_out(where, text, *(piece for piece in rest if piece.strip()))

    def _find_fault(self, record: Record) -> str | None:
        """Why a record cannot be imported, or `None`. A record after its own children would make the tree a cycle."""
        if record.seq <= self._seen:
            return f"its number {record.seq} does not follow {self._seen}"
        if record.id in self._ids or record.id in self._parents:
            return f"there is a record {record.id!r} already, or one that says it follows it"
        self._ids.add(record.id)
        if record.parent is not None and record.parent not in self._ids:
            self._parents.add(record.parent)
        return None

    def _begin(self, first: Record) -> Iterator[Record]:
        """Choose the id of the session, and yield a first record if the file has none."""
        named = first.payload.get("session_id") if first.type == "session" else None
        self.session_id = self.session_id or (str(named) if is_session_id(named) else new_id("session"))
        if first.type != "session" or first.seq > 1:
            payload = {"format": FORMAT, "session_id": self.session_id, "created": first.time}
            yield self._number(self._adapt(Record(new_id("record"), None, 0, "session", first.time, payload)))
            self._seen = min(1, first.seq - 1)

    def _make_gap_record(self, record: Record) -> Record:
        first, last = self._seen + 1, record.seq - 1
        self._notes.append((describe_range(first, last), "Missing; what follows is kept.", False))
        return self._number(Record(new_id("damage"), None, 0, "damage", record.time, {"first": first, "last": last}))

    def _number(self, record: Record) -> Record:
        self._given += 1
        return msgspec.structs.replace(record, seq=self._given)

    def _leave_out(self, where: str, why: str, *pieces: bytes) -> None:
        self._damaged.extend(pieces)
        self._notes.append((where, why, True))

    def _redact(self, record: Record) -> Record:
        """Redact known keys; a time in the future becomes now, or the session would always be the last used."""
        payload = redact_values(record.payload, self._keys) if self._keys else record.payload
        return msgspec.structs.replace(record, payload=payload, time=min(record.time, self._now))

    def _adapt(self, record: Record) -> Record:
        """Adapt a record to this store: approvals and settings are left out, and the first one gets the new id."""
        if record.type in _NEVER_TAKEN or (record.type == CONTENT and self._has_key(record)):
            return msgspec.structs.replace(record, type="left_out", payload={"type": record.type})
        if record.type != "session":
            return record
        check_format(record.payload, self.session_id)
        payload = {**record.payload, "session_id": self.session_id, "importing": self.importing}
        return msgspec.structs.replace(record, payload=payload)

    def _has_key(self, record: Record) -> bool:
        """Whether the content of an artifact has a known key in it, which is found only when it is decoded."""
        if not self._keys:
            return False
        try:
            data = base64.b64decode(str(record.payload.get("data")), validate=True)
        except ValueError:
            return True
        found = any(key.encode() in data for key in self._keys)
        if found:
            self._notes.append((f"record {record.seq}", "It is left out: it is an artifact with a known key.", False))
        return found


def _save_damaged_pieces(source: Path, pieces: Iterable[bytes]) -> str:
    """Save the pieces to a new file and return its name; a file with the same content is reused."""
    data = b"".join(piece.rstrip(b"\n") + b"\n" for piece in pieces)
    for count in range(1, _MOST_BESIDE + 1):
        path = source.with_name(f"{source.name}.damaged" if count == 1 else f"{source.name}.damaged-{count}")
        try:
            # Whatever is there stays, and a link may lead anywhere.
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            there = path.lstat()
            if stat.S_ISREG(there.st_mode) and there.st_size == len(data) and path.read_bytes() == data:
                return path.name
            continue
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
        except BaseException:
            path.unlink()
            raise
        return path.name
    raise FileExistsError(errno.EEXIST, "there are too many such files already")


def _find_records_inside(line: bytes) -> Iterator[tuple[int, int, Record]]:
    """The intact records inside a damaged line, each with its start and end."""
    starts = [found.start() for found in _START.finditer(line)][:_MOST]
    at = 0
    for found in list(_SUM_INSIDE.finditer(line))[:_MOST]:
        for start in starts:
            if at <= start < found.start() and int(found[1], 16) == crc32(line[start : found.start()]):
                yield start, found.end(), decode(line[start : found.end()])
                at = found.end()
                break
