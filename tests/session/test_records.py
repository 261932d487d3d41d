"""Records are one line each, whatever is in them, and say the first words of a user."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.session.records import Record, decode, encode, make_title
from steersman.testing.store_checks import make_record

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), plain, max_size=4), st.text(), st.none() | st.text(), st.text())
def test_a_record_comes_back_from_one_line(payload: dict[str, Any], id: str, parent: str | None, type: str) -> None:
    """failures.md H4: no line break is inside, so nothing has to be told apart from one."""
    record = Record(id, parent, 3, type, 1.5, payload)
    line = encode(record)
    assert b"\n" not in line
    assert b"\r" not in line
    assert decode(line) == record


def test_half_a_character_does_not_stop_a_record() -> None:
    """failures.md H1: a delta may end with half of a surrogate pair; it is replaced, also in a key."""
    record = decode(encode(make_record(1, text="a\ud83d", more={"b\udc00": "\ud83d\ude00"})))
    assert record == make_record(1, text="a\ufffd", more={"b\ufffd": "😀"})


@each_row(
    "line",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b'{"id":"a","parent":null,"seq":"1","type":"t","time":1,"payload":{}}',
        b'{"id":"a","parent":null,"seq":1,"type":"t","time":1,"payload":[]}',
        b'{"id":"a","parent":null,"seq":1,"type":"t","time":1,"payload":{}',
        b'{"id":"\xff","parent":null,"seq":1,"type":"t","time":1,"payload":{}}',
        b'{"id":"a","parent":null,"seq":1,"type":"t","time":1,"payload":{"a":'
        + b"[" * 100_000
        + b"]" * 100_000
        + b"}}",
    ],
)
def test_what_is_no_record_is_a_value_error(line: bytes) -> None:
    """failures.md H3, L22: whatever a file holds, there is one way to say no."""
    with pytest.raises(ValueError, match="Not a record of a session"):
        decode(line)


def test_the_title_is_what_a_user_said_first() -> None:
    """On one line, cut to its length; not what the loop said in their name, and not what others say."""

    def said(role: str, content: object, **fields: object) -> Record:
        return make_record(1, type="message", message={"role": role, "content": content, **fields})

    text = [{"type": "text", "text": "Find\nthe"}, {"type": "image"}, {"type": "text", "text": "keys"}]
    cases: list[tuple[list[Record], str]] = [
        ([], ""),
        ([make_record(1, type="session"), make_record(2, type="message", message="odd")], ""),
        ([said("assistant", text), said("user", text)], "Find the keys"),
        ([said("user", text, synthetic=True)], ""),
        ([said("user", [{"type": "image"}]), said("user", "by hand")], "by hand"),
        ([said("user", "word " * 100)], "word " * 15 + "word…"),
        ([said("user", 7), said("user", ["odd", {"type": "text"}])], ""),
    ]
    assert [make_title(records) for records, _ in cases] == [title for _, title in cases]
