"""Answers of the OpenAI Responses API, read from every kind of stream that servers were seen to send."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from tests.provider.wires.openai_responses.kit import (
    MODEL,
    RECORDED,
    added,
    arguments,
    begun,
    called,
    done,
    ended,
    event,
    input_of,
    message_of,
    read,
    said,
    summary,
    text_part,
    thought,
    words,
)
from tests.provider.wires.reading import REQUEST
from tests.rows import each_row

from steersman.provider.http.sse import SseDecoder
from steersman.provider.wires.openai_responses.wire import WIRE
from steersman.tools.tool import Tool
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.errors import (
    ErrorInfo,
    IncompleteStreamError,
    ProviderError,
)
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request
from steersman.types.stream import (
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)
from steersman.types.usage import Usage

_FIELDS = [
    *("item", "delta", "output_index", "item_id", "content_index", "summary_index", "arguments", "response", "error"),
    *("id", "call_id", "name", "content", "summary", "text", "refusal", "status", "output", "usage", "code", "message"),
    *("incomplete_details", "reason", "encrypted_content", "phase", "input", "type", "input_tokens", "part"),
]
_TYPES = [
    *("response.created", "response.output_item.added", "response.output_item.done", "response.output_text.delta"),
    *("response.output_text.done", "response.refusal.delta", "response.refusal.done", "response.reasoning_text.delta"),
    *("response.reasoning_summary_text.delta", "response.function_call_arguments.delta", "message", "reasoning"),
    *("response.function_call_arguments.done", "response.completed", "response.incomplete", "response.failed"),
    *("error", "function_call", "custom_tool_call", "new", ""),
]


def test_recorded_texts_are_what_their_servers_say_they_are() -> None:
    for path in RECORDED:
        terminal = path.read_bytes().rsplit(b"data: ", 1)[1]
        output = msgspec.json.decode(terminal)["response"]["output"]
        texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
        assert read(path.read_bytes())[1].text == "".join(texts), path.name


def test_events_without_a_type_are_known_by_their_name() -> None:
    stream = begun() + said(0, "Hello") + ended()
    untyped = b"\n".join(
        b"data: " + msgspec.json.encode({k: v for k, v in msgspec.json.decode(line[6:]).items() if k != "type"})
        if line.startswith(b"data: ")
        else line
        for line in stream.split(b"\n")
    )
    assert read(untyped)[1] == read(stream)[1]


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3], [7, 7, 7, 7], [9, 3, 100, 0], [None, None, None, None]])
def test_sequence_numbers_are_the_servers_own_affair(numbers: list[int | None]) -> None:
    parts = [
        ("response.created", {"response": {"id": "resp_1"}}),
        ("response.output_text.delta", {"output_index": 0, "delta": "a"}),
        ("response.output_text.delta", {"output_index": 0, "delta": "b"}),
        ("response.completed", {"response": {"id": "resp_1", "status": "completed"}}),
    ]
    stream = b"".join(
        event(name, **fields, sequence_number=number) for (name, fields), number in zip(parts, numbers, strict=True)
    )
    assert message_of(stream).text == "ab"


def test_an_item_of_an_unknown_type_is_kept_for_the_next_request() -> None:
    """failures.md D16: what is opaque goes back as it came."""
    item = {"id": "ws_1", "status": "completed", "action": {"query": "x"}, "content": 5}
    stream = begun() + done(0, "web_search_call", **item) + said(1, "Found.") + ended()
    message = message_of(stream)
    kept = '{"type":"web_search_call","id":"ws_1","status":"completed","action":{"query":"x"},"content":5}'
    assert message.content == [ThinkingContent("", kept, redacted=True), TextContent("Found.")]


def test_two_calls_without_item_ids_stay_two_calls() -> None:
    """failures.md A12."""
    stream = begun()
    for index, id in enumerate(("call_a", "call_b")):
        stream += added(index, "function_call", call_id=id, name="add", arguments="")
        stream += event("response.function_call_arguments.delta", output_index=index, delta=f'{{"a":{index}}}')
        stream += done(index, "function_call", call_id=id, name="add", arguments=f'{{"a":{index}}}')
    message = message_of(stream + ended())
    assert message.tool_calls == [ToolCall("call_a", "add", {"a": 0}), ToolCall("call_b", "add", {"a": 1})]


def test_calls_without_ids_and_without_indexes_are_told_apart_by_their_order() -> None:
    stream = begun()
    for id in ("call_a", "call_b"):
        item = {"type": "function_call", "call_id": id, "name": "add"}
        stream += event("response.output_item.added", item={**item, "arguments": ""})
        stream += event("response.function_call_arguments.delta", delta=f'{{"who":"{id}"}}')
        stream += event("response.output_item.done", item={**item, "arguments": f'{{"who":"{id}"}}'})
    message = message_of(stream + ended())
    assert [call.arguments for call in message.tool_calls] == [{"who": "call_a"}, {"who": "call_b"}]


def test_an_index_that_all_items_share_does_not_mix_them() -> None:
    stream = begun()
    for number in (0, 1):
        item = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": "add"}
        stream += added(0, "function_call", **item, arguments="")
    for number in (0, 1, 0, 1):
        stream += event(
            "response.function_call_arguments.delta", output_index=0, item_id=f"fc_{number}", delta=f"{number}"
        )
    for number in (0, 1):
        item = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": "add"}
        stream += done(0, "function_call", **item, arguments=f"{number}{number}")
    message = message_of(stream + ended())
    assert [(call.id, call.raw_arguments) for call in message.tool_calls] == [("call_0", "00"), ("call_1", "11")]


def test_an_index_that_all_items_share_does_not_mix_their_deltas() -> None:
    """Where the items never come whole, the deltas are all there is; each message has the place in which it began."""
    stream = begun() + b"".join(added(0, "message", id=f"msg_{number}", content=[]) for number in (0, 1))
    for number, piece in ((1, "c"), (0, "a"), (1, "d"), (0, "b")):
        stream += event("response.output_text.delta", output_index=0, item_id=f"msg_{number}", delta=piece)
    events, message = read(stream + ended())
    assert message.content == [TextContent("ab"), TextContent("cd")]
    deltas = [(event.content_index, event.delta) for event in events if isinstance(event, TextDelta)]
    assert deltas == [(1, "c"), (0, "a"), (1, "d"), (0, "b")]


def test_items_are_in_the_order_of_their_indexes() -> None:
    assert read(begun() + said(1, "b") + said(0, "a") + ended())[1].text == "ab"


def test_item_ids_that_change_from_event_to_event_do_not_matter_where_there_is_an_index() -> None:
    stream = begun() + added(0, "message", id="msg_x", role="assistant", content=[])
    for number, piece in enumerate(("a", "b")):
        stream += event(
            "response.output_text.delta", item_id=f"id{number}", output_index=0, content_index=0, delta=piece
        )
    stream += done(0, "message", id="msg_y", role="assistant", content=[text_part("ab")]) + ended()
    assert message_of(stream).content == [TextContent("ab")]


def test_what_the_deltas_left_out_is_shown_when_the_item_is_done() -> None:
    stream = begun() + added(0, "message", id="msg_0", role="assistant", content=[]) + words(0, "He")
    stream += done(0, "message", id="msg_0", role="assistant", content=[text_part("Hello")]) + ended()
    events, message = read(stream)
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["He", "llo"]
    assert message.text == "Hello"


@pytest.mark.parametrize(
    "output",
    [
        [{"type": "message", "id": "msg_0", "role": "assistant", "content": [text_part("Hello")]}],
        [{"type": "message", "role": "assistant", "content": [text_part("Hello")]}],
    ],
)
def test_a_response_that_is_only_told_at_its_end_is_read_from_there(output: Any) -> None:
    assert message_of(begun() + ended(output=output)).text == "Hello"
    opened = begun() + added(0, "message", id="msg_0", role="assistant", content=[]) + words(0, "Hel")
    assert message_of(opened + ended(output=output)).content == [TextContent("Hello")]
    assert message_of(begun() + said(0, "Hel", "lo") + ended(output=output)).content == [TextContent("Hello")]


def test_an_item_that_is_never_done_is_what_its_deltas_said() -> None:
    stream = begun() + words(0, "Hel") + words(0, "lo") + arguments(1, '{"a":1}')
    call = added(2, "function_call", id="fc_2", call_id="call_2", name="add", arguments="") + arguments(2, '{"a":2}')
    message = message_of(stream + call + ended())
    assert message.content == [TextContent("Hello"), ToolCall("call_2", "add", {"a": 2})]


def test_a_call_that_lost_its_arguments_is_never_complete() -> None:
    """failures.md C9: the whole answer does not list it, and it would run with none."""
    stream = begun() + called(0, "call_0", "add", "{}") + added(1, "function_call", id="fc_1", call_id="c", name="stop")
    output = [{"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": "add", "arguments": "{}"}]
    message = message_of(stream + ended(output=output))
    assert [(call.name, call.raw_arguments) for call in message.tool_calls] == [("add", None), ("stop", "")]
    assert message.stop_reason == "length"


def test_a_call_without_name_and_arguments_is_no_call() -> None:
    """failures.md C5."""
    stream = begun() + called(0, "call_0", "add", "{}") + called(1, "", "")
    assert message_of(stream + ended()).tool_calls == [ToolCall("call_0", "add")]


def test_whole_parts_count_where_no_deltas_came() -> None:
    stream = begun() + added(0, "message", id="msg_0", role="assistant", content=[])
    stream += event("response.output_text.done", item_id="msg_0", output_index=0, content_index=0, text="Hello")
    stream += added(1, "function_call", id="fc_1", call_id="call_1", name="add", arguments="")
    stream += event("response.function_call_arguments.done", item_id="fc_1", output_index=1, arguments='{"a":1}')
    message = message_of(stream + ended())
    assert message.content == [TextContent("Hello"), ToolCall("call_1", "add", {"a": 1})]


def test_whole_arguments_count_for_their_call_and_not_for_that_whose_deltas_came_last() -> None:
    first, second = ({"id": f"fc_{at}", "call_id": f"call_{at}", "name": "add", "arguments": ""} for at in (0, 1))
    stream = begun() + added(1, "function_call", **second) + added(0, "function_call", **first)
    stream += arguments(0, '{"a":1}')
    for at, whole in enumerate(('{"a":1}', '{"a":2}')):
        stream += event("response.function_call_arguments.done", item_id=f"fc_{at}", output_index=at, arguments=whole)
    events, message = read(stream + ended())
    assert message.tool_calls == [ToolCall("call_0", "add", {"a": 1}), ToolCall("call_1", "add", {"a": 2})]
    assert [one.delta for one in events if isinstance(one, ToolCallDelta)] == ['{"a":1}', '{"a":2}']


def test_an_announced_item_that_is_nothing_is_passed_over() -> None:
    nothing = event("response.output_item.added", output_index=0, item=None)
    assert message_of(begun() + nothing + said(1, "Hi") + ended()).content == [TextContent("Hi")]


# Reasoning


def test_encrypted_content_is_taken_from_the_item_that_is_done() -> None:
    """failures.md D5: the item that opens has only a part of it."""
    stream = begun() + added(0, "reasoning", id="rs_0", summary=[], encrypted_content="gAA")
    whole: dict[str, Any] = {
        "id": "rs_0",
        "summary": [],
        "encrypted_content": "gAAAAB+/=\u2028",
        "status": "completed",
        "content": None,
    }
    message = message_of(stream + done(0, "reasoning", **whole) + said(1, "Hi") + ended())
    signature = '{"type":"reasoning","id":"rs_0","summary":[],"encrypted_content":"gAAAAB+/=\u2028"}'
    assert message.content == [ThinkingContent("", signature), TextContent("Hi")]


def test_the_parts_of_a_summary_are_set_apart() -> None:
    stream = begun() + added(0, "reasoning", id="rs_0", summary=[])
    stream += summary(0, "a", 0) + summary(0, "b", 0) + summary(0, "c", 1)
    parts = [{"type": "summary_text", "text": text} for text in ("ab", "c")]
    stream += done(0, "reasoning", id="rs_0", summary=parts, encrypted_content="g") + said(1, "Hi") + ended()
    events, message = read(stream)
    assert [event.delta for event in events if isinstance(event, ThinkingDelta)] == ["a", "b", "\n\n", "c"]
    assert message.content[0] == ThinkingContent(
        "ab\n\nc",
        '{"type":"reasoning","id":"rs_0","summary":[{"type":"summary_text","text":"ab"},'
        '{"type":"summary_text","text":"c"}],"encrypted_content":"g"}',
    )


def test_reasoning_text_is_shown_and_kept_where_it_is_not_encrypted() -> None:
    stream = begun() + added(0, "reasoning", id="rs_0", summary=[])
    stream += event("response.reasoning_text.delta", item_id="rs_0", output_index=0, content_index=0, delta="Hm.")
    content = [{"type": "reasoning_text", "text": "Hm."}]
    stream += done(0, "reasoning", id="rs_0", summary=[], content=content) + said(1, "Hi") + ended()
    signature = '{"type":"reasoning","id":"rs_0","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}'
    assert message_of(stream).content[0] == ThinkingContent("Hm.", signature)


def test_a_summary_and_the_reasoning_itself_are_not_both_shown() -> None:
    """failures.md D13."""
    stream = begun() + added(0, "reasoning", id="rs_0", summary=[]) + summary(0, "Short.")
    stream += event("response.reasoning_text.delta", item_id="rs_0", output_index=0, content_index=0, delta="Long.")
    parts = {
        "summary": [{"type": "summary_text", "text": "Short."}],
        "content": [{"type": "reasoning_text", "text": "Long."}],
    }
    shown = message_of(stream + done(0, "reasoning", id="rs_0", **parts) + said(1, "Hi") + ended()).content[0]
    assert isinstance(shown, ThinkingContent)
    assert shown.thinking == "Short."


def test_reasoning_that_the_server_did_not_give_away_is_shown_but_has_nothing_to_send_back() -> None:
    """failures.md D11: with nothing stored, a bare id names nothing."""
    message = message_of(begun() + thought(0, "Hm.", encrypted=None) + said(1, "Hi") + ended())
    assert message.content == [ThinkingContent("Hm."), TextContent("Hi")]
    message = message_of(begun() + thought(0, encrypted=None) + said(1, "Hi") + ended())
    assert message.content == [TextContent("Hi")]


# Calls


@pytest.mark.parametrize("given", ['{"path":"a"', '{"path":"a"}', ""])
def test_a_call_cut_by_the_limit_is_never_complete(given: str) -> None:
    """failures.md C9: not even when what there is of it happens to be JSON."""
    for last in (
        called(0, "call_0", "read", given, status="incomplete"),
        added(0, "function_call", id="fc_0", call_id="call_0", name="read", arguments="") + arguments(0, given),
    ):
        _, message = read(begun() + last + ended("incomplete", reason="max_output_tokens"))
        assert message.tool_calls == [ToolCall("call_0", "read", raw_arguments=given)]
        assert (message.stop_reason, message.raw_stop_reason) == ("length", "max_output_tokens")


def test_a_call_whose_name_comes_late_is_told_whole() -> None:
    stream = begun() + added(0, "function_call", id="fc_0", arguments="") + arguments(0, '{"a":')
    stream += done(0, "function_call", id="fc_0", call_id="call_0", name="add", arguments='{"a":1}') + ended()
    events, message = read(stream)
    assert [event for event in events if isinstance(event, ToolCallStart | ToolCallDelta)] == [
        ToolCallStart(0, "call_0", "add"),
        ToolCallDelta('{"a":1}'),
    ]
    assert message.tool_calls == [ToolCall("call_0", "add", {"a": 1})]


def test_a_custom_tool_is_called_with_its_text() -> None:
    item = {"id": "ctc_0", "call_id": "call_0", "name": "sql"}
    stream = begun() + added(0, "custom_tool_call", **item, input="")
    stream += event("response.custom_tool_call_input.delta", item_id="ctc_0", output_index=0, delta="SELECT ")
    stream += event("response.custom_tool_call_input.done", item_id="ctc_0", output_index=0, input='SELECT "1"')
    stream += done(0, "custom_tool_call", **item, input='SELECT "1"') + ended()
    ours = Request("", [user_message("Hi")], [Tool("sql", "", {"type": "object"}, lambda: "")])
    added_by_hand = Model("openai", "gpt-5", settings={"extra_body": {"tools": [{"type": "custom", "name": "sql"}]}})
    for message in (message_of(stream, request=ours), message_of(stream, model=added_by_hand)):
        assert message.tool_calls == [ToolCall("call_0", "sql", {"input": 'SELECT "1"'}, signature="custom_tool_call")]
        assert message.stop_reason == "tool_use"


def test_a_custom_tool_that_the_server_has_run_is_not_ours() -> None:
    """xAI searches X so: no tool of the request has the name, and the item goes back as it came."""
    item = {"id": "ctc_0", "call_id": "xs_call_0", "name": "x_keyword_search", "input": '{"query":"x"}'}
    stream = begun() + added(0, "custom_tool_call", **item, status="in_progress")
    stream += event("response.custom_tool_call_input.delta", item_id="ctc_0", output_index=0, delta='{"query":')
    stream += done(0, "custom_tool_call", **item, status="completed") + said(1, "Found.") + ended()
    ours = Request("", [user_message("Hi")], [Tool("sql", "", {"type": "object"}, lambda: "")])
    for message in (message_of(stream), message_of(stream, request=ours)):
        assert (message.text, message.tool_calls, message.stop_reason) == ("Found.", [], "stop")
        assert input_of(message)[0] == {"type": "custom_tool_call", **item, "status": "completed"}


# Where the deltas and the finished item number the parts of a message otherwise: numbers of the deltas, and the parts.
NUMBERED: dict[str, tuple[list[tuple[int, str]], list[str]]] = {
    "one too many": ([(1, "Hel"), (1, "lo")], ["Hello"]),
    "far off": ([(7, "Hello")], ["Hello"]),
    "two, both one too many": ([(1, "a"), (2, "b")], ["a", "b"]),
    "the other way round": ([(0, "b"), (1, "a")], ["a", "b"]),
    "an empty part in front": ([(0, "Hello")], ["", "Hello"]),
    "one for all": ([(0, "a"), (0, "b")], ["a", "b"]),
    "two for one": ([(0, "a"), (1, "b")], ["ab"]),
    "with the end left out": ([(1, "Hel")], ["Hello"]),
}


@each_row("whole", [True, False])
@each_row("last", ["item", "response"])
@each_row("case", NUMBERED)
def test_a_message_is_said_once_however_its_parts_are_numbered(case: str, last: str, whole: bool) -> None:
    """vLLM and Bedrock number the parts of a message otherwise in the deltas than in the finished item."""
    deltas, texts = NUMBERED[case]
    parts = [text_part(text) for text in texts]
    stream = begun() + added(0, "message", id="msg_0", role="assistant", content=[])
    stream += b"".join(words(0, delta, part) for part, delta in deltas)
    if whole and "".join(texts) in [delta for _, delta in deltas]:
        at = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
        stream += event("response.output_text.done", **at, text="".join(texts))
    item = {"id": "msg_0", "role": "assistant", "content": parts}
    stream += done(0, "message", **item) + ended() if last == "item" else ended(output=[{"type": "message", **item}])
    events, message = read(stream)
    assert sorted(message.text) == sorted("".join(texts))
    shown = "".join(event.delta for event in events if isinstance(event, TextDelta))
    assert shown == message.text


FIRST_PLACE: dict[str, Any] = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
# Where a whole part that comes without deltas belongs, behind the deltas of the first part of the first message.
OTHER_PLACES: dict[str, dict[str, Any]] = {
    "another part": {**FIRST_PLACE, "content_index": 1},
    "another item": {**FIRST_PLACE, "item_id": "msg_1", "output_index": 1},
    "another item with the same id": {**FIRST_PLACE, "output_index": 1},
}


@each_row("place", OTHER_PLACES)
def test_a_whole_part_without_deltas_is_said(place: str) -> None:
    """And one whose deltas have just come is not said again."""
    at = OTHER_PLACES[place]
    stream = begun() + added(0, "message", id="msg_0", role="assistant", content=[])
    if at["output_index"]:
        stream += added(1, "message", id=at["item_id"], role="assistant", content=[])
    stream += words(0, "One.") + event("response.output_text.done", **FIRST_PLACE, text="One.")
    stream += words(0, " More.")
    assert message_of(stream + event("response.output_text.done", **at, text="Two.") + ended()).text == "One. More.Two."


def test_a_response_under_other_ids_and_indexes_is_not_said_twice() -> None:
    """Reasoning that was not streamed stands before the message in the response."""
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "e"},
        {"type": "message", "id": "msg_9", "role": "assistant", "content": [text_part("Hello")]},
    ]
    message = message_of(begun() + said(0, "Hel", "lo") + ended(output=output))
    assert message.text == "Hello"


@pytest.mark.parametrize("first", ["message", "reasoning", "function_call", "web_search_call"])
def test_items_that_finish_out_of_order_keep_their_places(first: str) -> None:
    """The place that events give a block is its place in the message: `message_of` checks it."""
    fields: dict[str, dict[str, Any]] = {
        "message": {"role": "assistant", "content": [text_part("One.")]},
        "reasoning": {"summary": [], "encrypted_content": "gAAA"},
        "function_call": {"call_id": "c1", "name": "add", "arguments": "{}"},
        "web_search_call": {"action": {"query": "x"}},
    }
    stream = begun() + added(0, first, id="i_0", **{**fields[first], "content": [], "arguments": ""})
    stream += said(1, "Two.") + called(2, "c2", "add", "{}") + done(0, first, id="i_0", **fields[first])
    message = message_of(stream + ended())
    kinds = {"message": TextContent, "function_call": ToolCall}
    assert isinstance(message.content[0], kinds.get(first, ThinkingContent))
    assert [type(block) for block in message.content[1:]] == [TextContent, ToolCall]
    assert message.text == ("One.Two." if first == "message" else "Two.")


@pytest.mark.parametrize("first", ["message", "reasoning", "web_search_call"])
def test_an_item_that_was_announced_and_never_came_leaves_an_empty_block(first: str) -> None:
    message = message_of(begun() + added(0, first, id="i_0", content=[]) + said(1, "Two.") + ended())
    assert message.content[0] in (TextContent(""), ThinkingContent(""), ThinkingContent("", redacted=True))
    assert message.text == "Two."
    assert [item["type"] for item in input_of(message)] == ["message"]


def test_a_second_response_inside_the_first_is_an_error() -> None:
    with pytest.raises(IncompleteStreamError, match="second response"):
        read(begun() + said(0, "One.") + begun() + said(0, "Two.") + ended())


# Ends


def test_an_incomplete_response_is_incomplete_whatever_its_status_says() -> None:
    response = {"status": "completed", "incomplete_details": {"reason": "max_output_tokens"}}
    _, message = read(begun() + said(0, "Well") + event("response.incomplete", response=response))
    assert (message.stop_reason, message.raw_stop_reason) == ("length", "max_output_tokens")


@pytest.mark.parametrize("status", ["cancelled", "queued", "in_progress"])
def test_a_response_that_completes_with_another_status_is_an_error(status: str) -> None:
    response = {"id": "resp_1", "status": status}
    _, message = read(begun() + said(0, "Well") + event("response.completed", response=response))
    assert (message.stop_reason, message.raw_stop_reason) == ("error", status)


def test_a_response_that_completes_incomplete_is_incomplete() -> None:
    response = {"id": "resp_1", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert (
        message_of(begun() + said(0, "Well") + event("response.completed", response=response)).stop_reason == "length"
    )


def test_a_response_may_leave_almost_everything_out() -> None:
    message = message_of(begun() + said(0, "Hi") + event("response.completed", response={}))
    assert (message.text, message.stop_reason, message.usage, message.response_id) == ("Hi", "stop", Usage(), None)
    assert not message.usage.known


def test_the_terminal_event_ends_the_reading() -> None:
    """failures.md B8: it does not wait for the end of the stream."""
    sse, decoder = SseDecoder(), WIRE.decoder(MODEL, REQUEST)
    states: list[bool] = []
    for name, data in sse.feed(begun() + said(0, "Hi") + ended()):
        decoder.feed(name, data)
        states.append(decoder.done)
    assert states == [False] * (len(states) - 1) + [True]


def test_nothing_is_read_behind_a_terminal_event_with_half_an_emoji() -> None:
    end = ended().replace(b'"resp_1"', b'"resp_\\ud83d"')
    assert message_of(begun() + said(0, "Hi") + end + b'data: {"type":"error","message":"Late."}\n\n').text == "Hi"


# Text


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude42"])
def test_half_an_emoji_is_replaced(half: str) -> None:
    """failures.md C18."""
    at = '"type":"response.output_text.delta","output_index":0,"content_index":0'
    delta = f'data: {{{at},"delta":"a{half}"}}\n\n'.encode()
    item = f'"item":{{"type":"message","content":[{{"type":"output_text","text":"a{half}"}}]}}'
    whole = f'data: {{"type":"response.output_item.done","output_index":0,{item}}}\n\n'.encode()
    for stream in (begun() + delta + whole + ended(), begun() + delta + ended(), begun() + whole + ended()):
        message = message_of(stream)
        assert message.text == "a\ufffd"
        assert msgspec.json.encode(message)


def test_empty_texts_leave_nothing_behind() -> None:
    """failures.md A7."""
    stream = begun() + said(0, "") + added(1, "message", id="msg_1", role="assistant", content=[])
    stream += event("response.content_part.added", item_id="msg_1", output_index=1, content_index=0, part=text_part(""))
    assert message_of(stream + done(1, "message", id="msg_1", role="assistant", content=[]) + ended()).content == []


def test_a_message_of_several_parts_has_as_many_blocks() -> None:
    stream = begun() + added(0, "message", id="msg_0", role="assistant", content=[])
    stream += words(0, "a", 0) + words(0, "b", 1) + words(0, "b", 1)
    whole = [text_part("a"), text_part("bb")]
    message = message_of(stream + done(0, "message", id="msg_0", role="assistant", content=whole) + ended())
    assert message.content == [TextContent("a"), TextContent("bb")]


# Anything at all

_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def events_of_any_form(draw: st.DrawFn) -> dict[str, Any]:
    """Any fields, or an item of any fields where one belongs."""
    fields: dict[str, Any] = draw(st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=6))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "new"]))
        fields = {"item": {**fields, "type": kind}, "output_index": draw(st.integers(0, 2))}
    return {**fields, "type": draw(st.sampled_from(_TYPES))}


def outcome(stream: bytes) -> AssistantMessage | ErrorInfo:
    """The answer, which can be written down, or why there is none."""
    try:
        return msgspec.json.decode(msgspec.json.encode(read(stream)[1]), type=AssistantMessage)
    except ProviderError as error:
        return error.info


@given(st.lists(events_of_any_form(), max_size=8))
def test_no_event_of_any_form_breaks_the_reading(sent: list[dict[str, Any]]) -> None:
    """failures.md B13, D16: what a server sends is read, passed over, or a `ProviderError`, and nothing else."""
    stream = b"".join(b"event: x\ndata: " + json.dumps(fields).encode() + b"\n\n" for fields in sent)
    assert outcome(stream + ended()).provider == "openai"


def test_arguments_that_come_as_an_object_with_half_of_a_character_are_kept_as_they_were_written() -> None:
    """Like arguments as text: the call must not run with another character."""
    item = done(0, "function_call", call_id="c", name="f", arguments={"a": "HALF"}).replace(b"HALF", b"\\ud83d")
    (found,) = message_of(begun() + item + ended()).tool_calls
    assert (found.arguments, found.raw_arguments) == ({}, '{"a": "\\ud83d"}')
