"""Failures of transcript validity. The scripted model answers a bad request as the real servers do: with a 400."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.toolbox import Workshop, agent_of, customs, echo, fail, gave, said, told

from steersman import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    ContextConfig,
    Request,
    StreamOptions,
    SummaryCompaction,
    ToolCall,
    ToolResultMessage,
    agent_loop_continue,
    tool,
)
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import ScriptedModel, answer, call, check_request, error, run_virtual, stall
from steersman.types.messages import user_message
from steersman.types.model import Model

INTERRUPTED = "Tool call interrupted: its outcome is unknown."


def three_tools_cut_at(step: int | None) -> tuple[int, bool]:
    """Three parallel calls, cancelled before that step, and another prompt; the steps there were, and if it was cut."""
    shop = Workshop()
    script = ScriptedModel(
        answer("Three things.", *(call("job", name=name, seconds=float(n)) for n, name in enumerate("abc"))),
        "all done",
        "and again",
        "once more",
    )
    agent = Agent(script.model, tools=[shop.job()], stream_fn=script)
    cut = False

    def on_step(number: int) -> None:
        nonlocal cut
        if number == step and agent.is_running:
            cut = True
            agent.abort()

    counted: list[int] = []

    async def work() -> None:
        loop: Any = asyncio.get_running_loop()
        await agent.run("go")
        counted.append(loop.steps)
        again = await agent.run("go on")
        assert again.end_reason == "done", again.detail

    run_virtual(work(), on_step=on_step)
    for request, _ in script.requests:
        check_request(request)
    return counted[0], cut


def test_a1_cancel_during_a_tool_leaves_no_orphan() -> None:
    """failures.md A1, loop.md D6: three parallel calls, cancelled at every step; the next prompt succeeds."""
    steps, _ = three_tools_cut_at(None)
    assert steps > 10
    cuts = [three_tools_cut_at(step)[1] for step in range(1, steps)]
    assert sum(cuts) > steps // 2


def killed() -> list[Any]:
    """A log that ends between a call and its result, as after a hard kill."""
    calls = [ToolCall("c1", "job", {"name": "a"}), ToolCall("c2", "job", {"name": "b"})]
    return [
        user_message("go"),
        said(*calls, stop_reason="tool_use"),
        gave("c1", "a done", "job"),
    ]


async def test_a3_a_hard_kill_between_call_and_result_can_be_continued() -> None:
    """failures.md A3, loop.md section 6: the missing result is told as interrupted, and only once."""
    script = ScriptedModel("I see.", "Yes.")
    context = AgentContext(messages=killed(), agent_id="a", session_id="s", tools=[Workshop().job()])
    config = AgentLoopConfig(model=script.model)
    assert (await agent_loop_continue(context, config)).text == "I see."
    sent = script.requests[0][0].messages
    assert told(sent) == [("job", "a done", False, "completed"), ("job", INTERRUPTED, True, "interrupted")]
    context.messages.append("and?")
    assert (await agent_loop_continue(context, config)).text == "Yes."
    assert told(script.requests[1][0].messages) == told(sent)


async def test_a4_one_parallel_tool_raises_and_its_siblings_are_not_lost() -> None:
    """failures.md A4, loop.md D4"""
    shop = Workshop()
    script = ScriptedModel(answer(call("echo", text="ok"), call("fail"), call("job", name="slow", seconds=9.0)), "done")
    agent, _ = agent_of(script, [echo, fail, shop.job()])
    result = await agent.run("go")
    assert told(result.messages) == [
        ("echo", "ok", False, "completed"),
        ("fail", "ValueError: no luck", True, "completed"),
        ("job", "slow done", False, "completed"),
    ]
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a6_results_come_before_what_the_user_said_meanwhile() -> None:
    """failures.md A6, loop.md D6"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a"), call("job", name="b")), "heard")
    agent, _ = agent_of(script, [shop.job()])
    agent.subscribe(lambda event: agent.steer("wait", key="k") if event.type == "tool_execution_start" else None)
    await agent.run("go")
    assert [message.role for message in script.requests[1][0].messages] == [
        "user",
        "assistant",
        "tool_result",
        "tool_result",
        "user",
    ]


@pytest.mark.parametrize(
    "turn",
    [
        answer(stop_reason="refusal", raw_stop_reason="content_filter"),
        answer(""),
        answer("  \n"),
        answer(),
        error("refused"),
    ],
    ids=["filtered", "empty text", "white space", "nothing", "refused"],
)
async def test_a7_an_empty_answer_is_never_sent_back(turn: Any) -> None:
    """failures.md A7, loop.md section 6"""
    script = ScriptedModel(turn, "better now")
    agent, _ = agent_of(script)
    await agent.run("go")
    result = await agent.run("again")
    assert result.text == "better now"
    assert all(message.content for message in script.requests[-1][0].messages)


