"""What Gemini's chunks amount to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from tests.provider.wires.google.streams import (
    MODEL,
    call,
    chunk,
    content_of,
    events_of,
    message_of,
    plain,
    silent,
    stream,
    streams,
    text,
    thought,
    without_id,
)

from steersman.testing import check_stream
from steersman.testing.conformance import DeltaReader
from steersman.tools.tool import Tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import IncompleteStreamError, OverloadedError, ProtocolError, RateLimitError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model
from steersman.types.stream import (
    Done,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import Prices, Usage

MIXED = stream(
    chunk(thought("Grüße, "), usage={"promptTokenCount": 7}),
    chunk(thought("日本語"), text("Let me "), responseId="r1"),
    chunk(text("look 🙂.\u2028"), text("", "c2ln")),
    chunk(call("add", {"a": 1, "s": "é🙂"}, "x", "QUJD")),
    chunk(call("add", {"a": 2}, "y")),
    chunk(text(""), finish="STOP", usage={"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}),
)
MIXED_MESSAGE = AssistantMessage(
    [
        ThinkingContent("Grüße, 日本語"),
        TextContent("Let me look 🙂.\u2028"),
        TextContent("", "c2ln"),
        ToolCall("x", "add", {"a": 1, "s": "é🙂"}, signature="QUJD"),
        ToolCall("y", "add", {"a": 2}),
    ],
    stop_reason="tool_use",
    raw_stop_reason="STOP",
    usage=Usage(input=9, output=7, reasoning=2),
    model="gemini-2.5-flash",
    provider="google",
    response_id="r1",
)


def test_a_stream_becomes_events_and_a_message() -> None:
    events, message = events_of(MIXED)
    first = ToolCall("x", "add", {"a": 1, "s": "é🙂"}, signature="QUJD")
    assert events == [
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta("Grüße, ", 0),
        ThinkingDelta("日本語", 0),
        ThinkingEnd(0),
        TextStart(1),
        TextDelta("Let me ", 1),
        TextDelta("look 🙂.\u2028", 1),
        TextEnd(1),
        TextStart(2),
        TextEnd(2),
        ToolCallStart(3, "x", "add"),
        ToolCallDelta('{"a":1,"s":"é🙂"}', 3),
        ToolCallEnd(3, first),
        ToolCallStart(4, "y", "add"),
        ToolCallDelta('{"a":2}', 4),
        ToolCallEnd(4, ToolCall("y", "add", {"a": 2})),
    ]
    assert message == MIXED_MESSAGE


def test_every_two_way_split_gives_the_same_answer() -> None:
    """failures.md B1."""
    whole = events_of(MIXED)
    for at in range(len(MIXED) + 1):
        assert events_of(MIXED[:at], MIXED[at:]) == whole


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_single_bytes_and_all_line_ends_give_the_same_answer(end: bytes) -> None:
    """failures.md B1 and B2."""
    written = MIXED.replace(b"\r\n", end)
    assert events_of(*(written[at : at + 1] for at in range(len(written)))) == events_of(MIXED)


@given(streams())
@settings(max_examples=60)
def test_generated_streams_do_not_depend_on_how_they_are_cut(chunks: list[Any]) -> None:
    written = stream(*chunks)
    events, message = events_of(written)
    DeltaReader.read(events).check(message)
    step = max(1, len(written) // 40)
    for at in range(0, len(written), step):
        others, other = events_of(written[:at], written[at:])
        assert plain(others) == plain(events)
        assert [without_id(block) for block in other.content] == [without_id(block) for block in message.content]
    others, _ = events_of(*(written[at : at + 1] for at in range(len(written))))
    assert plain(others) == plain(events)


def test_a_stream_cut_at_any_byte_is_never_a_success() -> None:
    """failures.md B9: only a last event that is whole but for its blank line is taken."""
    last = len(MIXED) - len(b"\r\n\r\n")
    for at in range(last):
        with pytest.raises((IncompleteStreamError, ProtocolError)):
            events_of(MIXED[:at])
    for at in range(last, len(MIXED)):
        assert events_of(MIXED[:at])[1] == MIXED_MESSAGE


def test_the_byte_order_mark_and_data_without_a_space_are_read() -> None:
    """failures.md B6: where Google's own client fails."""
    written = b"\xef\xbb\xbf" + MIXED.replace(b"data: ", b"data:")
    assert events_of(written)[1] == MIXED_MESSAGE


