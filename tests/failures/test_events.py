"""Failures of subscribers, hooks and events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, always, customs, echo, texts, told
from tests.rows import each_row

from steersman import (
    Agent,
    AgentBusy,
    AgentEvent,
    AgentMessage,
    ContextConfig,
    Rewrite,
    Skip,
    ToolCall,
    ToolOutput,
    tool,
)
from steersman.policy.hooks import PolicyView
from steersman.testing import EventCollector, ScriptedModel, answer, call, check_events
from steersman.types.events import MessageEnd, MessageStart, ToolExecutionStart, ToolExecutionUpdate, TurnEnd


@each_row(
    "raised", [ValueError("x"), KeyboardInterrupt(), SystemExit(2), asyncio.CancelledError(), GeneratorExit()], ids=repr
)
@each_row("kind", ["agent_start", "turn_start", "message_update", "tool_execution_start", "agent_end"])
async def test_j1_a_subscriber_that_raises_does_not_touch_the_run(raised: BaseException, kind: str) -> None:
    """failures.md J1, loop.md section 5"""
    heard = EventCollector()
    agent = Agent(ScriptedModel(answer(call("echo", text="x")), "ok").model, tools=[echo])
    calls: list[str] = []

    def broken(event: AgentEvent) -> None:
        calls.append(event.type)
        if event.type == kind:
            raise raised

    agent.subscribe(broken)
    agent.subscribe(heard)
    result = await agent.run("go")
    assert (result.end_reason, result.text) == ("done", "ok")
    assert calls.count(kind) == 1
    assert calls[-1] == kind
    check_events(heard)
    failures = customs(heard, "subscriber_failed")
    assert len(failures) == (0 if kind == "agent_end" else 1)


async def test_j1_a_crowd_that_raises_on_every_event_does_not_touch_the_run() -> None:
    """failures.md J1"""

    def broken(_: AgentEvent) -> None:
        raise ValueError("always")

    agent, heard = agent_of(ScriptedModel("ok"))
    for _ in range(20):
        agent.subscribe(broken)
    result = await agent.run("go")
    assert (result.text, len(customs(heard, "subscriber_failed")[0]["failures"])) == ("ok", 20)
    check_events(heard)


async def test_j2_a_reader_that_never_reads_does_not_cost_memory_and_loses_nothing() -> None:
    """failures.md J2, loop.md section 5"""
    text = "x" * 20_000
    stream = Agent(ScriptedModel(answer(text, deltas=20_000)).model).prompt("go")
    await asyncio.sleep(100)
    assert len(stream.channel.buffer) <= 300
    heard = EventCollector()
    async for event in stream:
        heard(event)
    check_events(heard)
    assert heard.text == text


async def test_j3_a_subscriber_may_steer_prompt_abort_and_unsubscribe() -> None:
    """failures.md J3, loop.md section 5: from inside a callback, without a deadlock."""
    script = ScriptedModel("one", "two", "three")
    agent, heard = agent_of(script)
    busy: list[str] = []

    def meddle(event: AgentEvent) -> None:
        if event.type == "turn_start" and script.asked == 0:
            agent.steer("steered")
            agent.follow_up("followed up")
            try:
                agent.prompt("not now")
            except AgentBusy as refusal:
                busy.append(type(refusal).__name__)
        if isinstance(event, MessageEnd) and event.message.text == "followed up":
            agent.unsubscribe(me)
            agent.abort()

    me = agent.subscribe(meddle)
    result = await agent.run("go")
    assert (result.end_reason, busy) == ("aborted", ["AgentBusy"])
    assert [text for role, text in texts(result.messages) if role == "user"] == ["go", "steered", "followed up"]
    check_events(heard)


def no_answer(_: Any) -> Any:
    return asyncio.sleep(10_000)


def crash(_: Any) -> None:
    raise RuntimeError("crashed")


def gibberish(_: Any) -> Any:
    return {"decision": "allow"}


GUARDS = [
    (seam, gate)
    for seam in ("policy", "hook", "approval")
    for gate in (no_answer, crash, gibberish)
    if (seam, gate) != ("approval", no_answer)  # a human may take as long as it takes
]


@each_row(("seam", "gate"), GUARDS)
async def test_j4_a_guard_that_fails_denies_and_says_why(seam: str, gate: Any) -> None:
    """failures.md J4, loop.md D3"""
    ran: list[str] = []

    @tool(needs_approval=seam == "approval")
    async def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    options: dict[str, Any] = {
        "policy": {"pre_dispatch_policies": [gate]},
        "hook": {"before_tool_execution": gate},
        "approval": {"approve": gate},
    }[seam]
    agent, _ = agent_of(ScriptedModel(answer(call("act")), "ok"), [act], **options)
    result = await agent.run("go")
    ((name, text, is_error, status),) = told(result.messages)
    assert (name, is_error, status, ran) == ("act", True, "denied", [])
    assert text.startswith("Denied: ")


async def test_j5_a_hook_cannot_change_what_was_said() -> None:
    """failures.md J5, loop.md section 6"""
    errors: list[str] = []

    def meddle(messages: Any) -> None:
        for attempt in (
            lambda: messages.clear(),
            lambda: messages.pop(),
            lambda: messages.__delitem__(0),
            lambda: messages[0].content.append("x"),
            lambda: setattr(messages[0], "content", []),
        ):
            try:
                attempt()
            except (AttributeError, TypeError) as error:
                errors.append(type(error).__name__)

    def policy(view: PolicyView) -> None:
        meddle(view.messages)

    def hook(messages: Any, _: Any) -> None:
        meddle(messages)

    script = ScriptedModel(answer(call("echo", text="x")), "ok")
    agent, _ = agent_of(script, [echo], before_turn=hook, after_turn=hook, pre_turn_policies=[policy])
    result = await agent.run("go")
    assert (result.text, len(result.messages), len(errors)) == ("ok", 4, 30)


async def test_j5_a_transform_that_deletes_a_result_does_not_break_the_request() -> None:
    """failures.md J5, loop.md T6: it works on a copy, and what it leaves is repaired."""

    def forget(messages: list[AgentMessage]) -> list[AgentMessage]:
        del messages[2:]
        return messages

    script = ScriptedModel(answer(call("echo", text="x")), "ok")
    agent, _ = agent_of(script, [echo], transform_context=forget)
    result = await agent.run("go")
    assert (result.text, told(result.messages)) == ("ok", [("echo", "x", False, "completed")])
    assert [message.role for message in script.requests[1][0].messages] == ["user", "assistant", "tool_result"]


@each_row(
    ("given", "text"),
    [
        *[(None, "x"), ("", ""), ("short", "short"), (ToolOutput(), ""), (ToolOutput("other"), "other"), (True, "x")],
        *[(ignored, "x") for ignored in (5, 0, b"bytes", ["y"], {"content": "y"})],
    ],
    ids=repr,
)
async def test_j6_a_hook_after_a_tool_may_give_any_text_and_any_other_value_is_ignored(given: Any, text: str) -> None:
    """failures.md J6, loop.md D4"""
    script = ScriptedModel(answer(call("echo", text="x")), "ok")
    agent, _ = agent_of(script, [echo], after_tool_execution=always(given))
    result = await agent.run("go")
    assert (told(result.messages), result.text) == ([("echo", text, False, "completed")], "ok")


@pytest.mark.parametrize("given", [False, Skip("x"), Rewrite({})], ids=repr)
async def test_j6_a_hook_after_a_tool_that_says_no_withholds_the_output(given: Any) -> None:
    """failures.md J6, loop.md D3"""
    script = ScriptedModel(answer(call("echo", text="secret")), "ok")
    agent, _ = agent_of(script, [echo], after_tool_execution=always(given))
    result = await agent.run("go")
    ((_, text, is_error, status),) = told(result.messages)
    assert (is_error, status, "secret" in text, result.text) == (True, "denied", False, "ok")


@pytest.mark.real_time
async def test_j6_a_hook_after_a_tool_that_gives_a_hundred_megabytes_is_capped(tmp_path: Any) -> None:
    """failures.md J6, loop.md C6"""
    script = ScriptedModel(answer(call("echo", text="x")), "ok")
    agent, _ = agent_of(
        script,
        [echo],
        after_tool_execution=always("y" * 100_000_000),
        context_config=ContextConfig(output_directory=str(tmp_path)),
    )
    result = await agent.run("go")
    ((_, text, _, _),) = told(result.messages)
    assert (len(text) <= 50_000, result.text) == (True, "ok")


async def test_j9_events_cannot_be_changed_by_who_hears_them() -> None:
    """failures.md J9"""
    arguments: dict[str, Any] = {"text": "x"}
    refused: list[str] = []

    def attempt(change: Any) -> None:
        try:
            change()
        except (AttributeError, TypeError):
            refused.append("refused")

    def meddle(event: AgentEvent) -> None:
        attempt(lambda: setattr(event, "seq", 99))
        if isinstance(event, MessageStart | MessageEnd):
            content: Any = event.message.content
            attempt(lambda: content.append("x"))
        if isinstance(event, ToolExecutionStart):
            attempt(lambda: event.args.update(text="changed"))
        if isinstance(event, TurnEnd):
            results: Any = event.tool_results
            attempt(lambda: results.clear())

    script = ScriptedModel(answer(call("echo", arguments)), "ok")
    agent = Agent(script.model, tools=[echo])
    agent.subscribe(meddle)
    heard = EventCollector()
    agent.subscribe(heard)
    result = await agent.run("go")
    assert told(result.messages) == [("echo", "x", False, "completed")]
    assert len(refused) == len(heard) + len(heard.of(MessageStart)) + len(heard.of(MessageEnd)) + 3
    check_events(heard)


async def test_j9_a_tool_that_changes_its_arguments_does_not_change_the_transcript() -> None:
    """failures.md J9"""

    @tool
    async def mangle(items: list[int], options: dict[str, Any]) -> str:
        """Change what it was given."""
        items.append(99)
        options["new"] = True
        return "mangled"

    script = ScriptedModel(answer(call("mangle", items=[1], options={"a": [1]})), "ok")
    agent, heard = agent_of(script, [mangle])
    await agent.run("go")
    asked = [event.message for event in heard.of(MessageEnd)][1].content[0]
    assert isinstance(asked, ToolCall)
    assert asked.arguments == {"items": [1], "options": {"a": [1]}}
    assert [event.args for event in heard.of(ToolExecutionStart)] == [{"items": [1], "options": {"a": [1]}}]


async def test_j9_an_update_is_what_it_was_when_it_was_shown() -> None:
    """failures.md J9, loop.md D2"""

    @tool
    async def grow(ctx: Any) -> str:
        """Show a list that grows."""
        shown: list[int] = []
        for number in range(3):
            shown.append(number)
            ctx.update({"shown": shown})
        return "grown"

    agent, heard = agent_of(ScriptedModel(answer(call("grow")), "ok"), [grow])
    await agent.run("go")
    assert [event.update["shown"] for event in heard.of(ToolExecutionUpdate)] == [[0], [0, 1], [0, 1, 2]]
