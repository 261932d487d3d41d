"""What was typed in chats, kept in a file that only its owner can read; one JSON string a line."""

from __future__ import annotations

import json
import os
from pathlib import Path

from steersman.cli.setup.folders import made

MAX_HISTORY = 2000
_TAIL = 1 << 20
# Not blocking: a FIFO in its place must not hold up the chat.
_OPEN = os.O_NONBLOCK | os.O_CLOEXEC


def load(file: Path) -> list[str]:
    """What the file holds, the oldest first; lines that cannot be read are passed over."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | _OPEN), "rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - _TAIL))
            lines = source.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    texts = [text for line in lines if (text := _text(line))]
    return texts[-MAX_HISTORY:]


def add(file: Path, text: str) -> None:
    """Keep one more; a disk that will not take it is no reason to stop a chat."""
    try:
        made(file.parent)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | _OPEN, 0o600)
        with os.fdopen(descriptor, "ab") as target:
            target.write(json.dumps(text).encode() + b"\n")
    except OSError:
        return


def _text(line: str) -> str | None:
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None