def test_comments_and_a_done_mark_of_gateways_mean_nothing() -> None:
    """failures.md B3."""
    written = b": ping\n\n" + MIXED.replace(b"\r\n\r\n", b"\r\n\r\n: keep-alive\r\n\r\n") + b"data: [DONE]\n\n"
    assert events_of(written)[1] == MIXED_MESSAGE


def test_an_array_of_chunks_is_read_like_a_stream_of_them() -> None:
    """What the API answers when nobody asked for server-sent events."""
    array = stream([chunk(text("Hel")), chunk(text("lo"), finish="STOP")])
    assert events_of(array)[1].text == "Hello"


SIGNED: list[tuple[str, list[Any], list[Any]]] = [
    (
        "parallel calls: only the first carries it",
        [chunk(call("a", {}, "1", "c2ln"), call("b", {}, "2")), chunk(call("c", {}, "3"), finish="STOP")],
        [ToolCall("1", "a", signature="c2ln"), ToolCall("2", "b"), ToolCall("3", "c")],
    ),
    (
        "a signed text is a block of its own",
        [chunk(text("Hel"), text("lo", "c2ln")), chunk(text(" you"), finish="STOP")],
        [TextContent("Hel"), TextContent("lo", "c2ln"), TextContent(" you")],
    ),
    (
        "an empty text with a signature is kept",
        [chunk(text("Hello")), chunk(text("", "c2ln"), finish="STOP")],
        [TextContent("Hello"), TextContent("", "c2ln")],
    ),
    (
        "so is a part with nothing but a signature",
        [chunk(text("Hello"), {"thoughtSignature": "c2ln"}, finish="STOP")],
        [TextContent("Hello"), TextContent("", "c2ln")],
    ),
    (
        "signatures do not wander between thoughts",
        [chunk(thought("a"), thought("b", "QUJD")), chunk(thought("c", "Zm9v"), text("d"), finish="STOP")],
        [ThinkingContent("a"), ThinkingContent("b", "QUJD"), ThinkingContent("c", "Zm9v"), TextContent("d")],
    ),
]


@pytest.mark.parametrize(("chunks", "content"), [case[1:] for case in SIGNED], ids=[case[0] for case in SIGNED])
def test_a_signature_stays_on_its_part(chunks: list[Any], content: list[Any]) -> None:
    """failures.md D9 and D5."""
    assert message_of(*chunks).content == content


def test_calls_without_ids_get_ids_of_their_own() -> None:
    """failures.md A9."""
    one = message_of(chunk(call("add", {"a": 1}), call("add", {"a": 1}), finish="STOP"))
    two = message_of(chunk(call("add", {"a": 1}), finish="STOP"))
    ids = [block.id for block in (*one.tool_calls, *two.tool_calls)]
    assert len(set(ids)) == 3
    assert all(ids)


def test_an_id_given_twice_in_one_answer_serves_once() -> None:
    """failures.md A9."""
    first, second = message_of(chunk(call("a", {}, "call_0"), call("b", {}, "call_0"), finish="STOP")).tool_calls
    assert (first.id, first.provider_id) == ("call_0", None)
    assert second.id != "call_0"
    assert second.provider_id == "call_0"


@pytest.mark.parametrize("args", [None, {}, msgspec.Raw(b"null"), msgspec.Raw(b" { } ")])
def test_no_arguments_are_an_empty_object(args: Any) -> None:
    """failures.md C6."""
    assert content_of(chunk(call("now", args), finish="STOP")) == [ToolCall("", "now")]


