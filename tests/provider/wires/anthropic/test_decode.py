"""Answers of the Anthropic Messages API, read from every kind of stream that servers were seen to send."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
from tests.provider.wires.anthropic.kit import (
    RECORDED,
    begun,
    body_of,
    called,
    delta,
    ended,
    event,
    message_of,
    read,
    said,
    start,
    stop,
)
from tests.provider.wires.reading import chunks

from steersman.provider.streaming.partial import build_content
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.tools.tool import Tool
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import IncompleteStreamError, OverloadedError, ProtocolError, ProviderError, RateLimitError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request
from steersman.types.stream import TextDelta, TextEnd, TextStart, ThinkingDelta, ToolCallDelta
from steersman.types.usage import Usage

RICH = (
    begun(input_tokens=10, cache_read_input_tokens=7, output_tokens=1)
    + event("ping")
    + start(0, "thinking", thinking="", signature="")
    + delta(0, "thinking_delta", thinking="Let me 想")
    + delta(0, "thinking_delta", thinking="一想 🤔.")
    + delta(0, "signature_delta", signature="c2ln")
    + stop(0)
    + said(1, "Größe: ", "日本語 🙂", " ok")
    + called(2, "toolu_1", "add", "", '{"a": ', '2, "b": 3}')
    + called(3, "toolu_2", "now")
    + ended("tool_use", output=42, usage={"input_tokens": 12})
)
RICH_MESSAGE = AssistantMessage(
    [
        ThinkingContent("Let me 想一想 🤔.", "c2ln"),
        TextContent("Größe: 日本語 🙂 ok"),
        ToolCall("toolu_1", "add", {"a": 2, "b": 3}),
        ToolCall("toolu_2", "now"),
    ],
    stop_reason="tool_use",
    raw_stop_reason="tool_use",
    usage=Usage(input=12, output=42, cache_read=7),
    model="claude-sonnet-4-5",
    provider="anthropic",
    response_id="msg_1",
)


def test_an_answer_with_everything_in_it_is_read_whole() -> None:
    assert message_of(RICH) == RICH_MESSAGE


def test_an_answer_in_many_scripts_is_read_the_same_however_it_is_cut() -> None:
    """failures.md B1."""
    whole = read(RICH)
    assert read(chunks(RICH, 1)) == whole
    for at in range(len(RICH)):
        assert read((RICH[:at], RICH[at:])) == whole


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_line_ends_make_no_difference(end: bytes) -> None:
    """failures.md B2."""
    assert read(chunks(RICH.replace(b"\n", end), 7)) == read(RICH)


def recorded(name: str) -> AssistantMessage:
    path = next(path for path in RECORDED if f"{path.parent.name}/{path.stem}" == name)
    return message_of(path.read_bytes(), model=Model("anthropic", "local"))


def test_a_recorded_text() -> None:
    assert recorded("llamacpp-qwen0.5b/anthropic_text") == AssistantMessage(
        [TextContent("Hello!")],
        stop_reason="stop",
        raw_stop_reason="end_turn",
        usage=Usage(input=1, output=3, cache_read=25),
        model="local",
        provider="anthropic",
        response_id="chatcmpl-bEfn4Gd1Mn3dz8y3tMoAXKMUUqnV617o",
    )


def test_recorded_parallel_calls_whose_blocks_overlap() -> None:
    """failures.md C1: the second block begins before the first one ends."""
    message = recorded("llamacpp-smollm2/anthropic_parallel_tool_use")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [
        ("count_lines", {"path": "README.md"}),
        ("count_lines", {"path": "setup.py"}),
    ]
    assert message.stop_reason == "tool_use"


def test_a_recorded_call_without_arguments() -> None:
    """failures.md C6."""
    message = recorded("llamacpp-qwen0.5b/anthropic_tool_use_noargs")
    assert [(call.name, call.arguments, call.raw_arguments) for call in message.tool_calls] == [
        ("current_time", {}, None)
    ]


def test_a_recorded_call_that_was_cut_keeps_what_was_written() -> None:
    """failures.md C9: never executed, never mended."""
    message = recorded("llamacpp-qwen0.5b/anthropic_tool_use_max_tokens")
    assert (message.stop_reason, message.raw_stop_reason) == ("length", "max_tokens")
    assert [(call.arguments, call.raw_arguments) for call in message.tool_calls] == [({}, '{"path": "/home/user')]


@pytest.mark.parametrize("pieces", [(), ("",), ("  ",), ("null",), ("{}",)])
def test_no_arguments_are_none_in_every_form(pieces: tuple[str, ...]) -> None:
    """failures.md C6."""
    message = message_of(begun() + called(0, "t", "now", *pieces) + ended("tool_use"))
    assert message.content == [ToolCall("t", "now")]
    assert message.stop_reason == "tool_use"


WRONG = [("[]", "tool_use"), ('"x"', "tool_use"), ("1", "tool_use")]
CUT = [('{"a": NaN}', "length"), ('{"a":', "length"), ("{" * 5000, "length")]


@pytest.mark.parametrize(("raw", "reason"), WRONG + CUT)
def test_arguments_that_are_no_object_are_kept_as_written_and_never_run(raw: str, reason: str) -> None:
    """failures.md C7, C12: only what is no JSON counts as cut."""
    message = message_of(begun() + called(0, "t", "now", raw) + ended("tool_use"))
    assert [call.raw_arguments for call in message.tool_calls] == [raw]
    assert message.stop_reason == reason


def test_a_call_cut_before_its_first_argument_is_not_a_call_without_arguments() -> None:
    """failures.md C9."""
    message = message_of(begun() + called(0, "t", "remove_all", "") + ended("max_tokens"))
    assert message.content == [ToolCall("t", "remove_all", raw_arguments="")]
    assert message.stop_reason == "length"


def test_a_complete_call_before_the_cut_stays_complete() -> None:
    stream = begun() + called(0, "t", "now", "{}") + called(1, "u", "add", '{"a": 1') + ended("max_tokens")
    assert [call.raw_arguments for call in message_of(stream).tool_calls] == [None, '{"a": 1']


@pytest.mark.parametrize("given", [{"a": 1}, '{"a": 1}'])
def test_the_input_of_a_call_may_come_whole_at_its_start(given: object) -> None:
    """failures.md C17."""
    stream = begun() + start(0, "tool_use", id="t", name="add", input=given) + stop(0) + ended("tool_use")
    assert message_of(stream).content == [ToolCall("t", "add", {"a": 1})]


def test_interleaved_deltas_go_to_their_own_blocks() -> None:
    """failures.md C1."""
    stream = (
        begun()
        + start(0, "tool_use", id="t", name="add", input={})
        + start(1, "tool_use", id="u", name="sub", input={})
        + delta(0, "input_json_delta", partial_json='{"a"')
        + delta(1, "input_json_delta", partial_json='{"b"')
        + delta(0, "input_json_delta", partial_json=":1}")
        + delta(1, "input_json_delta", partial_json=":2}")
        + stop(1)
        + stop(0)
        + ended("tool_use")
    )
    assert message_of(stream).content == [ToolCall("t", "add", {"a": 1}), ToolCall("u", "sub", {"b": 2})]


def test_a_server_that_counts_every_block_as_the_first_is_understood() -> None:
    stream = begun() + said(0, "One.") + called(0, "t", "now") + ended("tool_use")
    assert message_of(stream).content == [TextContent("One."), ToolCall("t", "now")]


def test_blocks_that_nobody_ended_end_with_the_message() -> None:
    stream = begun() + start(0, "text", text="") + delta(0, "text_delta", text="Hi") + ended()
    assert message_of(stream).content == [TextContent("Hi")]


def test_words_of_a_block_that_never_began_are_not_lost() -> None:
    stream = begun() + delta(0, "text_delta", text="Hi") + delta(1, "thinking_delta", thinking="Hm") + ended()
    assert message_of(stream).content == [TextContent("Hi"), ThinkingContent("Hm")]


def test_the_input_of_a_call_that_never_began_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="block 0, which it never started"):
        read(begun() + delta(0, "input_json_delta", partial_json="{}") + ended("tool_use"))


def test_text_and_thinking_may_come_with_the_start_of_their_block() -> None:
    stream = (
        begun()
        + start(0, "thinking", thinking="Hm.", signature="sig")
        + stop(0)
        + start(1, "text", text="Hel")
        + delta(1, "text_delta", text="lo")
        + stop(1)
        + ended()
    )
    assert message_of(stream).content == [ThinkingContent("Hm.", "sig"), TextContent("Hello")]


def test_events_without_names_are_told_by_their_json() -> None:
    """failures.md B21."""
    nameless = b"".join(line + b"\n" for line in RICH.split(b"\n") if not line.startswith(b"event:"))
    assert message_of(nameless) == RICH_MESSAGE


def test_comments_pings_and_what_is_unknown_are_passed_over() -> None:
    """failures.md B3, D16."""
    noise = (
        b": keep-alive\n\n"
        + event("ping")
        + b"data: : OPENROUTER PROCESSING\n\n"
        + event("new_event", surprise={"deep": [1, 2]})
        + b"event: ping\n\n"
        + b"id: 7\n\n"
        + b"data: [DONE]\n\n"
    )
    parts = RICH.split(b"\n\n")[:-1]
    assert message_of(noise.join(part + b"\n\n" for part in parts)) == RICH_MESSAGE


def test_unknown_deltas_and_those_of_another_kind_are_passed_over() -> None:
    """failures.md D16."""
    stream = (
        begun()
        + start(0, "text", text="", citations=None)
        + delta(0, "text_delta", text="Hi")
        + delta(0, "citations_delta", citation={"type": "char_location", "cited_text": "x"})
        + delta(0, "new_delta", text="not for us")
        + delta(0, "thinking_delta", thinking="not here")
        + delta(0, "input_json_delta", partial_json="{}")
        + delta(0, "signature_delta", signature="s")
        + stop(0)
        + ended()
    )
    assert message_of(stream).content == [TextContent("Hi")]


def test_an_unknown_block_is_kept_for_the_next_request() -> None:
    """failures.md D16: opaque, byte for byte."""
    block = b'{"type": "new_thing",  "payload": {"b": 1, "a": [2]}}'
    opening = b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":' + block
    message = message_of(begun() + opening + b"}\n\n" + stop(0) + said(1, "Hi") + ended())
    assert message.content == [
        ThinkingContent("", block.decode(), redacted=True, field=OPAQUE),
        TextContent("Hi"),
    ]


def test_a_call_of_the_servers_own_tool_is_kept_with_its_input() -> None:
    stream = (
        begun()
        + start(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={})
        + delta(0, "input_json_delta", partial_json='{"query": ')
        + delta(0, "input_json_delta", partial_json='"x"}')
        + stop(0)
        + said(1, "Hi")
        + ended()
    )
    block = message_of(stream).content[0]
    assert isinstance(block, ThinkingContent)
    assert msgspec.json.decode(block.signature or "") == {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }


def test_signatures_are_replaced_not_added_and_every_thinking_has_its_own() -> None:
    """failures.md D5."""
    stream = begun()
    for index, name in enumerate(("one", "two")):
        stream += start(index, "thinking", thinking="", signature="")
        stream += delta(index, "thinking_delta", thinking=name)
        stream += delta(index, "signature_delta", signature="first")
        stream += delta(index, "signature_delta", signature=f"sig-{name}") + stop(index)
    assert message_of(stream + said(2, "Hi") + ended()).content == [
        ThinkingContent("one", "sig-one"),
        ThinkingContent("two", "sig-two"),
        TextContent("Hi"),
    ]


def test_hidden_thinking_is_kept() -> None:
    """Thinking that is redacted, and thinking whose text is left out, go back as they came."""
    stream = (
        begun()
        + start(0, "redacted_thinking", data="ZW5j")
        + stop(0)
        + start(1, "thinking", thinking="", signature="")
        + delta(1, "signature_delta", signature="c2ln")
        + stop(1)
        + said(2, "Hi")
        + ended()
    )
    assert message_of(stream).content == [
        ThinkingContent("", "ZW5j", redacted=True),
        ThinkingContent("", "c2ln"),
        TextContent("Hi"),
    ]


def usage_of(first: dict[str, Any], last: dict[str, Any]) -> Usage:
    return message_of(begun(**first) + said(0, "Hi") + ended(usage=last)).usage


@pytest.mark.parametrize(
    ("first", "last", "usage"),
    [
        ({"input_tokens": 9, "output_tokens": 1}, {}, Usage(input=9, output=5)),
        (
            {"input_tokens": 9, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4},
            {"cache_read_input_tokens": None},
            Usage(input=9, output=5, cache_read=4, cache_write=3),
        ),
        (
            {"input_tokens": 100, "cache_read_input_tokens": 90, "output_tokens": 1},
            {"input_tokens": 10, "cache_read_input_tokens": 90},
            Usage(input=10, output=5, cache_read=90),
        ),
        ({"input_tokens": 9}, {"output_tokens_details": {"thinking_tokens": 4}}, Usage(input=9, output=5, reasoning=4)),
        ({"input_tokens": "many"}, {"cache_read_input_tokens": -1}, Usage(output=5)),
        ({"input_tokens": 9.0}, {}, Usage(input=9, output=5)),
    ],
)
def test_later_counts_replace_earlier_ones_and_are_never_added(
    first: dict[str, Any], last: dict[str, Any], usage: Usage
) -> None:
    """failures.md I7."""
    assert usage_of(first, last) == usage


def test_usage_that_was_not_told_is_unknown() -> None:
    """failures.md I8."""
    stream = event("message_start", message={"id": "m"}) + said(0, "Hi")
    stream += event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop")
    assert message_of(stream).usage == Usage()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("tool_use", "stop")],
)
def test_a_stop_reason_is_told_in_our_words_and_kept_in_theirs(raw: str, reason: str) -> None:
    message = message_of(begun() + said(0, "Hi") + ended(raw))
    assert (message.stop_reason, message.raw_stop_reason, message.error_message) == (reason, raw, None)


@pytest.mark.parametrize("raw", ["end_turn", "stop_sequence", "tool_use"])
def test_calls_make_it_a_tool_turn_whatever_the_server_says(raw: str) -> None:
    """failures.md C11."""
    assert message_of(begun() + called(0, "t", "now") + ended(raw)).stop_reason == "tool_use"


@pytest.mark.parametrize(("raw", "word"), [("model_length", "model_length"), ("eos", "eos"), (None, None), (7, "7")])
def test_an_unknown_stop_reason_is_no_success(raw: object, word: str | None) -> None:
    """failures.md D2."""
    message = message_of(begun() + said(0, "Hi") + ended(raw))
    assert (message.stop_reason, message.raw_stop_reason) == ("error", word)
    assert message.error_message == f"The server stopped with an unknown stop_reason: {raw!r}."
    assert message.text == "Hi"


@pytest.mark.parametrize("before", [b"", said(0, "I can"), called(0, "t", "rm", "{}")], ids=["empty", "text", "call"])
def test_a_refusal_says_why(before: bytes) -> None:
    """failures.md D1: at the start, after text, after a call."""
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    message = message_of(begun() + before + ended("refusal", stop_details=details))
    assert (message.stop_reason, message.error_kind) == ("refusal", "refused")
    assert message.error_message == "The model refused to answer (cyber). Not this."
    assert message.failed


def test_a_refusal_without_details() -> None:
    message = message_of(begun() + ended("refusal", stop_details=None))
    assert message.error_message == "The model refused to answer."


def test_a_full_window_is_told_apart_from_a_reached_limit() -> None:
    """failures.md D4; its usage is kept, for it was paid for."""
    message = message_of(begun() + said(0, "Hi") + ended("model_context_window_exceeded"))
    assert (message.stop_reason, message.error_kind, message.usage.total) == ("error", "context_overflow", 15)


def test_a_character_split_between_two_deltas_is_joined() -> None:
    """failures.md C18."""
    high, low = '{"type":"text_delta","text":"a\\ud83d"}', '{"type":"text_delta","text":"\\ude42b"}'
    stream = begun() + start(0, "text", text="")
    for half in (high, low):
        stream += b'event: content_block_delta\ndata: {"index":0,"delta":' + half.encode() + b"}\n\n"
    events, message = read(stream + stop(0) + ended())
    assert message.text == "a🙂b"
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["a", "🙂b"]


def test_half_a_character_alone_is_not_shown_as_nothing() -> None:
    """failures.md C18."""
    halves = delta(0, "text_delta", text="(high)") + delta(0, "text_delta", text="(low)")
    stream = halves.replace(b"(high)", b"\\ud83d").replace(b"(low)", b"\\ude42")
    events, _ = read(begun() + start(0, "text", text="") + stream + stop(0) + ended())
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["🙂"]


@pytest.mark.parametrize(("kind", "field"), [("text", "text"), ("thinking", "thinking")])
def test_half_a_character_is_replaced(kind: str, field: str) -> None:
    """failures.md C18."""
    half = f'{{"index":0,"delta":{{"type":"{kind}_delta","{field}":"a\\ud83d"}}}}'
    stream = begun() + start(0, kind) + b"event: content_block_delta\ndata: " + half.encode() + b"\n\n"
    events, message = read(stream + stop(0) + ended())
    assert "".join(event.delta for event in events if isinstance(event, TextDelta | ThinkingDelta)) == "a\ufffd"
    block = message.content[0]
    assert block in (TextContent("a\ufffd"), ThinkingContent("a\ufffd"))
    assert msgspec.json.decode(msgspec.json.encode(message)) is not None


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("text", {"text": "a(half)"}, TextContent("a\ufffd")),
        ("thinking", {"thinking": "a(half)"}, ThinkingContent("a\ufffd")),
        ("tool_use", {"id": "t(half)", "name": "n(half)", "input": {}}, ToolCall("t\ufffd", "n\ufffd")),
    ],
)
def test_half_a_character_where_a_block_begins_is_replaced(kind: str, fields: Any, expected: Content) -> None:
    """failures.md C18."""
    stream = (begun() + start(0, kind, **fields)).replace(b"(half)", b"\\ud83d")
    assert message_of(stream + stop(0) + ended()).content == [expected]


def test_bytes_that_are_no_text_are_replaced_and_the_stream_goes_on() -> None:
    """failures.md B22."""
    stream = begun() + said(0, "a?b", "c") + ended()
    assert message_of(stream.replace(b"a?b", b"a\xffb")).text == "a\ufffdbc"


def test_line_separators_inside_a_text_do_not_cut_it() -> None:
    text = "a\u2028b\u0085c\x0bd\x0ce\x1cf"
    assert message_of(begun() + said(0, text) + ended()).text == text


@pytest.mark.parametrize(
    "garbage",
    [b"event: content_block_delta\ndata: {oops\n\n", b"data: {oops\n\n", b"data: 7\n\n", b'data: {"type": 7}\n\n'],
)
def test_garbage_in_the_midst_of_a_stream_is_a_typed_error(garbage: bytes) -> None:
    """failures.md B13."""
    with pytest.raises(ProtocolError, match="does not match its protocol") as caught:
        read(begun() + garbage + said(0, "Hi") + ended())
    assert caught.value.info.provider == "anthropic"


ERROR = {"type": "overloaded_error", "message": "Overloaded"}


@pytest.mark.parametrize(
    "shown", [b"", begun(), begun() + start(0, "text", text="") + delta(0, "text_delta", text="a")]
)
def test_an_error_event_is_told_by_its_type(shown: bytes) -> None:
    """failures.md B11."""
    with pytest.raises(OverloadedError, match="Overloaded") as caught:
        read(shown + event("error", error=ERROR, request_id="req_1"))
    assert (caught.value.info.should_retry, caught.value.info.request_id) == (True, "req_1")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'data: {"error":{"code":429,"message":"slow down","type":"rate_limit_error"}}', RateLimitError),
        (b'data: {"error":{"code":500,"message":"oops","type":"server_error"}}', OverloadedError),
        (b'event: error\ndata: {"type":"error","error":{"type":"new_error","message":"?"}}', OverloadedError),
        (b"event: error\ndata: upstream went away", OverloadedError),
        (b'event: error\ndata: {"detail":"upstream went away"}', OverloadedError),
    ],
)
def test_errors_of_other_servers_are_errors_too(data: bytes, kind: type[Exception]) -> None:
    """failures.md B11: llama.cpp sends its error without a name, proxies send mere text."""
    with pytest.raises(kind):
        read(begun() + data + b"\n\n")


def outcome_of(stream: bytes) -> AssistantMessage | ProviderError:
    try:
        return read(stream)[1]
    except ProviderError as error:
        return error


def test_a_stream_cut_at_every_byte_is_never_a_success() -> None:
    """Only from where the last event is whole, even without its blank line, is there an answer (failures.md B9)."""
    whole = len(RICH) - len(b"\n\n")
    for at in range(len(RICH)):
        outcome = outcome_of(RICH[:at])
        if at >= whole:
            assert outcome == RICH_MESSAGE
        else:
            assert isinstance(outcome, IncompleteStreamError | ProtocolError)


def test_a_stop_without_its_reason_is_no_end() -> None:
    with pytest.raises(IncompleteStreamError, match="before 'message_stop'"):
        read(begun() + said(0, "Hi") + event("message_stop"))


def test_a_second_end_for_the_usage_alone_does_not_take_the_reason_back() -> None:
    stream = begun() + said(0, "Hi") + ended().removesuffix(event("message_stop"))
    message = message_of(stream + event("message_delta", delta={}, usage={"output_tokens": 9}) + event("message_stop"))
    assert (message.stop_reason, message.raw_stop_reason, message.usage.output) == ("stop", "end_turn", 9)


def test_what_had_arrived_of_a_broken_answer_can_be_shown() -> None:
    stream = begun() + said(0, "Hello") + start(1, "tool_use", id="t", name="add", input={})
    events = read(stream + ended())[0]
    assert build_content(events[:4]) == [TextContent("Hello")]


def test_an_answer_goes_on_where_the_server_paused() -> None:
    """failures.md D3: to the reader it is one answer; the tokens of both requests are added up where both are known."""
    first = message_of(begun() + start(0, "new_thing") + stop(0) + said(1, "Wait.") + ended("pause_turn"))
    assert (first.stop_reason, first.raw_stop_reason) == ("stop", "pause_turn")
    events, message = read(begun() + said(0, "Done.") + ended(), request=Request("", [first]))
    assert message.content == [*first.content, TextContent("Done.")]
    assert [event for event in events if isinstance(event, TextStart | TextEnd)] == [TextStart(2), TextEnd(2)]
    assert message.usage == Usage(input=10, output=5)
    assert (message.stop_reason, message.raw_stop_reason) == ("stop", "end_turn")


def test_a_tool_name_comes_back_as_the_tool_has_it() -> None:
    """failures.md C14."""
    tool = Tool("calendar.list", "", {"type": "object", "properties": {}}, dict[str, str])
    wired = body_of("Hi", tools=[tool])["tools"][0]["name"]
    assert wired != "calendar.list"
    stream = begun() + called(0, "t", wired) + ended("tool_use")
    message = message_of(stream, request=Request("", [], [tool]))
    assert [call.name for call in message.tool_calls] == ["calendar.list"]


def test_deltas_come_one_by_one() -> None:
    events = read(begun() + called(0, "t", "add", '{"a"', ":1}") + ended("tool_use"))[0]
    assert [event.delta for event in events if isinstance(event, ToolCallDelta)] == ['{"a"', ":1}"]


@hypothesis.given(st.binary(max_size=400))
def test_no_bytes_make_the_decoder_crash(noise: bytes) -> None:
    outcome = outcome_of(begun() + noise + b"\n\n" + said(0, "Hi") + ended())
    assert isinstance(outcome, AssistantMessage) or outcome.info.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from(["text", "tool_use"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "index", "text"]), inner),
    max_leaves=5,
)


@hypothesis.given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
            ),
            st.dictionaries(
                st.sampled_from(["index", "content_block", "delta", "message", "usage", "error"]), json_values
            ),
        ),
        max_size=6,
    )
)
def test_no_json_makes_the_decoder_crash(events: list[tuple[str, dict[str, Any]]]) -> None:
    outcome = outcome_of(b"".join(event(name, **fields) for name, fields in events) + ended())
    assert isinstance(outcome, AssistantMessage) or outcome.info.message
