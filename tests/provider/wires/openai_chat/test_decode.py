"""Text, endings, usage and what servers send beside them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.provider.wires.openai_chat.chat import (
    DONE,
    MODEL,
    answer_of,
    calls,
    chunk,
    counted,
    piece,
    read,
    said,
    settings,
)

from steersman.testing.servers.exchange import sse
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import (
    AuthenticationError,
    ContextOverflowError,
    IncompleteStreamError,
    InvalidRequestError,
    NetworkError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    QuotaError,
    RateLimitError,
)
from steersman.types.messages import AssistantMessage
from steersman.types.stream import StreamStart, TextDelta, TextEnd, TextStart
from steersman.types.usage import Usage

HELLO = said("Hel", "lo.")
STOP = chunk(None, "stop")


def _entries(text: str) -> str:
    return f'[{{"type":"reasoning.text","text":"{text}"}}]'


def test_a_text_is_shown_as_it_comes() -> None:
    events, message = read(
        chunk({"role": "assistant", "content": ""})
        + HELLO
        + STOP
        + counted(prompt_tokens=3, completion_tokens=2)
        + DONE
    )
    assert events == [StreamStart(), TextStart(0), TextDelta("Hel", 0), TextDelta("lo.", 0), TextEnd(0)]
    assert message == AssistantMessage(
        [TextContent("Hello.")],
        stop_reason="stop",
        raw_stop_reason="stop",
        usage=Usage(3, 2),
        model="m",
        provider="openai-chat",
        response_id="chatcmpl-1",
    )


def test_a_finish_reason_may_come_with_the_last_words() -> None:
    assert answer_of(said("Hel") + chunk({"content": "lo."}, "stop") + DONE).content == [TextContent("Hello.")]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("content_filter", "refusal"),
    ],
)
def test_the_words_of_the_protocol_have_their_meaning(word: str, reason: str) -> None:
    message = answer_of(HELLO + chunk(None, word) + DONE)
    assert (message.stop_reason, message.raw_stop_reason, message.text) == (reason, word, "Hello.")


@pytest.mark.parametrize(
    ("word", "raw"), [("eos", "eos"), ("model_length", "model_length"), ("error", "error"), (7, "7"), (True, "true")]
)
def test_a_word_of_the_servers_own_is_kept_and_is_no_success(word: Any, raw: str) -> None:
    """failures.md D2."""
    message = answer_of(HELLO + chunk(None, word) + DONE)
    assert (message.stop_reason, message.raw_stop_reason, message.text) == ("error", raw, "Hello.")
    assert message.error_message is not None
    assert repr(raw) in message.error_message


def test_an_end_without_a_reason_is_no_success() -> None:
    """failures.md D2: null."""
    message = answer_of(HELLO + DONE)
    assert (message.stop_reason, message.raw_stop_reason, message.text) == ("error", None, "Hello.")


def test_settings_say_what_a_servers_own_words_mean() -> None:
    model = settings(finish_reasons={"eos": "stop", "null": "stop"})
    assert [answer_of(HELLO + end, model=model).stop_reason for end in (chunk(None, "eos") + DONE, DONE)] == [
        "stop",
        "stop",
    ]


@pytest.mark.parametrize(
    "stream",
    [b"", DONE, counted(prompt_tokens=1), b": comment\n\n", HELLO, HELLO + counted(prompt_tokens=1)],
    ids=range(6),
)
def test_a_stream_without_an_end_or_without_an_answer_is_incomplete(stream: bytes) -> None:
    with pytest.raises(IncompleteStreamError):
        read(stream)


def test_an_answer_that_says_nothing_is_an_empty_message() -> None:
    assert answer_of(chunk({"role": "assistant", "content": ""}) + STOP + DONE).content == []


def test_an_empty_finish_reason_means_none_yet() -> None:
    stream = chunk({"content": "Hel"}, "") + chunk({"content": "lo."}, "") + STOP + DONE
    assert answer_of(stream).content == [TextContent("Hello.")]


@pytest.mark.parametrize("word", ["insufficient_system_resource", "network_error"])
def test_a_finish_reason_that_is_the_servers_failure_may_be_retried(word: str) -> None:
    with pytest.raises((OverloadedError, NetworkError)) as caught:
        read(HELLO + chunk(None, word) + DONE)
    assert caught.value.info.should_retry


@pytest.mark.parametrize(
    "beside",
    [
        sse({"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
        sse({"choices": None}),
        sse({"id": "x"}),
        sse({}),
        sse([]),
        sse("7"),
        b"data:\n\n",
        b"data: : OPENROUTER PROCESSING\n\n",
        b": OPENROUTER PROCESSING\n\n",
        b"event: ping\ndata: {}\n\n",
        sse({"choices": [{"index": 0}]}),
        sse({"choices": [{"index": 0, "delta": None}]}),
        sse({"choices": [{"index": 0, "delta": {"new_thing": {"a": [1]}}, "logprobs": {"content": []}}]}),
        sse({"choices": [{"index": 1, "delta": {"content": "Another answer."}, "finish_reason": "length"}]}),
    ],
    ids=lambda data: data[:60].decode(),
)
@pytest.mark.parametrize("place", range(3))
def test_what_is_beside_the_answer_changes_nothing(beside: bytes, place: int) -> None:
    """failures.md B3, B19, D16."""
    parts = [HELLO, STOP, DONE]
    if place or b'"index":1' not in beside:
        parts.insert(place, beside)
    message = answer_of(b"".join(parts))
    assert (message.content, message.stop_reason) == ([TextContent("Hello.")], "stop")


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


@pytest.mark.parametrize("index", [1, "0", 0.0, None, "absent"], ids=repr)
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


def test_a_refusal_is_a_refusal_whatever_the_finish_reason() -> None:
    """failures.md D1."""
    message = answer_of(said("I can", "not.", field="refusal") + STOP + DONE)
    assert (message.stop_reason, message.error_kind, message.error_message) == ("refusal", "refused", "I cannot.")
    assert message.text == "I cannot."


@pytest.mark.parametrize(
    "before", [b"", HELLO, said("Hm.", field="reasoning_content"), calls(piece(0, "c1", "time", "{}"))], ids=range(4)
)
def test_a_filtered_answer_is_a_refusal_wherever_it_stopped(before: bytes) -> None:
    """failures.md D1."""
    message = answer_of(before + chunk(None, "content_filter") + DONE, "time")
    assert (message.stop_reason, message.failed, message.raw_stop_reason) == ("refusal", True, "content_filter")
    assert message.error_message is not None


def test_halves_of_a_surrogate_pair_in_two_deltas_are_joined() -> None:
    """failures.md C18."""
    half = 'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
    halves = (half % "Hi \\ud83d" + half % "\\ude42!").encode()
    assert answer_of(halves + STOP + DONE).content == [TextContent("Hi 🙂!")]


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize("after", ["", "ok"])
def test_a_lone_half_of_a_surrogate_pair_is_replaced(field: str, after: str) -> None:
    """failures.md C18."""
    half = f'data: {{"choices":[{{"index":0,"delta":{{"{field}":"Hi \\ud83d"}}}}]}}\n\n'.encode()
    message = answer_of(half + (said(after, field=field) if after else b"") + STOP + DONE)
    block = message.content[0]
    assert (block.text if isinstance(block, TextContent) else getattr(block, "thinking", "")) == f"Hi \ufffd{after}"


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


def test_an_invalid_byte_is_replaced_and_the_stream_goes_on() -> None:
    """failures.md B22."""
    assert answer_of(HELLO.replace(b"Hel", b"H\xffl") + STOP + DONE).text == "H\ufffdllo."


@pytest.mark.parametrize(
    "garbage",
    [
        b"data: {\n\n",
        b"data: <html>\n\n",
        b'data: {"choices": 7}\n\n',
        b"data: {'choices': []}\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
    ids=range(5),
)
def test_what_is_no_chunk_is_a_protocol_error_that_shows_some_of_it(garbage: bytes) -> None:
    """failures.md B13."""
    with pytest.raises(ProtocolError, match="not a chunk") as caught:
        read(HELLO + garbage + STOP + DONE)
    assert caught.value.info.body is not None
    assert caught.value.info.body[:5] == garbage[6:11].decode().strip()
    assert len(caught.value.info.body) <= 200


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"message": "busy", "type": "server_error", "code": 503}, OverloadedError, 503),
        ({"message": "busy", "code": "502"}, OverloadedError, 502),
        ({"message": "slow down", "code": 429}, RateLimitError, 429),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, RateLimitError, None),
        ({"message": "no money", "type": "insufficient_quota", "code": 429}, QuotaError, 429),
        ({"message": "no key", "code": 401}, AuthenticationError, 401),
        ({"message": "bad", "type": "invalid_request_error", "code": "x"}, InvalidRequestError, None),
        (
            {"message": "This model's maximum context length is 10 tokens", "code": "context_length_exceeded"},
            ContextOverflowError,
            None,
        ),
        ("words only", OverloadedError, None),
        ({"message": None}, OverloadedError, None),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("before", [b"", HELLO], ids=["first", "later"])
def test_an_error_inside_a_stream_is_classified(
    before: bytes, error: Any, kind: type[ProviderError], status: int | None
) -> None:
    """failures.md B11."""
    with pytest.raises(kind) as caught:
        read(before + sse({"error": error}) + DONE)
    assert type(caught.value) is kind
    assert (caught.value.info.status, caught.value.info.provider) == (status, "openai-chat")


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message": "busy"}\n\n',
        b"event: error\ndata: busy\n\n",
        sse({"object": "error", "message": "busy", "code": 503}),
        sse(
            {
                "error": {"message": "busy", "code": 502},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            }
        ),
        sse(
            {
                "choices": [
                    {"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": "busy", "code": 502}}
                ]
            }
        ),
    ],
    ids=range(5),
)
def test_an_error_may_have_other_forms(event: bytes) -> None:
    with pytest.raises(OverloadedError, match="busy"):
        read(HELLO + event + DONE)


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(6, 5, 4)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}, Usage(6, 5, 4)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4}, Usage(6, 5, 4)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            },
            Usage(3, 5, 4, 3),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(10, 5, reasoning=2),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 17,
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(10, 7, reasoning=2),
        ),
        ({"prompt_tokens": 3, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(0, 5, 4)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": None}, Usage(10, 5)),
        ({"prompt_tokens": "10", "completion_tokens": 5}, Usage(10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25}, Usage(10, 5, cost=0.25)),
        ({}, Usage()),
        ({"prompt_tokens": "many"}, Usage()),
        ([], Usage()),
    ],
    ids=range(14),
)
def test_usage_has_one_normal_form(counts: Any, usage: Usage) -> None:
    """failures.md I7: what came from a cache is apart, reasoning is inside the output."""
    assert answer_of(HELLO + STOP + sse({"choices": [], "usage": counts}) + DONE).usage == usage


def test_usage_in_every_chunk_is_the_last_one_and_not_a_sum() -> None:
    """failures.md I7."""
    stream = b"".join(
        chunk({"content": word}, usage={"prompt_tokens": 10, "completion_tokens": count})
        for count, word in enumerate(("a", "b", "c"), 1)
    )
    assert answer_of(stream + chunk(None, "stop", usage=None) + DONE).usage == Usage(10, 3)


@pytest.mark.parametrize(
    "last",
    [
        chunk(None, "stop", usage={"prompt_tokens": 10, "completion_tokens": 5}),
        chunk(None, "stop", x_groq={"id": "r", "usage": {"prompt_tokens": 10, "completion_tokens": 5}}),
        sse(
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "finish_reason": "stop",
                        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
                    }
                ]
            }
        ),
        STOP + sse({"choices": None, "usage": {"prompt_tokens": 10, "completion_tokens": 5}}),
        counted(prompt_tokens=10, completion_tokens=5) + STOP,
    ],
    ids=range(5),
)
def test_usage_may_stand_elsewhere(last: bytes) -> None:
    """failures.md B19."""
    assert answer_of(HELLO + last + DONE).usage == Usage(10, 5)


def test_the_answer_names_the_model_that_was_asked() -> None:
    message = answer_of(chunk({"content": "Hi."}, model="m-2026-01-01") + STOP + DONE)
    assert (message.model, message.provider) == (MODEL.id, MODEL.provider)
