"""Output as it comes, however much: beginning and end in bounded memory, all of it up to a limit in a file."""

from __future__ import annotations

import os
from collections.abc import Callable

_RECENT = 4_000
_HEAD_SHARE = 4  # the beginning gets one part in so many: what went wrong is mostly said at the end


class Captured:
    """What a command wrote, at most `max_bytes` and `max_lines` of it as text.

    `folder` says where the file goes when there is more. One thread adds; the text is asked for when it is done.
    """

    def __init__(self, folder: Callable[[], str], *, max_bytes: int, max_lines: int, max_file_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_lines = max_lines
        self._max_file_bytes = max_file_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._recent = bytearray()
        self._file: int | None = None
        self._written = 0
        self._trouble = ""
        self.bytes = 0
        self.lines = 0
        self.path: str | None = None

    def add(self, buffer: bytearray, size: int) -> None:
        """Take the first `size` bytes of a buffer."""
        self.lines += buffer.count(b"\n", 0, size)
        view = memoryview(buffer)[:size]
        room = self._max_bytes - len(self._head)
        if room > 0:
            self._head += view[:room]
        self._tail += view[max(0, room, size - self._max_bytes) :]
        if len(self._tail) > 2 * self._max_bytes:
            del self._tail[: -self._max_bytes]
        self._recent += view[-_RECENT:]
        if len(self._recent) > 4 * _RECENT:
            del self._recent[:-_RECENT]
        self.bytes += size
        if self._file is not None:
            self._write(view)
        elif not self._trouble and (self.bytes > self._max_bytes or self.lines > self._max_lines):
            self._spill(view)

    @property
    def has_recent(self) -> bool:
        """Whether something came since `recent` was asked."""
        return bool(self._recent)

    def recent(self) -> str:
        """The text that came since the last time, or the end of it when that was much."""
        whole = _complete(self._recent)
        text = _text(_from_a_character(self._recent[:whole][-_RECENT:]))
        del self._recent[:whole]
        return text

    def text(self) -> tuple[str, bool]:
        """The output, and whether it had to be shortened."""
        data = _text(self._head).encode()
        if self.bytes <= self._max_bytes and self.lines <= self._max_lines and len(data) <= self._max_bytes:
            return data.decode(), False
        if self.path is None and not self._trouble:
            self._spill(memoryview(b""))
        self.close()
        head_room, head_lines = self._max_bytes // _HEAD_SHARE, self._max_lines // _HEAD_SHARE
        end = self._head + self._tail if self.bytes == len(self._head) + len(self._tail) else self._tail
        head = _first(data, head_room, head_lines).decode("utf-8", "ignore")
        tail = _last(
            _text(_from_a_character(end)).encode(), self._max_bytes - head_room, self._max_lines - head_lines
        ).decode("utf-8", "ignore")
        return f"{head}{'' if head.endswith(chr(10)) or not head else chr(10)}{self._note()}\n{tail}", True

    def close(self) -> None:
        """Close the file; what was captured stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _note(self) -> str:
        size = f"{self.bytes:,} bytes in {self.lines:,} line{'' if self.lines == 1 else 's'}"
        if self.path is None:
            where = f"it could not be saved: {self._trouble}"
        elif self._written == self.bytes:
            where = f"all of it: {self.path}"
        else:
            where = f"the first {self._written:,} bytes of it: {self.path}"
        return f"[... shortened; the output has {size}; {where} ...]"

    def _spill(self, view: memoryview) -> None:
        """Begin the file with what came before and with what just came."""
        # Only an output that is too long pays for this import.
        import tempfile

        try:
            # Made by mkstemp: a name nobody can guess, readable by its owner alone.
            self._file, self.path = tempfile.mkstemp(prefix="output-", suffix=".txt", dir=self._folder())
        except OSError as error:
            self._trouble = str(error)
            return
        # Until now everything fitted into the head, up to this piece.
        self._write(memoryview(bytes(self._head[: self.bytes - len(view)])))
        self._write(view)

    def _write(self, view: memoryview) -> None:
        view = view[: self._max_file_bytes - self._written]
        try:
            while view and self._file is not None:
                done = os.write(self._file, view)
                self._written += done
                view = view[done:]
        except OSError as error:
            self._trouble = str(error)
            self.close()


def _text(data: bytes | bytearray) -> str:
    """Bytes as text that can be sent and shown: what is not UTF-8 is replaced, and there is no NUL."""
    return data.decode("utf-8", "replace").replace("\x00", "")


def _complete(data: bytearray) -> int:
    """How many of the bytes make whole characters; the rest of the last one is still on its way."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return len(data) - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else len(data)
        if byte < 0x80:
            break
    return len(data)


def _from_a_character(data: bytearray) -> bytearray:
    """The bytes without the end of a character whose beginning was cut off."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def _first(data: bytes, room: int, lines: int) -> bytes:
    """The first lines that fit; part of a line only where less than half of the room would be used."""
    end = _end_of_line(data, lines)
    if end <= room:
        return data[:end]
    line_end = data.rfind(b"\n", 0, room) + 1
    return data[: line_end if line_end > room // 2 else room]


def _last(data: bytes, room: int, lines: int) -> bytes:
    """The last lines that fit, likewise."""
    start = len(data)
    for _ in range(lines):
        if start <= 0 or len(data) - start > room:
            break
        start = data.rfind(b"\n", 0, start - 1) + 1
    if len(data) - start <= room:
        return data[start:]
    cut = data[-room:]
    line_start = cut.find(b"\n") + 1
    return bytes(_from_a_character(bytearray(cut[line_start if 0 < line_start < room // 2 else 0 :])))


def _end_of_line(data: bytes, count: int) -> int:
    end = 0
    for _ in range(count):
        found = data.find(b"\n", end)
        if found < 0:
            return len(data)
        end = found + 1
    return end
