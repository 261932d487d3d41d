"""What `streamGenerateContent` answers where nobody asked for server-sent events: one JSON array of chunks."""

from __future__ import annotations

import re

from steersman.provider.http.sse import MAX_EVENT_BYTES, Event
from steersman.types.errors import ProtocolError

_MARK = re.compile(rb'"|\\.|[{}]', re.DOTALL)
_QUOTE, _OPEN = ord('"'), ord("{")


class ArrayDecoder:
    """Gives each object of an array as soon as it is whole; to be used like an `SseDecoder`."""

    __slots__ = ("_at", "_begin", "_depth", "_kept", "_max", "_quoted")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._kept = bytearray()
        self._at = 0
        self._begin = 0
        self._depth = 0
        self._quoted = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The elements that these bytes complete."""
        kept = self._kept
        kept += chunk
        events: list[Event] = []
        for found in _MARK.finditer(kept, self._at):
            self._at = found.end()
            mark = kept[found.start()]
            if mark == _QUOTE:
                self._quoted = not self._quoted
            elif not self._quoted and self._at - found.start() == 1:
                if mark == _OPEN:
                    self._depth += 1
                    if self._depth == 1:
                        self._begin = found.start()
                else:
                    self._depth -= 1
                    if self._depth == 0:
                        events.append(("", kept[self._begin : self._at].decode("utf-8", "replace")))
        self._drop()
        return events

    def finish(self) -> list[Event]:
        """An element that the end cut off is none."""
        return []

    def _drop(self) -> None:
        """Forget what was given; half an escape at the end is looked at again."""
        kept = self._kept
        self._at = max(self._at, len(kept) - 1 if kept.endswith(b"\\") else len(kept))
        gone = self._begin if self._depth else self._at
        del kept[:gone]
        self._at -= gone
        self._begin = 0
        if len(kept) > self._max:
            raise ProtocolError(f"The server sent an element of more than {self._max:,} bytes.")
