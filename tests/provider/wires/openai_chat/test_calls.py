"""Tool calls are put together from whatever pieces servers send."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.provider.wires.openai_chat.chat import (
    DONE,
    MODEL,
    answer_of,
    calls,
    calls_of,
    chunk,
    piece,
    read,
    told,
)

from steersman.context.repair import repair
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.testing.servers.exchange import sse
from steersman.types.content import TextContent, ToolCall
from steersman.types.messages import ToolResultMessage, user_message
from steersman.types.model import Request, StreamOptions
from steersman.types.stream import ToolCallStart

A, B = {"q": "a"}, {"q": "b"}
HALF_A, HALF_B = ('{"q"', ':"a"}'), ('{"q"', ':"b"}')


def test_without_an_index_the_id_tells_them_apart() -> None:
    """failures.md C2."""
    stream = [
        calls(piece(id="c1", name="search", args=HALF_A[0])),
        calls(piece(id="c2", name="read", args=HALF_B[0])),
        calls(piece(id="c1", args=HALF_A[1])),
        calls(piece(id="c2", args=HALF_B[1])),
    ]
    assert calls_of(*stream) == [("c1", "search", A), ("c2", "read", B)]


def test_without_index_and_id_the_place_in_the_list_tells_them_apart() -> None:
    """failures.md C2."""
    stream = [
        calls(piece(name="search", args=HALF_A[0]), piece(name="read", args=HALF_B[0])),
        calls(piece(args=HALF_A[1]), piece(args=HALF_B[1])),
    ]
    assert calls_of(*stream) == [("", "search", A), ("", "read", B)]


def test_without_any_mark_a_piece_goes_on_with_the_last_call() -> None:
    """failures.md C2."""
    stream = [calls(piece(id="c1", name="search", args=HALF_A[0])), calls(piece(args=HALF_A[1]))]
    assert calls_of(*stream) == [("c1", "search", A)]


def test_without_any_mark_a_new_name_after_whole_arguments_is_a_new_call() -> None:
    """failures.md C2."""
    stream = [calls(piece(name="search", args='{"q":"a"}')), calls(piece(name="search", args='{"q":"b"}'))]
    assert calls_of(*stream) == [("", "search", A), ("", "search", B)]


def test_two_entries_of_one_index_in_a_chunk_are_one_call() -> None:
    """failures.md C4."""
    assert calls_of(calls(piece(0, "c1", "search"), piece(0, args='{"q":"a"}'))) == [("c1", "search", A)]


def test_calls_that_all_have_the_number_0_are_told_apart_by_their_ids() -> None:
    """failures.md C2: servers that number every call 0."""
    stream = [calls(piece(0, "c1", "search", '{"q":"a"}')), calls(piece(0, "c2", "search", '{"q":"b"}'))]
    assert calls_of(*stream) == [("c1", "search", A), ("c2", "search", B)]


def test_an_id_that_changes_inside_the_arguments_is_still_the_same_call() -> None:
    stream = [calls(piece(0, "c1", "search", HALF_A[0])), calls(piece(0, "c9", "search", HALF_A[1]))]
    assert calls_of(*stream) == [("c1", "search", A)]


@pytest.mark.parametrize("index", [0, 3, None])
def test_an_id_or_a_name_may_come_late(index: int | None) -> None:
    stream = [
        calls(piece(index, args="")),
        calls(piece(index, "c1")),
        calls(piece(index, name="search")),
        calls(piece(index, args='{"q":"a"}')),
    ]
    assert calls_of(*stream) == [("c1", "search", A)]


@pytest.mark.parametrize(
    "names",
    [
        ("search", "search", "search"),
        ("sea", "rch", None),
        ("sea", "search", None),
        ("search", "", ""),
        ("s", "earch", "search"),
    ],
    ids=repr,
)
def test_a_name_may_be_repeated_or_come_in_pieces(names: tuple[str | None, ...]) -> None:
    """failures.md C5."""
    parts = ("", HALF_A[0], HALF_A[1]) if names[1] else (HALF_A[0], HALF_A[1], "")
    if names[1] and names[1] != "search":
        parts = ("", "", '{"q":"a"}')
    stream = [calls(piece(0, "c1" if not at else None, name, parts[at])) for at, name in enumerate(names)]
    assert calls_of(*stream) == [("c1", "search", A)]


def test_a_name_that_begins_with_another_tools_name_is_put_together() -> None:
    """failures.md C5."""
    stream = [calls(piece(0, "c1", "read")), calls(piece(0, name="_file")), calls(piece(0, args="{}"))]
    assert calls_of(*stream, known=("read", "read_file")) == [("c1", "read_file", {})]


def test_an_unknown_name_in_pieces_is_put_together() -> None:
    """failures.md C13."""
    stream = [calls(piece(0, "c1", "no")), calls(piece(0, name="pe")), calls(piece(0, args="{}"))]
    assert calls_of(*stream) == [("c1", "nope", {})]


@pytest.mark.parametrize(
    "trailing",
    [
        {"index": 1, "id": "", "function": {"arguments": ""}},
        {"id": "", "function": {"arguments": ""}},
        {"index": 2, "function": {"name": "", "arguments": ""}},
        {"index": 0},
        {"function": None},
    ],
    ids=repr,
)
def test_an_empty_entry_at_the_end_is_no_call(trailing: dict[str, Any]) -> None:
    """failures.md C5."""
    assert calls_of(calls(piece(0, "c1", "search", '{"q":"a"}')), calls(trailing)) == [("c1", "search", A)]


def test_an_earlier_call_without_arguments_is_not_cut_by_the_limit() -> None:
    stream = calls(piece(0, "c1", "time", "")) + calls(piece(1, "c2", "search", '{"q":')) + chunk(None, "length") + DONE
    assert [told(call) for call in answer_of(stream, "time", "search").tool_calls] == [{}, '{"q":']


def test_every_call_may_come_whole_with_a_finish_reason_of_its_own() -> None:
    stream = calls(piece(0, "c1", "search", '{"q":"a"}'), finish="tool_calls") + calls(
        piece(1, "c2", "read", '{"q":"b"}'), finish="tool_calls"
    )
    message = answer_of(stream + DONE, "search", "read")
    assert [(call.id, call.arguments) for call in message.tool_calls] == [("c1", A), ("c2", B)]


def test_the_old_function_call_is_a_call() -> None:
    stream = chunk({"function_call": {"name": "search", "arguments": ""}}) + chunk(
        {"function_call": {"arguments": '{"q":"a"}'}}
    )
    message = answer_of(stream + chunk(None, "function_call") + DONE, "search")
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [("", "search", A)]
    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", "function_call")


def test_many_pieces_cost_their_number_and_not_its_square() -> None:
    """What is done per piece does not grow with what came before."""
    text = "x" * 200_000
    pieces = [calls(piece(0, args=letter)) for letter in f'{{"q":"{text}"}}']
    assert calls_of(calls(piece(0, "c1", "search", "")), *pieces) == [("c1", "search", {"q": text})]


@pytest.mark.parametrize(
    "stream",
    [
        calls(piece(0, "a", "list", "")) + calls(piece(1, "b", "list_all", '{"q": 1}')),
        calls(piece(0, "a", "list")) + calls(piece(1, "b", "list_all", '{"q": ')) + calls(piece(1, args="1}")),
        calls(piece(0, "a", "list"), piece(1, "b", "list_all")) + calls(piece(1, args='{"q": 1}')),
        calls(piece(0, "a", "list", "")) + chunk({"content": "And"}) + calls(piece(1, "b", "list_all", '{"q": 1}')),
    ],
)
def test_a_call_whose_name_is_the_beginning_of_anothers_keeps_its_place(stream: bytes) -> None:
    """loop.md D2: calls are answered in the order the model asked for them."""
    events, message = read(stream + chunk(None, "tool_calls") + DONE, "list", "list_all")
    assert message.tool_calls == [ToolCall("a", "list"), ToolCall("b", "list_all", {"q": 1})]
    assert type(message.content[0]) is ToolCall
    assert [event.id for event in events if isinstance(event, ToolCallStart)] == ["a", "b"]


@pytest.mark.parametrize("id", ["", None])
@pytest.mark.parametrize("together", [True, False])
def test_calls_with_one_index_and_no_ids_are_told_apart_by_their_names(id: str | None, together: bool) -> None:
    """failures.md C2, C4: of two tools or of one, with arguments or without."""
    entries = [
        {"index": 0, "id": id, "function": {"name": "search", "arguments": '{"q":"a"}'}},
        {"index": 0, "id": id, "function": {"name": "search", "arguments": '{"q":"b"}'}},
        {"index": 0, "id": id, "function": {"name": "time", "arguments": ""}},
        {"index": 0, "id": id, "function": {"name": "read", "arguments": "{}"}},
        {"index": 0, "id": id, "function": {"name": "time", "arguments": "{}"}},
    ]
    stream = [calls(*entries)] if together else [calls(entry) for entry in entries]
    assert calls_of(*stream) == [
        ("", "search", A),
        ("", "search", B),
        ("", "time", {}),
        ("", "read", {}),
        ("", "time", {}),
    ]


def test_calls_in_pieces_with_one_index_and_no_ids_are_told_apart() -> None:
    """failures.md C2: the name comes once more, and then other arguments."""
    one = [piece(0, "", "search", ""), piece(0, args=HALF_A[0]), piece(0, args=HALF_A[1])]
    two = [piece(0, "", "search", ""), piece(0, args=HALF_B[0]), piece(0, args=HALF_B[1])]
    assert calls_of(*map(calls, one + two)) == [("", "search", A), ("", "search", B)]


def test_a_name_that_is_repeated_with_one_index_and_no_ids_is_one_call() -> None:
    """failures.md C5: with every piece of the arguments, and once more after the last."""
    pieces = [*(piece(0, "", "search", part) for part in ('{"q"', ":", '"a"', "}")), piece(0, "", "search", "")]
    assert calls_of(*map(calls, pieces)) == [("", "search", A)]


SIGNED = b'{"google": {"thought_signature":"CpQB\\u003d\\u003d"}}'
EXTRA = msgspec.Raw(b'{"google": {"thought_signature":"CpQB\\u003d\\u003d"}}')


@pytest.mark.parametrize("form", ["whole", "at the start", "at the end", "in the message"])
def test_unknown_fields_of_a_call_go_back_on_the_same_call(form: str) -> None:
    """failures.md D9: Gemini signs its calls in `extra_content` where it speaks Chat Completions."""
    signed, plain = piece(0, "c1", "search", '{"q":"a"}'), piece(1, "c2", "read", '{"q":"b"}')
    extra = {"extra_content": EXTRA, "note": [1], "nothing": None}
    match form:
        case "whole":
            stream = calls({**signed, **extra}, plain)
        case "in the message":
            whole = {"index": 0, "message": {"tool_calls": [{**signed, **extra}, plain]}, "finish_reason": "tool_calls"}
            stream = sse({"choices": [whole]})
        case "at the start":
            start = piece(0, "c1", "search", "")
            stream = (
                calls({**start, **extra}) + calls(piece(0, args='{"q":')) + calls(piece(0, args='"a"}')) + calls(plain)
            )
        case _:
            start, end = piece(0, "c1", "search", '{"q":'), piece(0, args='"a"}')
            stream = calls({**start, "note": [1]}) + calls({**end, "extra_content": EXTRA}) + calls(plain)
    message = answer_of(stream + chunk(None, "tool_calls") + DONE, "search", "read")
    results = [ToolResultMessage([TextContent("ok")], tool_call_id=id, tool_name="t") for id in ("c1", "c2")]
    body = WIRE.request(MODEL, Request("", [user_message("Hi"), message, *results]), StreamOptions(), None).body
    first, second = msgspec.json.decode(body)["messages"][1]["tool_calls"]
    assert b'"extra_content":' + SIGNED in body
    assert (first["note"], first["id"], "nothing" in first) == ([1], "c1", False)
    assert second == {"id": "c2", "type": "function", "function": {"name": "read", "arguments": '{"q":"b"}'}}
    other = repair([user_message("Hi"), message, *results], provider="openai-chat", model="other")
    assert [call.signature for call in other[1].content if isinstance(call, ToolCall)] == [None, None]
