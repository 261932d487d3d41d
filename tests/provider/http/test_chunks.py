"""The chunks of a body: RFC 9112, section 7.1, at every cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.provider.http.chunks import ChunkDecoder

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
LONG = b"x" * 70_000


def chunked(*contents: bytes, size: str = "x", end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join([b"%s\r\n%s\r\n" % (format(len(one), size).encode(), one) for one in contents]) + end


async def put_together(parts: Sequence[bytes]) -> tuple[bytes, bool, bool, str | None]:
    chunks = ChunkDecoder()
    body = b"".join([chunks.feed(part) for part in parts])
    return body, chunks.is_complete, chunks.has_surplus, chunks.error


WHOLE = {
    "the usual": (chunked(*[EVENT] * 5), EVENT * 5),
    "nothing": (chunked(), b""),
    "capital digits": (chunked(EVENT, b"0123456789", size="X"), EVENT + b"0123456789"),
    "zeros before the size": (chunked(EVENT, size="08x"), EVENT),
    "many zeros before the size": (chunked(EVENT, size="040x"), EVENT),
    "line ends in the contents": (chunked(b"data: a\r\n\r\n", b"\r\n", b"\r"), b"data: a\r\n\r\n\r\n\r"),
    "a content that looks like chunks": (chunked(b"5\r\nhello\r\n", b"0\r\n\r\n"), b"5\r\nhello\r\n0\r\n\r\n"),
    "extensions": (b'3;a=b\r\nabc\r\n2;c="d"\r\nde\r\n0;e\r\n\r\n', b"abcde"),
    "a trailer": (chunked(EVENT, end=b"0\r\nExpires: never\r\nX: y\r\n\r\n"), EVENT),
    "many zeros at the end": (chunked(EVENT, end=b"0000\r\n\r\n"), EVENT),
    "a chunk above the usual sizes": (chunked(EVENT, b"y" * 2000, EVENT), EVENT + b"y" * 2000 + EVENT),
}


@each_row("name", WHOLE)
async def test_a_body_is_the_same_however_it_is_cut(name: str) -> None:
    data, body = WHOLE[name]
    expected = (body, True, False, None)
    assert await put_together([data]) == expected
    assert await put_together([data[at : at + 1] for at in range(len(data))]) == expected
    for at in range(len(data) + 1):
        assert await put_together([data[:at], data[at:]]) == expected, at


@each_row("name", WHOLE)
async def test_a_body_that_is_cut_short_is_not_over(name: str) -> None:
    """Wherever it ends before its end, it has not ended."""
    data, body = WHOLE[name]
    for at in range(len(data)):
        begun, over, surplus, broken = await put_together([data[:at]])
        assert (over, surplus, broken) == (False, False, None)
        assert body.startswith(begun)


@each_row("name", WHOLE)
async def test_what_follows_a_body_is_noticed_and_not_read(name: str) -> None:
    data, body = WHOLE[name]
    assert await put_together([data + b"H"]) == (body, True, True, None)
    assert await put_together([data, b"3\r\nabc\r\n"]) == (body, True, True, None)
    assert await put_together([data + data]) == (body, True, True, None)


@each_row(
    ("data", "why"),
    [
        (b"5\r\nabcdefg\r\n", "Expected LF after chunk data"),
        (b"5\r\nabcde\rX", "Expected LF after chunk data"),
        (b"0x5\r\nabcde\r\n", "Invalid character in chunk size"),
        (b"-1\r\na\r\n", "Invalid character in chunk size"),
        (b"+1\r\na\r\n", "Invalid character in chunk size"),
        (b"1_0\r\n0123456789abcdef\r\n", "Invalid character in chunk size"),
        (b" 1\r\na\r\n", "Invalid character in chunk size"),
        (b"\r\n\r\n", "Invalid character in chunk size"),
        (b";a\r\n", "Invalid character in chunk size"),
        (b"1;a\0\r\na\r\n", "Invalid character in chunk extensions name"),
        (b"the key is sk-0123456789\r\n", "Invalid character in chunk size"),
        (b"\xd9\xa1\r\na\r\n", "Invalid character in chunk size"),
        (b"f" * 17 + b"\r\n", "Chunk size overflow"),
        (b"0\r\nno colon\r\n\r\n", "Invalid header token"),
    ],
)
async def test_a_broken_body_says_what_is_wrong_and_keeps_what_came_before(data: bytes, why: str) -> None:
    """Without the bytes of the server: they may hold a part of the key, which would not be redacted."""
    before = chunked(EVENT, EVENT, end=b"")
    ways = [[before + data], [before, data], [(before + data)[at : at + 1] for at in range(len(before + data))]]
    for parts in ways:
        body, over, _, broken = await put_together(parts)
        assert body.startswith(EVENT * 2)
        assert (over, broken) == (False, f"the chunks are malformed ({why})")


async def test_a_broken_body_stays_broken() -> None:
    chunks = ChunkDecoder()
    assert chunks.feed(b"zz\r\n") == b""
    assert (chunks.feed(chunked(EVENT)), chunks.is_complete) == (b"", False)


async def test_a_long_content_is_passed_on_as_it_comes() -> None:
    chunks = ChunkDecoder()
    data = chunked(LONG)
    assert chunks.feed(data[:1000]) == b"x" * (1000 - len(b"11170\r\n"))
    assert chunks.feed(data[1000:2000]) == b"x" * 1000


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=12), st.lists(st.integers(0, 700), max_size=8))
async def test_any_body_at_any_cuts(contents: list[bytes], cuts: list[int]) -> None:
    data = chunked(*contents)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[start:end] for start, end in pairwise(places)]
    assert await put_together(parts) == (b"".join(contents), True, False, None)
