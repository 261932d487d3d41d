"""A programmer's mistake raises at the call that made it, in words that help; a model's or a tool's never does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from tests.loop.play import answering, listened, said
from tests.rows import each_row

from steersman import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    ExecutionLimits,
    Model,
    Pass,
    RepeatedCalls,
    Retry,
    Stop,
    TextContent,
    Tool,
    ToolOutput,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    batched,
)
from steersman.context.compaction.config import ContextConfig
from steersman.testing import ScriptedModel, answer, call
from steersman.types.messages import AssistantMessage, ToolResultMessage

Attempt = Callable[[], Any]
A: Any = Agent
"""`Agent` for a caller without a type checker."""


def look() -> str:
    """Look."""
    return "seen"


def agent(**options: Any) -> Any:
    return A(ScriptedModel("ok").model, **options)


def config(**options: Any) -> Any:
    return AgentLoopConfig(model=ScriptedModel("ok").model, **options)


def limited(name: str, value: Any) -> Attempt:
    return lambda: ExecutionLimits(**{name: value})


def loop(prompts: Any = "hi", context: Any = None, configuration: Any = None, **more: Any) -> Any:
    return agent_loop(prompts, AgentContext() if context is None else context, configuration or config(), **more)


def two(first: object, second: object) -> None:
    """Takes two arguments, which fits few places."""


class OnlyRaises:
    """No seam, no policy, no anything."""

    def __repr__(self) -> str:
        return "OnlyRaises()"


MISTAKES: dict[str, tuple[Attempt, type[Exception], str]] = {
    # Prompts
    "an empty prompt": (lambda: agent().prompt(""), ValueError, "needs some text, got ''"),
    "a blank prompt": (lambda: agent().prompt("  \n"), ValueError, r"needs some text, got '  \\n'"),
    "no prompts": (lambda: agent().prompt([]), ValueError, "at least one prompt"),
    "an empty prompt among others": (lambda: agent().prompt(["hi", ""]), ValueError, "needs some text"),
    "a prompt without content": (lambda: agent().prompt({"role": "user"}), ValueError, "some text or an image"),
    "a prompt with empty content": (
        lambda: agent().prompt({"role": "user", "content": []}),
        ValueError,
        "some text or an image",
    ),
    "a user message that says nothing": (lambda: agent().prompt(UserMessage()), ValueError, "some text or an image"),
    "a user message of blanks": (
        lambda: agent().prompt(UserMessage([TextContent(" ")])),
        ValueError,
        "some text or an image",
    ),
    "None as prompt": (lambda: agent().prompt(None), TypeError, "got None"),
    "a number as prompt": (lambda: agent().prompt(5), TypeError, "got 5"),
    "bytes as prompt": (lambda: agent().prompt(b"hi"), TypeError, "got b'hi'"),
    "a number among prompts": (lambda: agent().prompt(["hi", 5]), TypeError, "got 5"),
    "an unknown role": (lambda: agent().prompt({"role": "boss", "content": "hi"}), ValueError, "'boss'"),
    "no role": (lambda: agent().prompt({"content": "hi"}), ValueError, "role"),
    "content of a wrong type": (lambda: agent().prompt({"role": "user", "content": 5}), ValueError, "content"),
    "a block of an unknown type": (
        lambda: agent().prompt({"role": "user", "content": [{"type": "smell"}]}),
        ValueError,
        "'smell'",
    ),
    "empty steering": (lambda: agent().steer(""), ValueError, "needs some text"),
    "steering that says nothing": (lambda: agent().steer(UserMessage()), ValueError, "some text or an image"),
    "a number as steering": (lambda: agent().steer(5), TypeError, "got 5"),
    "an unknown steering mode": (lambda: agent().steer("hi", mode="gently"), ValueError, "'gently'"),
    "an empty follow-up": (lambda: agent().follow_up(""), ValueError, "needs some text"),
    "None as follow-up": (lambda: agent().follow_up(None), TypeError, "got None"),
    # Going on
    "continue on nothing": (lambda: agent().continue_(), ValueError, "nothing to continue"),
    "rerun of nothing": (lambda: agent().rerun(), ValueError, "nothing to rerun"),
    "branch from nothing": (lambda: agent().branch(0), IndexError, "no message 0"),
    "branch from a fraction": (lambda: agent(messages=["hi"]).branch(1.5), TypeError, "got 1.5"),
    "branch from a bool": (lambda: agent(messages=["hi"]).branch(True), TypeError, "got True"),
    "branch with an empty prompt": (lambda: agent(messages=["hi"]).branch(0, prompt=""), ValueError, "needs some text"),
    "continue a context without messages": (
        lambda: agent_loop_continue(AgentContext(agent_id="a", session_id="s"), config()),
        ValueError,
        "no messages",
    ),
    "an unknown continuation kind": (
        lambda: agent_loop_continue(
            AgentContext(messages=["hi"], agent_id="a", session_id="s", continuation_kind=cast(Any, "rerun")), config()
        ),
        TypeError,
        "got 'rerun'",
    ),
    # The loop without the shell
    "no prompts for the loop": (lambda: loop([]), ValueError, "at least one prompt"),
    "an empty message for the loop": (lambda: loop([UserMessage()]), ValueError, "some text or an image"),
    "no context": (lambda: agent_loop("hi", cast(Any, None), config()), TypeError, "AgentContext, got None"),
    "a dict as configuration": (lambda: loop(configuration={"model": "x"}), TypeError, "AgentLoopConfig, got"),
    "a number as signal": (lambda: loop(signal=5), TypeError, "got 5"),
    "a number as stream_fn": (lambda: loop(stream_fn=5), TypeError, "stream_fn takes a function, got 5"),
    "a number as messages": (lambda: AgentContext(messages=cast(Any, 5)), TypeError, "got 5"),
    "a number as tools of a context": (lambda: AgentContext(tools=cast(Any, 5)), TypeError, "list.*got 5"),
    "a number as system prompt of a context": (lambda: AgentContext(cast(Any, 5)), TypeError, "string, got 5"),
    # Models
    "a number as model": (lambda: A(5), TypeError, "got 5"),
    "an empty model": (lambda: A(""), ValueError, "'provider:model-id'"),
    "a model without its provider": (lambda: A("gpt-5"), ValueError, "'provider:model-id'.*got 'gpt-5'"),
    "an unknown provider": (lambda: A("nowhere:x"), NotImplementedError, "'nowhere'.*register_provider"),
    "a misspelt provider": (lambda: A("antropic:x"), NotImplementedError, "Did you mean 'anthropic'.*Known providers"),
    "an unknown provider later": (lambda: agent().configure(model="nowhere:x"), NotImplementedError, "'nowhere'"),
    "an unknown provider of a Model": (lambda: A(Model("nowhere", "x")).prompt("hi"), NotImplementedError, "'nowhere'"),
    "an unknown fallback provider": (lambda: agent(fallbacks=["nowhere:x"]), NotImplementedError, "'nowhere'"),
    "an unknown fallback Model": (
        lambda: agent(fallbacks=[Model("nowhere", "x")]).prompt("hi"),
        NotImplementedError,
        "'nowhere'",
    ),
    "fallbacks that are no list": (lambda: agent(fallbacks="scripted:x"), TypeError, "as a list.*'scripted:x'"),
    "a number as key": (lambda: agent(api_key=5), TypeError, "api_key must be a string"),
    "a number as address": (lambda: agent(base_url=5), TypeError, "base_url must be a URL.*5"),
    # Tools
    "tools as one string": (lambda: agent(tools="look"), TypeError, "as a list"),
    "a tool outside a list": (lambda: agent(tools=look), TypeError, "as a list"),
    "None as tools": (lambda: agent(tools=None), TypeError, "as a list"),
    "a number as tool": (lambda: agent(tools=[5]), TypeError, "got 5"),
    "two tools of one name": (lambda: agent(tools=[look, look]), ValueError, "Two tools are named 'look'"),
    "two tools of one name in a context": (
        lambda: loop(context=AgentContext(tools=[look, look])),
        ValueError,
        "Two tools are named 'look'",
    ),
    "a tool with no schema": (lambda: Tool("x", "", cast(Any, None), look), TypeError, "tool 'x'.*JSON Schema.*None"),
    "a tool with an empty schema": (lambda: Tool("x", "", {}, look), ValueError, "tool 'x'.*object schema"),
    "a tool with another schema": (lambda: Tool("x", "", {"type": "string"}, look), ValueError, "object schema"),
    "a tool with no function": (
        lambda: Tool("x", "", {"type": "object"}, cast(Any, None)),
        TypeError,
        "needs a function",
    ),
    "a tool without a name": (lambda: Tool("", "", {"type": "object"}, look), ValueError, "needs a name"),
    "a tool with a number as description": (
        lambda: Tool("x", cast(Any, 5), {"type": "object"}, look),
        TypeError,
        "description of tool 'x'",
    ),
    "a tool without a name of its own": (lambda: agent(tools=[lambda: 1]), ValueError, "lambda"),
    "a negative timeout": (
        lambda: Tool("x", "", {"type": "object"}, look, timeout=-1),
        ValueError,
        "timeout of tool 'x'.*-1",
    ),
    # Hooks, policies, filters
    "a hook of a wrong signature": (
        lambda: agent(before_turn=lambda: None),
        TypeError,
        r"before_turn\(messages, turn_index\)",
    ),
    "a hook with too many arguments": (
        lambda: agent(on_error=two),
        TypeError,
        r"on_error\(text\)",
    ),
    "a number as hook": (lambda: agent(after_turn=5), TypeError, "after_turn takes a function, got 5"),
    "a hook object without a seam": (
        lambda: agent(hooks=[OnlyRaises()]),
        TypeError,
        r"before_loop.*got OnlyRaises\(\)",
    ),
    "a policy of a wrong signature": (
        lambda: agent(pre_turn_policies=[lambda: None]),
        TypeError,
        r"pre_turn_policies\(view\)",
    ),
    "a policy that is none": (
        lambda: agent(post_loop_policies=[OnlyRaises()]),
        TypeError,
        r"before_follow_up.*OnlyRaises\(\)",
    ),
    "a policy outside a list": (
        lambda: agent(pre_dispatch_policies=answering(None)),
        TypeError,
        "pre_dispatch_policies comes as a list",
    ),
    "a filter outside a list": (
        lambda: agent(input_filters=answering(Pass())),
        TypeError,
        "input_filters comes as a list",
    ),
    "a filter of a wrong signature": (
        lambda: agent(input_filters=[lambda: Pass()]),
        TypeError,
        r"input_filters is called with \(text\)",
    ),
    "a number as filter": (lambda: agent(input_filters=[5]), TypeError, "got 5"),
    "a number as approval": (lambda: agent(approve=5), TypeError, "approve takes a function, 'wait' or None, got 5"),
    "a source of steering of a wrong signature": (
        lambda: agent(get_steering_messages=two),
        TypeError,
        r"get_steering_messages is called with \(\)",
    ),
    "a conversion of a wrong signature": (
        lambda: agent(convert_to_llm=two),
        TypeError,
        r"convert_to_llm is called with \(messages\)",
    ),
    "a stream_fn of a wrong signature": (
        lambda: agent(stream_fn=two),
        TypeError,
        r"stream_fn is called with \(model, request, options\)",
    ),
    "a message provider that is none": (lambda: agent(message_provider=5), TypeError, "poll_steering"),
    "a number as subscriber": (lambda: agent().subscribe(5), TypeError, "got 5"),
    "an async subscriber": (
        lambda: agent().subscribe(asyncio.sleep),
        TypeError,
        "plain function.*EventStream",
    ),
    # Limits and settings
    **{
        f"{name}={value!r}": (limited(name, value), ValueError, name)
        for name in ("max_turns", "max_total_tokens", "max_duration", "max_cost")
        for value in (-1, "5", True, float("nan"), float("inf"))
    },
    "max_turns=1.5": (lambda: ExecutionLimits(max_turns=cast(Any, 1.5)), ValueError, "whole number.*got 1.5"),
    "limits as a dict": (lambda: agent(limits={"max_turns": 1}), TypeError, "ExecutionLimits"),
    "limits as a number": (lambda: agent(limits=0), TypeError, "ExecutionLimits.*got 0"),
    "retry as a number": (lambda: agent(retry=3), TypeError, "should_retry.*got 3"),
    "retry as False": (lambda: agent(retry=False), TypeError, "should_retry.*got False"),
    "a negative delay": (lambda: Retry(base_delay=-1), ValueError, "base_delay.*-1"),
    "no attempts": (lambda: Retry(max_attempts=0), ValueError, "max_attempts.*0"),
    "a context configuration as a dict": (lambda: agent(context_config={}), TypeError, "ContextConfig"),
    "a negative window": (lambda: ContextConfig(max_context_tokens=-1), ValueError, "max_context_tokens.*-1"),
    "repeated_calls as a number": (lambda: agent(repeated_calls=3), TypeError, "RepeatedCalls"),
    "a nudge after nothing": (lambda: RepeatedCalls(nudge_after=0), ValueError, "nudge_after.*0"),
    "an unknown steering policy": (lambda: agent(steering="hard"), ValueError, "'skip', 'cancel', 'wait', got 'hard'"),
    "an unknown queue mode": (lambda: agent(steering_mode="some"), ValueError, "steering_mode is one of.*'some'"),
    "an unknown follow-up mode": (lambda: agent(follow_up_mode="some"), ValueError, "follow_up_mode is one of.*'some'"),
    "an unknown tool execution": (lambda: agent(tool_execution="fast"), ValueError, r"batched\(n\), got 'fast'"),
    "batches of nothing": (lambda: batched(0), ValueError, "got 0"),
    "an unknown thinking level": (lambda: agent(thinking_level="huge"), ValueError, "got 'huge'"),
    "an unknown trigger": (lambda: agent(first_turn_trigger="moon"), ValueError, "got 'moon'"),
    "an unknown length policy": (lambda: agent(length_policy="hope"), ValueError, "got 'hope'"),
    "a negative max_tokens": (lambda: agent(max_tokens=-1), ValueError, "max_tokens.*got -1"),
    "half a token": (lambda: agent(max_tokens=1.5), ValueError, "max_tokens.*got 1.5"),
    "a temperature in words": (lambda: agent(temperature="hot"), TypeError, "temperature.*'hot'"),
    "a negative tool timeout": (lambda: agent(tool_timeout=-1), ValueError, "tool_timeout.*got -1"),
    "a tool timeout that is no number": (lambda: agent(tool_timeout=float("nan")), ValueError, "tool_timeout.*got nan"),
    "an option there is not": (lambda: agent(max_turn=1), TypeError, "no option 'max_turn'"),
    "a number as system prompt": (lambda: agent(system_prompt=5), TypeError, "system_prompt.*got 5"),
    "an output type without a JSON form": (lambda: agent(output_type=5), TypeError, "5"),
}


@each_row("mistake", MISTAKES)
async def test_a_mistake_raises_at_the_call_that_made_it_and_says_what_to_do(mistake: str) -> None:
    attempt, kind, words = MISTAKES[mistake]

    with pytest.raises(kind, match=f"(?s){words}"):
        attempt()


async def test_run_sync_inside_an_event_loop_says_what_to_use_instead() -> None:
    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        agent().run_sync("hi")


async def test_a_refused_call_leaves_the_agent_as_it_was() -> None:
    script = ScriptedModel("ok")
    subject, events = listened(script)
    for attempt in (lambda: subject.prompt(""), lambda: subject.steer(""), subject.continue_):
        with pytest.raises(ValueError, match=r"text|continue"):
            attempt()
    state = (list(subject.messages), subject.queued.steering, subject.is_running, len(events), script.asked)
    result = await subject.run("hi")

    assert state == ([], [], False, 0, 0)
    assert said(result.messages) == ["user: hi", "assistant: ok"]


async def test_a_context_whose_tools_are_refused_keeps_what_it_has_not_heard() -> None:
    polls = iter([[], ["kept"]])
    context = AgentContext(tools=[look])
    script = ScriptedModel(call("look"))
    configuration = AgentLoopConfig(
        model=script.model,
        get_steering_messages=lambda: next(polls),
        post_turn_policies=[answering(Stop("enough"))],
    )
    await agent_loop("hi", context, configuration)
    left = [item.message.text for item in context.undelivered]
    context.tools = [*context.tools, look]
    with pytest.raises(ValueError, match="Two tools"):
        agent_loop("again", context, config())

    assert left == ["kept"]
    assert [item.message.text for item in context.undelivered] == left


async def test_a_tool_the_model_made_up_is_answered_with_the_names_there_are() -> None:
    """loop.md D3"""
    subject, _ = listened(ScriptedModel(call("lok"), "sorry"), tools=[look])
    result = await subject.run("hi")

    given = result.messages[2]
    assert isinstance(given, ToolResultMessage)
    assert (result.end_reason, given.is_error, given.details["status"]) == ("done", True, "invalid")
    assert given.text.startswith("No tool named 'lok'. Available tools: look.")


class Bad(Exception):
    """An exception that is itself broken."""

    def __str__(self) -> str:
        raise RuntimeError("not even a text")


def raises_it(error: BaseException) -> Callable[[], Any]:
    def misbehave() -> Any:
        """Misbehave."""
        raise error

    return misbehave


def gives(value: Any) -> Callable[[], Any]:
    def misbehave() -> Any:
        """Misbehave."""
        return value

    return misbehave


MISBEHAVIOUR: dict[str, Callable[[], Any]] = {
    "raises": raises_it(ValueError("no")),
    "raises without a text": raises_it(ValueError()),
    "exits": raises_it(SystemExit(1)),
    "raises CancelledError": raises_it(asyncio.CancelledError()),
    "raises StopIteration": raises_it(StopIteration()),
    "raises GeneratorExit": raises_it(GeneratorExit()),
    "raises RecursionError": raises_it(RecursionError("deep")),
    "raises something that cannot be printed": raises_it(Bad()),
    "gives an object": gives(object()),
    "gives a number as content": gives(ToolOutput(cast(Any, 5))),
    "gives an object as content": gives(ToolOutput([cast(Any, object())])),
    "gives an object as details": gives(ToolOutput("x", details={"key": object()})),
    "gives an unknown effect": gives(ToolOutput("x", effects=[cast(Any, "prun")])),
    "gives NaN": gives(float("nan")),
    "gives half a surrogate pair": gives("\ud800"),
    "gives a set": gives({1: {2, 3}}),
}


@each_row("kind", MISBEHAVIOUR)
@each_row("threaded", [True, False], ids=["def", "async def"])
async def test_a_tool_that_misbehaves_never_raises_out_of_the_run(kind: str, threaded: bool) -> None:
    misbehave = MISBEHAVIOUR[kind]

    async def misbehave_async() -> Any:
        """Misbehave."""
        return misbehave()

    given = Tool("bad", "", {"type": "object"}, misbehave if threaded else misbehave_async)
    script = ScriptedModel([call("bad"), call("look")], "fine")
    subject, _ = listened(script, tools=[given, look])
    result = await subject.run("hi")

    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (result.end_reason, result.text, len(results), results[1].text) == ("done", "fine", 2, "seen")
    assert results[0].text


async def nothing(*_: object) -> AsyncIterator[Any]:
    return
    yield


async def nonsense(*_: object) -> AsyncIterator[Any]:
    yield {"type": "text_delta", "delta": "Hi"}
    yield 42


async def unknown_event(*_: object) -> AsyncIterator[Any]:
    yield {"type": "smell", "delta": "Hi"}


async def done_without_message(*_: object) -> AsyncIterator[Any]:
    yield {"type": "done"}


async def twice_done(*_: object) -> AsyncIterator[Any]:
    yield {"type": "done", "message": {"content": "first"}}
    yield {"type": "done", "message": {"content": "second"}}


def no_iterator(*_: object) -> Any:
    return 5


async def awaited_nothing(*_: object) -> Any:
    return None


def raising(*_: object) -> Any:
    raise KeyError("model")


async def raising_later(*_: object) -> AsyncIterator[Any]:
    yield {"type": "text_delta", "delta": "Hi"}
    raise Bad


async def cancelling(*_: object) -> AsyncIterator[Any]:
    yield {"type": "text_delta", "delta": "Hi"}
    raise asyncio.CancelledError


@each_row(
    "stream_fn",
    [
        nothing,
        nonsense,
        unknown_event,
        done_without_message,
        no_iterator,
        awaited_nothing,
        raising,
        raising_later,
        cancelling,
    ],
    ids=lambda function: function.__name__,
)
async def test_a_model_that_misbehaves_never_raises_out_of_the_run(stream_fn: Any) -> None:
    subject = Agent("scripted:any", stream_fn=stream_fn, retry=Retry(max_attempts=1))
    result = await subject.prompt("hi")
    last = result.messages[-1]

    assert isinstance(last, AssistantMessage)
    assert (result.end_reason, last.stop_reason) == ("error", "error")
    assert last.error_message
    assert result.detail == last.error_message


async def test_what_a_model_says_after_its_end_is_not_heard() -> None:
    result = await Agent("scripted:any", stream_fn=cast(Any, twice_done)).prompt("hi")

    assert (result.end_reason, result.text) == ("done", "first")


@pytest.mark.parametrize("stop_reason", ["error", "aborted", "refusal"])
async def test_an_empty_failed_answer_is_no_empty_success(stop_reason: Any) -> None:
    result = await listened(ScriptedModel(answer(stop_reason=stop_reason)))[0].run("hi")

    assert result.end_reason in ("error", "aborted")
    assert result.detail
