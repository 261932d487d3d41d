"""The defects a literal port of the design documents would have; here each is something that must not happen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.play import answering, asked, listened, outline, said
from tests.rows import each_row

from steersman import (
    Agent,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AssistantMessage,
    ContextConfig,
    ExecutionLimits,
    ExtensionMessage,
    Pass,
    Reject,
    Retry,
    SummaryCompaction,
    TextContent,
    ToolResultMessage,
    Usage,
    Warn,
    agent_loop,
    agent_loop_continue,
    prun,
    tool,
)
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import ScriptedModel, answer, call, cut, error, run_virtual, stall, text
from steersman.types.events import AgentEnd, MessageUpdate, TurnEnd, TurnStart

ASIDE = ExtensionMessage([TextContent("aside")], kind="note")


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(10)
    return "seen"


async def test_s1_a_steering_message_is_injected_once_and_not_on_every_later_turn() -> None:
    """failures.md S1"""
    script = ScriptedModel(call("look"), "text only", "never")
    agent, events = listened(script, tools=[look])
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.steer("S")
    result = await stream

    assert said(result.messages) == [
        *("user: go", "assistant: [look]", "tool_result: seen"),
        *("user: S", "assistant: text only"),
    ]
    assert (script.asked, outline(events)[-1]) == (2, "agent_end done")


def steered_run(at: int | None) -> tuple[int, list[str], list[str]]:
    """A run with steering in its queue, aborted at a step of the event loop; how many steps, what was said and left."""
    steps = 0
    agents: list[Agent] = []

    def on_step(_: int) -> None:
        nonlocal steps
        if agents and agents[0].is_running:
            steps += 1
            if steps == at:
                agents[0].abort()

    async def slow_filter(words: str) -> Pass:
        await asyncio.sleep(1)
        return Pass()

    async def main() -> tuple[list[str], list[str]]:
        script = ScriptedModel(call("look"), answer("one", pace=0), "two", "three")
        agent = Agent(script.model, tools=[look], input_filters=[slow_filter])
        agents.append(agent)
        agent.steer("S1")
        agent.steer("S2")
        await agent.run("go")
        queued = agent.queued
        return said(agent.messages), said([*queued.steering, *queued.follow_up])

    messages, queued = run_virtual(main(), on_step=on_step)
    return steps, messages, queued


def test_s2_a_steering_message_that_was_taken_is_said_or_queued_again_wherever_the_run_is_cancelled() -> None:
    """failures.md S2"""
    steps, said_in_the_end, left = steered_run(None)
    assert (said_in_the_end.count("user: S1"), said_in_the_end.count("user: S2"), left) == (1, 1, [])
    assert steps >= 10
    for step in range(1, steps + 1):
        _, messages, queued = steered_run(step)
        everywhere = messages + queued
        counts = [everywhere.count(f"user: {words}") for words in ("go", "S1", "S2")]
        assert (step, counts) == (step, [1, 1, 1])


async def test_s3_a_turn_starts_once_and_the_prompts_lie_inside_turn_0() -> None:
    """failures.md S3"""
    agent, events = listened(ScriptedModel("one"))
    await agent.run(["a", "b"])

    assert outline(events) == [
        "agent_start",
        "turn_start 0 user",
        "user: a",
        "user: b",
        "assistant: one",
        "turn_end 0 stop",
        "agent_end done",
    ]


def broken(*_: object) -> Any:
    raise ZeroDivisionError


PATHS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "limit": ([call("look")], {"limits": ExecutionLimits(max_turns=1)}),
    "limit at once": ([], {"limits": ExecutionLimits(max_turns=0)}),
    "deadline": ([stall()], {"limits": ExecutionLimits(max_duration=5)}),
    "veto": ([], {"before_turn": answering(False)}),
    "error": ([error("quota")], {}),
    "refusal": ([answer("no", stop_reason="refusal")], {}),
    "broken hook": (["one"], {"after_turn": broken}),
    "broken conversion": ([], {"convert_to_llm": broken}),
    "stopped": (["one"], {"post_turn_policies": [answering(False)]}),
}


@each_row("path", PATHS)
async def test_s4_every_turn_that_starts_also_ends(path: str) -> None:
    """failures.md S4"""
    turns, options = PATHS[path]
    agent, events = listened(ScriptedModel(*turns), tools=[look], **options)
    await agent.run("go")

    starts = [event.turn_index for event in events.of(TurnStart)]
    assert starts
    assert [event.turn_index for event in events.of(TurnEnd)] == starts
    assert events.types[-2:] == ["turn_end", "agent_end"]


@pytest.mark.parametrize("stop_reason", ["error", "aborted", "refusal"])
async def test_s5_calls_of_a_failed_answer_are_not_run_and_do_not_spoil_the_next_request(stop_reason: Any) -> None:
    """failures.md S5"""
    script = ScriptedModel(answer(text("let me"), call("look"), stop_reason=stop_reason), "fine")
    agent, _ = listened(script, tools=[look])
    first = await agent.run("go")
    second = await agent.run("again")

    assert asyncio.get_running_loop().time() == 0
    assert said(first.messages) == ["user: go", "assistant: let me[look]"]
    assert (second.end_reason, asked(script)) == ("done", ["user: go", "user: again"])


@pytest.mark.parametrize("raw", ['{"path": "a', '{"path"', "{"])
async def test_s6_a_call_cut_at_the_token_limit_is_answered_and_never_run(raw: str) -> None:
    """failures.md S6"""
    runs: list[str] = []

    def write(path: str) -> str:
        """Write."""
        runs.append(path)
        return "ok"

    script = ScriptedModel(answer(call("write", raw=raw), stop_reason="length"), "fine")
    agent, _ = listened(script, tools=[write])
    result = await agent.run("go")

    assert runs == []
    given = result.messages[2]
    assert isinstance(given, ToolResultMessage)
    assert (given.text, given.details["status"]) == (
        "error: tool call was incomplete due to max tokens reached",
        "invalid",
    )


@pytest.mark.parametrize("turn", [error("quota"), stall("half", after=1)], ids=["error", "abort"])
async def test_s7_a_run_can_be_continued_after_an_error_and_after_an_abort(turn: Any) -> None:
    """failures.md S7"""
    script = ScriptedModel(turn, "whole")
    context = AgentContext()
    signal = asyncio.Event()
    stream = agent_loop("go", context, AgentLoopConfig(model=script.model), signal=signal)
    asyncio.get_running_loop().call_later(1, signal.set)
    first = await stream
    second = await agent_loop_continue(context, AgentLoopConfig(model=script.model))

    assert first.end_reason in ("error", "aborted")
    assert (second.end_reason, said(second.messages), asked(script)) == ("done", ["assistant: whole"], ["user: go"])


@pytest.mark.parametrize("event_type", ["turn_end", "agent_end"])
async def test_s8_what_is_queued_around_the_end_of_a_run_is_heard_by_it_or_by_the_next(event_type: str) -> None:
    """failures.md S8"""
    agent = Agent(ScriptedModel("one", "two", "three").model)
    receipts: list[Any] = []

    def speak(event: AgentEvent) -> None:
        if event.type == event_type and not receipts:
            receipts.append(agent.follow_up("in between"))
            statuses.append(receipts[0].status)

    statuses: list[str] = []
    agent.subscribe(speak)
    first = await agent.run("go")
    if event_type == "agent_end":
        assert (statuses, said(first.undelivered)) == (["next_run"], ["user: in between"])
        await agent.run("again")
    else:
        assert (statuses, first.undelivered) == (["accepted"], [])

    assert receipts[0].status == "delivered"
    assert said(agent.messages).count("user: in between") == 1


@pytest.mark.parametrize("turn", [stall(), call("look")], ids=["stalled stream", "long tool"])
async def test_s9_the_duration_limit_is_a_deadline_and_not_only_a_check_between_turns(turn: Any) -> None:
    """failures.md S9"""
    agent, _ = listened(ScriptedModel(turn), tools=[look], limits=ExecutionLimits(max_duration=5))
    result = await agent.run("go")

    assert asyncio.get_running_loop().time() == 5
    assert (result.end_reason, result.detail) == ("limit", "Max duration reached (5s/5s)")


async def test_s10_retries_sub_agents_and_overflowing_requests_are_all_counted() -> None:
    """failures.md S10"""
    child = Agent(ScriptedModel(answer("helped", usage=Usage(input=1, output=1))).model)
    script = ScriptedModel(
        error("overloaded", "wasted", after=1, usage=Usage(input=10, output=10)),
        answer(call("helper", prompt="x"), usage=Usage(input=100, output=100)),
        answer("done", usage=Usage(input=1000, output=1000)),
    )
    agent, events = listened(script, tools=[child.as_tool("helper", "Helps.")], retry=Retry(jitter=0))
    result = await agent.run("go")

    assert result.usage == Usage(input=1111, output=1111)
    assert events.of(AgentEnd)[-1].usage == Usage(input=1111, output=1111)


async def test_s11_prompts_steering_and_follow_ups_are_user_context_alike_and_never_pruned() -> None:
    """failures.md S11"""
    script = ScriptedModel("one", answer(call("look")), call("prun", tokens=100_000), "done", "more", repeat_last=True)
    agent, _ = listened(script, tools=[look, prun])
    await agent.run("the task")
    stream = agent.prompt("go on")
    await asyncio.sleep(1)
    agent.steer("steering")
    agent.follow_up("follow-up")
    await stream

    users = ["user: the task", "user: go on", "user: steering", "user: follow-up"]
    assert said(agent.context.user_context) == users
    assert [line for line in asked(script) if line.startswith("user:")] == users
    assert "assistant: [look]" not in asked(script)


async def test_s12_user_messages_that_cannot_fit_the_window_end_the_run_with_an_explanation() -> None:
    """failures.md S12"""
    script = ScriptedModel("one", repeat_last=True)
    agent, events = listened(script, context_config=ContextConfig(max_context_tokens=200))
    agent.steer("word " * 2000)
    result = await agent.run("go")

    assert (result.end_reason, script.asked) == ("error", 0)
    assert "max_context_tokens=200" in result.detail
    assert events.types.count("compaction_started") == 1


@pytest.mark.parametrize("deltas", [2_000, 20_000])
async def test_s13_a_consumer_that_does_not_read_stops_the_reading_and_not_the_memory(deltas: int) -> None:
    """failures.md S13"""
    script = ScriptedModel(answer("x" * deltas, deltas=deltas))
    agent = Agent(script.model)
    count = 0
    stream = agent.prompt("go")
    async for event in stream:
        count += isinstance(event, MessageUpdate)
        if count == 1:
            await asyncio.sleep(60)
        assert len(stream.channel.buffer) <= stream.channel.limit + 8

    assert count == deltas + 2
    assert (await stream).end_reason == "done"


async def test_s14_results_tell_calls_that_ran_from_calls_that_were_cut_and_calls_that_never_started() -> None:
    """failures.md S14"""

    @tool
    async def quick() -> str:
        """Quick."""
        return "done"

    script = ScriptedModel([call("quick"), call("look"), call("look")], "fine")
    agent, _ = listened(script, tools=[quick, look], tool_execution="sequential", steering="cancel")
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.steer("stop")
    result = await stream

    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert [(message.details["status"], message.is_error) for message in results] == [
        ("completed", False),
        ("interrupted", True),
        ("not_started", True),
    ]


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ([ASIDE], ["extension: aside", "user: [Warning: careful]"]),
        (
            [{"role": "user", "content": [{"type": "image", "data": "aGk="}]}],
            ["user: [Warning: careful]"],
        ),
        (["a", ASIDE], ["user: a[Warning: careful]", "extension: aside"]),
    ],
    ids=["no user message", "image only", "user message not last"],
)
async def test_s15_warnings_have_a_place_whatever_the_prompts_are(prompts: list[Any], expected: list[str]) -> None:
    """failures.md S15"""
    agent, _ = listened(ScriptedModel("ok"), input_filters=[answering(Warn("careful"))])
    result = await agent.run(prompts)

    assert (result.end_reason, said(result.messages)[:-1]) == ("done", expected)


async def test_s16_a_vetoed_run_is_one_agent_end_alone_and_every_other_run_has_its_agent_start() -> None:
    """failures.md S16"""
    shapes: list[list[str]] = []
    for options in (
        {"before_loop": answering(False)},
        {"input_filters": [answering(Reject("no"))]},
        {"before_loop": broken},
    ):
        agent, events = listened(ScriptedModel(), **options)
        await agent.run("go")
        shapes.append(outline(events))

    assert shapes == [
        ["agent_end vetoed"],
        ["agent_start", "input_rejected prompt: no", "agent_end rejected"],
        ["agent_start", "turn_start 0 user", "user: go", "assistant: ", "turn_end 0 error", "agent_end error"],
    ]


async def test_s10_the_model_that_writes_a_summary_is_counted_too() -> None:
    """failures.md S10"""
    history: list[Any] = ["task"]
    for number in range(20):
        history.append({"role": "assistant", "content": f"answer {number} " + "word " * 100})
        history.append(f"question {number}")
    script = ScriptedModel(
        answer("They talked.", usage=Usage(input=500, output=5)), answer("one", usage=Usage(input=100, output=1))
    )
    strategy = CompactionConfig(in_memory_strategy=SummaryCompaction())
    agent, _ = listened(
        script, messages=history, context_config=ContextConfig(max_context_tokens=3000, compaction=strategy)
    )
    result = await agent.run("go")

    assert (result.text, result.usage) == ("one", Usage(input=600, output=6))


async def test_s7_a_stream_that_ended_early_can_be_continued_from() -> None:
    """failures.md S7"""
    script = ScriptedModel(cut("half", after=1), "whole")
    agent, _ = listened(script, retry=Retry(max_attempts=1))
    first = await agent.run("go")
    second = await agent.continue_()
    last = first.messages[-1]

    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, second.text) == ("error", "whole")
