"""Odd and hostile tool calls over real sockets: a tool runs with the right arguments or not at all.

Each answer comes in the bytes of its protocol, an agent works with it, and the strict server takes the next requests.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import HIGH, Call, Talk, Text, calls_in, results_in, spoken, talk
from tests.rows import each_row

pytestmark = pytest.mark.real_time

INCOMPLETE = "error: tool call was incomplete due to max tokens reached"
# The three in which the arguments of a call are a text of their own, that may be anything.
WRITTEN = ("anthropic", "openai", "responses")
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}


def finished(got: Talk) -> Talk:
    """A run that came to its end after one round of calls."""
    assert (got.result.end_reason, got.result.detail, got.result.text) == ("done", "", "Fine.")
    assert len(got.server.requests) == 3
    return got


def bare(*events: bytes, name: str) -> bytes:
    """These events as a whole answer that ends with calls."""
    match name:
        case "anthropic":
            return b"".join((anthropic.begun(), *events, anthropic.ended("tool_use")))
        case "responses":
            return b"".join((responses.begun(), *events, responses.ended()))
        case "google":
            return b"".join((*events, google.stream(google.chunk(finish="STOP"))))
        case _:
            return b"".join((*events, chat.chunk(None, "tool_calls"), chat.DONE))


def item(**fields: Any) -> bytes:
    """A call of the Responses API, told whole."""
    return responses.done(0, "function_call", id="fc_0", call_id="c1", name="act", status="completed", **fields)


def function(**fields: Any) -> bytes:
    """A call of Chat Completions, told whole."""
    return chat.calls({"index": 0, "id": "c1", "type": "function", "function": {"name": "act", **fields}})


def begins(**fields: Any) -> bytes:
    """A call of Anthropic's that nothing follows."""
    return anthropic.start(0, "tool_use", id="c1", name="act", **fields) + anthropic.stop(0)


def part(**fields: Any) -> bytes:
    """A call of Gemini's."""
    return google.stream(google.chunk({"functionCall": {"id": "c1", "name": "act", **fields}}))


EMPTY: dict[str, Any] = {}
# What each can leave out, beside the texts that all of WRITTEN can send.
ABSENT = [
    *((name, spoken(name, Call(text))) for name in WRITTEN for text in ("", " \n", "null", "{}")),
    *(
        (name, bare(told(**({} if value is ... else {field: value})), name=name))
        for name, told, field in (
            ("anthropic", begins, "input"),
            ("google", part, "args"),
            ("openai", function, "arguments"),
            ("responses", item, "arguments"),
        )
        for value in (..., None, EMPTY)
    ),
    ("google", spoken("google", Call(" { } "))),
]


@each_row(("name", "stream"), ABSENT)
async def test_no_arguments_are_an_empty_object_in_whatever_form(name: str, stream: bytes) -> None:
    """failures.md C6."""
    got = finished(await talk(name, stream))
    assert (got.ran, got.told) == ([{}], [("act", "acted", False)])
    assert calls_in(name, got.server.requests[1]) == [("act", {})]


@pytest.mark.parametrize("name", SERVERS)
async def test_no_arguments_are_held_against_the_schema(name: str) -> None:
    """failures.md C6."""
    got = finished(await talk(name, spoken(name, Call("")), schema={**PATH, "required": ["path"]}))
    text = "Invalid arguments for tool 'act':\narguments.path: missing, a string is required"
    assert (got.ran, got.told) == ([], [("act", text, True)])
    assert results_in(name, got.server.requests[1]) == [text]


@each_row("end", ["calls", "stop", "length"])
@each_row("raw", ["[]", '"x"', "1", "false", '"{\\"path\\": \\"a\\"}"'])
@each_row("name", SERVERS)
async def test_arguments_that_are_no_object_are_an_error_and_go_back_as_an_object(
    name: str, raw: str, end: str
) -> None:
    """failures.md C7: an object written as a text too; nothing is guessed. They are wrong, and not cut."""
    got = finished(await talk(name, spoken(name, Call(raw), end=end)))
    told = f"error: tool arguments must be a JSON object, got {msgspec.json.decode(raw)!r}."
    assert (got.ran, got.told) == ([], [("act", told, True)])
    assert got.answer.stop_reason == ("length" if end == "length" else "tool_use")
    assert calls_in(name, got.server.requests[1]) == [("act", {"_raw": raw})]


