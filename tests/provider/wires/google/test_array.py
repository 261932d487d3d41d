"""The array that Gemini answers with where server-sent events were not asked for."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from tests.provider.wires.google.streams import Json, chunk, streams, text

from steersman.provider.wires.google.wire import ArrayDecoder
from steersman.types.errors import ProtocolError

ODD = [chunk(text('a "{" \\" } \\\\'), text("\\")), chunk(text("}{][,日本🙂"), finish="STOP"), {}]


def read(*parts: bytes) -> list[Json]:
    decoder = ArrayDecoder()
    events = [event for part in parts for event in decoder.feed(part)] + decoder.finish()
    return [msgspec.json.decode(data) for _, data in events]


def test_every_split_gives_the_same_elements() -> None:
    """failures.md B1."""
    written = msgspec.json.format(msgspec.json.encode(ODD))
    for at in range(len(written) + 1):
        assert read(written[:at], written[at:]) == ODD
    assert read(*(written[at : at + 1] for at in range(len(written)))) == ODD


@given(streams())
def test_generated_arrays_are_read(chunks: list[Json]) -> None:
    written = msgspec.json.encode(chunks)
    assert read(written) == chunks
    assert read(*(written[at : at + 1] for at in range(len(written)))) == chunks


def test_a_cut_array_gives_only_what_is_whole() -> None:
    written = msgspec.json.encode(ODD)
    for at in range(len(written)):
        assert read(written[:at]) == ODD[: len(read(written[:at]))]
    assert read(written[:-3]) == ODD[:2]


def test_an_element_may_be_long_but_not_endless() -> None:
    long = [chunk(text("x" * 3_000_000))]
    written = msgspec.json.encode(long)
    assert read(*(written[at : at + 1460] for at in range(0, len(written), 1460))) == long
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        ArrayDecoder(max_event_bytes=100).feed(written[:200])
