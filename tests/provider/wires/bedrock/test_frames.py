"""The binary framing of AWS, in any pieces and with any damage; botocore's parser is the judge."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any
from zlib import crc32

import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer  # pyright: ignore[reportMissingTypeStubs]
from hypothesis import given
from hypothesis import strategies as st
from tests.provider.wires.bedrock.kit import begun, delta, ended, framed, message_of, read, said, start, stop, thrown
from tests.provider.wires.reading import chunks
from tests.rows import each_row

from steersman.provider.wires.bedrock.frames import CONTENT_TYPE, FrameDecoder
from steersman.provider.wires.bedrock.wire import WIRE
from steersman.testing.servers.bedrock.server import encode_frame
from steersman.types.content import ThinkingContent
from steersman.types.errors import IncompleteStreamError, ProtocolError, ProviderError

STREAM = begun() + said(0, "Größe ", "🙂\u2028") + ended()
WHOLE = FrameDecoder().feed(STREAM)
NAMES = st.text("abc:-", min_size=1, max_size=20)
HEADERS = st.dictionaries(NAMES, st.text(max_size=40), max_size=4)


def raw_frame(headers: bytes, payload: bytes) -> bytes:
    """A frame with headers as they are."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    frame = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return frame + struct.pack(">I", crc32(frame))


@given(HEADERS, st.binary(max_size=300))
def test_botocore_reads_the_frames_of_the_test_server(headers: dict[str, str], payload: bytes) -> None:
    buffer: Any = EventStreamBuffer()
    buffer.add_data(encode_frame(headers, payload))
    (message,) = list(buffer)
    assert (message.headers, message.payload) == (headers, payload)


@given(st.lists(st.tuples(st.sampled_from(["contentBlockDelta", "metadata", "new"]), st.text(max_size=50)), max_size=6))
def test_we_read_what_botocore_reads(events: list[tuple[str, str]]) -> None:
    stream = b"".join(framed(name, payload.encode("utf-8", "replace")) for name, payload in events)
    buffer: Any = EventStreamBuffer()
    buffer.add_data(stream)
    theirs = [(message.headers[":event-type"], message.payload.decode()) for message in buffer]
    assert FrameDecoder().feed(stream) == theirs


@each_row("size", [1, 2, 3, 7, 11, 12, 13, 100, 10_000])
def test_frames_are_the_same_in_pieces_of_any_size(size: int) -> None:
    decoder = FrameDecoder()
    assert [event for piece in chunks(STREAM, size) for event in decoder.feed(piece)] == WHOLE
    assert decoder.finish() == []


def test_a_long_frame_in_many_pieces_is_given_once_and_whole() -> None:
    """Its bytes are joined once, when the last of them is there."""
    words = "é" * 400_000
    decoder = FrameDecoder()
    pieces = chunks(framed("contentBlockDelta", words.encode()) + STREAM, 1_460)
    assert [event for piece in pieces for event in decoder.feed(piece)] == [("contentBlockDelta", words), *WHOLE]


@given(st.lists(st.integers(0, len(STREAM)), max_size=5))
def test_frames_are_the_same_with_any_cuts(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in pairwise(edges)]
    assert read(pieces)[1].text == "Größe 🙂\u2028"


@each_row("at", range(len(STREAM)))
def test_a_damaged_byte_is_never_a_success(at: int) -> None:
    """failures.md B13: both CRCs are checked. Events before the damage are given, and the answer may be retried."""
    damaged = bytearray(STREAM)
    damaged[at] ^= 0x10
    with pytest.raises(ProviderError) as caught:
        read(bytes(damaged))
    assert caught.value.info.should_retry


