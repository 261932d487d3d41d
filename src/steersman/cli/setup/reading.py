"""Files that a user names or keeps, read whole: whatever stands in their place neither hangs nor fills the memory."""

from __future__ import annotations

import os
import select
from pathlib import Path

PIPE_SECONDS = 3.0
"""How long a pipe in place of a file, as of `<(...)`, may take to go on."""


def bytes_of(path: Path, *, most: int) -> bytes:
    """The bytes of a file; `ValueError` where there are more than so many, `OSError` where it cannot be read."""
    pieces: list[bytes] = []
    # Not blocking: a FIFO that nobody writes to would hold us up for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        left = most + 1
        while left > 0 and (piece := _piece(handle, min(left, 65_536))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(handle)
    if left <= 0:
        raise ValueError(f"it has more than {most:,} bytes")
    return b"".join(pieces)


def _piece(handle: int, size: int) -> bytes:
    try:
        return os.read(handle, size)
    except BlockingIOError:  # a pipe whose writer has not come to it yet
        if not select.select([handle], [], [], PIPE_SECONDS)[0]:
            raise
        return os.read(handle, size)
