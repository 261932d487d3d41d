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
    message_of,
    read,
    said,
    summary,
    text_part,
    thought,
    words,
)
from tests.provider.wires.reading import REQUEST, chunks

from steersman.provider.http.sse import SseDecoder
from steersman.provider.streaming.partial import build_content
from steersman.provider.wires.openai_responses.encode import find_tool_set
from steersman.provider.wires.openai_responses.wire import WIRE
from steersman.testing import check_stream
from steersman.tools.tool import Tool
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.errors import (
    ContextOverflowError,
    ErrorInfo,
    IncompleteStreamError,
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    QuotaError,
    RateLimitError,
    RefusedError,
)
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Request
from steersman.types.stream import (
    Done,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
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

RICH = (
    begun()
    + thought(0, "Let me 想", "一想 🤔.")
    + said(1, "Größe: ", "日本語 🙂", " ok", phase="commentary")
    + called(2, "call_a", "add", '{"a": ', '2, "b": 3}')
    + called(3, "call_b", "now")
    + ended(
        usage={
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 120,
        }
    )
)

RICH_MESSAGE = AssistantMessage(
    [
        ThinkingContent(
            "Let me 想一想 🤔.",
            '{"type":"reasoning","id":"rs_0","summary":[{"type":"summary_text","text":"Let me 想一想 🤔."}],'
            '"encrypted_content":"gAAAA"}',
        ),
        TextContent("Größe: 日本語 🙂 ok", "commentary"),
        ToolCall("call_a", "add", {"a": 2, "b": 3}),
        ToolCall("call_b", "now"),
    ],
    stop_reason="tool_use",
    raw_stop_reason="completed",
    usage=Usage(input=10, output=20, cache_read=60, cache_write=30, reasoning=7),
    model="gpt-5",
    provider="openai",
    response_id="resp_1",
)


def test_a_whole_answer_is_read_in_the_normal_form() -> None:
    """failures.md I7: cached tokens are taken out of the input, and reasoning stays part of the output."""
    assert message_of(RICH) == RICH_MESSAGE
    assert RICH_MESSAGE.usage.total == 120


def test_the_deltas_come_as_they_were_sent() -> None:
    events, _ = read(begun() + said(0, "Hel", "lo") + ended())
    assert events == [StreamStart(), TextStart(), TextDelta("Hel"), TextDelta("lo"), TextEnd()]


def test_a_stream_with_everything_is_the_same_however_it_is_cut() -> None:
    """failures.md B1, B2."""
    whole = read(RICH)
    assert read(chunks(RICH, 1)) == whole
    for cut in range(1, len(RICH)):
        assert read((RICH[:cut], RICH[cut:])) == whole, cut
    for line_end in (b"\r\n", b"\r"):
        assert read(RICH.replace(b"\n", line_end)) == whole


def recorded(name: str) -> AssistantMessage:
    events, message = read(next(path for path in RECORDED if f"{path.parent.name}/{path.stem}" == name).read_bytes())
    check_stream([*events, Done(message)])
    return message


def test_the_parallel_calls_of_llama_cpp_are_told_apart_without_any_index() -> None:
    """failures.md C1, C2: item ids are all there is."""
    message = recorded("llamacpp-smollm2/responses_parallel_function_calls")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [
        ("count_lines", {"path": "README.md"}),
        ("count_lines", {"path": "setup.py"}),
    ]
    assert message.stop_reason == "tool_use"
    assert message.usage == Usage(input=1, output=59, cache_read=603)


def test_a_call_that_llama_cpp_cuts_and_reports_as_completed_is_cut_all_the_same() -> None:
    """failures.md C9."""
    message = recorded("llamacpp-qwen0.5b/responses_function_call_length")
    assert [call.raw_arguments for call in message.tool_calls] == ['{"path": "/home/user']
    assert (message.stop_reason, message.raw_stop_reason) == ("length", "completed")


def test_recorded_texts_are_what_their_servers_say_they_are() -> None:
    for path in RECORDED:
        terminal = path.read_bytes().rsplit(b"data: ", 1)[1]
        output = msgspec.json.decode(terminal)["response"]["output"]
        texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
        assert read(path.read_bytes())[1].text == "".join(texts), path.name


def test_events_without_names_are_known_by_their_type() -> None:
    """failures.md B21."""
    bare = b"".join(line + b"\n" for line in RICH.split(b"\n") if not line.startswith(b"event: "))
    assert read(bare) == read(RICH)


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


@pytest.mark.parametrize(
    "unknown",
    [
        event("response.new_thing", delta={"not": "text"}, item=7),
        event("response.compaction.compacting", item_id="x"),
        event("response.output_text.annotation.added", annotation={}, output_index=0, content_index=0),
        event("response.queued", response={"id": "resp_1", "status": "queued"}),
        event("keepalive", sequence_number=4),
        event("response.audio.delta", delta="AAAA"),
        b": comment\n\n",
        b"data: : OPENROUTER PROCESSING\n\n",
        b"data: [DONE]\n\n",
        b"event: ping\ndata:\n\n",
        b"id: 4\nretry: 10\n\n",
    ],
)
def test_what_nobody_knows_is_passed_over(unknown: bytes) -> None:
    """failures.md D16, B3, B6."""
    stream = begun() + unknown + said(0, "a", "b") + unknown + ended()
    middle = stream.replace(words(0, "b"), unknown + words(0, "b"))
    assert read(middle)[1] == read(begun() + said(0, "a", "b") + ended())[1]


def test_an_item_nobody_knows_is_kept_for_the_next_request() -> None:
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


def test_interleaved_calls_are_put_together_each_for_itself() -> None:
    """failures.md C1."""
    stream = begun() + b"".join(
        added(index, "function_call", id=f"fc_{index}", call_id=f"call_{index}", name="add", arguments="")
        for index in (0, 1)
    )
    for piece in ('{"a"', ":1", "}"):
        stream += arguments(0, piece) + arguments(1, piece)
    for index in (1, 0):
        stream += done(
            index, "function_call", id=f"fc_{index}", call_id=f"call_{index}", name="add", arguments='{"a":1}'
        )
    assert message_of(stream + ended()).tool_calls == [
        ToolCall("call_0", "add", {"a": 1}),
        ToolCall("call_1", "add", {"a": 1}),
    ]


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


@pytest.mark.parametrize("given", ["", "  ", None, "null", "{}"])
def test_a_call_without_arguments_has_none(given: str | None) -> None:
    """failures.md C6."""
    stream = begun() + added(0, "function_call", id="fc_0", call_id="call_0", name="now", arguments="")
    stream += done(0, "function_call", id="fc_0", call_id="call_0", name="now", arguments=given) + ended()
    message = read(stream)[1]
    assert (message.tool_calls, message.stop_reason) == ([ToolCall("call_0", "now")], "tool_use")


def test_arguments_that_come_as_an_object_are_taken() -> None:
    """failures.md C17."""
    stream = begun() + done(0, "function_call", call_id="call_0", name="add", arguments={"a": 1}) + ended()
    assert message_of(stream).tool_calls == [ToolCall("call_0", "add", {"a": 1})]


@pytest.mark.parametrize("given", ["[]", '"x"', "1", "true"])
def test_arguments_that_are_no_object_are_kept_as_written(given: str) -> None:
    """failures.md C7."""
    message = message_of(begun() + called(0, "call_0", "add", given) + ended())
    assert message.tool_calls == [ToolCall("call_0", "add", raw_arguments=given)]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("given", ['{"a": NaN}', '{"a": 1', "{'a': 1}", '{"a":' * 5_000, '{"a": "\\ud83d"}'])
def test_hostile_arguments_are_kept_as_written_and_count_as_cut(given: str) -> None:
    """failures.md C12."""
    message = message_of(begun() + called(0, "call_0", "add", given) + ended())
    assert message.tool_calls == [ToolCall("call_0", "add", raw_arguments=given)]
    assert message.stop_reason == "length"


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


def test_a_call_that_was_complete_before_the_limit_stays_complete() -> None:
    stream = begun() + called(0, "call_0", "read", '{"path":"a"}') + said(1, "And", status="incomplete")
    message = message_of(stream + ended("incomplete", reason="max_output_tokens"))
    assert message.tool_calls == [ToolCall("call_0", "read", {"path": "a"})]
    assert message.stop_reason == "length"


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
    message = message_of(stream)
    assert message.tool_calls == [ToolCall("call_0", "sql", {"input": 'SELECT "1"'}, signature="custom_tool_call")]
    assert message.stop_reason == "tool_use"


def test_a_tool_is_called_by_the_name_it_has_here() -> None:
    """failures.md C14."""
    spec = Tool("calendar.list", "", {"type": "object", "properties": {}}, lambda: "")
    request = Request("", [user_message("Hi")], [spec])
    wire = find_tool_set(request).names.to_wire("calendar.list")
    message = message_of(begun() + called(0, "call_0", wire, "{}") + ended(), request=request)
    assert message.tool_calls[0].name == "calendar.list"


# Ends


def test_a_refusal_is_shown_and_ends_the_answer_as_one() -> None:
    """failures.md D1."""
    at = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    stream = begun() + added(0, "message", id="msg_0", role="assistant", content=[])
    stream += event("response.refusal.delta", **at, delta="I can") + event("response.refusal.delta", **at, delta="not.")
    part = {"type": "refusal", "refusal": "I cannot."}
    stream += event("response.refusal.done", **at, refusal="I cannot.")
    stream += done(0, "message", id="msg_0", role="assistant", content=[part]) + called(1, "call_1", "add", "{}")
    _, message = read(stream + ended())
    assert (message.stop_reason, message.error_kind) == ("refusal", "refused")
    assert (message.error_message, message.text) == ("I cannot.", "I cannot.")
    assert message.failed


def test_a_refusal_that_only_its_deltas_tell_is_one() -> None:
    at = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    _, message = read(begun() + event("response.refusal.delta", **at, delta="No.") + ended())
    assert (message.stop_reason, message.error_message) == ("refusal", "No.")


def test_an_incomplete_response_is_incomplete_whatever_its_status_says() -> None:
    response = {"status": "completed", "incomplete_details": {"reason": "max_output_tokens"}}
    _, message = read(begun() + said(0, "Well") + event("response.incomplete", response=response))
    assert (message.stop_reason, message.raw_stop_reason) == ("length", "max_output_tokens")


@pytest.mark.parametrize("before", [b"", said(0, "Well"), thought(0, "Hm."), called(0, "call_0", "add", "{}")])
def test_a_filtered_answer_is_a_refusal_wherever_it_stops(before: bytes) -> None:
    """failures.md D1."""
    _, message = read(begun() + before + ended("incomplete", reason="content_filter"))
    assert (message.stop_reason, message.raw_stop_reason) == ("refusal", "content_filter")
    assert message.error_message == "The provider's filter stopped the answer (content_filter)."


@pytest.mark.parametrize("reason", ["max_messages", "steered", "new_reason", 7])
def test_a_reason_that_is_not_known_is_an_error_that_names_it(reason: Any) -> None:
    """failures.md D2."""
    _, message = read(begun() + said(0, "Well") + ended("incomplete", reason=reason))
    assert (message.stop_reason, message.raw_stop_reason) == ("error", str(reason))
    assert repr(reason) in str(message.error_message)
    assert message.text == "Well"


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


FAILURES: list[tuple[dict[str, Any], type[ProviderError]]] = [
    ({"code": "server_error", "message": "Oops"}, OverloadedError),
    ({"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}, RateLimitError),
    ({"code": "insufficient_quota", "message": "You exceeded your current quota."}, QuotaError),
    ({"code": "invalid_prompt", "message": "Flagged."}, RefusedError),
    ({"code": "bio_policy", "message": "Flagged."}, RefusedError),
    ({"code": "misalignment_policy_violation", "message": "Flagged."}, RefusedError),
    ({"code": "vector_store_timeout", "message": "Slow."}, OverloadedError),
    ({"code": "invalid_image", "message": "No image."}, InvalidRequestError),
    ({"code": "data_residency_mismatch", "message": "Elsewhere."}, InvalidRequestError),
    (
        {
            "code": "context_length_exceeded",
            "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
        },
        ContextOverflowError,
    ),
    ({"code": None, "message": "Your input exceeds the context window of this model."}, ContextOverflowError),
    ({"code": None, "message": None}, OverloadedError),
]


@pytest.mark.parametrize(("error", "kind"), FAILURES)
def test_a_failed_response_says_what_kind_of_failure_it_is(error: dict[str, Any], kind: type[ProviderError]) -> None:
    """failures.md B11, E6: by the code, then by the words."""
    for last in (
        ended("failed", error=error),
        event("error", **error, param=None, sequence_number=3),
        event("error", error=error),
        b"data: " + msgspec.json.encode({"error": error}) + b"\n\n",
    ):
        with pytest.raises(kind) as caught:
            read(begun() + said(0, "Hi") + last)
        assert (caught.value.info.provider, type(caught.value)) == ("openai", kind)
        assert (error["message"] or "without a message") in caught.value.info.message


def test_a_failure_inside_a_stream_says_how_long_to_wait() -> None:
    with pytest.raises(RateLimitError) as caught:
        read(begun() + ended("failed", error={"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}))
    assert caught.value.info.retry_after == 1.5
    assert caught.value.info.should_retry


def test_an_error_of_llama_cpp_in_mid_stream_is_known_by_its_status() -> None:
    error = {"code": 500, "message": "does not match the expected peg-native format", "type": "server_error"}
    with pytest.raises(OverloadedError) as caught:
        read(begun() + words(0, "Hi") + b"data: " + msgspec.json.encode({"error": error}) + b"\n\n")
    assert caught.value.info.status == 500


def test_a_stream_that_ends_early_is_incomplete_at_every_byte() -> None:
    """failures.md B17: only the terminal event, whole, makes an answer; B9: its blank line may be missing."""
    whole = len(RICH) - len(b"\n\n")
    for cut in range(len(RICH) + 1):
        if cut < whole:
            with pytest.raises((IncompleteStreamError, ProtocolError)):
                read(RICH[:cut])
        else:
            assert read(RICH[:cut])[1] == RICH_MESSAGE


def test_what_came_before_an_early_end_is_what_the_deltas_said() -> None:
    stream = begun() + said(0, "Hel", "lo") + called(1, "call_1", "add", '{"a":')
    sse, decoder = SseDecoder(), WIRE.decoder(MODEL, REQUEST)
    events = [shown for name, data in sse.feed(stream) for shown in decoder.feed(name, data)]
    assert build_content(events)[0] == TextContent("Hello")
    assert not decoder.done


@pytest.mark.parametrize(
    "garbage",
    [
        "not json",
        '{"type": "response.output_text.delta", "delta": 7}',
        '{"type": "response.completed", "response": "x"}',
        '{"type": "response.output_item.done", "item": {"type": "message", "content": "x"}}',
        "[1]",
        '"x"',
        '{"a": NaN}',
        "[" * 100_000,
    ],
)
def test_what_is_not_an_event_is_a_protocol_error_that_shows_it(garbage: str) -> None:
    """failures.md B13."""
    with pytest.raises(ProtocolError) as caught:
        read(begun() + b"data: " + garbage.encode() + b"\n\n" + ended())
    assert garbage[:10] in caught.value.info.message
    assert len(caught.value.info.message) < 500


def test_the_terminal_event_ends_the_reading() -> None:
    """failures.md B8: nobody waits for the end of the stream."""
    sse, decoder = SseDecoder(), WIRE.decoder(MODEL, REQUEST)
    states: list[bool] = []
    for name, data in sse.feed(begun() + said(0, "Hi") + ended()):
        decoder.feed(name, data)
        states.append(decoder.done)
    assert states == [False] * (len(states) - 1) + [True]


# Text


def test_an_emoji_split_between_two_deltas_is_put_together() -> None:
    """failures.md C18."""
    at = '"type":"response.output_text.delta","output_index":0,"content_index":0'
    halves = [f'data: {{{at},"delta":"{half}"}}\n\n'.encode() for half in ("a\\ud83d", "\\ude42b")]
    whole = done(0, "message", id="msg_0", role="assistant", content=[text_part("a🙂b")])
    events, message = read(begun() + halves[0] + halves[1] + whole + ended())
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["a", "🙂b"]
    assert message.text == "a🙂b"


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


def test_an_invalid_byte_is_replaced() -> None:
    """failures.md B22."""
    stream = begun() + said(0, "a?b") + ended()
    assert message_of(stream.replace(b"a?b", b"a\xffb")).text == "a\ufffdb"


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


def test_usage_that_says_more_was_cached_than_was_asked_is_not_negative() -> None:
    usage = {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9}, "output_tokens": 1}
    assert message_of(begun() + said(0, "Hi") + ended(usage=usage)).usage == Usage(input=0, output=1, cache_read=9)


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


@given(st.data())
def test_no_damage_to_a_stream_breaks_the_reading(data: st.DataObject) -> None:
    damaged = bytearray(RICH)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    assert outcome(bytes(damaged)).provider == "openai"