def test_events_before_a_damaged_frame_are_given_in_one_read_and_in_many() -> None:
    whole = begun() + said(0, "Hi")
    damaged = whole + framed("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "x"}})[:-1] + b"\x00"
    for size in (1, len(damaged)):
        decoder = FrameDecoder()
        events: list[Any] = []

        def feed(decoder: FrameDecoder = decoder, events: list[Any] = events, size: int = size) -> None:
            for piece in chunks(damaged, size):
                events.extend(decoder.feed(piece))
            decoder.finish()

        with pytest.raises(IncompleteStreamError, match="CRC of its message"):
            feed()
        assert events == FrameDecoder().feed(whole)


@pytest.mark.parametrize("length", [0, 15, 2**31, 33 * 1024 * 1024])
def test_a_length_that_cannot_be_is_refused_at_once(length: int) -> None:
    """A length that would be waited for for ever, or fill the memory."""
    prelude = struct.pack(">II", length, 0)
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(prelude + struct.pack(">I", crc32(prelude)))


def test_headers_of_all_types_are_passed_over_and_headers_that_break_off_are_refused() -> None:
    values = [
        (0, b""),
        (1, b""),
        (2, b"x"),
        (3, b"xx"),
        (4, b"x" * 4),
        (5, b"x" * 8),
        (6, b"\x00\x02xx"),
        (8, b"x" * 8),
    ]
    values.append((9, b"x" * 16))
    odd = b"".join(b"\x01h" + bytes([kind]) + value for kind, value in values)
    name = b"\x0b:event-type\x07\x00\x08metadata"
    assert FrameDecoder().feed(raw_frame(odd + name, b"{}")) == [("metadata", "{}")]
    with pytest.raises(ProtocolError, match="headers"):
        FrameDecoder().feed(raw_frame(b"\x0b:event", b"{}"))


def test_an_exception_and_an_error_have_their_names() -> None:
    assert FrameDecoder().feed(thrown("throttlingException", "Slow.")) == [
        ("exception:throttlingException", '{"message":"Slow."}')
    ]
    error = {":message-type": "error", ":error-code": "InternalError", ":error-message": "Oh no."}
    assert FrameDecoder().feed(encode_frame(error, b"")) == [("exception:InternalError", "Oh no.")]


def test_frames_are_known_by_their_type_or_by_their_first_bytes() -> None:
    """A proxy may say `application/octet-stream`."""
    for kind, first in ((CONTENT_TYPE, b"\x00"), (f"{CONTENT_TYPE}; x=y", b""), ("application/octet-stream", STREAM)):
        assert isinstance(WIRE.select_reader(kind, first, max_event_bytes=100), FrameDecoder)
    for first in (b"", b"data: {}", b'{"message": "no"}', b"<html>Nothing here</html>"):
        assert WIRE.select_reader("text/html", first, max_event_bytes=100) is None


def test_a_call_that_never_stopped_ends_where_another_one_takes_its_index() -> None:
    twice = [start(0, toolUse={"toolUseId": id, "name": "act"}) for id in ("c1", "c2")]
    message = message_of(b"".join((begun(), *twice, stop(0), ended("tool_use"))))
    assert [call.id for call in message.tool_calls] == ["c1", "c2"]


HALF = rb"\ud83d"


@each_row("reason", [b'"tool' + HALF + b'"', b'{"' + HALF + b'":1}'], ids=["text", "object"])
def test_half_of_a_character_in_a_stop_reason_is_replaced(reason: bytes) -> None:
    stopped = framed("messageStop", b'{"stopReason":' + reason + b"}") + framed("metadata", {"usage": {}})
    message = message_of(begun() + said(0, "Hi") + stopped)
    assert message.raw_stop_reason in ("tool\ufffd", '{"\ufffd":1}')
    assert msgspec.json.encode(message)


@each_row("field", ["signature", "redactedContent"])
def test_half_of_a_character_in_a_signature_is_replaced(field: str) -> None:
    given = b'{"contentBlockIndex":0,"delta":{"reasoningContent":{"%b":"c2ln%b"}}}' % (field.encode(), HALF)
    message = message_of(begun() + framed("contentBlockDelta", given) + stop(0) + said(1, "Hi") + ended())
    assert isinstance(message.content[0], ThinkingContent)
    assert message.content[0].signature == "c2ln\ufffd"
    assert msgspec.json.encode(message)


def test_a_block_behind_the_end_is_ended_too() -> None:
    first, last = framed("messageStop", {"stopReason": "end_turn"}), framed("metadata", {"usage": {}})
    assert message_of(begun() + said(0, "Hi ") + first + delta(1, text="there.") + last).text == "Hi there."


@each_row("reason", [[], {}, ["end_turn"]])
def test_a_stop_reason_that_is_no_text_is_an_unknown_one(reason: Any) -> None:
    message = message_of(begun() + said(0, "Hi") + ended(reason))
    assert (message.stop_reason, message.error_kind) == ("error", "protocol")
