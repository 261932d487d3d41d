"""Decodes server-sent events (SSE): bytes in, events out, however the bytes were cut. Pure: no I/O, no clock.

Follows https://html.spec.whatwg.org/multipage/server-sent-events.html. A blank line ends the event at once. The bytes
of a chunk are handled in bulk: many small events in a chunk and one event of many chunks both take linear time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Protocol, TypeAlias

import msgspec

from steersman.types.errors import ProtocolError

Event: TypeAlias = tuple[str, str]
"""The name of an event, "" where the server gave none, and its data."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""The longest event that is accepted. The longest that servers send, a whole answer or an image, is far below it."""

MAX_EVENT_LINES = 100_000
"""The most lines of an event. Servers send two or three; each takes time, in which the event loop has no turn."""

MAX_PIECE = 64 * 1024
"""The most bytes to feed between two turns of the event loop: they may hold many thousand events."""

_BOM = b"\xef\xbb\xbf"
_LINE_FEED = 10
_CARRIAGE_RETURN = 13
_USUAL_START = (b"data:", b"event:")
_BLANK = b" \t\r\n\xef\xbb\xbf"
_NOT_EVENTS = (b"{", b"[", b"<")
_NAMED_EVENT = re.compile(r"^event: (.*)\ndata: (.*)\n\n", re.MULTILINE)
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


class EventReader(Protocol):
    """Turns the bytes of a response into the names and data of its events, as `SseDecoder` does."""

    def feed(self, chunk: bytes, /) -> Sequence[Event]: ...
    def finish(self) -> Sequence[Event]: ...


