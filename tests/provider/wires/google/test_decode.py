"""What Gemini's chunks amount to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from tests.provider.wires.google.streams import (
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
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model
from steersman.types.stream import (
    Done,
)
from steersman.types.usage import Prices, Usage


@given(streams())
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


def test_an_array_of_chunks_is_read_like_a_stream_of_them() -> None:
    """What the API answers when server-sent events were not asked for."""
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


def test_what_the_server_says_about_the_reason_is_told() -> None:
    candidate = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: print(x)"}
    assert message_of({"candidates": [candidate]}).error_message == (
        "Gemini ended the answer early: MALFORMED_FUNCTION_CALL. Malformed function call: print(x)"
    )


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


def test_a_draft_of_a_picture_is_no_answer() -> None:
    """A model that thinks in pictures shows them as thoughts, and then the one that it answers with."""
    draft = {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thought": True}
    shown = {"inlineData": {"mimeType": "image/png", "data": "eW8="}, "thoughtSignature": "c2ln"}
    assert content_of(chunk(draft), chunk(draft), chunk(shown, finish="STOP")) == [ImageContent("eW8=", "image/png")]


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


def test_arguments_that_are_nested_too_deeply_to_rename_stay_as_they_were_written() -> None:
    odd = Tool("odd", "x", {"type": "object", "properties": {"user-id": {}}}, silent)
    deep = b'{"more":' + b"[" * 700 + b"]" * 700 + b"}"
    (found,) = message_of(chunk(call("odd", msgspec.Raw(deep)), finish="STOP"), tools=[odd]).tool_calls
    assert (found.arguments, found.raw_arguments) == ({}, deep.decode())


def _declared(tools: list[Tool]) -> list[Any]:
    from steersman.provider.wires.google.tools import encode_tools

    return msgspec.json.decode(encode_tools(tools).encoded)
