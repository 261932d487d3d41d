"""The output of a command in bounded memory: its beginning and end, and all of it up to a limit in a file."""

from __future__ import annotations

import os
from collections.abc import Callable

from steersman.tools.builtin.encoding import skip_partial_character
from steersman.tools.confine.enforcement import open_in_place

_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_RECENT = 4_000
_HEAD_SHARE = 4  # the beginning gets a quarter: errors are mostly at the end


class OutputCapture:
    """The output of a command, truncated to `max_bytes` and `max_lines`.

    `folder` gives the folder for a file with all of it, when there is more. One thread calls `add`; call `to_text` when
    it is done.
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
        self._has_open_line = False
        self.bytes = 0
        self.lines = 0
        self.path: str | None = None

    def add(self, buffer: bytearray, size: int) -> None:
        """Add the first `size` bytes of a buffer."""
        self.lines += buffer.count(b"\n", 0, size)
        if size:
            self._has_open_line = buffer[size - 1] != 10
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
    def line_count(self) -> int:
        """How many lines there are, with a last one that has no line feed."""
        return self.lines + self._has_open_line

    @property
    def has_recent(self) -> bool:
        """Whether there is new output since the last `take_recent`."""
        return bool(self._recent)

    def take_recent(self) -> str:
        """Return the output since the last call, or its end when there was much."""
        whole = _count_complete(self._recent)
        text = _decode(skip_partial_character(self._recent[:whole][-_RECENT:]))
        del self._recent[:whole]
        return text

    def to_text(self) -> tuple[str, bool]:
        """Return the output, and whether it was truncated."""
        data = _decode(self._head).encode()
        if self.bytes <= self._max_bytes and self.lines <= self._max_lines and len(data) <= self._max_bytes:
            return data.decode(), False
        if self.path is None and not self._trouble:
            self._spill(memoryview(b""))
        self.close()
        head_room, head_lines = self._max_bytes // _HEAD_SHARE, self._max_lines // _HEAD_SHARE
        end = self._head + self._tail if self.bytes == len(self._head) + len(self._tail) else self._tail
        head = _take_first(data, head_room, head_lines).decode("utf-8", "ignore")
        tail = _take_last(
            _decode(skip_partial_character(end)).encode(), self._max_bytes - head_room, self._max_lines - head_lines
        ).decode("utf-8", "ignore")
        return (
            f"{head}{'' if head.endswith(chr(10)) or not head else chr(10)}{self._describe_truncation()}\n{tail}",
            True,
        )

    def close(self) -> None:
        """Close the file; what was captured stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _describe_truncation(self) -> str:
        size = f"{self.bytes:,} bytes in {self.lines:,} line{'' if self.lines == 1 else 's'}"
        if self.path is None:
            where = f"it could not be saved: {self._trouble}"
        elif self._written == self.bytes:
            where = f"all of it: {self.path}"
        else:
            where = f"the first {self._written:,} bytes of it: {self.path}"
        return f"[... shortened; the output has {size}; {where} ...]"

    def _spill(self, view: memoryview) -> None:
        """Create the file, with the output so far and the new piece."""
        try:
            self._file, self.path = _make_file(self._folder())
        except OSError as error:
            self._trouble = str(error)
            return
        # Up to this piece, the head has all of the output.
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


def _make_file(folder: str) -> tuple[int, str]:
    """Create a file that only its owner can read, with an unguessable name, in a folder that is still in its place.

    A folder in the workspace may be replaced by a link while the command runs.
    """
    place = open_in_place(folder)
    try:
        name = f"output-{os.urandom(8).hex()}.txt"
        return os.open(name, _NEW_FILE, 0o600, dir_fd=place), os.path.join(folder, name)
    finally:
        os.close(place)


def _decode(data: bytes | bytearray) -> str:
    """Decode bytes as UTF-8 for the model: invalid bytes are replaced, NUL characters removed."""
    return data.decode("utf-8", "replace").replace("\x00", "")


def _count_complete(data: bytearray) -> int:
    """Count the bytes that make whole UTF-8 characters; the rest of the last one has not arrived yet."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return len(data) - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else len(data)
        if byte < 0x80:
            break
    return len(data)


def _take_first(data: bytes, room: int, lines: int) -> bytes:
    """Take the first lines that fit; a partial line only where the whole lines would fill less than half of `room`."""
    end = _find_line_end(data, lines)
    if end <= room:
        return data[:end]
    line_end = data.rfind(b"\n", 0, room) + 1
    return data[: line_end if line_end > room // 2 else room]


def _take_last(data: bytes, room: int, lines: int) -> bytes:
    """Take the last lines that fit, in the same way."""
    start = len(data)
    for _ in range(lines):
        if start <= 0 or len(data) - start > room:
            break
        start = data.rfind(b"\n", 0, start - 1) + 1
    if len(data) - start <= room:
        return data[start:]
    cut = data[-room:]
    line_start = cut.find(b"\n") + 1
    return skip_partial_character(cut[line_start if 0 < line_start < room // 2 else 0 :])


def _find_line_end(data: bytes, count: int) -> int:
    end = 0
    for _ in range(count):
        found = data.find(b"\n", end)
        if found < 0:
            return len(data)
        end = found + 1
    return end