@pytest.mark.parametrize("args", ["[]", '"x"', "1", '"{}"'])
def test_arguments_that_are_no_object_are_kept_and_never_run(args: str) -> None:
    """failures.md C7."""
    message = message_of(chunk(call("now", msgspec.Raw(args.encode()), "i"), finish="STOP"))
    assert message.tool_calls == [ToolCall("i", "now", raw_arguments=args)]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("args", ['{"a": NaN}', '{"a": 1', '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_hostile_json_is_an_error_and_not_a_crash(args: str) -> None:
    """failures.md C12 and B13."""
    data = (
        b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":'
        + args.encode()
        + b"}}]}}]}\n\n"
    )
    with pytest.raises(ProtocolError) as caught:
        events_of(data)
    assert caught.value.info.provider == "google"
    assert len(caught.value.info.message) < 1000


def test_a_number_of_thousands_of_digits_spoils_only_its_call() -> None:
    """failures.md C12."""
    written = '{"n": ' + "9" * 5000 + "}"
    message = message_of(chunk(call("f", msgspec.Raw(written.encode()), "i"), call("g", {}, "j"), finish="STOP"))
    assert message.tool_calls == [ToolCall("i", "f", raw_arguments=written), ToolCall("j", "g")]
    assert message.stop_reason == "length"


def test_a_call_without_a_name_is_no_call() -> None:
    """failures.md C5."""
    assert content_of(chunk(text("Hi"), {"functionCall": {}}, {"functionCall": {"name": ""}}, finish="STOP")) == [
        TextContent("Hi")
    ]


def test_halves_of_surrogate_pairs_meet_again_and_lone_ones_are_replaced() -> None:
    """failures.md C18."""
    halves = [
        b'data: {"candidates":[{"content":{"parts":[{"text":"a\\ud83d"}]}}]}\n\n',
        b'data: {"candidates":[{"content":{"parts":[{"text":"\\ude42 \\\\ud83d \\ud83d\\ude42 \\udfff"}]}}]}\n\n',
        b'data: {"candidates":[{"content":{"parts":[{"thought":true,"text":"\\ud800"},'
        b'{"functionCall":{"name":"f","id":"i","args":{"x":"\\ud800"}}}]},"finishReason":"STOP"}]}\n\n',
    ]
    message = events_of(*halves)[1]
    assert message.content == [
        TextContent("a🙂 \\ud83d 🙂 \ufffd"),
        ThinkingContent("\ufffd"),
        ToolCall("i", "f", raw_arguments='{"x":"\\ud800"}'),
    ]
    assert message.stop_reason == "length"


def test_invalid_utf_8_is_replaced() -> None:
    """failures.md B22."""
    written = stream(chunk(text("a?b"), finish="STOP")).replace(b"?", b"\xff")
    assert events_of(written)[1].text == "a\ufffdb"


REASONS: list[tuple[Any, str, str | None]] = [
    ("STOP", "stop", None),
    ("MAX_TOKENS", "length", None),
    ("SAFETY", "refusal", "refused"),
    ("RECITATION", "refusal", "refused"),
    ("LANGUAGE", "refusal", "refused"),
    ("BLOCKLIST", "refusal", "refused"),
    ("PROHIBITED_CONTENT", "refusal", "refused"),
    ("SPII", "refusal", "refused"),
    ("IMAGE_SAFETY", "refusal", "refused"),
    ("IMAGE_PROHIBITED_CONTENT", "refusal", "refused"),
    ("IMAGE_RECITATION", "refusal", "refused"),
    ("MALFORMED_FUNCTION_CALL", "error", "incomplete"),
    ("MALFORMED_RESPONSE", "error", "incomplete"),
    ("UNEXPECTED_TOOL_CALL", "error", "incomplete"),
    ("TOO_MANY_TOOL_CALLS", "error", "protocol"),
    ("OTHER", "error", "protocol"),
    ("IMAGE_OTHER", "error", "protocol"),
    ("NO_IMAGE", "error", "protocol"),
    ("CONTINUATION", "error", "protocol"),
    ("FINISH_REASON_UNSPECIFIED", "error", "protocol"),
    ("eos", "error", "protocol"),
    (7, "error", "protocol"),
]


@pytest.mark.parametrize(("reason", "stop", "kind"), REASONS)
def test_a_finish_reason_has_its_meaning_and_is_kept(reason: Any, stop: str, kind: str | None) -> None:
    """failures.md D1 and D2: a reason nobody knows is never a success."""
    message = message_of(chunk(text("Partly"), finish=reason))
    assert (message.stop_reason, message.raw_stop_reason, message.error_kind) == (stop, str(reason), kind)
    assert (message.error_message is None) == (kind is None)
    assert kind is None or str(reason) in (message.error_message or "")
    assert message.text == "Partly"


def test_what_the_server_says_about_the_reason_is_told() -> None:
    candidate = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: print(x)"}
    assert message_of({"candidates": [candidate]}).error_message == (
        "Gemini ended the answer early: MALFORMED_FUNCTION_CALL. Malformed function call: print(x)"
    )


@pytest.mark.parametrize("finish", ["STOP", "MAX_TOKENS", "SAFETY"])
def test_calls_decide_what_a_stop_means_and_nothing_else(finish: str) -> None:
    """failures.md C11 and D1: a refusal with a call in it stays a refusal."""
    message = message_of(chunk(call("add", {}), finish=finish))
    assert message.stop_reason == {"STOP": "tool_use", "MAX_TOKENS": "length", "SAFETY": "refusal"}[finish]


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "JAILBREAK", "NEW_REASON"])
def test_a_blocked_prompt_is_a_refusal(reason: str) -> None:
    """failures.md D1."""
    message = message_of({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 4}})
    assert message == AssistantMessage(
        stop_reason="refusal",
        raw_stop_reason=reason,
        usage=Usage(input=4),
        model="gemini-2.5-flash",
        provider="google",
        error_message=f"Gemini blocked the prompt: {reason}.",
        error_kind="refused",
    )


