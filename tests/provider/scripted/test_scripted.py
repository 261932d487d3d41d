"""The scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from steersman.provider.models.registry import find_stream_fn, get_model
from steersman.provider.scripted.script import Turn
from steersman.provider.scripted.strict import RequestReader
from steersman.provider.streaming.normalize import stream_events
from steersman.testing import ScriptedModel, answer, call, cut, error, raises, stall, text, thinking
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo, RateLimitError
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage, user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import (
    Done,
    Failed,
    StreamEvent,
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

OPTIONS = StreamOptions()


def request(*messages: Message) -> Request:
    return Request("", list(messages) or [user_message("Hi")])


async def play(script: ScriptedModel, asked: Request | None = None) -> list[StreamEvent]:
    return [event async for event in script(script.model, asked or request(), OPTIONS)]


def said(*content: Content, **fields: Any) -> AssistantMessage:
    fields.setdefault("stop_reason", "stop")
    fields.setdefault("raw_stop_reason", fields["stop_reason"])
    return AssistantMessage(content, model="script", provider="scripted", **fields)


async def test_a_string_is_a_text_answer_in_several_deltas() -> None:
    assert await play(ScriptedModel("Hello you")) == [
        StreamStart(),
        TextStart(),
        TextDelta("He"),
        TextDelta("ll"),
        TextDelta("o "),
        TextDelta("you"),
        TextEnd(),
        Done(said(TextContent("Hello you"))),
    ]


async def test_an_answer_holds_thinking_text_and_numbered_calls() -> None:
    script = ScriptedModel(answer(thinking("Hm"), text("Ok"), call("add", a=1), call("add", {"id": 2}), deltas=1))
    first, second = ToolCall("call_1", "add", {"a": 1}), ToolCall("call_2", "add", {"id": 2})
    assert await play(script) == [
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta("Hm", 0),
        ThinkingEnd(0),
        TextStart(1),
        TextDelta("Ok", 1),
        TextEnd(1),
        ToolCallStart(2, "call_1", "add"),
        ToolCallDelta('{"a":1}', 2),
        ToolCallEnd(2, first),
        ToolCallStart(3, "call_2", "add"),
        ToolCallDelta('{"id":2}', 3),
        ToolCallEnd(3, second),
        Done(said(ThinkingContent("Hm"), TextContent("Ok"), first, second, stop_reason="tool_use")),
    ]


async def test_raw_arguments_stay_as_the_model_wrote_them() -> None:
    events = await play(ScriptedModel(answer(call("write", raw='{"path":'), stop_reason="length")))
    expected = ToolCall("call_1", "write", {}, raw_arguments='{"path":')
    assert events[-1] == Done(said(expected, stop_reason="length"))


async def test_turns_are_played_in_order_and_requests_are_recorded_as_given() -> None:
    script = ScriptedModel("one", "two")
    first, second = request(user_message("a")), request(user_message("b"))
    answers = [(await play(script, asked))[-1] for asked in (first, second)]
    assert [event.message.text for event in answers if isinstance(event, Done)] == ["one", "two"]
    assert script.requests == [(first, OPTIONS), (second, OPTIONS)]
    assert script.requests[0][0].messages is first.messages
    assert (script.asked, script.left, script.models) == (2, 0, [script.model, script.model])


async def test_a_script_that_is_used_up_says_so() -> None:
    script = ScriptedModel("only")
    await play(script)
    [failed] = await play(script)
    assert isinstance(failed, Failed)
    advice = "The script has 1 turns and was asked for turn 2. Add turns, or repeat_last=True."
    assert failed.error == ErrorInfo("internal", advice)


async def test_the_last_turn_repeats_with_new_call_ids() -> None:
    script = ScriptedModel(answer(call("look")), repeat_last=True)
    ends = [(await play(script))[-1] for _ in range(3)]
    ids = [[block.id for block in end.message.tool_calls] for end in ends if isinstance(end, Done)]
    assert ids == [["call_1"], ["call_2"], ["call_3"]]


async def test_a_function_reacts_to_the_request() -> None:
    def shout(asked: Request) -> str:
        return asked.messages[-1].text.upper()

    async def whisper(asked: Request) -> Turn:
        await asyncio.sleep(1)
        return answer(asked.messages[-1].text.lower())

    script = ScriptedModel(shout, whisper)
    ends = [(await play(script))[-1] for _ in range(2)]
    assert [end.message.text for end in ends if isinstance(end, Done)] == ["HI", "hi"]


async def test_an_error_keeps_what_was_shown_before_it() -> None:
    script = ScriptedModel(error("overloaded", after=2))
    info = ErrorInfo("overloaded", "scripted error: overloaded")
    expected = AssistantMessage(
        [TextContent("partial partial ")],
        stop_reason="error",
        model="script",
        provider="scripted",
        error_message=info.message,
        error_kind="overloaded",
    )
    events = await play(script)
    assert events == [
        StreamStart(),
        TextStart(),
        TextDelta("partial "),
        TextDelta("partial "),
        TextEnd(),
        Failed(expected, info),
    ]


async def test_an_error_may_come_before_anything_else_and_from_an_exception() -> None:
    [failed] = await play(ScriptedModel(error(RateLimitError("slow down", retry_after=2.0))))
    assert isinstance(failed, Failed)
    assert failed.error == ErrorInfo("rate_limit", "slow down", retry_after=2.0)


async def test_an_unfinished_call_is_not_in_the_message_of_an_error() -> None:
    *_, failed = await play(ScriptedModel(error("network", "Text", call("look", at="x"), after=5)))
    assert isinstance(failed, Failed)
    assert failed.message.content == [TextContent("Text")]


async def test_a_cut_stream_ends_without_a_terminal_event() -> None:
    assert await play(ScriptedModel(cut(after=0))) == [StreamStart()]
    assert await play(ScriptedModel(cut())) == []


async def test_a_raising_stream_raises_after_its_deltas() -> None:
    seen: list[StreamEvent] = []
    script = ScriptedModel(raises(ConnectionResetError("gone"), "Hello", after=1))

    async def read() -> None:
        async for event in script(script.model, request(), OPTIONS):
            seen.append(event)

    with pytest.raises(ConnectionResetError, match="gone"):
        await read()
    assert seen == [StreamStart(), TextStart(), TextDelta("H")]
    assert script.streaming == 0


async def test_a_stalled_stream_ends_only_when_cancelled() -> None:
    script = ScriptedModel(stall(after=1))
    task = asyncio.create_task(play(script))
    await asyncio.sleep(10_000)
    assert (task.done(), script.streaming) == (False, 1)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), script.streaming) == (True, 0)


async def test_a_deaf_stall_ignores_its_first_cancels() -> None:
    task = asyncio.create_task(play(ScriptedModel(stall(ignored_cancels=1))))
    for _ in range(2):
        await asyncio.sleep(1)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert asyncio.get_running_loop().time() == pytest.approx(2)


async def test_deltas_are_paced() -> None:
    await play(ScriptedModel(answer("abcd", pace=2.5), pace=99.0))
    assert asyncio.get_running_loop().time() == pytest.approx(10)


async def test_usage_is_unknown_unless_the_script_says_and_is_priced() -> None:
    script = ScriptedModel(
        answer("a", usage=Usage(input=1_000_000, output=0)), "b", usage=Usage(input=1), prices=Prices(3.0, 15.0)
    )
    ends = [(await play(script))[-1] for _ in range(2)]
    assert [end.message.usage.cost for end in ends if isinstance(end, Done)] == [3.0, 3e-06]
    [*_, silent] = await play(ScriptedModel("c"))
    assert isinstance(silent, Done)
    assert silent.message.usage == Usage()


async def test_an_invalid_request_is_refused_in_a_strict_servers_words_and_costs_no_turn() -> None:
    script = ScriptedModel("fine")
    bad = request(user_message("Hi"), said(ToolCall("c1", "look"), stop_reason="tool_use"), user_message("So?"))
    [failed] = await play(script, bad)
    assert isinstance(failed, Failed)
    assert failed.error is not None
    assert (failed.error.kind, failed.error.status) == ("invalid_request", 400)
    assert failed.error.message.startswith(
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: c1."
    )
    assert script.left == 1
    *_, done = await play(ScriptedModel("fine", strict=False), bad)
    assert isinstance(done, Done)


async def test_the_script_is_reached_through_its_model() -> None:
    script = ScriptedModel("found")
    events = [event async for event in stream_events(find_stream_fn(script.model), script.model, request(), OPTIONS)]
    assert events[-1] == Done(said(TextContent("found")))


async def test_the_echo_model_says_what_it_was_told() -> None:
    model = get_model("scripted:echo")
    *_, done = [
        event async for event in stream_events(find_stream_fn(model), model, request(user_message("Ahoy")), OPTIONS)
    ]
    assert isinstance(done, Done)
    assert (done.message.text, done.message.model) == ("Ahoy", "echo")


async def test_a_scripted_model_without_a_script_says_what_to_do() -> None:
    model = Model("scripted", "nothing")
    [failed] = [event async for event in stream_events(find_stream_fn(model), model, request(), OPTIONS)]
    assert isinstance(failed, Failed)
    assert failed.message.error_message == (
        "No script for the model 'scripted:nothing'. Use the .model of a ScriptedModel(...), or 'scripted:echo'."
    )


def test_nonsense_in_a_script_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="A turn must be"):
        ScriptedModel(7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="No error kind 'sad'"):
        error("sad")  # pyright: ignore[reportArgumentType]


@dataclass
class Growing(Sequence[Message]):
    """A view over a growing list that counts how often it is read."""

    base: list[Message]
    reads: list[int] = field(default_factory=list[int])

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: Any) -> Any:
        self.reads.append(cast(int, index))
        return self.base[cast(int, index)]


def test_a_growing_transcript_is_judged_once_per_message() -> None:
    reader, messages, reads = RequestReader(), list[Message](), list[int]()
    for number in range(5):
        messages.extend([user_message("Go"), said(ToolCall(f"c{number}", "look"), stop_reason="tool_use")])
        messages.append(ToolResultMessage([TextContent("ok")], tool_call_id=f"c{number}", tool_name="look"))
        assert reader.find_fault(Request("", Growing(messages, reads))) is None
    assert reads == list(range(15))
