"""Counting the values of a message before it is parsed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.tools.mcp.value_count import MAX_COMMAS, MAX_CONTAINERS, MAX_STRINGS, ValueCount, has_too_many_values

TEXTS = st.text(alphabet='[{"\\\n,a\u00e9', max_size=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)
FULL = "[" + "[]," * (MAX_CONTAINERS - 2) + "[]]"
"""As many lists as are allowed."""


def count_containers(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count_containers, cast(dict[str, Any], value).values()))
    return 1 + sum(map(count_containers, cast(list[Any], value))) if isinstance(value, list) else 0


def count(pieces: Sequence[str], *, events: bool = False) -> bool:
    counted = ValueCount(events=events)
    for piece in pieces:
        counted.add(piece.encode())
    return counted.is_over


@given(value=VALUES, cuts=st.lists(st.integers(0, 200), max_size=5))
def test_lists_and_objects_count_wherever_the_message_is_split_and_strings_hide_none(
    value: Any, cuts: list[int]
) -> None:
    """Beside a message with room for exactly as many as there are, one more is too many."""
    text = json.dumps(value, ensure_ascii=False)
    number = count_containers(value)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    room = "[" * (MAX_CONTAINERS - number)
    assert not count([room, *pieces])
    assert count([room, "[", *pieces])


def test_a_text_full_of_brackets_and_quotation_marks_is_one_string() -> None:
    said = json.dumps({"text": json.dumps([[{"a": "b"}]] * 400_000)}).encode()
    assert not has_too_many_values(said)


def test_a_whole_message_has_too_many_lists_or_too_many_strings() -> None:
    assert not has_too_many_values(FULL.encode())
    assert has_too_many_values(f"[{FULL}]".encode())
    assert has_too_many_values(b"[" + b'"",' * MAX_STRINGS + b'""]')


def test_a_whole_message_has_too_many_numbers() -> None:
    """Where the SDK expects objects, each of them is an error that takes a while to make."""
    assert not has_too_many_values(b"[" + b"1," * MAX_COMMAS + b"1]")
    assert has_too_many_values(b"[" + b"1," * MAX_COMMAS + b"1,1]")
    assert not has_too_many_values(json.dumps("1," * 2 * MAX_COMMAS).encode())


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_each_event_of_a_stream_counts_by_itself_however_it_is_split(end: str) -> None:
    event = f"data: {FULL}{end}"
    assert not count([event] * 3, events=True)
    assert not count([event[:-1], event[-1:]] * 3, events=True)
    assert count([event[: -len(end)]] * 2, events=True)
    assert count([f"data: [{FULL}{end}"], events=True)


@pytest.mark.parametrize("before", ['id: "\n', ': "\r', 'data: "\r\n', "data: 1\n"])
def test_no_line_of_an_event_hides_the_lists_in_the_next(before: str) -> None:
    assert count([f"{before}data: [{FULL}\n\n"], events=True)
    assert count([before, f"data: [{FULL}\n\n"], events=True)
