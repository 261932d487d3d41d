"""Reads the whole output of a tool call, also where the model got only its beginning and its end."""

from __future__ import annotations

import os
import stat

from steersman.types.messages import ToolResultMessage

MAX_BYTES = 2_000_000
"""The most of an output that is shown."""


def read_whole_output(result: ToolResultMessage) -> str:
    """Returns what a tool wrote: from the file that keeps a long output, or else what the model got."""
    for name in ("output_file", "full_output"):
        path: object = result.details.get(name)
        if isinstance(path, str) and (text := _read_file(path)):
            return text
    return result.text


def _read_file(path: str) -> str:
    """Reads a regular file; empty if that is impossible, as after the session that wrote it."""
    try:
        # Non-blocking: a FIFO without a writer would block for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY)
    except (OSError, ValueError):
        return ""
    with os.fdopen(handle, "rb") as source:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return ""
        text = source.read(MAX_BYTES).decode(errors="replace")
    left = found.st_size - MAX_BYTES
    return f"{text}\n[{left:,} more bytes are in {path}]" if left > 0 else text
