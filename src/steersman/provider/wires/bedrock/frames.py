"""Decodes `application/vnd.amazon.eventstream`, the binary framing of AWS. Pure: no I/O, no clock.

A frame is a prelude (its length, the length of its headers, a CRC), headers, a payload, and a CRC of all of it. A frame
with a wrong CRC was damaged on the way: the answer is incomplete, which is retried.
"""

from __future__ import annotations

import struct
from zlib import crc32

from steersman.provider.http.sse import MAX_EVENT_BYTES, Event
from steersman.types.errors import IncompleteStreamError, ProtocolError, ProviderError

CONTENT_TYPE = "application/vnd.amazon.eventstream"
EXCEPTION = "exception:"
"""How the name of an event begins that is an exception; its type follows."""

_PRELUDE = struct.Struct(">III")
_CRC = struct.Struct(">I")
_LEAST = _PRELUDE.size + _CRC.size
_STRING = 7
# The lengths of header values by type; those of byte arrays and strings are in front of them.
_LENGTHS = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class FrameDecoder:
    """Turns the bytes of one stream into the names and payloads of its events; used like an `SseDecoder`."""

    __slots__ = ("_error", "_kept", "_max", "_needed")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._kept = bytearray()
        # The bytes from which on there is something to decode.
        self._needed = _PRELUDE.size
        self._error: ProviderError | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that these bytes complete; raises for a damaged frame, after the events before it were given."""
        if self._error is not None:
            raise self._error
        self._kept += chunk
        if len(self._kept) < self._needed:
            return []  # so that a long frame in many pieces is joined once
        kept = bytes(self._kept)
        events: list[Event] = []
        at = 0
        self._needed = _PRELUDE.size
        try:
            while len(kept) - at >= _PRELUDE.size:
                length = self._read_length(kept, at)
                if len(kept) - at < length:
                    self._needed = length
                    break
                events.append(_decode_frame(kept[at : at + length]))
                at += length
        except ProviderError as error:
            self._error = error
            if not events:
                raise
        self._kept = bytearray(kept[at:])
        return events

    def finish(self) -> list[Event]:
        """Return nothing: a frame that is not complete is dropped; raises what a damaged frame before it means."""
        if self._error is not None:
            raise self._error
        return []

    def _read_length(self, kept: bytes, at: int) -> int:
        """The length of the frame at a position; its prelude has a CRC of its own, so it is checked before waiting."""
        length, headers, check = _PRELUDE.unpack_from(kept, at)
        if crc32(kept[at : at + _PRELUDE.size - _CRC.size]) != check:
            raise _build_damage_error("prelude")
        if length < _LEAST or headers > length - _LEAST:
            raise ProtocolError(f"The server sent a frame of {length} bytes with {headers} bytes of headers.")
        if length > self._max:
            raise ProtocolError(f"The server sent an event of {length:,} bytes, more than {self._max:,}.")
        return length


def has_prelude(first: bytes) -> bool:
    """Whether bytes begin with the prelude of a frame, whatever the content type says."""
    size = _PRELUDE.size
    return len(first) >= size and crc32(first[: size - _CRC.size]) == _CRC.unpack_from(first, size - _CRC.size)[0]


def _decode_frame(frame: bytes) -> Event:
    if crc32(memoryview(frame)[: -_CRC.size]) != _CRC.unpack_from(frame, len(frame) - _CRC.size)[0]:
        raise _build_damage_error("message")
    begin = _PRELUDE.size + _PRELUDE.unpack_from(frame)[1]
    headers = _decode_headers(frame[_PRELUDE.size : begin])
    payload = frame[begin : -_CRC.size].decode("utf-8", "replace")
    match headers.get(":message-type"):
        case "exception":
            return f"{EXCEPTION}{headers.get(':exception-type', '')}", payload
        case "error":
            return f"{EXCEPTION}{headers.get(':error-code', '')}", headers.get(":error-message") or payload
        case _:
            return headers.get(":event-type", ""), payload


def _decode_headers(data: bytes) -> dict[str, str]:
    """The headers that are strings; the others have no meaning here."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            begin = at + 1
            end = begin + data[at]
            name, kind = data[begin:end].decode("utf-8", "replace"), data[end]
            at = end + 1
            length = _LENGTHS.get(kind)
            if length is None:
                length = int.from_bytes(data[at : at + 2])
                at += 2
            if kind == _STRING:
                found[name] = data[at : at + length].decode("utf-8", "replace")
            at += length
    except IndexError:
        raise ProtocolError("The server sent a frame whose headers end in the middle of one.") from None
    return found


def _build_damage_error(part: str) -> ProviderError:
    return IncompleteStreamError(f"A frame of the stream was damaged on the way: the CRC of its {part} does not match.")