def test_an_end_without_a_finish_reason_is_incomplete() -> None:
    with pytest.raises(IncompleteStreamError, match="before its finishReason"):
        message_of(chunk(text("Hello")), {"usageMetadata": {"promptTokenCount": 4}})
    with pytest.raises(IncompleteStreamError):
        events_of(b"")


def test_what_follows_a_finish_reason_still_counts() -> None:
    """Older models give a reason with every chunk, and gateways send the usage last."""
    message = message_of(
        chunk(text("Hel"), finish="STOP"),
        chunk(text("lo"), finish="STOP"),
        chunk(call("add", {}), finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 2}},
    )
    assert (message.text, message.stop_reason, message.usage) == ("Hello", "tool_use", Usage(input=4, output=2))


@pytest.mark.parametrize("rest", [text, thought])
def test_words_after_the_only_finish_reason_are_told_and_kept(rest: Any) -> None:
    events, message = events_of(stream(chunk(text("Hel"), finish="STOP"), chunk(rest("lo"))))
    assert check_stream([*events, Done(message)]) is message
    assert message.content == [TextContent("Hel"), TextContent("lo") if rest is text else ThinkingContent("lo")]


USAGES: list[tuple[list[Any], Usage]] = [
    ([], Usage()),
    ([{"promptTokenCount": 10}], Usage(input=10)),
    (
        [{"promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 2}],
        Usage(input=6, output=5, cache_read=4, reasoning=2, total=15),
    ),
    ([{"promptTokenCount": 10, "candidatesTokenCount": 1}, {"candidatesTokenCount": 3}], Usage(input=10, output=3)),
    ([{"promptTokenCount": 10, "toolUsePromptTokenCount": 5, "candidatesTokenCount": 1}], Usage(input=15, output=1)),
    ([{"promptTokenCount": 10, "thoughtsTokenCount": 8}], Usage(input=10, output=8, reasoning=8)),
]


@pytest.mark.parametrize(("counts", "usage"), USAGES)
def test_usage_is_cumulative_and_in_normal_form(counts: list[Any], usage: Usage) -> None:
    """failures.md I7 and I8."""
    assert message_of(*(chunk(text("x"), usage=one) for one in counts), chunk(finish="STOP")).usage == usage


def test_usage_is_priced() -> None:
    model = Model("google", "gemini-2.5-flash", prices=Prices(1.0, 10.0, cache_read=0.5))
    counts = {"promptTokenCount": 3_000_000, "cachedContentTokenCount": 1_000_000, "candidatesTokenCount": 100_000}
    assert message_of(chunk(finish="STOP", usage=counts), model=model).usage.cost == pytest.approx(3.5)


def test_a_picture_is_kept_and_an_unknown_part_goes_back_as_it_came() -> None:
    """failures.md D16."""
    code = {"executableCode": {"language": "PYTHON", "code": "1+1"}, "thoughtSignature": "c2ln"}
    content = content_of(
        chunk({"inlineData": {"mimeType": "image/jpeg", "data": "aGk="}}, code, {}, {"thought": True}, text("Hi")),
        chunk({"newThing": 1}, finish="STOP", newField={"x": 1}),
    )
    assert content == [
        ImageContent("aGk=", "image/jpeg"),
        ThinkingContent("", msgspec.json.encode(code).decode(), field="google_part"),
        TextContent("Hi"),
        ThinkingContent("", '{"newThing":1}', field="google_part"),
    ]


def test_empty_chunks_and_chunks_without_candidates_are_passed_over() -> None:
    """failures.md B19."""
    message = message_of(
        {}, {"candidates": []}, {"candidates": None}, {"candidates": [{}]}, {"candidates": [{"content": {}}]},
        {"candidates": [{"content": {"role": "model", "parts": None}}]}, chunk(text("Hi"), finish="STOP"),
    )  # fmt: skip
    assert message.content == [TextContent("Hi")]


def test_an_error_in_the_stream_is_raised_by_its_own_code() -> None:
    """failures.md B11."""
    with pytest.raises(OverloadedError) as overloaded:
        message_of(
            chunk(text("Hi")), {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
        )
    assert overloaded.value.info.status == 503
    with pytest.raises(RateLimitError) as limited:
        message_of([{"error": {"code": 429, "message": "Slow.", "details": [{"retryDelay": "34.07s"}]}}])
    assert limited.value.info.retry_after == 34.07


def test_tools_are_known_by_their_own_names_again() -> None:
    """failures.md C14; Gemini at times calls a tool by the namespace it sees it in."""

    def tool(name: str, *parameters: str) -> Tool:
        schema = {"type": "object", "properties": {parameter: {"type": "string"} for parameter in parameters}}
        return Tool(name, "x", schema, silent)

    odd = tool("1 tool/äö", "user-id")
    tools = [tool("add"), odd]
    declared = _declared(tools)
    renamed = next(iter(declared[1]["parametersJsonSchema"]["properties"]))
    message = message_of(
        chunk(
            call("default_api:add", {}, "1"),
            call("default_api.unknown", {}, "2"),
            call(declared[1]["name"], {renamed: "u", "more": {"user-id": 1}}, "3"),
            finish="STOP",
        ),
        tools=tools,
    )
    assert message.tool_calls == [
        ToolCall("1", "add"),
        ToolCall("2", "default_api.unknown"),
        ToolCall("3", "1 tool/äö", {"user-id": "u", "more": {"user-id": 1}}),
    ]


def _declared(tools: list[Tool]) -> list[Any]:
    from steersman.provider.wires.google.tools import find_tool_set

    return msgspec.json.decode(find_tool_set(tools).encoded)


def test_the_model_that_answered_is_named_as_it_was_asked() -> None:
    assert (MODEL.id, MODEL.provider) == (MIXED_MESSAGE.model, MIXED_MESSAGE.provider)
