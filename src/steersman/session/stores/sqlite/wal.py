"""Checks the write-ahead log of a SQLite file: how far SQLite reads it, and whether anything that it skips was lost.

SQLite stops at the first bad frame and says nothing about what follows. The format is described at
https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PAGE_SIZE = 4096
"""The page size of every file that is written here."""

_HEADER = 32
_FRAME_HEADER = 24
_FRAME = _FRAME_HEADER + PAGE_SIZE
_MAGIC = (0x377F0682, 0x377F0683)
# A log that is used again gets a first salt that is higher by 1, so frames with a slightly lower one are old.
_OLD_SALTS = 1 << 20


@dataclass(frozen=True, slots=True)
class LogState:
    """How much of a write-ahead log SQLite reads.

    `end` is the offset at which SQLite stops, `tail` the offset at which the frames of this log end. `lost_commits`
    counts the whole transactions between the two.
    """

    end: int
    tail: int
    lost_commits: int

    @property
    def is_broken(self) -> bool:
        """Whether committed transactions follow a bad frame."""
        return self.lost_commits > 0

    @property
    def is_torn(self) -> bool:
        """Whether the log ends with a transaction that was never committed."""
        return self.tail > self.end and not self.is_broken


def check_log(log: bytes) -> LogState:
    """Read a write-ahead log as SQLite does, and then the frame headers behind the place where SQLite stops."""
    header = log[:_HEADER]
    if len(header) < _HEADER:
        return LogState(0, len(log), 0)
    magic, _, page_size, _, salt1, salt2, *checksums = struct.unpack(">8I", header)
    order = ">" if magic == _MAGIC[1] else "<"
    checksum = _add_checksum(header[:24], order, (0, 0))
    if magic not in _MAGIC or page_size != PAGE_SIZE or checksum != tuple(checksums):
        # Each frame has the salts as well.
        salts = struct.unpack(">2I", log[_HEADER + 8 : _HEADER + 16].ljust(8, b"\0"))
        tail, lost_commits = _check_rest(log, _HEADER, -1, salts)
        return LogState(0, tail, lost_commits)
    salts = (salt1, salt2)
    end = at = _HEADER
    while at + _FRAME <= len(log):
        frame = log[at : at + _FRAME]
        _, commit, *own_salts, sum1, sum2 = struct.unpack(">6I", frame[:_FRAME_HEADER])
        checksum = _add_checksum(frame[_FRAME_HEADER:], order, _add_checksum(frame[:8], order, checksum))
        if tuple(own_salts) != salts or checksum != (sum1, sum2):
            break
        at += _FRAME
        if commit:
            end = at
    tail, lost_commits = _check_rest(log, end, at, salts)
    return LogState(end, max(end, tail), lost_commits)


def _check_rest(log: bytes, at: int, bad: int, salts: tuple[int, ...]) -> tuple[int, int]:
    """Find where the frames of this log end, and count the commits after the bad frame.

    Frames of an earlier use of the file do not count. A bad frame without a commit behind it is only torn.
    """
    tail = lost_commits = 0
    while at < len(log):
        frame = log[at : at + _FRAME]
        _, commit, *own_salts, _, _ = struct.unpack(">6I", frame[:_FRAME_HEADER].ljust(_FRAME_HEADER, b"\0"))
        is_whole = len(frame) == _FRAME
        is_old = own_salts[1] != salts[1] and 0 < (salts[0] - own_salts[0]) % (1 << 32) < _OLD_SALTS
        if not is_whole or not is_old:
            tail = at + len(frame)
            if is_whole and commit and at > bad:
                lost_commits += 1
        at += len(frame)
    return tail, lost_commits


def _add_checksum(data: bytes, order: str, checksum: tuple[int, int]) -> tuple[int, int]:
    first, second = checksum
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
