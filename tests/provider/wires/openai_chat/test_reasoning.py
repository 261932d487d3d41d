"""Thinking comes under many names, and goes back under the one it came by."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provider.wires.openai_chat.chat import DONE, MODEL, answer_of, calls, chunk, piece, read, said, settings
from tests.rows import each_row

from steersman.provider.wires.openai_chat.thinking import TagSplitter
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage, ToolResultMessage, user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import StreamStart, ThinkingDelta, ThinkingEnd, ThinkingStart

STOP = chunk(None, "stop") + DONE
FIELDS = ("reasoning_content", "reasoning", "reasoning_text")


@pytest.mark.parametrize("field", FIELDS)
def test_each_name_of_thinking_is_known_and_kept(field: str) -> None:
    """failures.md D13."""
    events, message = read(said("Let me ", "see.", field=field) + said("It is 4.") + STOP)
    assert message.content == [ThinkingContent("Let me see.", field=field), TextContent("It is 4.")]
    assert events[:5] == [
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta("Let me ", 0),
        ThinkingDelta("see.", 0),
        ThinkingEnd(0),
    ]


@pytest.mark.parametrize("second", ["Let me see.", "Something else.", "", None])
def test_the_same_thought_under_two_names_is_thought_once(second: str | None) -> None:
    """failures.md D13."""
    stream = chunk({"reasoning_content": "Let me see.", "reasoning": second}) + chunk(
        {"reasoning": "More.", "reasoning_content": None}
    )
    assert answer_of(stream + STOP).content == [ThinkingContent("Let me see.More.", field="reasoning_content")]


def test_the_first_name_that_says_something_counts() -> None:
    """failures.md D13."""
    stream = chunk({"reasoning_content": "", "reasoning": "a"}) + chunk({"reasoning_content": "x", "reasoning": "b"})
    assert answer_of(stream + STOP).content == [ThinkingContent("ab", field="reasoning")]


def test_empty_thinking_is_none() -> None:
    stream = chunk({"reasoning_content": "", "content": ""}) + chunk({"reasoning_content": None, "content": "Hi."})
    assert answer_of(stream + STOP).content == [TextContent("Hi.")]


def test_thinking_and_text_may_change_places_within_a_chunk() -> None:
    stream = (
        chunk({"reasoning": "a"}) + chunk({"reasoning": "b", "content": "c"}) + chunk({"reasoning": "d"}) + said("e")
    )
    assert answer_of(stream + STOP).content == [
        ThinkingContent("ab", field="reasoning"),
        TextContent("c"),
        ThinkingContent("d", field="reasoning"),
        TextContent("e"),
    ]


def detail(**fields: Any) -> bytes:
    return chunk({"reasoning": fields.get("text"), "reasoning_details": [fields]})


def test_details_of_thinking_are_joined_and_kept_for_the_way_back() -> None:
    stream = (
        detail(type="reasoning.text", text="Let me ", format="f1", index=0, signature=None)
        + detail(type="reasoning.text", text="see.", format="f1", index=0)
        + detail(type="reasoning.text", signature="c2ln", index=0, text="")
        + detail(type="reasoning.encrypted", data="AAAA", id="r1", index=1)
        + detail(type="reasoning.encrypted", data="BBBB", id="r2", index=1)
    )
    message = answer_of(stream + said("Hi.") + STOP)
    thought = message.content[0]
    assert isinstance(thought, ThinkingContent)
    assert (thought.thinking, thought.field, thought.redacted) == ("Let me see.", "reasoning_details", False)
    assert json.loads(thought.signature or "") == [
        {"type": "reasoning.text", "format": "f1", "index": 0, "signature": "c2ln", "text": "Let me see."},
        {"type": "reasoning.encrypted", "data": "AAAA", "id": "r1", "index": 1},
        {"type": "reasoning.encrypted", "data": "BBBB", "id": "r2", "index": 1},
    ]


def test_thinking_that_is_only_encrypted_is_kept_without_words() -> None:
    message = answer_of(
        detail(type="reasoning.encrypted", data="AAAA", index=0)
        + calls(piece(0, "c1", "time", "{}"))
        + chunk(None, "tool_calls")
        + DONE,
        "time",
    )
    signature = '[{"type":"reasoning.encrypted","data":"AAAA","index":0}]'
    assert message.content == [ThinkingContent("", signature, True, "reasoning_details"), ToolCall("c1", "time")]
    assert replayed(message)["reasoning_details"] == json.loads(signature)


def test_a_summary_is_shown_where_there_are_no_words() -> None:
    message = answer_of(detail(type="reasoning.summary", summary="In short.", index=0) + STOP)
    assert [block.thinking for block in message.content if isinstance(block, ThinkingContent)] == ["In short."]


def test_a_content_of_parts_is_told_apart() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Hi."},
        {"type": "new"},
        "!",
    ]
    assert answer_of(chunk({"content": parts}) + STOP).content == [
        ThinkingContent("Hm.", field="content"),
        TextContent("Hi.!"),
    ]


def replayed(message: AssistantMessage, model: Model = MODEL) -> dict[str, Any]:
    """An answer as it goes back in the next request."""
    results = [
        ToolResultMessage([TextContent("4")], tool_call_id=call.id, tool_name=call.name) for call in message.tool_calls
    ]
    request = Request("", [user_message("Hi."), message, *results, user_message("And?")])
    return json.loads(WIRE.request(model, request, StreamOptions(), None).body)["messages"][1]


@pytest.mark.parametrize("field", FIELDS)
def test_thinking_goes_back_with_the_calls_it_led_to_under_its_own_name(field: str) -> None:
    """failures.md D12."""
    stream = (
        said("Let me ", "see.", field=field) + calls(piece(0, "c1", "time", "{}")) + chunk(None, "tool_calls") + DONE
    )
    assert replayed(answer_of(stream, "time")) == {
        "role": "assistant",
        "content": None,
        field: "Let me see.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}],
    }


CLAUDE = {"type": "reasoning.text", "format": "anthropic-claude-v1"}
OPENROUTER = Model("openrouter", "anthropic/claude-haiku-4.5")
# The same thinking with its signature, as fragments of `reasoning_details` in chunks of their own.
SIGNED: dict[str, list[dict[str, Any]]] = {
    "a fragment of its own": [{"text": "Let me see.", "index": 0}, {"signature": "s", "index": 0}],
    "after two": [{"text": "Let me ", "index": 0}, {"text": "see.", "index": 0}, {"signature": "s", "index": 0}],
    "with no text": [{"text": "Let me see.", "index": 0}, {"text": None, "signature": "s", "index": 0}],
    "with empty text": [{"text": "Let me see.", "index": 0}, {"text": "", "signature": "s", "index": 0}],
    "without an index": [{"text": "Let me ", "index": 0}, {"text": "see.", "index": 0}, {"signature": "s"}],
    "under another index": [{"text": "Let me see.", "index": 0}, {"signature": "s", "index": 1}],
    "empty ones before": [
        {"text": "Let me ", "signature": "", "index": 0},
        {"text": "see.", "signature": "", "index": 0},
        {"text": "", "signature": "s", "index": 0},
    ],
    "null ones before": [{"text": "Let me ", "signature": None}, {"text": "see.", "signature": "s"}],
}  # fmt: skip


@each_row("late", [False, True])
@each_row("form", SIGNED)
def test_a_signature_alone_belongs_to_the_text_before_it(form: str, late: bool) -> None:
    """failures.md D5: else the next request with thinking and tools is answered 400. It may come after other blocks."""
    *texts, mark = [{**CLAUDE, **piece} for piece in SIGNED[form]]
    late = late and not mark.get("text")
    call = calls(piece(0, "c1", "time", "{}"))
    sign = chunk({"content": "", "reasoning_details": [mark]})
    stream = b"".join(detail(**text) for text in texts) + (call + sign if late else sign + call)
    message = answer_of(stream + chunk(None, "tool_calls") + DONE, "time", model=OPENROUTER)
    assert [type(block) for block in message.content] == [ThinkingContent, ToolCall]
    [entry] = replayed(message, model=OPENROUTER)["reasoning_details"]
    assert {**entry, "index": 0} == {**CLAUDE, "index": 0, "text": "Let me see.", "signature": "s"}


def test_a_signature_that_stays_empty_is_none() -> None:
    stream = detail(**CLAUDE, text="Let me ", signature="") + detail(**CLAUDE, text="see.", signature="")
    message = answer_of(stream + calls(piece(0, "c1", "time", "{}")) + chunk(None, "tool_calls") + DONE, "time")
    assert replayed(message)["reasoning_details"] == [{**CLAUDE, "text": "Let me see."}]


def test_a_signature_joins_thinking_that_came_under_another_name() -> None:
    stream = said("Let me ", "see.", field="reasoning") + chunk({"reasoning_details": [{**CLAUDE, "signature": "s"}]})
    message = answer_of(stream + calls(piece(0, "c1", "time", "{}")) + chunk(None, "tool_calls") + DONE, "time")
    assert replayed(message)["reasoning_details"] == [{**CLAUDE, "signature": "s", "text": "Let me see."}]


def test_two_thoughts_keep_their_signatures_apart() -> None:
    """failures.md D5: also where their fragments come in turns."""
    fragments = [(0, "a"), (1, "b"), (0, "c"), (1, "d")]
    stream = b"".join(detail(**CLAUDE, text=text, index=index) for index, text in fragments)
    marks = b"".join(chunk({"reasoning_details": [{**CLAUDE, "index": at, "signature": f"s{at}"}]}) for at in (0, 1))
    again = detail(**CLAUDE, text="e", index=1) + chunk(
        {"reasoning_details": [{**CLAUDE, "index": 1, "signature": "s2"}]}
    )
    message = answer_of(
        stream + marks + again + calls(piece(0, "c1", "time", "{}")) + chunk(None, "tool_calls") + DONE, "time"
    )
    assert [(entry["text"], entry["signature"]) for entry in replayed(message)["reasoning_details"]] == [
        ("ac", "s0"),
        ("bd", "s1"),
        ("e", "s2"),
    ]


def test_details_go_back_byte_for_byte() -> None:
    """failures.md D5."""
    stream = detail(type="reasoning.text", text="a", index=0, signature="s") + calls(piece(0, "c1", "time", "{}"))
    message = answer_of(stream + chunk(None, "tool_calls") + DONE, "time")
    body = WIRE.request(MODEL, Request("", [user_message("Hi."), message]), StreamOptions(), None).body
    assert b'"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"s","text":"a"}]' in body


def test_thinking_stays_behind_where_no_call_came_of_it_unless_asked() -> None:
    message = answer_of(said("Hm.", field="reasoning") + said("Hi.") + STOP)
    assert replayed(message) == {"role": "assistant", "content": "Hi."}
    assert replayed(message, settings(replay_reasoning="always")) == {
        "role": "assistant",
        "content": "Hi.",
        "reasoning": "Hm.",
    }


def test_a_server_that_takes_no_thinking_is_sent_none() -> None:
    message = AssistantMessage([ThinkingContent("Hm.", field="reasoning"), ToolCall("c1", "time")])
    assert "reasoning" not in replayed(message, settings(replay_reasoning="never"))


def test_a_server_that_demands_thinking_with_calls_is_sent_some() -> None:
    """failures.md D12."""
    message = AssistantMessage([ToolCall("c1", "time")])
    assert replayed(message, settings(require_reasoning="reasoning_content"))["reasoning_content"] == " "


def test_thinking_of_another_protocol_has_no_field_to_go_back_in() -> None:
    message = AssistantMessage([ThinkingContent("Hm.", "sig"), ToolCall("c1", "time")])
    assert set(replayed(message)) == {"role", "content", "tool_calls"}


TAGGED = settings(think_tags=True)


def test_tags_are_text_unless_the_settings_say_otherwise() -> None:
    """failures.md D15."""
    stream = said("<think>Hm.</think>\n\nHi.") + STOP
    assert answer_of(stream).content == [TextContent("<think>Hm.</think>\n\nHi.")]
    assert answer_of(stream, model=TAGGED).content == [ThinkingContent("Hm.", field="<think>"), TextContent("Hi.")]


def split_everywhere(text: str) -> list[bytes]:
    return [said(*filter(None, (text[:at], text[at:]))) for at in range(len(text) + 1)] + [said(*text)]


@each_row(
    ("text", "thought", "words"),
    [
        ("<think>Hm.</think>Hi.", "Hm.", "Hi."),
        ("\n<think>\nHm.\n</think>\n\nHi.", "\nHm.\n", "Hi."),
        ("<think></think>Hi.", "", "Hi."),
        ("<think>a < b </thin </think>Hi </think>.", "a < b </thin ", "Hi </think>."),
        ("<think>Hm.", "Hm.", ""),
        ("<think>Hm.</thi", "Hm.</thi", ""),
        ("Hi <think>Hm.</think>", "", "Hi <think>Hm.</think>"),
        ("<thinking>Hi.", "", "<thinking>Hi."),
        ("<thi", "", "<thi"),
        (" \n", "", " \n"),
    ],
    ids=repr,
)
def test_a_tag_is_found_however_it_is_cut(text: str, thought: str, words: str) -> None:
    """failures.md D15."""
    for stream in split_everywhere(text):
        message = answer_of(stream + STOP, model=TAGGED)
        assert message.text == words
        assert "".join(block.thinking for block in message.content if isinstance(block, ThinkingContent)) == thought


@given(st.lists(st.text("<think/>a ", min_size=1)))
def test_the_splitter_loses_no_letter_of_a_text_without_a_tag_at_its_start(pieces: list[str]) -> None:
    splitter = TagSplitter()
    given = [part for text in ("x", *pieces) for part in splitter.split(text)] + [splitter.flush()]
    assert "".join(words for words, _ in given) == "x" + "".join(pieces)
    assert not any(thought for words, thought in given if words)
