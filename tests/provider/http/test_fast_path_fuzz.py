"""A differential fuzz of the fast path: the same chunked bytes to our decoder and to aiohttp's own parsers.

A well-formed body, whole or truncated, has the same outcome in both. With a malformed one, each may be stricter than
the other (aiohttp takes bare line feeds, ours takes any trailer), but no complete body is ever taken for another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser, HttpResponseParserPy
from hypothesis import example, given
from hypothesis import strategies as st

from steersman.provider.http.fast_path import ChunkDecoder

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Outcome(NamedTuple):
    """What a parser makes of the bytes behind a head."""

    body: bytes
    complete: bool
    refused: bool


def decode(parts: Sequence[bytes]) -> Outcome:
    decoder = ChunkDecoder()
    body = b"".join([decoder.feed(part) for part in parts])
    return Outcome(body, decoder.is_complete, decoder.error is not None)


async def parse(parser_class: type[HttpResponseParser], parts: Sequence[bytes]) -> Outcome:
    loop = asyncio.get_running_loop()
    parser = parser_class(
        BaseProtocol(loop), loop, 2**16, max_line_size=8190, max_field_size=8190, response_with_body=True,
        read_until_eof=True,
    )  # fmt: skip
    messages, _, _ = parser.feed_data(HEAD)
    content = messages[0][1]
    refused = False
    for part in parts:
        if content.is_eof() or refused:
            break
        try:
            parser.feed_data(part)
        except HttpProcessingError:
            refused = True
    refused = refused or content.exception() is not None
    body = b"".join(content._buffer)  # pyright: ignore[reportPrivateUsage]  # reading it would raise its exception
    return Outcome(body, content.is_eof() and not refused, refused)


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places) if start < end]


def contents() -> st.SearchStrategy[bytes]:
    """Contents as events have them, and such as look like the framing around them."""
    return st.one_of(
        st.binary(min_size=1, max_size=30),
        st.sampled_from(
            [b"\r\n", b"\r", b"\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b'data: {"t":"hel"}\n\n', b"x" * 1100]
        ),
    )


SIZES = st.sampled_from([b"%x", b"%X", b"0%x", b"0000%x"])
EXTENSIONS = st.sampled_from([b"", b"", b"", b";a", b";a=b", b';a="b"', b";a=b;c=d", b" ;a", b"\t", b" "])
TRAILERS = st.sampled_from([b"", b"", b"X: y\r\n", b"Expires: never\r\nX: y\r\n", b"1\r\nx\r\n"])


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body in any legal form, and its bytes on the wire."""
    parts = draw(st.lists(contents(), max_size=8))
    extensions = st.sampled_from([b"", b";a=b", b";a"])
    wire = b"".join([draw(SIZES) % len(part) + draw(extensions) + b"\r\n" + part + b"\r\n" for part in parts])
    return b"".join(parts), wire + b"0\r\n" + draw(st.sampled_from([b"", b"X: y\r\n"])) + b"\r\n"


@st.composite
def any_form(draw: st.DrawFn) -> bytes:
    """A body that may be malformed: sizes that are none or wrong, other line ends, odd extensions, a cut, a surplus."""
    ends = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"", b" \r\n"])
    wire = b""
    for part in draw(st.lists(contents(), max_size=5)):
        length = len(part) + draw(st.sampled_from([0] * 12 + [-1, 1, 5]))
        size = draw(SIZES) % max(length, 0)
        if draw(st.integers(0, 12)) == 0:
            size = draw(st.sampled_from([b"", b"0x5", b"-1", b"+1", b"g", b" 5", b"5_0", b"f" * 17, b"1\0", b";a"]))
        wire += size + draw(EXTENSIONS) + draw(ends) + part + draw(ends)
    wire += draw(st.sampled_from([b"0", b"00", b"0;a", b"000000000000"])) + b"\r\n" + draw(TRAILERS) + draw(ends)
    wire += draw(st.sampled_from([b"", b"", b"", NEXT, b"x"]))
    return wire[: draw(st.integers(0, len(wire)))] if draw(st.booleans()) else wire


CUTS = st.lists(st.integers(0, 400), max_size=10)
PARSERS = pytest.mark.parametrize("parser", [HttpResponseParser, HttpResponseParserPy], ids=["c", "python"])


@PARSERS
@given(sent=well_formed(), cuts=CUTS)
def test_a_well_formed_body_is_the_same_to_both(
    parser: type[HttpResponseParser], sent: tuple[bytes, bytes], cuts: list[int]
) -> None:
    body, wire = sent
    parts = split(wire, cuts)
    assert decode(parts) == Outcome(body, True, False)
    assert asyncio.run(parse(parser, parts)) == Outcome(body, True, False)


@PARSERS
@given(sent=well_formed(), cuts=CUTS, length=st.integers(0, 400))
def test_a_truncated_body_is_as_far_to_both(
    parser: type[HttpResponseParser], sent: tuple[bytes, bytes], cuts: list[int], length: int
) -> None:
    body, wire = sent
    parts = split(wire[: min(length, len(wire) - 1)], cuts)
    ours, theirs = decode(parts), asyncio.run(parse(parser, parts))
    assert ours == theirs
    assert (ours.complete, ours.refused) == (False, False)
    assert body.startswith(ours.body)


@PARSERS
@given(wire=any_form(), cuts=CUTS)
@example(wire=b"5\r\nhello\r\n0\r\n\r\n", cuts=[])
@example(wire=b"5\nhello\n0\n\n", cuts=[])
@example(wire=b"5;a\rb\r\nhello\r\n0\r\n\r\n", cuts=[])
@example(wire=b"5\r\nhelloworld\r\n0\r\n\r\n", cuts=[])
def test_no_body_is_taken_for_another_one(parser: type[HttpResponseParser], wire: bytes, cuts: list[int]) -> None:
    """Whatever is sent: where ours reads a complete body, aiohttp reads the same one, or refuses it."""
    parts = split(wire, cuts)
    ours, theirs = decode(parts), asyncio.run(parse(parser, parts))
    if ours.complete and not theirs.refused:
        assert theirs == ours
    if not ours.refused and not theirs.refused:
        assert ours.body.startswith(theirs.body) or theirs.body.startswith(ours.body)


@given(wire=any_form(), cuts=CUTS)
def test_the_cuts_of_the_network_change_nothing(wire: bytes, cuts: list[int]) -> None:
    whole, cut = decode([wire]), decode(split(wire, cuts))
    assert (cut.complete, cut.refused) == (whole.complete, whole.refused)
    assert cut.body == whole.body
