"""The pages of an SQLite file as they lie on the disk: rows can be found here when SQLite itself gives up.

Nothing here judges a row; whoever asks has a checksum. The format is https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import TypeAlias

PAGE = 4096
"""The size of a page in every file that is written here."""

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[int, list[Value]]
"""The number of a row and its columns; a column that repeats the number is `None`."""

_FRAME = 24
_HEADER = 32
_ROUNDS = 1 << 20
_LEAST = (PAGE - 12) * 32 // 255 - 23
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class Pages(Mapping[int, bytes]):
    """The pages of a file by number, from 1, with those of its logs in their places; one cut short is filled up."""

    def __init__(self, main: bytes | mmap, *logs: Mapping[int, bytes]) -> None:
        self._main = main
        self._newer = {number: page for log in logs for number, page in log.items()}
        self._count = -(-len(main) // PAGE)

    def __getitem__(self, number: int) -> bytes:
        if number in self._newer:
            return self._newer[number]
        if not 1 <= number <= self._count:
            raise KeyError(number)
        return self._main[(number - 1) * PAGE : number * PAGE].ljust(PAGE, b"\0")

    def __iter__(self) -> Iterator[int]:
        yield from range(1, self._count + 1)
        yield from (number for number in self._newer if number > self._count)

    def __len__(self) -> int:
        return self._count + sum(1 for number in self._newer if number > self._count)


@dataclass(frozen=True, slots=True)
class Frames:
    """What a write-ahead log holds.

    `committed` are the pages up to `end`, where SQLite stops reading; `beyond` are those after it that belong to the
    same log, up to `tail`. The log is `broken` where there are whole commits beyond, and `torn` where there is only the
    beginning of one; that is `clean` if nothing else is there.
    """

    committed: Mapping[int, bytes]
    beyond: Mapping[int, bytes]
    end: int
    tail: int
    broken: bool
    clean: bool

    @property
    def torn(self) -> bool:
        """Whether it ends with something that was never finished."""
        return self.tail > self.end and not self.broken


def frames(log: bytes) -> Frames:
    """Read a write-ahead log as SQLite does, and on where SQLite stops."""
    head = log[:_HEADER]
    if len(head) < _HEADER:
        return Frames({}, {}, 0, len(log), broken=False, clean=False)
    magic, _, size, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", head)
    order = ">" if magic == 0x377F0683 else "<"
    sums = _summed(head[:24], order, (0, 0))
    salts = (salt1, salt2)
    if magic not in (0x377F0682, 0x377F0683) or size != PAGE or sums != (sum1, sum2):
        salts = struct.unpack(">2I", log[_HEADER + 8 : _HEADER + 16].ljust(8, b"\0"))  # the frames know them too
        return _beyond(log, {}, (0, _HEADER, -1), salts)
    committed: dict[int, bytes] = {}
    open_: dict[int, bytes] = {}
    end = at = _HEADER
    while at + _FRAME + PAGE <= len(log):
        frame = log[at : at + _FRAME + PAGE]
        number, commit, *own, sum1, sum2 = struct.unpack(">6I", frame[:_FRAME])
        sums = _summed(frame[_FRAME:], order, _summed(frame[:8], order, sums))
        if tuple(own) != salts or sums != (sum1, sum2):
            break
        open_[number] = frame[_FRAME:]
        at += len(frame)
        if commit:
            committed.update(open_)
            open_.clear()
            end = at
    return _beyond(log, committed, (end, end, at), salts)


def _beyond(log: bytes, committed: dict[int, bytes], places: tuple[int, int, int], salts: tuple[int, ...]) -> Frames:
    """What follows the place where SQLite stops, up to the first bad frame and after it.

    Frames of an earlier round of the log have another second salt, and a first one that is a little less. A bad frame
    is torn if no commit follows it.
    """
    end, at, bad = places
    pages: dict[int, bytes] = {}
    tail, broken, clean = end, False, True
    while at < len(log):
        frame = log[at : at + _FRAME + PAGE]
        number, commit, *own, _, _ = struct.unpack(">6I", frame[:_FRAME].ljust(_FRAME, b"\0"))
        whole = len(frame) == _FRAME + PAGE
        if not whole or own[1] == salts[1] or not 0 < (salts[0] - own[0]) % (1 << 32) < _ROUNDS:
            tail = at + len(frame)
            clean = clean and tuple(own) == salts
            if whole:
                pages[number] = frame[_FRAME:]
                broken = broken or (commit != 0 and at > bad)
        at += len(frame)
    return Frames(committed, pages, end, tail, broken=broken, clean=clean)


def _summed(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def rows(pages: Mapping[int, bytes]) -> Iterator[Row]:
    """Every row that can be made out in the leaves of tables. What comes out may be nonsense."""
    for number, page in pages.items():
        start = 100 if number == 1 else 0
        # A page that goes on with a long row begins with the number of the next: its text is never taken for rows.
        if page[start] == 0:
            continue
        (cells,) = struct.unpack_from(">H", page, start + 3)
        for cell in range(min(cells, (PAGE - start - 8) // 2)):
            (at,) = struct.unpack_from(">H", page, start + 8 + 2 * cell)
            row = _row(pages, page, at)
            if row is not None:
                yield row


def _row(pages: Mapping[int, bytes], page: bytes, at: int) -> Row | None:
    try:
        size, at = _varint(page, at)
        key, at = _varint(page, at)
        return key, _columns(_payload(pages, page, at, size))
    except (IndexError, KeyError, ValueError, struct.error):
        return None


def _payload(pages: Mapping[int, bytes], page: bytes, at: int, size: int) -> bytes:
    local = size
    if size > PAGE - 35:
        local = _LEAST + (size - _LEAST) % (PAGE - 4)
        local = local if local <= PAGE - 35 else _LEAST
    parts = [page[at : at + local]]
    left = size - local
    following = struct.unpack_from(">I", page, at + local)[0] if left else 0
    if left > len(pages) * PAGE:
        raise ValueError("longer than the file")
    while left > 0:
        page = pages[following]
        (following,) = struct.unpack_from(">I", page, 0)
        parts.append(page[4 : 4 + left])
        left -= PAGE - 4
    return b"".join(parts)


def _columns(payload: bytes) -> list[Value]:
    end, at = _varint(payload, 0)
    types: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        types.append(kind)
    columns: list[Value] = []
    for kind in types:
        value, at = _column(payload, at, kind)
        columns.append(value)
    return columns


def _column(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    size = _INTEGERS.get(kind, (kind - 12) // 2 if kind >= 12 else 0)
    data = payload[at : at + size]
    if len(data) != size:
        raise ValueError("cut short")
    if kind in _INTEGERS:
        return int.from_bytes(data, "big", signed=True), at + size
    return (data.decode() if kind % 2 else data), at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for offset in range(8):
        byte = data[at + offset]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + offset + 1
    value = value << 8 | data[at + 8]
    return (value - (1 << 64) if value >> 63 else value), at + 9
