"""Answers of a hostile server with very many small parts: a bounded number is compared, and each is read once."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.rows import each_row

from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ProtocolError
from steersman.types.messages import AssistantMessage

MOST = 4_000


def list_messages(count: int) -> list[dict[str, Any]]:
    return [{"id": f"m{at}", "content": [responses.text_part(f"t{at}")]} for at in range(count)]


def end_with(messages: list[dict[str, Any]]) -> bytes:
    return responses.ended(output=[{"type": "message", **message} for message in messages])


def make_items(count: int) -> bytes:
    return b"".join(responses.done(at, "message", **item) for at, item in enumerate(list_messages(count)))


def make_parts(count: int) -> bytes:
    said = b"".join(responses.words(0, f"t{at}", at) for at in range(count))
    return responses.added(0, "message", id="msg_0", content=[]) + said


def make_whole_parts(count: int) -> bytes:
    return responses.done(0, "message", content=[responses.text_part(f"t{at}") for at in range(count)])


STREAMS: dict[str, Callable[[int], bytes]] = {
    "items": lambda count: make_items(count) + responses.ended(),
    "items at the end": lambda count: end_with(list_messages(count)),
    "parts": lambda count: make_parts(count) + responses.ended(),
    "parts of an item": lambda count: make_whole_parts(count) + responses.ended(),
}


@each_row("kind", STREAMS)
def test_a_response_has_a_bounded_number_of_items_and_parts(kind: str) -> None:
    """security.md: each is compared with the others, so 30,000 would hold up the event loop for half a minute."""
    message = responses.message_of(responses.begun() + STREAMS[kind](MOST))
    assert [block.text for block in message.content if isinstance(block, TextContent)] == [
        f"t{at}" for at in range(MOST)
    ]
    with pytest.raises(ProtocolError, match="more than 4,000 items"):
        responses.read(responses.begun() + STREAMS[kind](MOST + 1))


def test_a_message_at_the_end_that_was_streamed_under_another_id_is_said_once() -> None:
    """Its text is looked up among those of the messages before it."""
    first, second, third = list_messages(3)
    stream = responses.begun() + responses.done(0, "message", **first) + responses.done(1, "message", **second)
    output = [{**second, "id": "other"}, {**first, "id": "another"}, third]
    message = responses.message_of(stream + end_with(output))
    assert [block.text for block in message.content if isinstance(block, TextContent)] == ["t0", "t1", "t2"]


def make_details(count: int) -> bytes:
    entries = [{"type": "reasoning.text", "text": "a", "index": at} for at in range(count)]
    return chat.chunk({"reasoning_details": entries}) + chat.chunk(None, "stop") + chat.DONE


def test_thinking_has_a_bounded_number_of_details() -> None:
    message = chat.answer_of(make_details(MOST))
    (thought,) = message.content
    assert isinstance(thought, ThinkingContent)
    assert thought.thinking == "a" * MOST
    with pytest.raises(ProtocolError, match="more than 4,000 items"):
        chat.answer_of(make_details(MOST + 1))


def count_calls(act: Callable[[], object]) -> Counter[str]:
    """How often functions of each name are called."""
    found: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(
        lambda frame, event, arg: found.update(
            [frame.f_code.co_name if event == "call" else arg.__qualname__] if event in ("call", "c_call") else []
        )
    )
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


def test_details_are_not_compared_with_all_before_them() -> None:
    few, many = (count_calls(lambda count=count: chat.answer_of(make_details(count))) for count in (200, 400))
    assert many.total() < 3 * few.total()


def test_the_event_of_parts_of_unknown_types_is_read_once() -> None:
    parts = [{"newPart": at} for at in range(100)]
    stream = google.stream(google.chunk(*parts, finish="STOP"))
    assert count_calls(lambda: google.events_of(stream))["json_decode"] < 10
    _, message = google.events_of(stream)
    assert [block.signature for block in message.content if isinstance(block, ThinkingContent)] == [
        msgspec.json.encode(part).decode() for part in parts
    ]


@each_row("paths", [[f"$.a{at}[99999]" for at in range(50)], ["$" + ".a" * 200], ["$.a[" + "9" * 5_000 + "]"]])
def test_a_few_bytes_of_paths_do_not_make_large_arguments(paths: list[str]) -> None:
    """A list is filled up to the place that a path names: 20 kB of such paths would take more than a gigabyte."""
    given = [{"jsonPath": path, "numberValue": 1} for path in paths]
    message = google.message_of(google.chunk({"functionCall": {"name": "f", "partialArgs": given}}, finish="STOP"))
    (found,) = [block for block in message.content if isinstance(block, ToolCall)]
    assert found.is_truncated
    assert len(found.raw_arguments or "") < 1_000_000


def test_pieces_of_redacted_thinking_are_joined_once() -> None:
    pieces = [b64encode(b"%d " % at).decode() for at in range(100)]
    deltas = b"".join(bedrock.delta(0, reasoningContent={"redactedContent": piece}) for piece in pieces)
    end = bedrock.stop(0) + bedrock.framed("messageStop", {"stopReason": "end_turn"})
    stream = bedrock.begun() + deltas + end
    assert count_calls(lambda: bedrock.message_of(stream))["b64encode"] < 5
    whole = b64encode(b"".join(b"%d " % at for at in range(100))).decode()
    assert bedrock.message_of(stream).content == [ThinkingContent("", whole, redacted=True)]


def end_of_call(*pieces: dict[str, Any]) -> bytes:
    first = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    return chat.calls(first, *pieces) + chat.chunk(None, "tool_calls") + chat.DONE


PIECES: dict[str, dict[str, Any]] = {
    "with a field of their own": {"index": 0, "extra_content": {}},
    "with white space": {"index": 0, "function": {"arguments": " "}},
    "with the name again": {"index": 0, "function": {"name": "f", "arguments": " "}},
}


@each_row("kind", PIECES)
def test_the_pieces_of_a_call_in_one_chunk_are_read_once(kind: str) -> None:
    """A chunk of 0.5 MB would hold up the event loop for half a minute if each piece reads the chunk or the others."""
    few, many = (
        count_calls(lambda count=count: chat.answer_of(end_of_call(*[PIECES[kind]] * count))) for count in (200, 400)
    )
    assert many.total() < 3 * few.total()
    assert many["Decoder.decode"] == few["Decoder.decode"]


@each_row("index", [0, None])
def test_arguments_that_may_always_end_are_not_read_with_every_piece(index: int | None) -> None:
    """Where only the arguments tell one call from the next, what is read to know that is bounded."""
    first = chat.piece(index, None, "f", '{"x":"' + "a" * 1_000_000)
    again = chat.piece(index, None, "f", "}")
    with pytest.raises(ProtocolError, match="too many pieces"):
        chat.answer_of(b"".join(chat.calls(piece) for piece in (first, *[again] * 600)))


def test_a_name_in_pieces_does_not_grow_without_end() -> None:
    pieces = [{"index": 0, "function": {"name": f"{at:04}" * 500}} for at in range(100)]
    message = chat.answer_of(chat.calls(*pieces) + end_of_call())
    assert [len(call.name) for call in message.tool_calls] == [6_000]


def chat_calls(count: int) -> bytes:
    thoughts = b"".join(chat.said("a") + chat.said("b", field="reasoning") for _ in range(1_000))
    calls = [chat.piece(at, f"c{at}", "f", "{}") for at in range(count)]
    return thoughts + chat.calls(*calls) + chat.chunk(None, "tool_calls") + chat.DONE


def anthropic_calls(count: int) -> bytes:
    texts = b"".join(anthropic.start(at, "text", text="a") + anthropic.stop(at) for at in range(2_000))
    calls = b"".join(
        anthropic.start(2_000 + at, "tool_use", id=f"c{at}", name="f", input={}) + anthropic.stop(2_000 + at)
        for at in range(count)
    )
    end = anthropic.event("message_delta", delta={"stop_reason": "tool_use"}) + anthropic.event("message_stop")
    return anthropic.begun() + texts + calls + end


def bedrock_calls(count: int) -> bytes:
    texts = b"".join(bedrock.said(at, "a") for at in range(2_000))
    calls = b"".join(
        bedrock.start(2_000 + at, toolUse={"toolUseId": f"c{at}", "name": "f"}) + bedrock.stop(2_000 + at)
        for at in range(count)
    )
    return bedrock.begun() + texts + calls + bedrock.framed("messageStop", {"stopReason": "tool_use"})


CALLS: dict[str, tuple[Callable[[bytes], object], Callable[[int], bytes]]] = {
    "anthropic": (anthropic.message_of, anthropic_calls),
    "bedrock": (bedrock.message_of, bedrock_calls),
    "chat": (chat.answer_of, chat_calls),
}


@each_row("wire", CALLS)
def test_to_count_the_calls_the_blocks_are_not_looked_at_again(wire: str) -> None:
    """Where 200,000 blocks come before 1,000 calls, each call would look at all of them."""
    read, make = CALLS[wire]
    few, many = (count_calls(lambda count=count: read(make(count))).total() for count in (1, 51))
    assert many - few < 20_000


def partial(*arguments: dict[str, Any]) -> Any:
    return google.chunk({"functionCall": {"name": "f", "partialArgs": list(arguments)}}, finish="STOP")


def test_the_pieces_of_a_text_in_partial_arguments_are_joined_once() -> None:
    """Where each piece copies the text so far, an event of 9 MB would hold up the event loop for seconds."""
    piece = {"jsonPath": "$.a.b", "stringValue": "b", "willContinue": True}
    few, many = (
        count_calls(lambda count=count: google.message_of(partial(*[piece] * count))).total() for count in (100, 1_100)
    )
    assert many - few < 5_000
    last = {"jsonPath": "$.a.b", "stringValue": "c"}
    (call,) = google.message_of(partial(piece, piece, last, {"jsonPath": "$.a.c", "boolValue": True})).tool_calls
    assert call.arguments == {"a": {"b": "bbc", "c": True}}


def test_the_paths_of_partial_arguments_have_a_bounded_number_of_steps() -> None:
    long = {"jsonPath": "$" + ".a" * 100, "numberValue": 1}
    parts = [{"functionCall": {"name": "f", "partialArgs": [long] * 400}} for _ in range(12)]
    assert len(google.message_of(google.chunk(*parts, finish="STOP")).tool_calls) == 12
    with pytest.raises(ProtocolError, match="more than 500,000 steps"):
        google.message_of(google.chunk(*parts, parts[0], finish="STOP"))


def test_the_pieces_of_a_block_of_an_unknown_type_are_joined_once() -> None:
    """Where each delta reads and writes the whole block, one of 5 MB holds up the event loop for seconds."""
    piece = anthropic.delta(0, "zz_delta", words="b")
    end = anthropic.stop(0) + anthropic.event("message_delta", delta={"stop_reason": "end_turn"})
    end += anthropic.event("message_stop")

    def make(count: int) -> bytes:
        return anthropic.begun() + anthropic.start(0, "zz", words="a", more=1) + piece * count + end

    few, many = (count_calls(lambda count=count: anthropic.message_of(make(count))) for count in (100, 200))
    assert many["json_encode"] == few["json_encode"]
    (block,) = anthropic.message_of(make(3)).content
    assert isinstance(block, ThinkingContent)
    assert msgspec.json.decode(block.signature or "") == {"type": "zz", "words": "abbb", "more": 1}


def make_anthropic_blocks(count: int) -> bytes:
    begun = b"".join(anthropic.start(at, "text", text="a") for at in range(count))
    return anthropic.begun() + begun + anthropic.event("message_delta", delta={"stop_reason": "end_turn"}) + END


def make_whole_anthropic_blocks(count: int) -> bytes:
    message: dict[str, Any] = {"id": "m", "content": [{"type": "zz"}] * count, "stop_reason": "end_turn", "usage": {}}
    return anthropic.event("message_start", message=message) + END


def make_bedrock_blocks(count: int) -> bytes:
    begun = b"".join(bedrock.delta(at, text="a") for at in range(count))
    return bedrock.begun() + begun + bedrock.framed("messageStop", {"stopReason": "end_turn"})


END = anthropic.event("message_stop")
BLOCKS: dict[str, tuple[Callable[[bytes], AssistantMessage], Callable[[int], bytes]]] = {
    "anthropic": (anthropic.message_of, make_anthropic_blocks),
    "anthropic, whole": (anthropic.message_of, make_whole_anthropic_blocks),
    "bedrock": (bedrock.message_of, make_bedrock_blocks),
}


@each_row("wire", BLOCKS)
def test_an_answer_has_a_bounded_number_of_blocks(wire: str) -> None:
    """Blocks that begin first and then grow from the last one on are put in order anew each time."""
    read, make = BLOCKS[wire]
    assert len(read(make(MOST)).content) == MOST
    with pytest.raises(ProtocolError, match="more than 4,000 items"):
        read(make(MOST + 1))


DEEP = msgspec.Raw(b"[" * 50_000 + b"]" * 50_000)
NESTED: dict[str, Callable[[], object]] = {
    "anthropic": lambda: anthropic.read(anthropic.begun() + anthropic.event("content_block_start", more=DEEP)),
    "anthropic, a delta": lambda: anthropic.read(anthropic.event("content_block_delta", more=DEEP)),
    "bedrock": lambda: bedrock.read(bedrock.framed("contentBlockStart", {"more": DEEP})),
    "bedrock, a delta": lambda: bedrock.read(bedrock.framed("contentBlockDelta", {"more": DEEP})),
    "responses": lambda: responses.read(responses.event("response.output_item.added", more=DEEP)),
}


@each_row("kind", NESTED)
def test_an_event_that_is_nested_too_deeply_is_malformed(kind: str) -> None:
    with pytest.raises(ProtocolError, match="does not match its protocol"):
        NESTED[kind]()


@each_row("field", [{"content": "a"}, {"tool_calls": [chat.piece(0, None, None, "a")]}])
def test_words_that_a_chunk_repeats_are_tried_at_a_few_places_only(field: dict[str, Any]) -> None:
    """A chunk of 1 MB would hold up the event loop for hours if each place where they might be is tried."""
    begun = chat.said("b") if "content" in field else chat.calls(chat.piece(0, "c", "f", "{"))

    def make(count: int) -> bytes:
        choice = {"index": 0, "delta": field, "finish_reason": None}
        end = chat.chunk(None, "stop") + chat.DONE
        # With a blank, or the fragment would be looked for as a member.
        chunk = msgspec.json.encode({"more": ["a"] * count, "choices": [choice]}).replace(b'ments":', b'ments": ')
        return begun + b"data: " + chunk + b"\n\n" + end

    few, many = (count_calls(lambda count=count: chat.answer_of(make(count)))["Decoder.decode"] for count in (50, 500))
    assert many == few


def anthropic_call(arguments: str) -> bytes:
    return (
        anthropic.begun()
        + anthropic.start(0, "tool_use", id="c", name="f", input={})
        + anthropic.delta(0, "input_json_delta", partial_json=arguments)
        + anthropic.stop(0)
        + anthropic.event("message_delta", delta={"stop_reason": "tool_use"})
        + anthropic.event("message_stop")
    )


def bedrock_call(arguments: str) -> bytes:
    start = bedrock.start(0, toolUse={"toolUseId": "c", "name": "f"}) + bedrock.delta(0, toolUse={"input": arguments})
    return bedrock.begun() + start + bedrock.stop(0) + bedrock.framed("messageStop", {"stopReason": "tool_use"})


def responses_call(arguments: str) -> bytes:
    item = {"id": "i", "call_id": "c", "name": "f", "arguments": arguments}
    return responses.begun() + responses.done(0, "function_call", **item) + responses.ended()


ARGUMENTS: dict[str, Callable[[str], AssistantMessage]] = {
    "anthropic": lambda words: anthropic.message_of(anthropic_call(words)),
    "bedrock": lambda words: bedrock.message_of(bedrock_call(words)),
    "chat": lambda words: chat.answer_of(end_of_call({"index": 0, "function": {"arguments": words}})),
    "google": lambda words: google.message_of(
        google.chunk(google.call("f", msgspec.Raw(words.encode())), finish="STOP")
    ),
    "responses": lambda words: responses.message_of(responses_call(words)),
}


@each_row("wire", ARGUMENTS)
def test_arguments_have_a_bounded_number_of_lists_and_objects(wire: str) -> None:
    """9 MB of empty lists would hold up the event loop for eight seconds: each is made, frozen and written anew."""
    read = ARGUMENTS[wire]
    text = msgspec.json.encode({"text": '[{,,,,,,\\"' * 200_000, "list": [[]] * 100}).decode()
    (call,) = read(text).tool_calls
    assert len(call.arguments["list"]) == 100
    with pytest.raises(ProtocolError, match="more than 150,000 lists and objects"):
        read('{"list":[' + "[]," * 150_000 + "[]]}")
    with pytest.raises(ProtocolError, match="or 1,000,000 values"):
        read('{"list":[' + "1," * 1_000_000 + "1]}")


def test_parts_of_unknown_types_are_bounded() -> None:
    parts = [{"newPart": at} for at in range(MOST)]
    assert len(google.message_of(google.chunk(*parts, finish="STOP")).content) == MOST
    with pytest.raises(ProtocolError, match="more than 4,000 items"):
        google.message_of(google.chunk(*parts, {"newPart": 1}, finish="STOP"))