class SseDecoder(msgspec.Struct, eq=False, kw_only=True):
    """Turns the bytes of one stream into its events.

    `last_event_id` and `retry` (milliseconds) hold the last values that the server sent.
    """

    max_event_bytes: int = MAX_EVENT_BYTES
    last_event_id: str = ""
    retry: int | None = None
    _begun: bool = False
    _after_cr: bool = False
    # The bytes of an incomplete event. All line ends in it are line feeds, and it never begins with one.
    _pending: list[bytes] = []
    _size: int = 0
    _lines: int = 0
    # How many of the pending parts hold whole lines and no comment.
    _checked: int = 0
    _at_line_start: bool = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that these bytes complete; `ProtocolError` for one above the size limit."""
        if not self._begun:
            chunk = self._strip_bom(chunk)
        if self._after_cr or _CARRIAGE_RETURN in chunk:
            chunk = self._normalize_line_ends(chunk)
        if not self._pending:
            # A blank line before the start of an event means nothing.
            chunk = chunk.lstrip(b"\n")
        if self._pending or not chunk.endswith(b"\n\n"):
            chunk = self._cut_off_whole_events(chunk)
        if len(chunk) > self.max_event_bytes or (len(chunk) > MAX_EVENT_LINES and chunk.count(b"\n") > MAX_EVENT_LINES):
            self._check_events(chunk)
        text = chunk.decode("utf-8", "replace")
        events = _split_usual_events(text)
        return self._parse_events(text) if events is None else events

    def finish(self) -> list[Event]:
        """What is left of an event that the end of the stream cut off. The standard drops it; the caller decides."""
        if not self._pending:
            return []
        left = b"".join(self._pending)
        self._forget_pending()
        return self._parse_events(left.decode("utf-8", "replace"))

    def _strip_bom(self, chunk: bytes) -> bytes:
        """Strip one byte order mark, also when it arrives in pieces."""
        if chunk.startswith(_USUAL_START) and not self._pending:
            self._begun = True
            return chunk
        chunk = b"".join((*self._pending, chunk))
        self._pending.clear()
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            if chunk:
                self._pending.append(chunk)
            return b""
        self._begun = True
        return chunk.removeprefix(_BOM)

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        """The chunk with line feeds only. A CR ends its line at once; an LF behind it is dropped."""
        if not chunk:
            return chunk
        if self._after_cr and chunk[0] == _LINE_FEED:
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        without = chunk.replace(b"\r", b"")
        if len(chunk) - len(without) == 2 * chunk.count(b"\r\n\r\n"):
            return without  # one line an event, as is usual: no CR is alone
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _cut_off_whole_events(self, chunk: bytes) -> bytes:
        """The whole events, perhaps none, that these bytes and what is pending hold; the rest is kept."""
        cut = chunk.rfind(b"\n\n") + 2
        if cut == 1 and not (self._at_line_start and chunk.startswith(b"\n")):
            self._keep(chunk)
            return b""
        whole = b"".join((*self._pending, chunk[:cut]))
        self._forget_pending()
        self._keep(chunk[cut:])
        return whole

    def _keep(self, chunk: bytes) -> None:
        if not chunk:
            return
        self._pending.append(chunk)
        self._size += len(chunk)
        self._lines += chunk.count(b"\n")
        self._at_line_start = chunk[-1] == _LINE_FEED
        if self._size - self._at_line_start > self.max_event_bytes or self._lines > MAX_EVENT_LINES:
            self._drop_comments()
            self._check(self._size - self._at_line_start, self._lines)

    def _drop_comments(self) -> None:
        """Drop the comments from what is pending; what was checked before is not read again."""
        rest = b"".join(self._pending[self._checked :])
        cut = rest.rfind(b"\n") + 1
        lines, begun = _strip_comments(rest[:cut]), rest[cut:]
        if begun.startswith(b":"):
            begun = b":"
        self._pending[self._checked :] = [part for part in (lines, begun) if part]
        self._checked += bool(lines)
        self._size -= len(rest) - len(lines) - len(begun)
        self._lines -= rest.count(b"\n") - lines.count(b"\n")

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._size = self._lines = self._checked = 0

    def _check_events(self, whole: bytes) -> None:
        for block in whole.split(b"\n\n"):
            if len(block) > self.max_event_bytes or block.count(b"\n") >= MAX_EVENT_LINES:
                event = _strip_comments(block.strip(b"\n") + b"\n").rstrip(b"\n")
                self._check(len(event), event.count(b"\n") + 1)

    def _check(self, size: int, lines: int) -> None:
        if size > self.max_event_bytes:
            raise ProtocolError(f"The server sent an event of more than {self.max_event_bytes:,} bytes.")
        if lines > MAX_EVENT_LINES:
            raise ProtocolError(f"The server sent an event of more than {MAX_EVENT_LINES:,} lines.")

    def _parse_events(self, text: str) -> list[Event]:
        parsed = [self._parse_event(block) for block in text.split("\n\n") if block]
        return [event for event in parsed if event is not None]

    def _parse_event(self, block: str) -> Event | None:
        """Parse one event line by line, as the standard says: without a `data` field there is no event."""
        name = ""
        data: list[str] = []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "error" and value:
                # Not in the standard: gateways such as GPUStack report a failure in a field of this name.
                return "error", value
            elif field == "id":
                if "\0" not in value:
                    self.last_event_id = value
            elif field == "retry" and value.isascii() and value.isdigit() and len(value) < 16:
                self.retry = int(value)
        return (name, "\n".join(data)) if data else None


def _split_usual_events(text: str) -> list[Event] | None:
    """Return the events if all have the same one of two usual forms: a line of data, alone or after a name."""
    if not text.endswith("\n\n"):
        return None
    lines = text.count("\n")
    if text.startswith("data: "):
        if lines == 2:  # one event
            return [("", text[6:-2])]  # behind "data: "
        data = text.removeprefix("data: ").removesuffix("\n\n").split("\n\ndata: ")
        return list(zip(repeat(""), data, strict=False)) if lines == 2 * len(data) else None
    events = _NAMED_EVENT.findall(text)
    return events if lines == 3 * len(events) else None


def _strip_comments(block: bytes) -> bytes:
    """A block without its complete comment lines, which do not count towards the size of an event."""
    lines = block.split(b"\n")
    return b"\n".join([line for line in lines[:-1] if not line.startswith(b":")] + lines[-1:])


def is_event_stream(content_type: str, first: bytes) -> bool:
    """Whether a body is a stream of events; servers mislabel both errors and streams."""
    head = first.lstrip(_BLANK)[:8]
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("text/event-stream", ""):
        return not head.startswith(_NOT_EVENTS)
    return bool(head) and any(head.startswith(field) or field.startswith(head) for field in _EVENT_FIELDS)