@pytest.mark.parametrize("name", SERVERS)
async def test_beside_arguments_that_are_no_object_a_whole_call_is_run_under_every_policy(name: str) -> None:
    """failures.md C7, loop.md D8: only an answer that was cut has its whole calls refused."""
    stream = spoken(name, Call("[]"), Call('{"path":"b"}', id="c2"))
    got = finished(await talk(name, stream, schema=PATH, length_policy="fail_all"))
    assert (got.ran, [is_error for *_, is_error in got.told]) == ([{"path": "b"}], [True, False])


@each_row("raw", ["null", "{}"])
@each_row("end", ["calls", "stop", "length"])
@each_row("name", SERVERS)
async def test_no_arguments_that_are_written_out_are_whole_however_the_answer_ends(
    name: str, end: str, raw: str
) -> None:
    """failures.md C6, C7: nothing was cut from them."""
    got = finished(await talk(name, spoken(name, Call(raw), end=end)))
    assert (got.ran, got.told) == ([{}], [("act", "acted", False)])
    assert got.answer.stop_reason == ("length" if end == "length" else "tool_use")


async def test_an_object_that_the_server_says_it_broke_off_is_called_incomplete() -> None:
    """loop.md D8: the Responses API says so of a call by itself, and what there is of it may look whole."""
    fields = {"id": "fc_0", "call_id": "c1", "name": "act", "status": "incomplete", "arguments": '{"path":"a"}'}
    stream = responses.begun() + responses.done(0, "function_call", **fields)
    got = finished(await talk("responses", stream + responses.ended("incomplete", reason="max_output_tokens")))
    assert (got.ran, got.told, got.answer.stop_reason) == ([], [("act", INCOMPLETE, True)], "length")


@pytest.mark.parametrize("name", SERVERS)
async def test_a_text_is_read_as_json_only_where_the_schema_wants_no_text(name: str) -> None:
    """failures.md C8."""
    kinds = {"where": "object", "tags": "array", "count": "number", "text": "string"}
    schema = {"type": "object", "properties": {field: {"type": kind} for field, kind in kinds.items()}}
    sent = {"where": '{"x": 1}', "tags": '["a"]', "count": "3", "text": '{"x": 1}'}
    got = finished(await talk(name, spoken(name, Call(msgspec.json.encode(sent).decode())), schema=schema))
    assert got.ran == [{"where": {"x": 1}, "tags": ["a"], "count": 3, "text": '{"x": 1}'}]
    assert calls_in(name, got.server.requests[1]) == [("act", sent)]


@each_row("end", ["length", "calls", "stop"])
@each_row("raw", ['{"path":"a"', '{"path": "a", "text": "# Ti', "{"])
@each_row("name", WRITTEN)
async def test_a_call_that_breaks_off_is_not_run_whatever_the_server_calls_it(name: str, raw: str, end: str) -> None:
    """failures.md C9. Gemini sends arguments whole or not at all."""
    got = finished(await talk(name, spoken(name, Call('{"path":"b"}', id="c0"), Call(raw), end=end), schema=PATH))
    assert (got.ran, got.told) == ([{"path": "b"}], [("act", "acted", False), ("act", INCOMPLETE, True)])
    assert calls_in(name, got.server.requests[1]) == [("act", {"path": "b"}), ("act", {"_raw": raw})]


@each_row("raw", ["", '{"path":"a"}'])
@each_row("name", SERVERS)
async def test_a_call_of_a_cut_answer_that_looks_whole_can_be_refused(name: str, raw: str) -> None:
    """failures.md C9: valid but short."""
    got = finished(await talk(name, spoken(name, Call(raw), end="length"), schema=PATH, length_policy="fail_all"))
    assert (got.ran, got.told) == ([], [("act", INCOMPLETE, True)])


@each_row("end", ["stop", "calls"])
@each_row("name", SERVERS)
async def test_calls_are_run_though_the_server_says_it_just_stopped(name: str, end: str) -> None:
    """failures.md C11. The Responses API and Gemini have one word for both."""
    got = finished(await talk(name, spoken(name, Text("Now."), Call('{"path":"a"}'), end=end)))
    assert (got.ran, got.answer.stop_reason, got.answer.text) == ([{"path": "a"}], "tool_use", "Now.")


@pytest.mark.parametrize("name", SERVERS)
async def test_a_stop_for_calls_without_any_is_the_end(name: str) -> None:
    """failures.md C11."""
    got = await talk(name, spoken(name, Text("That is all.")))
    assert (got.result.end_reason, got.result.text, got.answer.stop_reason) == ("done", "That is all.", "stop")
    assert len(got.server.requests) == 2


