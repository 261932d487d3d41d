"""What is piped into the command as part of a prompt: of any encoding and length, and perhaps never coming at all."""

from __future__ import annotations

import os
import select
import stat
import sys

MAX_INPUT = 4_000_000
"""The most bytes that become part of a prompt."""

FIRST_BYTE_SECONDS = 3.0
"""How long the input may take to begin when there is a prompt without it."""


def piped(*, patient: bool) -> str:
    """What comes on standard input, cut where it is too much; notices are told on standard error.

    Whoever is not patient has a prompt already: many programs start others with an input that nobody writes to.
    """
    try:
        file = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):  # `<&-` leaves none, and a closed or made-up one is none either
        return ""
    if not patient and not _begun(file):
        _tell(
            f"Nothing came on stdin for {FIRST_BYTE_SECONDS:g} s, so the run begins without it. To wait for a slow "
            "program, add '-' to the prompt; to say that there is nothing, add < /dev/null."
        )
        return ""
    data = _read(file, MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        _tell(f"stdin has more than {MAX_INPUT:,} bytes; only so many are read.")
        data = data[:MAX_INPUT] + f"\n[... cut: the first {MAX_INPUT:,} bytes ...]".encode()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        _tell("stdin is not all UTF-8; what is not was replaced.")
        text = data.decode("utf-8-sig", "replace")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _begun(file: int) -> bool:
    """Whether there is something to read, or the end of it, in good time."""
    if stat.S_ISREG(os.fstat(file).st_mode):
        return True
    return bool(select.select([file], [], [], FIRST_BYTE_SECONDS)[0])


def _read(file: int, most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := _piece(file, min(most, 65_536))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _piece(file: int, size: int) -> bytes:
    while True:
        try:
            return os.read(file, size)
        except BlockingIOError:  # somebody who shares it made it so
            select.select([file], [], [])


def _tell(text: str) -> None:
    print(f"steersman: {text}", file=sys.stderr, flush=True)
