"""Text, endings, usage and what servers send beside them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.provider.wires.openai_chat.chat import (
    DONE,
    answer_of,
    chunk,
    piece,
    said,
    settings,
)

from steersman.testing.servers.exchange import sse
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage

HELLO = said("Hel", "lo.")
STOP = chunk(None, "stop")


def _entries(text: str) -> str:
    return f'[{{"type":"reasoning.text","text":"{text}"}}]'


def test_a_finish_reason_may_come_with_the_last_words() -> None:
    assert answer_of(said("Hel") + chunk({"content": "lo."}, "stop") + DONE).content == [TextContent("Hello.")]


def test_settings_say_what_a_servers_own_words_mean() -> None:
    model = settings(finish_reasons={"eos": "stop", "null": "stop"})
    assert [answer_of(HELLO + end, model=model).stop_reason for end in (chunk(None, "eos") + DONE, DONE)] == [
        "stop",
        "stop",
    ]


def test_an_answer_that_says_nothing_is_an_empty_message() -> None:
    assert answer_of(chunk({"role": "assistant", "content": ""}) + STOP + DONE).content == []


def test_an_empty_finish_reason_means_none_yet() -> None:
    stream = chunk({"content": "Hel"}, "") + chunk({"content": "lo."}, "") + STOP + DONE
    assert answer_of(stream).content == [TextContent("Hello.")]


def test_only_the_first_of_several_answers_is_read() -> None:
    both = {"choices": [{"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "A"}}]}
    stream = (
        chunk({"content": "A"})
        + sse(both)
        + STOP
        + sse({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]})
        + DONE
    )
    message = answer_of(stream)
    assert (message.text, message.stop_reason) == ("AA", "stop")


@pytest.mark.parametrize("index", [1, -1, -2, "0", 0.0, None, "absent"], ids=repr)
def test_a_choice_may_be_numbered_oddly(index: Any) -> None:
    def numbered(delta: Any, finish: Any = None) -> bytes:
        choice = {"delta": delta, "finish_reason": finish} | ({} if index == "absent" else {"index": index})
        return sse({"choices": [choice]})

    message = answer_of(numbered({"content": "Hel"}) + numbered({"content": "lo."}) + numbered({}, "stop") + DONE)
    assert (message.text, message.stop_reason) == ("Hello.", "stop")


def test_an_answer_may_come_as_a_whole_message() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    whole = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello.", "tool_calls": [call]},
        "finish_reason": "tool_calls",
    }
    message = answer_of(sse({"choices": [whole]}) + DONE, "time")
    assert (message.text, [call.id for call in message.tool_calls], message.stop_reason) == (
        "Hello.",
        ["c1"],
        "tool_use",
    )


HALF = "(half)"
ENTRY = {"type": "reasoning.text", "text": f"a{HALF}"}


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"reasoning_details": [ENTRY]}, ThinkingContent("a\ufffd", _entries("a\ufffd"), field="reasoning_details")),
        ({"tool_calls": [piece(0, f"c{HALF}", f"t{HALF}", "{}")]}, ToolCall("c\ufffd", "t\ufffd")),
        # With another character in its place it would be another call.
        ({"tool_calls": [piece(0, "c", "t", {"x": HALF})]}, ToolCall("c", "t", raw_arguments='{"x": "\\ud83d"}')),
        ({"refusal": f"No{HALF}"}, TextContent("No\ufffd")),
    ],
)
def test_half_a_character_anywhere_leaves_an_answer_that_can_be_kept(delta: Any, expected: Content) -> None:
    """failures.md C18."""
    stream = chunk(delta, id="x") + chunk(None, "stop", usage={"prompt_tokens": 3, "note": HALF}) + DONE
    message = answer_of(stream.replace(HALF.encode(), b"\\ud83d"))
    assert (message.content, message.response_id) == ([expected], "x")
    assert msgspec.json.decode(msgspec.json.encode(message), type=AssistantMessage) == message


def test_halves_of_a_character_in_the_details_of_a_thought_are_joined() -> None:
    """failures.md C18: what goes back to the server is what was thought."""
    first, second = (chunk({"reasoning_details": [{"type": "reasoning.text", "text": half}]}) for half in ("H", "L"))
    stream = first.replace(b'"H"', b'"\\ud83d"') + second.replace(b'"L"', b'"\\ude42"')
    assert answer_of(stream + STOP + DONE).content == [ThinkingContent("🙂", _entries("🙂"), field="reasoning_details")]
