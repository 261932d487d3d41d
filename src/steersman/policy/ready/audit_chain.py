"""The lines of an audit log: each has the hash of the one before, so that a change of any line shows.

A line is a JSON object with `seq`, `time`, `kind`, `data`, `prev` and `hash`. With a key the hash is an HMAC; without
one it is SHA-256, which shows damage and careless changes, but a person who can write the file can compute it anew.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from steersman.types.errors import SteersmanError

FIRST_HASH = "0" * 64
MAX_LINE = 64 * 1024


class AuditError(SteersmanError):
    """The audit log cannot be written, or what is in the file is not one."""


class AuditLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of an audit log."""

    seq: int
    time: float
    kind: str
    data: Any
    prev: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditAnchor:
    """The number and hash of a line. Kept elsewhere, it shows later that the log was not cut before it."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a check of an audit log found: `problem` says what is wrong, at `line`, from 1 on.

    `torn_bytes` are those of a last line that was not written to its end, as after a crash.
    """

    ok: bool
    lines: int
    anchor: AuditAnchor
    problem: str = ""
    line: int | None = None
    torn_bytes: int = 0


def build_line(before: AuditAnchor, time: float, kind: str, data: Any, key: bytes | None) -> tuple[bytes, AuditAnchor]:
    """The bytes of the next line, with its line break, and its anchor."""
    line = AuditLine(before.seq + 1, float(time), kind, data, before.hash, "")
    line = msgspec.structs.replace(line, hash=_compute_hash(line, key))
    return msgspec.json.encode(line) + b"\n", AuditAnchor(line.seq, line.hash)


def parse_line(raw: bytes, key: bytes | None) -> AuditLine:
    """Read one line without its line break; raises `ValueError` if it is not written exactly as `build_line` does."""
    line = msgspec.json.decode(raw, type=AuditLine)
    if not hmac.compare_digest(line.hash.encode(), _compute_hash(line, key).encode()):
        raise ValueError("its hash is wrong")
    if msgspec.json.encode(line) != raw:
        raise ValueError("it is written in another form")
    return line


def verify_audit_log(
    path: str | os.PathLike[str], *, key: bytes | None = None, anchor: AuditAnchor | None = None
) -> AuditReport:
    """Check every line of a log against the one before, and the anchor if there is one.

    It finds lines that were changed, deleted, added or moved. That lines are missing at the end shows only with an
    anchor of a later line.
    """
    with open(path, "rb") as file:
        return _check_lines(file, key, anchor)


def _check_lines(file: BinaryIO, key: bytes | None, anchor: AuditAnchor | None) -> AuditReport:
    last, seen, torn = AuditAnchor(0, FIRST_HASH), anchor is None or anchor.seq == 0, 0
    for number, raw in enumerate(_read_lines(file), 1):
        if not raw.endswith(b"\n") and len(raw) <= MAX_LINE:
            torn = len(raw)
            break
        try:
            line = parse_line(raw[:-1], key)
            if line.prev != last.hash or line.seq != last.seq + 1:
                raise ValueError(f"it does not follow line {number - 1}")
        except (ValueError, RecursionError) as error:  # ValueError is also what msgspec raises
            return AuditReport(False, number - 1, last, f"Line {number} was changed or moved: {error}.", number)
        last = AuditAnchor(line.seq, line.hash)
        if anchor is not None and anchor.seq == line.seq:
            if anchor.hash != line.hash:
                return AuditReport(False, number - 1, last, f"Line {number} is not that of the anchor.", number)
            seen = True
    if not seen and anchor is not None:
        problem = f"The log ends at line {last.seq}, before line {anchor.seq} of the anchor: its end is missing."
        return AuditReport(False, last.seq, last, problem, last.seq + 1, torn)
    return AuditReport(True, last.seq, last, torn_bytes=torn)


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines, of which one that is too long is given in parts: no line of a log is."""
    while raw := file.readline(MAX_LINE + 1):
        yield raw


def _compute_hash(line: AuditLine, key: bytes | None) -> str:
    body = msgspec.json.encode([line.seq, line.time, line.kind, line.data, line.prev])
    return hashlib.sha256(body).hexdigest() if key is None else hmac.new(key, body, hashlib.sha256).hexdigest()