HOSTILE = {
    "NaN": '{"x": NaN}',
    "Infinity": '{"x": Infinity}',
    "-Infinity": '{"x": -Infinity}',
    "digits": '{"x": ' + "9" * 5_000 + "}",
    "exponent": '{"x": 1e999}',
    "deep": '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "nested": '{"x": ' + "[" * 128 + "]" * 128 + "}",
    "half": '{"x": "\\ud83d"}',
    "raw half": f'{{"x": "{HIGH}"}}',
    "two": '{"x": 1} {"x": 2}',
    "NUL": "\x00",
    "quotes": "{'x': 1}",
    "markup": "<x>1</x>",
}


@each_row("form", HOSTILE)
@each_row("name", WRITTEN)
async def test_hostile_arguments_spoil_their_call_alone(name: str, form: str) -> None:
    """failures.md C12: an error that the model reads, and the call beside it is run."""
    stream = spoken(name, Call(HOSTILE[form]), Call('{"path":"b"}', id="c2"))
    got = finished(await talk(name, stream))
    assert (got.ran, got.told) == ([{"path": "b"}], [("act", INCOMPLETE, True), ("act", "acted", False)])
    raw = HOSTILE[form].replace(HIGH, "\\ud83d")
    assert calls_in(name, got.server.requests[1]) == [("act", {"_raw": raw}), ("act", {"path": "b"})]


@pytest.mark.parametrize("form", ["digits", "exponent", "half", "nested"])
async def test_hostile_values_in_geminis_arguments_spoil_their_call_alone(form: str) -> None:
    """failures.md C12: here arguments are part of the chunk, which is JSON that Python reads but for these values."""
    got = finished(await talk("google", spoken("google", Call(HOSTILE[form]), Call('{"path":"b"}', id="c2"))))
    assert (got.ran, got.told) == ([{"path": "b"}], [("act", INCOMPLETE, True), ("act", "acted", False)])


@each_row("form", ["NaN", "Infinity", "-Infinity", "deep", "two", "NUL", "quotes", "markup"])
async def test_what_is_no_json_in_geminis_arguments_is_no_chunk(form: str) -> None:
    """failures.md C12: told as the server's fault; nothing runs, and the next prompt is taken."""
    got = await talk("google", spoken("google", Text("Now."), Call(HOSTILE[form])))
    assert (got.result.end_reason, got.result.error_kind, got.ran, got.told) == ("error", "protocol", [], [])


@pytest.mark.parametrize("name", SERVERS)
async def test_of_a_key_that_comes_twice_the_last_counts(name: str) -> None:
    """failures.md C12."""
    assert finished(await talk(name, spoken(name, Call('{"x": 1, "x": 2}')))).ran == [{"x": 2}]


@pytest.mark.parametrize("name", SERVERS)
async def test_a_tool_that_is_not_there_is_answered_with_those_that_are(name: str) -> None:
    """failures.md C13: beside it the others run."""
    stream = spoken(name, Call(name="acts"), Call('{"path":"b"}', id="c2"), Call(name="no such tool!", id="c3"))
    got = finished(await talk(name, stream))
    assert got.ran == [{"path": "b"}]
    assert got.told == [
        ("acts", "No tool named 'acts'. Available tools: act. Did you mean 'act'?", True),
        ("act", "acted", False),
        ("no such tool!", "No tool named 'no such tool!'. Available tools: act.", True),
    ]
    assert results_in(name, got.server.requests[1]) == [text for _, text, _ in got.told]


@pytest.mark.parametrize("name", WRITTEN)
async def test_a_call_without_a_name_is_answered_and_taken_back(name: str) -> None:
    """failures.md C13. Of Gemini's calls one without a name is none (C5)."""
    got = finished(await talk(name, spoken(name, Call('{"path":"a"}', name=""), Call(id="c2"))))
    # Chat Completions may still name it, so that there it is shown last.
    assert got.ran == [{}]
    assert sorted(text for _, text, _ in got.told) == ["No tool named ''. Available tools: act.", "acted"]


SEEN = {"path": "a", "n": 1}
WHOLE = {
    "anthropic": begins(input=SEEN),
    "anthropic text": begins(input='{"path": "a", "n": 1}'),
    "openai": function(arguments=SEEN),
    "responses": item(arguments=SEEN),
}


@pytest.mark.parametrize("form", WHOLE)
async def test_arguments_may_come_as_an_object_and_at_once(form: str) -> None:
    """failures.md C17. Gemini's are an object always; a text there is no object (C7)."""
    name = form.split()[0]
    got = finished(await talk(name, bare(WHOLE[form], name=name)))
    assert (got.ran, calls_in(name, got.server.requests[1])) == ([SEEN], [("act", SEEN)])
