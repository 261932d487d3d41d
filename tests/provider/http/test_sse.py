"""The standard, case by case, and whatever the chunks: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.rows import each_row

from steersman.provider.http.sse import MAX_EVENT_LINES, MAX_PIECE, Event, SseDecoder
from steersman.types.errors import ProtocolError

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").rglob("*.sse"))
BOM = b"\xef\xbb\xbf"

# What each of these means, in full. Each is tried with three kinds of line ends, and cut in every way a case allows.
CASES: dict[str, tuple[bytes, list[Event]]] = {
    "one event": (b"data: hi\n\n", [("", "hi")]),
    "two events": (b"data: a\n\ndata: b\n\n", [("", "a"), ("", "b")]),
    "no space after the colon": (b"data:hi\n\n", [("", "hi")]),
    "one space is taken, not two": (b"data:  hi\n\n", [("", " hi")]),
    "a tab is not a space": (b"data:\thi\n\n", [("", "\thi")]),
    "space at the end stays": (b"data: hi \n\n", [("", "hi ")]),
    "a named event": (b"event: ping\ndata: {}\n\n", [("ping", "{}")]),
    "a name without a space": (b"event:ping\ndata:{}\n\n", [("ping", "{}")]),
    "the name after the data": (b"data: {}\nevent: ping\n\n", [("ping", "{}")]),
    "the last name counts": (b"event: a\nevent: b\ndata: x\n\n", [("b", "x")]),
    "an empty name": (b"event:\ndata: x\n\n", [("", "x")]),
    "a name that is emptied again": (b"event: a\nevent\ndata: x\n\n", [("", "x")]),
    "a name with spaces": (b"event: a b \ndata: x\n\n", [("a b ", "x")]),
    "a name inside a line is no name": (b"an event: a\ndata: x\n\nevent: b\ndata: y\n\n", [("", "x"), ("b", "y")]),
    "a name does not last": (b"event: a\ndata: x\n\ndata: y\n\n", [("a", "x"), ("", "y")]),
    "a name without data is no event": (b"event: a\n\n", []),
    "a name without data does not last": (b"event: a\n\ndata: x\n\n", [("", "x")]),
    "two lines of data": (b"data: a\ndata: b\n\n", [("", "a\nb")]),
    "three lines of data": (b"data: a\ndata: b\ndata: c\n\n", [("", "a\nb\nc")]),
    "an empty line of data between": (b"data: a\ndata:\ndata: b\n\n", [("", "a\n\nb")]),
    "two empty lines of data": (b"data\ndata\n\n", [("", "\n")]),
    "an empty line of data": (b"data:\n\n", [("", "")]),
    "data without a colon": (b"data\n\n", [("", "")]),
    "data of one space": (b"data: \n\n", [("", "")]),
    "data of two spaces": (b"data:  \n\n", [("", " ")]),
    "a named event of two lines": (b"event: a\ndata: 1\ndata: 2\n\n", [("a", "1\n2")]),
    "lines around the name": (b"data: 1\nevent: a\ndata: 2\n\n", [("a", "1\n2")]),
    "a comment": (b": hello\n\n", []),
    "an empty comment": (b":\n\n", []),
    "a comment before": (b": hello\ndata: x\n\n", [("", "x")]),
    "a comment after": (b"data: x\n: hello\n\n", [("", "x")]),
    "a comment between lines": (b"data: x\n: hello\ndata: y\n\n", [("", "x\ny")]),
    "a comment between name and data": (b"event: a\n:\ndata: x\n\n", [("a", "x")]),
    "a comment that looks like data": (b":data: x\n\n", []),
    "a keep-alive between events": (b"data: a\n\n: OPENROUTER PROCESSING\n\ndata: b\n\n", [("", "a"), ("", "b")]),
    "a keep-alive in front": (b": OPENROUTER PROCESSING\n\ndata: b\n\n", [("", "b")]),
    "a keep-alive wrapped as data": (b"data: : OPENROUTER PROCESSING\n\n", [("", ": OPENROUTER PROCESSING")]),
    "comments without a blank line": (b": a\n: b\n: c\ndata: x\n\n", [("", "x")]),
    "an unknown field": (b"colour: red\ndata: x\n\n", [("", "x")]),
    "an unknown field alone": (b"colour: red\n\n", []),
    "a field for an error, which the standard does not know": (b"error: it failed\n\n", [("error", "it failed")]),
    "an error after data": (b'data: {}\nerror: {"message": "x"}\n\n', [("error", '{"message": "x"}')]),
    "an error of nothing": (b"error:\n\nerror\ndata: x\n\n", [("", "x")]),
    "a field in capitals": (b"DATA: x\n\n", []),
    "a field in capitals beside a real one": (b"Data: x\ndata: y\n\n", [("", "y")]),
    "a space before the field": (b" data: x\n\n", []),
    "a space before the colon": (b"data : x\n\n", []),
    "a field that begins like data": (b"database: x\n\n", []),
    "a line of text": (b"hello\n\n", []),
    "a line of JSON": (b'{"error": "x"}\n\n', []),
    "colons in the data": (b"data: a: b: c\n\n", [("", "a: b: c")]),
    "a colon first in the data": (b"data: :x\n\n", [("", ":x")]),
    "a colon right behind": (b"data::x\n\n", [("", ":x")]),
    "data that says data": (b"data: data: x\n\n", [("", "data: x")]),
    "an id": (b"id: 7\ndata: x\n\n", [("", "x")]),
    "an id alone": (b"id: 7\n\n", []),
    "an empty id": (b"id\ndata: x\n\n", [("", "x")]),
    "an id with a NUL": (b"id: a\0b\ndata: x\n\n", [("", "x")]),
    "a retry": (b"retry: 500\ndata: x\n\n", [("", "x")]),
    "a retry alone": (b"retry: 500\n\n", []),
    "a retry that is no number": (b"retry: soon\ndata: x\n\n", [("", "x")]),
    "a NUL in the data": (b"data: a\0b\n\n", [("", "a\0b")]),
    "blank lines in front": (b"\n\n\ndata: x\n\n", [("", "x")]),
    "one blank line in front": (b"\ndata: x\n\n", [("", "x")]),
    "three line ends after": (b"data: x\n\n\ndata: y\n\n", [("", "x"), ("", "y")]),
    "four line ends after": (b"data: x\n\n\n\ndata: y\n\n", [("", "x"), ("", "y")]),
    "five line ends after": (b"data: x\n\n\n\n\ndata: y\n\n", [("", "x"), ("", "y")]),
    "blank lines only": (b"\n\n\n\n", []),
    "nothing": (b"", []),
    "a byte order mark": (BOM + b"data: x\n\n", [("", "x")]),
    "a byte order mark before a name": (BOM + b"event: a\ndata: x\n\n", [("a", "x")]),
    "a byte order mark before a comment": (BOM + b": a\ndata: x\n\n", [("", "x")]),
    "a byte order mark before a blank line": (BOM + b"\ndata: x\n\n", [("", "x")]),
    "a byte order mark alone": (BOM, []),
    "half a byte order mark": (BOM[:2] + b"data: x\n\n", []),
    "two byte order marks": (BOM + BOM + b"data: x\n\ndata: y\n\n", [("", "y")]),
    "a byte order mark later": (b"data: x\n\n" + BOM + b"data: y\n\n", [("", "x")]),
    "a byte order mark in the data": (b"data: " + BOM + b"x\n\n", [("", "\ufeffx")]),
    "two bytes a letter": ("data: é\n\n".encode(), [("", "é")]),
    "three bytes a letter": ("data: 日本語\n\n".encode(), [("", "日本語")]),
    "four bytes a letter": ("data: 🦉🎈\n\n".encode(), [("", "🦉🎈")]),
    "a name in another script": ("event: имя\ndata: x\n\n".encode(), [("имя", "x")]),
    "U+2028 ends no line": ("data: a\u2028b\n\n".encode(), [("", "a\u2028b")]),
    "U+2029 ends no line": ("data: a\u2029b\n\n".encode(), [("", "a\u2029b")]),
    "U+0085 ends no line": ("data: a\u0085b\n\n".encode(), [("", "a\u0085b")]),
    "a vertical tab ends no line": (b"data: a\x0bb\n\n", [("", "a\x0bb")]),
    "a form feed ends no line": (b"data: a\x0cb\n\n", [("", "a\x0cb")]),
    "a file separator ends no line": (b"data: a\x1cb\n\n", [("", "a\x1cb")]),
    "a group separator ends no line": (b"data: a\x1db\n\n", [("", "a\x1db")]),
    "a record separator ends no line": (b"data: a\x1eb\n\n", [("", "a\x1eb")]),
    "U+2028 in a line of several": ("event: a\ndata: b\u2028\ndata: c\n\n".encode(), [("a", "b\u2028\nc")]),
    "a byte that is no UTF-8": (b"data: a\xffb\n\n", [("", "a\ufffdb")]),
    "a letter cut short": (b"data: a\xe6\x97\n\n", [("", "a\ufffd")]),
    "a letter cut short before a letter": (b"data: \xe6\x97b\n\n", [("", "\ufffdb")]),
    "a letter too long": (b"data: \xc0\xaf\n\n", [("", "\ufffd\ufffd")]),
    "half a pair of surrogates": (b"data: \xed\xa0\xbd\n\n", [("", "\ufffd\ufffd\ufffd")]),
    "a byte that goes on from nothing": (b"data: \x80\n\n", [("", "\ufffd")]),
    "no UTF-8 in a name": (b"event: \xff\ndata: x\n\n", [("\ufffd", "x")]),
    "no UTF-8 in a comment": (b": \xff\ndata: x\n\n", [("", "x")]),
    "no UTF-8 in a field": (b"\xff: y\ndata: x\n\n", [("", "x")]),
    "the end inside an event": (b"data: a\n\ndata: b\n", [("", "a")]),
    "the end inside a line": (b"data: a\n\ndata: b", [("", "a")]),
    "the end behind a name": (b"data: a\n\nevent: b\n", [("", "a")]),
    "the end of a stream": (b"data: [DONE]\n\n", [("", "[DONE]")]),
    "spaces behind JSON": (b'event: message_stop\ndata: {"type":"message_stop"     }\n\n',
        [("message_stop", '{"type":"message_stop"     }')]),
    "a named event without a space in the data": (b"event: a\ndata:x\n\n", [("a", "x")]),
    "all fields at once": (b"id: 1\nevent: a\nretry: 9\n:c\ndata: x\nfoo: bar\ndata: y\n\n", [("a", "x\ny")]),
    "the standard's first example": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [("", "YHOO\n+2\n10")]),
    "the standard's second example": (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        [("", "first event"), ("", "second event"), ("", " third event")]),
    "the standard's third example": (b"data\n\ndata\ndata\n\ndata:", [("", ""), ("", "\n")]),
    "the standard's fourth example": (b"data:test\n\ndata: test\n\n", [("", "test"), ("", "test")]),
}  # fmt: skip
ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def decoded(*chunks: bytes) -> list[Event]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def in_pieces(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


@each_row("end", ENDS)
@each_row("case", CASES)
def test_a_stream_means_what_the_standard_says(case: str, end: str) -> None:
    """failures.md B2, B3, B6, B22: whole, in bytes, in threes, at every cut, and the reference reader agrees."""
    body, events = CASES[case]
    body = body.replace(b"\n", ENDS[end])

    assert decoded(body) == events
    assert decoded(*in_pieces(body, 1)) == events
    assert decoded(*in_pieces(body, 3)) == events
    for at in range(len(body) + 1):
        assert decoded(body[:at], b"", body[at:]) == events
    assert reference(body) == events


MIXED = {
    "LF CRLF": b"data: a\n\r\ndata: b\r\n\ndata: c\n\n",
    "CR LF, the CR first": b"data: a\r\r\ndata: b\r\n\r\ndata: c\n\n",
    "CR then LF": b"data: a\r\n\rdata: b\r\rdata: c\n\n",
    "a line of each": b"event: x\rdata: a\n\r\ndata: b\n\r\ndata: c\r\r",
}


@pytest.mark.parametrize("case", MIXED)
def test_line_ends_may_be_mixed(case: str) -> None:
    """failures.md B2."""
    body = MIXED[case]
    events = decoded(body)

    assert [data for _, data in events] == ["a", "b", "c"]
    assert decoded(*in_pieces(body, 1)) == events
    assert reference(body) == events
    for at in range(len(body) + 1):
        assert decoded(body[:at], body[at:]) == events


@pytest.mark.parametrize("body", [b"data: x\n\n", b"data: x\r\r", b"data: x\r\n\r", b"data: x\n\r", b"data: x\r\n\n"])
def test_an_event_is_given_with_the_last_byte_of_its_blank_line(body: bytes) -> None:
    """failures.md B2: it does not wait for what comes after; of CRLF the CR is enough."""
    decoder = SseDecoder()

    given = [decoder.feed(body[at : at + 1]) for at in range(len(body))]

    assert given == [[]] * (len(body) - 1) + [[("", "x")]]
    assert decoder.feed(b"\ndata: y\n\n") == [("", "y")]


def test_letters_cut_between_chunks_stay_whole() -> None:
    """failures.md B1."""
    text = "data: 日本語 🦉 é\n\n".encode() * 3
    expected = [("", "日本語 🦉 é")] * 3

    for at in range(len(text)):
        assert decoded(text[:at], text[at:]) == expected
    for a in range(0, len(text), 5):
        for b in range(a, len(text), 3):
            assert decoded(text[:a], text[a:b], text[b:]) == expected


@each_row(
    ("body", "left"),
    [
        (b"data: a\n\ndata: b\n", [("", "b")]),
        (b"data: a\n\ndata: b", [("", "b")]),
        (b"data: b\r", [("", "b")]),
        (b"event: x\ndata: b\r\n", [("x", "b")]),
        (b"event: x\n", []),
        (b"data: a\n\n", []),
        (b": comment", []),
        (b"", []),
        (BOM[:1], []),
    ],
)
def test_an_event_without_its_blank_line_can_be_had_at_the_end(body: bytes, left: list[Event]) -> None:
    """failures.md B9: the standard drops it; a caller that knows that the stream ended cleanly need not."""
    decoder = SseDecoder()
    for byte in in_pieces(body, 1):
        decoder.feed(byte)

    assert decoder.finish() == left
    assert decoder.finish() == []


def test_the_id_and_the_retry_are_kept() -> None:
    decoder = SseDecoder()
    decoder.feed(b"id: 7\nretry: 500\n\nid: a\0b\nretry: 5s\nretry: \xd9\xa3\nretry: -1\n\n")
    assert (decoder.last_event_id, decoder.retry) == ("7", 500)

    decoder.feed(b"id\nretry: 99999999999999999999\ndata: x\n\n")
    assert (decoder.last_event_id, decoder.retry) == ("", 500)


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_an_event_longer_than_allowed_is_an_error_however_it_comes(size: int) -> None:
    fits = b"data: " + b"x" * 94 + b"\n\n"
    over = b"data: " + b"x" * 95 + b"\n\n"

    decoder = SseDecoder(max_event_bytes=100)
    assert [event for piece in in_pieces(fits * 3, size) for event in decoder.feed(piece)] == [("", "x" * 94)] * 3

    with pytest.raises(ProtocolError, match="an event of more than 100 bytes"):
        list(map(decoder.feed, in_pieces(fits + over, size)))


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_comments_are_no_part_of_an_event_and_may_go_on_for_ever(size: int) -> None:
    body = b"data: a\n" + b": still here\n" * 100 + b"data: b\n\n"
    decoder = SseDecoder(max_event_bytes=100)

    events = [event for piece in in_pieces(body, size) for event in decoder.feed(piece)]

    assert events == [("", "a\nb")]


@each_row("line", [b"id: 1", b"data:", b"data: x", b"retry: 5", b"event: a", b"z"])
@each_row("size", [64, MAX_PIECE, 10**9])
def test_an_event_of_more_lines_than_allowed_is_an_error_however_it_comes(line: bytes, size: int) -> None:
    """Each line takes time, so there is a limit to them, which 37 MB of lines without a blank one between exceed."""
    fits = (line + b"\n") * MAX_EVENT_LINES + b"\n"
    decoder = SseDecoder()
    for piece in in_pieces(fits * 2, size):
        decoder.feed(piece)

    with pytest.raises(ProtocolError, match="an event of more than 100,000 lines"):
        list(map(decoder.feed, in_pieces((line + b"\n") * (MAX_EVENT_LINES + 1) + b"\n", size)))


@pytest.mark.parametrize("size", [64, MAX_PIECE, 10**9])
def test_the_lines_of_comments_do_not_count(size: int) -> None:
    body = b"data: a\n" + b":\n" * (3 * MAX_EVENT_LINES) + b"data: b\n\n"
    decoder = SseDecoder()
    assert [event for piece in in_pieces(body, size) for event in decoder.feed(piece)] == [("", "a\nb")]


def test_comments_behind_a_long_event_do_not_copy_it_again_and_again() -> None:
    """The event is near its limit, so that each comment is dropped at once."""
    decoder = SseDecoder(max_event_bytes=10_000)
    decoder.feed(b"data: " + b"x" * 9_900 + b"\n")
    copies: set[int] = set()
    for _ in range(100):
        decoder.feed(b": " + b"c" * 200)
        decoder.feed(b"c\n")
        copies.add(id(decoder._pending[0]))  # pyright: ignore[reportPrivateUsage]
    assert len(copies) == 1
    assert [len(data) for _, data in decoder.feed(b":\n\n")] == [9_900]


@each_row("path", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_stream_reads_the_same_however_it_is_cut(path: Path) -> None:
    """failures.md B1: all two-way cuts, one byte at a time, and with other line ends."""
    body = path.read_bytes()
    events = reference(body)
    assert events
    assert decoded(body) == events

    for at in range(len(body) + 1):
        assert decoded(body[:at], body[at:]) == events
    for size in (1, 2, 3, 7, 64, 1460):
        assert decoded(*in_pieces(body, size)) == events
    for end in (b"\r\n", b"\r"):
        other = body.replace(b"\n", end)
        assert decoded(other) == decoded(*in_pieces(other, 1)) == events


def reference(body: bytes) -> list[Event]:
    """The standard, letter by letter, with no thought of speed, and one field more: `error`."""
    text = body.removeprefix(BOM).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    events: list[Event] = []
    name, data, error = "", "", ""
    for line in text.split("\n")[:-1]:
        if not line:
            if data or error:
                events.append(("error", error) if error else (name, data[:-1]))
            name, data, error = "", "", ""
            continue
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            name = value
        elif field == "data":
            data += value + "\n"
        elif field == "error":
            error = error or value
    return events


LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"event: x", b"event:y", b": c", b":", b"id: 1", b"retry: 2", b"", b"", b"", b"z",
     b"error: e", b"data: \xff", "data: 日🦉".encode(), b"data: \xe2\x80\xa8", BOM, b"data: " + b"x" * 50]
)  # fmt: skip
BODIES = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=30).map(
    lambda lines: b"".join(line + end for line, end in lines)
)
CUTS = st.lists(st.integers(0, 400), max_size=12)


def cut_at(body: bytes, cuts: list[int]) -> list[bytes]:
    return [body[a:b] for a, b in pairwise([0, *sorted(min(cut, len(body)) for cut in cuts), len(body)])]


@given(BODIES, CUTS)
def test_any_lines_in_any_chunks_mean_what_the_standard_says(body: bytes, cuts: list[int]) -> None:
    assert decoded(*cut_at(body, cuts)) == decoded(*in_pieces(body, 1)) == reference(body)


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_in_any_chunks_mean_what_the_standard_says(body: bytes, cuts: list[int]) -> None:
    assert decoded(*cut_at(body, cuts)) == reference(body)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=60)), max_size=10), CUTS)
def test_what_was_written_is_read(given_events: list[Event], cuts: list[int]) -> None:
    events = [(_line(name), data.replace("\r", "").encode("utf-8", "replace").decode()) for name, data in given_events]
    body = b"".join(
        f"event: {name}\n".encode() + b"".join(f"data: {line}\n".encode() for line in data.split("\n")) + b"\n"
        for name, data in events
    )
    assert decoded(*cut_at(body, cuts)) == events


def _line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "").encode("utf-8", "replace").decode()


def test_a_long_event_takes_time_in_proportion_to_its_length() -> None:
    """Eight megabytes in small chunks: four times the length of two, not sixteen times the time."""

    def seconds(size: int) -> float:
        chunks = in_pieces(b"data: " + b"x" * size + b"\n\n", 1460)
        best = 9.0
        for _ in range(3):
            decoder = SseDecoder()
            began = time.process_time()
            events = [event for chunk in chunks for event in decoder.feed(chunk)]
            best = min(best, time.process_time() - began)
            assert [len(data) for _, data in events] == [size]
        return best

    seconds(100_000)
    assert seconds(8_000_000) < 10 * seconds(2_000_000) + 0.05


def test_many_small_events_are_read_fast() -> None:
    """The best SDK reads 300,000 a second; the bound leaves room for a busy machine."""
    event = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"hello"}}\n\n'
    chunks = in_pieces(event * 20_000, 16_384)
    best = 9.0
    for _ in range(3):
        decoder = SseDecoder()
        began = time.process_time()
        count = sum(len(decoder.feed(chunk)) for chunk in chunks)
        best = min(best, time.process_time() - began)
        assert count == 20_000
    assert 20_000 / best > 300_000
