"""What the calls of an answer are read as, in every protocol; no sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import READINGS, SERVERS
from tests.provider.wires.speech import Call, Text, spoken
from tests.rows import each_row

from steersman.tools.tool import Tool
from steersman.types.content import ToolCall
from steersman.types.errors import ProtocolError
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Request

FIXTURES = Path(__file__).parents[2] / "fixtures"
# Gemini sends arguments as JSON in its JSON: whole, or not at all.
WRITTEN = [name for name in SERVERS if name != "google"]


def read(name: str, *blocks: Any, end: str = "calls", **more: Any) -> AssistantMessage:
    return READINGS[name].message_of(spoken(name, *blocks, end=end), **more)


@each_row("raw", ["", "  ", "  \n", "null", "{}", " { } "])
@each_row("name", SERVERS)
def test_no_arguments_are_none_in_every_form(name: str, raw: str) -> None:
    """failures.md C6."""
    message = read(name, Call(raw))
    assert (message.content, message.stop_reason) == ([ToolCall("c1", "act")], "tool_use")


def openai_call(**function: Any) -> bytes:
    entry = {"index": 0, "id": "c1", "function": {"name": "act", **function}}
    return chat.calls(entry) + chat.chunk(None, "tool_calls") + chat.DONE


def responses_call(**fields: Any) -> bytes:
    return (
        responses.begun()
        + responses.added(0, "function_call", id="fc_0", call_id="c1", name="act", arguments="")
        + responses.done(0, "function_call", id="fc_0", call_id="c1", name="act", **fields)
        + responses.ended()
    )


def anthropic_call(given: Any) -> bytes:
    start = anthropic.start(0, "tool_use", id="c1", name="act", input=given)
    return anthropic.begun() + start + anthropic.stop(0) + anthropic.ended("tool_use")


def google_call(given: Any) -> bytes:
    return google.stream(google.chunk(google.call("act", given, "c1"), finish="STOP"))


A = {"a": 1}
# A call as only some servers write it, and its arguments.
ODD: dict[str, tuple[bytes, dict[str, Any]]] = {
    "anthropic none": (anthropic.begun() + anthropic.called(0, "c1", "act") + anthropic.ended("tool_use"), {}),
    "anthropic at once": (anthropic_call(A), A),
    "anthropic at once, as text": (anthropic_call('{"a": 1}'), A),
    "google absent": (google_call(None), {}),
    "google none": (google_call(msgspec.Raw(b"null")), {}),
    "google at once": (google_call(A), A),
    "openai absent": (openai_call(), {}),
    "openai none": (openai_call(arguments=None), {}),
    "openai at once": (openai_call(arguments=A), A),
    "responses absent": (responses_call(), {}),
    "responses none": (responses_call(arguments=None), {}),
    "responses at once": (responses_call(arguments=A), A),
}


@each_row("form", ODD)
def test_arguments_may_be_missing_or_come_as_an_object_at_once(form: str) -> None:
    """failures.md C6, C17."""
    stream, arguments = ODD[form]
    message = READINGS[form.split()[0]].message_of(stream)
    assert (message.content, message.stop_reason) == ([ToolCall("c1", "act", arguments)], "tool_use")


@each_row("raw", ["[]", '"x"', "1", "true", "[1, 2]", '"{}"', '"{\\"q\\": 1}"'])
@each_row("name", SERVERS)
def test_arguments_that_are_no_object_are_kept_as_written_and_are_not_cut(name: str, raw: str) -> None:
    """failures.md C7."""
    message = read(name, Call(raw))
    assert message.tool_calls == [ToolCall("c1", "act", raw_arguments=raw)]
    assert message.stop_reason == "tool_use"


LARGE = f'{{"q": {"9" * 5_000}}}'
UNREADABLE = ['{"q": ', '{"q": 1', "{'q': 1}", '{"q": NaN}', "{" * 5_000, '{"q":' * 5_000, "<q>1</q>"]


@each_row("end", ["calls", "stop", "length"])
@each_row("raw", [*UNREADABLE, LARGE, '{"q": "\\ud83d"}'], ids=lambda raw: raw[:12])
@each_row("name", WRITTEN)
def test_arguments_that_cannot_be_read_are_kept_as_written_and_treated_as_cut(name: str, raw: str, end: str) -> None:
    """failures.md C9, C12; loop.md D8."""
    message = read(name, Call(raw), end=end)
    assert message.tool_calls == [ToolCall("c1", "act", raw_arguments=raw)]
    assert message.stop_reason == "length"


@pytest.mark.parametrize("raw", UNREADABLE, ids=lambda raw: raw[:12])
def test_what_is_no_json_in_geminis_arguments_is_no_chunk(raw: str) -> None:
    """failures.md B13, C12."""
    with pytest.raises(ProtocolError) as caught:
        read("google", Call(raw))
    assert len(caught.value.info.message) < 1_000


@each_row("raw", [LARGE, '{"q": "\\ud83d"}'], ids=["large", "half"])
@each_row("name", SERVERS)
def test_what_cannot_be_read_spoils_only_its_call(name: str, raw: str) -> None:
    """failures.md C12."""
    message = read(name, Call(raw), Call("{}", id="c2"))
    assert message.tool_calls == [ToolCall("c1", "act", raw_arguments=raw), ToolCall("c2", "act")]
    assert message.stop_reason == "length"


# The Responses API says of a call itself that it was cut, which is tested with its decoder.
@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("anthropic", ""),
        ("anthropic", '{"a": 1'),
        ("bedrock", ""),
        ("bedrock", '{"a": 1'),
        ("openai", ""),
        ("openai", '{"a": 1'),
        ("responses", '{"a": 1'),
    ],
)
def test_a_call_that_the_limit_cut_is_never_one_without_arguments(name: str, raw: str) -> None:
    """failures.md C9: and the whole calls before it stay whole."""
    message = read(name, Call("{}"), Call('{"a":1}', id="c2"), Call(raw, id="c3"), end="length")
    whole = [ToolCall("c1", "act"), ToolCall("c2", "act", A)]
    assert message.tool_calls == [*whole, ToolCall("c3", "act", raw_arguments=raw)]
    assert message.stop_reason == "length"


# Two calls whose pieces come by turns.
INTERLEAVED = {
    "bedrock": bedrock.begun()
    + b"".join(bedrock.start(at, toolUse={"toolUseId": f"c{at}", "name": "act"}) for at in (0, 1))
    + b"".join(bedrock.delta(at, toolUse={"input": piece}) for piece in ('{"a"', ":1", "}") for at in (0, 1))
    + bedrock.stop(1)
    + bedrock.stop(0)
    + bedrock.ended("tool_use"),
    "anthropic": anthropic.begun()
    + b"".join(anthropic.start(at, "tool_use", id=f"c{at}", name="act", input={}) for at in (0, 1))
    + b"".join(
        anthropic.delta(at, "input_json_delta", partial_json=piece) for piece in ('{"a"', ":1", "}") for at in (0, 1)
    )
    + anthropic.stop(1)
    + anthropic.stop(0)
    + anthropic.ended("tool_use"),
    "openai": b"".join(chat.calls(chat.piece(at, f"c{at}", "act", "")) for at in (0, 1))
    + b"".join(chat.calls(chat.piece(at, args=piece)) for piece in ('{"a"', ":1", "}") for at in (0, 1))
    + chat.chunk(None, "tool_calls")
    + chat.DONE,
    "responses": responses.begun()
    + b"".join(
        responses.added(at, "function_call", id=f"fc_{at}", call_id=f"c{at}", name="act", arguments="") for at in (0, 1)
    )
    + b"".join(responses.arguments(at, piece) for piece in ('{"a"', ":1", "}") for at in (0, 1))
    + b"".join(
        responses.done(at, "function_call", id=f"fc_{at}", call_id=f"c{at}", name="act", arguments='{"a":1}')
        for at in (1, 0)
    )
    + responses.ended(),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_interleaved_pieces_go_to_their_own_calls(name: str) -> None:
    """failures.md C1."""
    assert READINGS[name].message_of(INTERLEAVED[name]).content == [ToolCall("c0", "act", A), ToolCall("c1", "act", A)]


@pytest.mark.parametrize("name", SERVERS)
def test_words_before_and_between_calls_keep_their_place(name: str) -> None:
    message = read(name, Text("One ", "two."), Call("{}"), Text("three"), Call("{}", id="c2"))
    assert [getattr(block, "text", "call") for block in message.content] == ["One two.", "call", "three", "call"]


NAMES = ["calendar.list", "calendar_list", "x" * 200, "1st", "9 lives", "größe", "with space", "a/b", "1 tool/äö"]


def named(name: str, body: Any) -> list[str]:
    """The names of the tools in a request."""
    tools = body["toolConfig"]["tools"] if name == "bedrock" else body["tools"]
    match name:
        case "bedrock":
            return [tool["toolSpec"]["name"] for tool in tools]
        case "google":
            return [tool["name"] for tool in tools[0]["functionDeclarations"]]
        case "openai":
            return [tool["function"]["name"] for tool in tools]
        case _:
            return [tool["name"] for tool in tools]


@pytest.mark.parametrize("name", SERVERS)
def test_a_tool_of_any_name_is_told_apart_and_called_by_its_own(name: str) -> None:
    """failures.md C14."""
    tools = [Tool(own, "", {"type": "object", "properties": {}}, dict[str, str]) for own in NAMES]
    sent = named(name, READINGS[name].body_of("Hi", tools=tools))
    assert len(set(sent)) == len(NAMES)
    assert all(0 < len(wired) <= 64 and wired.isascii() and " " not in wired and "/" not in wired for wired in sent)
    assert sent[1] == "calendar_list"
    made = [Call("{}", wired, f"c{at}") for at, wired in enumerate(sent)]
    message = read(name, *made, request=Request("", [user_message("Hi")], tools))
    assert [call.name for call in message.tool_calls] == NAMES


QWEN, SMOL = "llamacpp-qwen0.5b", "llamacpp-smollm2"
README = [("count_lines", {"path": "README.md"}), ("count_lines", {"path": "setup.py"})]
CUT = '{"path": "/home/user'
# What real servers sent: its calls with their arguments, or what there is of them, how it ended,
# and its usage: input, output, cache_read.
RECORDED: list[tuple[str, str, str, list[tuple[str, Any]], tuple[str, str], tuple[int, int, int]]] = [
    ("anthropic", SMOL, "anthropic_parallel_tool_use", README, ("tool_use", "tool_use"), (1, 59, 603)),
    ("anthropic", QWEN, "anthropic_tool_use_noargs", [("current_time", {})], ("tool_use", "tool_use"), (10, 13, 186)),
    (
        "anthropic",
        QWEN,
        "anthropic_tool_use_max_tokens",
        [("count_lines", CUT)],
        ("length", "max_tokens"),
        (23, 16, 186),
    ),
    ("openai", SMOL, "openai_chat_parallel_tool_calls", README, ("tool_use", "tool_calls"), (604, 59, 0)),
    ("openai", QWEN, "openai_chat_tool_call_noargs", [("current_time", {})], ("tool_use", "tool_calls"), (10, 13, 186)),
    ("openai", QWEN, "openai_chat_tool_call_length", [("count_lines", CUT)], ("length", "length"), (23, 16, 186)),
    ("openai", SMOL, "openai_chat_tool_call_length", [("count_lines", '{"path":')], ("length", "length"), (1, 14, 399)),
    ("responses", SMOL, "responses_parallel_function_calls", README, ("tool_use", "completed"), (1, 59, 603)),
    # This server calls an answer complete that it cut.
    (
        "responses",
        QWEN,
        "responses_function_call_length",
        [("count_lines", CUT)],
        ("length", "completed"),
        (18, 16, 191),
    ),
]


@each_row(("name", "server", "file", "calls", "reasons", "usage"), RECORDED)
def test_a_recorded_call_is_read_as_it_was_written(
    name: str,
    server: str,
    file: str,
    calls: list[tuple[str, Any]],
    reasons: tuple[str, str],
    usage: tuple[int, int, int],
) -> None:
    """failures.md C1, C2, C6, C9: never mended."""
    message = READINGS[name].message_of((FIXTURES / server / f"{file}.sse").read_bytes())
    assert [(call.name, chat.told(call)) for call in message.tool_calls] == calls
    assert (message.stop_reason, message.raw_stop_reason) == reasons
    assert (message.usage.input, message.usage.output, message.usage.cache_read) == usage
