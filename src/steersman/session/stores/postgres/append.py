"""The one statement that appends records: for a thread that waits for its answer, and for an event loop."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from steersman.session.records import Record, make_title
from steersman.session.stores.postgres.tables import APPEND, Line, split_groups
from steersman.session.stores.store import find_queue_numbers

if TYPE_CHECKING:
    from steersman.session.stores.postgres.connection import Connection

_MOST_BYTES: Final = 256 << 10
"""The most that an event loop sends: more does not fit into the buffer of a socket, and takes time to pack."""
_INT8, _BYTEA = 20, 17
_int8, _float8, _int4 = struct.Struct(">q"), struct.Struct(">d"), struct.Struct(">i")
_array = struct.Struct(">iiIii")


class UnexpectedLastSeq(Exception):
    """The last number of the session is not the expected one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which owner of which session appends, and what the records say about the session."""

    number: int
    epoch: int
    heard: list[int]
    title: bytes
    updated: float

    @classmethod
    def of(cls, number: int, epoch: int, records: Sequence[Record]) -> Self:
        """That of some records."""
        updated = max(record.time for record in records)
        return cls(number, epoch, find_queue_numbers(records), make_title(records).encode(), updated)


def add_lines(connection: Connection, origin: Origin, after: int, lines: Sequence[Line]) -> None:
    """Add lines after a number in one transaction; raises `UnexpectedLastSeq`."""
    groups = list(split_groups(lines))
    with connection.transaction() if len(groups) > 1 else nullcontext():
        for group in groups:
            seqs, checksums, data = zip(*group, strict=True)
            values = {
                "number": origin.number,
                "epoch": origin.epoch,
                "heard": origin.heard,
                "title": origin.title,
                "updated": origin.updated,
                "after": after,
                "last": seqs[-1],
                "seqs": list(seqs),
                "checksums": list(checksums),
                "data": list(data),
            }
            if connection.execute(APPEND, values).rowcount != len(group):
                raise UnexpectedLastSeq
            after = seqs[-1]


def pack_append(origin: Origin, after: int, lines: Sequence[Line]) -> list[bytes] | None:
    """The parameters of the prepared statement, in binary format; `None` if they are too long."""
    if sum(len(line.data) for line in lines) > _MOST_BYTES:
        return None
    return [
        _int8.pack(origin.number),
        _int8.pack(origin.epoch),
        _int8.pack(after),
        _int8.pack(lines[-1].seq),
        _float8.pack(origin.updated),
        origin.title,
        _pack_numbers(origin.heard),
        _pack_numbers([line.seq for line in lines]),
        _pack_numbers([line.checksum for line in lines]),
        _pack_array(_BYTEA, [line.data for line in lines]),
    ]


def _pack_numbers(numbers: Sequence[int]) -> bytes:
    return _pack_array(_INT8, [_int8.pack(number) for number in numbers])


def _pack_array(kind: int, items: Sequence[bytes]) -> bytes:
    if not items:
        return _array.pack(0, 0, kind, 0, 0)[:12]  # no dimension
    parts = [_array.pack(1, 0, kind, len(items), 1)]
    for item in items:
        parts += (_int4.pack(len(item)), item)
    return b"".join(parts)