async def test_a9_ids_that_a_server_repeats_are_made_unique_and_results_stay_with_their_calls() -> None:
    """failures.md A9, loop.md section 6: across turns and within one."""
    script = ScriptedModel(
        answer(call("echo", text="one", id="call_0")),
        answer(call("echo", text="two", id="call_0"), call("echo", text="three", id="call_0")),
        answer(call("echo", text="four", id="echo"), call("echo", text="five", id="echo")),
        "ok",
    )
    agent, _ = agent_of(script, [echo])
    result = await agent.run("go")
    assert result.text == "ok"
    calls = {
        block.id: (block.arguments["text"], block.provider_id)
        for message in result.messages
        if isinstance(message, AssistantMessage)
        for block in message.tool_calls
    }
    results = {
        message.tool_call_id: message.text for message in result.messages if isinstance(message, ToolResultMessage)
    }
    assert {call_id: text for call_id, (text, _) in calls.items()} == results
    assert list(results.values()) == ["one", "two", "three", "four", "five"]
    assert [provider_id for _, provider_id in calls.values()] == [None, "call_0", "call_0", None, "echo"]


async def test_a9_an_id_that_is_missing_is_given() -> None:
    """failures.md A9"""

    async def nameless(model: Model, request: Request, options: StreamOptions) -> Any:
        check_request(request)
        calls = [] if len(request.messages) > 1 else [ToolCall("", "echo", {"text": text}) for text in "ab"]
        yield {"type": "done", "message": said(*calls) if calls else said("ok")}

    agent = Agent("scripted:none", stream_fn=nameless, tools=[echo])
    result = await agent.run("go")
    assert (result.text, [text for _, text, *_ in told(result.messages)]) == ("ok", ["a", "b"])


async def test_a10_a_late_result_is_an_event_and_not_a_second_message() -> None:
    """failures.md A10, loop.md D5"""
    shop = Workshop()
    script = ScriptedModel(answer(call("stubborn")), answer("moving on", pace=5), "fine")
    agent, heard = agent_of(script, [shop.stubborn(swallows=5, takes=1)], tool_timeout=1, cancel_grace=0.1)
    result = await agent.run("go")
    assert len(told(result.messages)) == 1
    assert [data["output"] for data in customs(heard, "late_tool_result")] == ["stubborn done"]
    assert (await agent.run("again")).text == "fine"


async def test_a14_every_request_goes_through_the_same_repair() -> None:
    """failures.md A14, loop.md section 6: prompts, overflow retries, sub-agents, fallbacks."""
    broken = [*killed(), said("half", stop_reason="aborted"), user_message("")]
    judged: list[str | None] = []

    def strict(*turns: Any, id: str) -> ScriptedModel:
        return ScriptedModel(*turns, id=id)

    child = strict("from the child", id="child")
    other = strict("from the other", id="other")
    main = strict(
        answer(call("ask", prompt="x")),
        error("context_overflow"),
        "after the overflow",
        error("authentication"),
        id="main",
    )

    async def route(model: Model, request: Request, options: StreamOptions) -> Any:
        judged.append(model.id)
        check_request(request, model)
        script = other if model.id == "other" else main
        async for event in script(model, request, options):
            yield event

    agent = Agent(
        main.model,
        stream_fn=route,
        fallbacks=[other.model],
        messages=[*broken],
        tools=[Agent(child.model).as_tool("ask", "Ask."), echo],
    )
    first = await agent.run("go " * 4_000)
    assert (first.end_reason, first.text) == ("done", "after the overflow"), first.detail
    second = await agent.run("once more")
    assert (second.end_reason, second.text) == ("done", "from the other"), second.detail
    assert judged == ["main", "main", "main", "main", "other"]
    assert child.asked == 1


async def test_a14_the_request_for_a_summary_is_valid_too() -> None:
    """failures.md A14, loop.md section 6"""
    script = ScriptedModel("A summary.", "ok")
    messages = [*killed(), user_message("x" * 8_000), said("half", stop_reason="error"), user_message("y")]
    strategy = CompactionConfig(SummaryCompaction())
    config = ContextConfig(max_context_tokens=4_000, threshold=0.5, keep_recent=1, compaction=strategy)
    agent, _ = agent_of(script, messages=messages, context_config=config)
    result = await agent.run("go on")
    assert (result.text, script.asked) == ("ok", 2)
    assert script.requests[1][0].messages[1].text == "[Summary of earlier messages]\nA summary."


async def test_a14_an_ordinary_message_after_an_interrupt_is_taken() -> None:
    """failures.md A14"""
    script = ScriptedModel(stall("I will", call("echo", text="x")), "ok")
    agent, _ = agent_of(script, [echo])
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(1)
    agent.abort()
    await running
    assert (await agent.run("something else")).text == "ok"
    assert [message.text for message in script.requests[1][0].messages] == ["go", "something else"]


async def test_a14_what_hooks_and_transforms_leave_is_repaired() -> None:
    """failures.md A14 J5, loop.md T6"""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    def drop_results(messages: list[Any]) -> list[Any]:
        return [message for message in messages if message.role != "tool_result"]

    for option in ("transform_context", "convert_to_llm"):
        script = ScriptedModel(answer(call("look")), "ok")
        agent, _ = agent_of(script, [look], **{option: drop_results})
        result = await agent.run("go")
        assert result.text == "ok"
        assert told(script.requests[1][0].messages) == [("look", INTERRUPTED, True, "interrupted")]
