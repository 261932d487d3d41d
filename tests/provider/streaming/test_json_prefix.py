"""Arguments of a tool call while they arrive, as far as they can be read."""

from __future__ import annotations

import itertools
import json
from time import process_time
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.provider.streaming.json_prefix import JsonPrefix
from steersman.types.content import replace_surrogates_in_json

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


def read(*pieces: str) -> dict[str, Any]:
    prefix = JsonPrefix()
    for piece in pieces:
        prefix.feed(piece)
    return prefix.value


def split(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


def is_part(part: Any, whole: Any) -> bool:
    """Whether a value may be what was read of another one so far."""
    if type(part) is not type(whole) and not (isinstance(part, dict | list) and isinstance(part, type(whole))):
        return False
    match part:
        case str():
            return whole.startswith(part)
        case dict():
            items = cast(dict[str, Any], part).items()
            return all(key in whole and is_part(value, whole[key]) for key, value in items)
        case list():
            pairs = zip(cast(list[Any], part), whole, strict=False)
            return len(cast(list[Any], part)) <= len(whole) and all(is_part(one, other) for one, other in pairs)
        case _:
            return part == whole


@given(OBJECTS, st.booleans(), st.none() | st.integers(0, 3), st.lists(st.integers(0), max_size=6))
def test_a_whole_text_gives_the_whole_object_in_whatever_pieces_it_comes(
    value: dict[str, Any], ascii_only: bool, indent: int | None, cuts: list[int]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read(*split(text, cuts)) == read(*text) == value


@given(OBJECTS, st.booleans(), st.integers(0))
def test_the_beginning_of_a_text_gives_a_part_of_the_object(
    value: dict[str, Any], ascii_only: bool, length: int
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    start = text[: length % (len(text) + 1)]
    assert is_part(read(start), value)
    assert read(start) == read(*start)


PREFIXES: dict[str, Any] = {
    "": {},
    " {": {},
    '{"path': {},
    '{"path"': {},
    '{"path":': {},
    '{"path": "': {"path": ""},
    '{"path": "src/ma': {"path": "src/ma"},
    '{"a": "x\\': {"a": "x"},
    '{"a": "x\\u00e': {"a": "x"},
    '{"a": "x\\u00e9y': {"a": "xéy"},
    '{"a": "\\ud83d': {"a": ""},
    '{"a": "\\ud83d\\ude00': {"a": "😀"},
    '{"a": "\\ud83d!': {"a": "\ufffd!"},
    '{"a": "\\ud83d"': {"a": "\ufffd"},
    '{"a": 1, "b": 2\ud83d, ': {"a": 1},
    '{"a": 12': {},
    '{"a": 12,': {"a": 12},
    '{"a": tru': {},
    '{"a": true}': {"a": True},
    '{"a": [': {"a": []},
    '{"a": [1, {"b": "c': {"a": [1, {"b": "c"}]},
    '{"a": [1, 2': {"a": [1]},
    '{"a": "1", "b': {"a": "1"},
    '{"a": "1", "a": "2': {"a": "2"},
    '{"a": "one\ntwo': {"a": "one\ntwo"},
}


@pytest.mark.parametrize("text", PREFIXES)
def test_what_can_be_read_of_a_text_that_breaks_off(text: str) -> None:
    assert read(text) == read(*text) == PREFIXES[text]


MISTAKES: dict[str, Any] = {
    "[1, 2]": {},
    '"text"': {},
    "null": {},
    '{"a": "1" "b": "2"}': {"a": "1"},
    '{"a": "1", "b": nul, "c": "3"}': {"a": "1"},
    '{"a": "1", b: "2"}': {"a": "1"},
    '{"a": "x\\q", "b": "2"}': {"a": "x"},
    '{"a": "x\\u12z4", "b": "2"}': {"a": "x"},
    '{"a": "1"} {"b": "2"}': {"a": "1"},
    '{"a": ]': {},
    '{"a" "b"}': {},
}


@pytest.mark.parametrize("text", MISTAKES)
def test_reading_stops_at_a_mistake_and_repairs_nothing(text: str) -> None:
    assert read(text) == MISTAKES[text]


@pytest.mark.parametrize("text", ['{"a":' * 100_000, '{"a":' + "[" * 100_000, '{"a": ' + "1" * 100_000])
def test_absurd_text_is_given_up(text: str) -> None:
    prefix = JsonPrefix()
    prefix.feed(text)
    prefix.feed(', "b": "c"')
    assert "b" not in prefix.value


@given(st.text(st.characters(), max_size=30), st.integers(0, 30))
def test_a_surrogate_pair_may_come_in_two_pieces(text: str, cut: int) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    halves = [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]
    pieces = ["".join(halves[:cut]), "".join(halves[cut:])]
    quoted = [piece.replace("\\", "\\\\").replace('"', '\\"') for piece in pieces]
    assert read('{"a": "', *quoted, '"}') == {"a": replace_surrogates_in_json(text)}


def test_the_object_is_read_only() -> None:
    with pytest.raises(TypeError, match="read-only"):
        read('{"a": "b')["a"] = "c"


def seconds_of(length: int) -> float:
    text = json.dumps({"path": "a.py", "content": "return 'é'\n" * (length // 11)})
    prefix, seen = JsonPrefix(), 0
    began = process_time()
    for at in range(0, len(text), 20):
        prefix.feed(text[at : at + 20])
        seen += len(prefix.value.get("content", ""))
    assert seen > length
    return process_time() - began


def seconds_of_texts_before(length: int) -> float:
    text = json.dumps({"many": ["x"] * 20_000, "k": 1, "last": "y" * length})
    began = process_time()
    assert len(read(text)["many"]) == 20_000
    return process_time() - began


def test_texts_cost_the_same_in_a_long_piece_as_in_a_short_one() -> None:
    """A server may send all arguments at once: of 1 MB with a copy for each text, for ten seconds."""
    # A reader that copies the piece for each text needs 15 times as long.
    assert min(seconds_of_texts_before(1_600_000) for _ in range(2)) < 4 * min(
        seconds_of_texts_before(16_000) for _ in range(3)
    )


def test_a_long_text_costs_the_same_per_piece_as_a_short_one() -> None:
    """api.md, details: the partial answer is amortised O(1) to read at every delta."""
    # A quadratic reader needs 64 times as long for 8 times the text.
    assert min(seconds_of(800_000) for _ in range(2)) < 24 * min(seconds_of(100_000) for _ in range(3))
