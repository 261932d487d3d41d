"""Words found in what stands around them are the words that parsing would give, and nothing else is taken for words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provider.wires.openai_chat.chat import DONE, calls, chunk, piece, read, said
from tests.rows import each_row

from steersman.provider.wires.openai_chat.chunks import find_argument_frame, find_frame
from steersman.testing.servers.exchange import sse
from steersman.types.errors import ProtocolError, ProviderError
from steersman.types.stream import TextDelta, ToolCallDelta

STOP = chunk(None, "stop")
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def written(content: str, *, tight: bool = True, delta: dict[str, Any] | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": {"content": content, **(delta or {})}, "finish_reason": None}
    separators = (",", ":") if tight else None
    return json.dumps({"id": "1", "choices": [choice], **more}, separators=separators, ensure_ascii=False)


def deltas(*data: str) -> list[str]:
    events, _ = read(b"".join(sse(one) for one in data) + STOP + DONE)
    return [event.delta for event in events if isinstance(event, TextDelta)]


@given(st.lists(WORDS, min_size=2, max_size=6), st.booleans())
def test_the_words_are_those_that_parsing_gives(parts: list[str], tight: bool) -> None:
    assert deltas(*[written(part, tight=tight) for part in parts]) == parts


@given(st.lists(st.tuples(WORDS, st.sampled_from([{}, {"usage": None}, {"padding": "x"}])), min_size=2, max_size=6))
def test_chunks_that_differ_in_more_than_their_words_are_parsed(parts: list[tuple[str, dict[str, Any]]]) -> None:
    assert deltas(*[written(words, **more) for words, more in parts]) == [words for words, _ in parts]


@pytest.mark.parametrize(
    "content", ['a","refusal":"b', 'a"},"finish_reason":"length","x":{"y":"', "line\nbreak", "\\u0041", '"', "\\", ""]
)
def test_words_that_are_written_otherwise_are_parsed(content: str) -> None:
    assert deltas(written("one "), written("two "), written(content), written("three")) == [
        *("one ", "two "),
        *([content] if content else []),
        "three",
    ]


def test_what_is_no_json_is_none_inside_a_frame_either() -> None:
    broken = written("two ").replace("two ", "two\t")
    with pytest.raises(ProtocolError):
        deltas(written("one "), written("two "), written("two "), broken)


def test_what_looks_like_more_words_may_be_a_field_beside_them() -> None:
    inner = '{"choices":[{"delta":{"role":"%s","content": "%s"},"index":0}]}'
    assert deltas(*[inner % ("x", "x"), inner % ("x", "x"), inner % ("y", "x"), inner % ("z", "y")]) == [
        "x",
        "x",
        "x",
        "y",
    ]


def test_an_event_that_says_error_is_one() -> None:
    with pytest.raises(ProviderError):
        read(said("a", "b", "c") + b"event: error\n" + said("d") + STOP + DONE)


def test_the_end_of_the_words_is_seen() -> None:
    ended = written("two ").replace('"finish_reason":null', '"finish_reason":"stop"')
    events, message = read(b"".join(map(sse, (written("one "), written("one "), ended))) + DONE)
    assert (message.text, message.stop_reason) == ("one one two ", "stop")
    assert events[-1].type == "text_end"


@each_row("words", [",", ":", "{", "}", "[", "id", "1", "choices", "content"])
def test_words_that_stand_in_every_chunk_are_words_all_the_same(words: str) -> None:
    """The second delta is the one in which the words are looked for; of many answers it is a comma."""
    for tight in (True, False):
        data = [written(word, tight=tight) for word in ("Yes", words, words, " sir")]
        assert deltas(*data) == ["Yes", words, words, " sir"]
        frame = find_frame(data[1], words)
        assert frame is not None
        assert frame.read_words([("", one) for one in data], 0) == ["Yes", words, words, " sir"]


@pytest.mark.parametrize(
    "data",
    [
        '{"choices":[{"delta":{"role":"a","content": "a"}}]}',
        '{"choices":[{"delta":{"content":"a","content":"a"}}]}',
        '{"a":1,"choices":[{"delta":{"content":"a"}}]}',
    ],
)
def test_the_words_are_looked_for_where_others_would_be_the_content(data: str) -> None:
    frame = find_frame(data, "a")
    assert frame is not None
    head, _, tail = data.rpartition('"a"')
    assert frame.read_words([("", f'{head}"b"{tail}'), ("", data.replace('"a"', '"b"'))], 0) == ["b"]


def test_there_is_no_frame_around_words_that_are_written_otherwise() -> None:
    assert find_frame('{"choices":[{"delta":{"content":"\\u0061"}}]}', "a") is None


def fragment(words: str, *, tight: bool = True, plain: bool = True, **more: Any) -> str:
    entry = {"index": 0, "function": {"arguments": words}}
    choice = {"index": 0, "delta": {"tool_calls": [entry]}, "finish_reason": None}
    separators = (",", ":") if tight else None
    return json.dumps({"id": "1", "choices": [choice], **more}, separators=separators, ensure_ascii=not plain)


def fragments(*data: str) -> list[str]:
    begun = calls(piece(0, id="c", name="note"))
    events, _ = read(begun + b"".join(sse(one) for one in data) + chunk(None, "tool_calls") + DONE)
    return [event.delta for event in events if isinstance(event, ToolCallDelta)]


def join_blank_beginning(parts: list[str]) -> list[str]:
    """Blank fragments at the beginning come with the next one: until then the name of an unknown tool may grow."""
    first = next((at for at, part in enumerate(parts) if not part.isspace()), len(parts) - 1)
    return ["".join(parts[: first + 1]), *parts[first + 1 :]]


@given(st.lists(WORDS, min_size=2, max_size=6), st.booleans(), st.booleans())
def test_the_fragments_of_arguments_are_those_that_parsing_gives(parts: list[str], tight: bool, plain: bool) -> None:
    found = fragments(*[fragment(part, tight=tight, plain=plain) for part in parts])
    assert found == join_blank_beginning(parts)


@given(st.lists(st.tuples(WORDS, st.sampled_from([{}, {"usage": None}, {"padding": "x"}])), min_size=2, max_size=6))
def test_chunks_that_differ_in_more_than_their_fragment_are_parsed(parts: list[tuple[str, dict[str, Any]]]) -> None:
    found = fragments(*[fragment(words, **more) for words, more in parts])
    assert found == join_blank_beginning([words for words, _ in parts])


@each_row("inner", ['x"},"y":{"z":"', 'x"}}],"content":"y', "x\\"])
def test_what_only_begins_and_ends_like_a_fragment_is_no_fragment(inner: str) -> None:
    data = fragment("INNER")
    frame = find_argument_frame(data, "INNER")
    assert frame is not None
    assert frame.read_arguments([("", data), ("", data.replace("INNER", inner)), ("", data)], 0) == ["INNER"]
    assert frame.read_arguments([("error", data)], 0) == []


def test_fragments_are_found_where_the_same_stands_elsewhere_in_the_chunk() -> None:
    echo = {"more": 1, "arguments": "a"}
    assert fragments(*[fragment(words, echo=echo) for words in ("a", "b", "a")]) == ["a", "b", "a"]
    assert fragments(*[fragment(words, echo='{"arguments":"a') for words in ("a", "b", "a")]) == ["a", "b", "a"]


def test_fragments_of_calls_side_by_side_belong_to_their_calls() -> None:
    """Each call has a frame of its own, with its number in it."""
    begun = calls(piece(0, id="a", name="note"), piece(1, id="b", name="note"))
    parts = [
        calls(piece(number, args=args)) for number, args in [(0, '{"x'), (0, '": 1'), (0, "}"), (1, "{"), (1, "}")]
    ]
    _, message = read(begun + b"".join(parts) + chunk(None, "tool_calls") + DONE)
    assert [(call.id, call.arguments) for call in message.tool_calls] == [("a", {"x": 1}), ("b", {})]
