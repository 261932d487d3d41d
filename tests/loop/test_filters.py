from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.play import answering, asked, listened, outline, said

from steersman import (
    AgentContext,
    AgentLoopConfig,
    ExtensionMessage,
    ImageContent,
    Pass,
    Reject,
    TextContent,
    UserMessage,
    Warn,
    agent_loop,
)
from steersman.policy.verdicts import FilterVerdict
from steersman.testing import ScriptedModel, answer
from steersman.types.events import InputRejected

ASIDE = ExtensionMessage([TextContent("aside")], kind="note")


def no_secrets(words: str) -> FilterVerdict:
    return Reject("it holds a secret") if "secret" in words else Pass()


class Recorder:
    """Lets everything in and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, words: str) -> Pass:
        self.seen.append(words)
        return Pass()


async def test_filters_see_the_joined_text_of_the_user_messages_in_order() -> None:
    """loop.md R4"""
    recorder = Recorder()
    agent, _ = listened(ScriptedModel("ok"), input_filters=[recorder])

    await agent.run(["one", ASIDE, {"role": "user", "content": "two"}])

    assert recorder.seen == ["one\ntwo"]


async def test_a_rejected_prompt_ends_the_run_before_its_first_turn() -> None:
    """loop.md R4"""
    script = ScriptedModel()
    recorder = Recorder()
    agent, events = listened(script, input_filters=[no_secrets, recorder])

    result = await agent.prompt("a secret")

    assert outline(events) == ["agent_start", "input_rejected prompt: it holds a secret", "agent_end rejected"]
    assert (result.messages, result.end_reason, result.detail) == ([], "rejected", "it holds a secret")
    assert (list(agent.messages), script.asked, recorder.seen) == ([], 0, [])


async def test_the_first_reject_wins() -> None:
    """loop.md R4"""

    def other(words: str) -> Reject:
        return Reject("something else")

    agent, events = listened(ScriptedModel(), input_filters=[answering(Warn("hm")), no_secrets, other])

    await agent.run("a secret")

    assert [event.reason for event in events.of(InputRejected)] == ["it holds a secret"]


async def test_warnings_stand_on_a_copy_of_the_last_user_message() -> None:
    """loop.md R4"""
    first, second = UserMessage([TextContent("one")], timestamp=1.0), UserMessage([TextContent("two")], timestamp=2.0)
    script = ScriptedModel("ok")
    config = AgentLoopConfig(model=script.model, input_filters=[answering(Warn("a")), answering(Warn("b"))])
    prompts = [first, second]

    messages = await agent_loop(prompts, AgentContext(), config).result()

    warned = UserMessage([TextContent("two"), TextContent("[Warning: a] [Warning: b]")], timestamp=2.0)
    assert messages[:2] == [first, warned]
    assert prompts == [
        UserMessage([TextContent("one")], timestamp=1.0),
        UserMessage([TextContent("two")], timestamp=2.0),
    ]
    assert asked(script) == ["user: one", "user: two[Warning: a] [Warning: b]"]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (ASIDE, ["extension: aside", "user: [Warning: careful]"]),
        (UserMessage([ImageContent("aGk=")]), ["user: [Warning: careful]"]),
    ],
    ids=["no user message", "image only"],
)
async def test_warnings_need_no_text_to_stand_on(prompt: Any, expected: list[str]) -> None:
    """loop.md R4, failures.md S15"""
    agent, _ = listened(ScriptedModel("ok"), input_filters=[answering(Warn("careful"))])

    result = await agent.run(prompt)

    assert said(result.messages)[:-1] == expected


async def test_a_filter_that_raises_or_answers_nonsense_rejects() -> None:
    """loop.md R4"""

    def broken(words: str) -> Pass:
        raise ZeroDivisionError("no filter")

    async def silly(words: str) -> Any:
        await asyncio.sleep(1)
        return True

    ends: list[tuple[str, str]] = []
    for input_filter in (broken, silly):
        agent, _ = listened(ScriptedModel(), input_filters=[input_filter])
        result = await agent.run("go")
        ends.append((result.end_reason, result.detail))

    assert ends == [
        ("rejected", "input filter broken raised ZeroDivisionError: no filter"),
        ("rejected", "input filter silly gave True; return Pass(), Warn(text) or Reject(reason)"),
    ]


async def test_rejected_steering_is_dropped_and_told_and_the_run_goes_on() -> None:
    """loop.md R4"""
    script = ScriptedModel(answer("one", pace=1))
    agent, events = listened(script, input_filters=[no_secrets])
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    receipt = agent.steer("a secret")

    result = await stream

    assert (result.end_reason, result.text, receipt.status) == ("done", "one", "returned")
    assert outline(events)[-3:] == ["turn_end 0 stop", "input_rejected steering: it holds a secret", "agent_end done"]
    assert said(agent.messages) == ["user: go", "assistant: one"]
    assert result.undelivered == []


async def test_a_rejected_follow_up_does_not_cost_the_next_one() -> None:
    """loop.md R4"""
    agent, events = listened(ScriptedModel("one", "two"), input_filters=[no_secrets])
    receipts = [agent.follow_up("a secret"), agent.follow_up("harmless")]

    result = await agent.run("go")

    assert [receipt.status for receipt in receipts] == ["returned", "delivered"]
    assert [(event.source, event.reason) for event in events.of(InputRejected)] == [("follow_up", "it holds a secret")]
    assert said(result.messages) == ["user: go", "assistant: one", "user: harmless", "assistant: two"]


async def test_a_batch_is_judged_as_a_whole() -> None:
    """loop.md R4"""
    agent, events = listened(ScriptedModel("one"), input_filters=[no_secrets], follow_up_mode="all")
    receipts = [agent.follow_up("harmless"), agent.follow_up("a secret")]

    await agent.run("go")

    assert [receipt.status for receipt in receipts] == ["returned", "returned"]
    assert len(events.of(InputRejected)) == 1
    assert said(agent.messages) == ["user: go", "assistant: one"]


async def test_warned_steering_is_heard_with_its_warning_and_delivered() -> None:
    """loop.md R4"""

    def careful(words: str) -> FilterVerdict:
        return Warn("mind that") if "steer" in words else Pass()

    agent, _ = listened(ScriptedModel(answer("one", pace=1), "two"), input_filters=[careful])
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    receipt = agent.steer("steer")

    result = await stream

    assert receipt.status == "delivered"
    assert said(result.messages)[2] == "user: steer[Warning: mind that]"


async def test_what_a_filter_has_not_let_in_is_not_heard_when_the_run_is_cancelled_meanwhile() -> None:
    """loop.md R4, loop.md T12"""

    async def slow(words: str) -> FilterVerdict:
        await asyncio.sleep(60)
        return no_secrets(words)

    script = ScriptedModel("ok")
    agent, events = listened(script, input_filters=[slow])
    stream = agent.prompt("a secret")
    await asyncio.sleep(1)
    agent.abort()
    result = await stream

    assert (result.end_reason, list(agent.messages), script.asked) == ("aborted", [], 0)
    assert outline(events) == ["agent_start", "turn_start 0 user", "turn_end 0 aborted", "agent_end aborted"]
    assert said(result.undelivered) == ["user: a secret"]


async def test_steering_a_filter_has_not_let_in_goes_back_to_the_queue_on_a_cancel() -> None:
    """loop.md R4, loop.md T12"""

    async def slow(words: str) -> FilterVerdict:
        await asyncio.sleep(60)
        return no_secrets(words)

    agent, _ = listened(ScriptedModel("ok"), input_filters=[slow])
    receipt = agent.steer("a secret")
    stream = agent.prompt("go")
    await asyncio.sleep(100)
    agent.abort()
    result = await stream

    assert (result.end_reason, receipt.status) == ("aborted", "next_run")
    assert said(agent.messages) == ["user: go"]
    assert said(agent.queued.steering) == ["user: a secret"]
