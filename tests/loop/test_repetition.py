from __future__ import annotations

from typing import Any

import pytest
from tests.loop.toolbox import agent_of, echo, fail

from steersman import RepeatedCalls, UserMessage
from steersman.testing import ScriptedModel, answer, call
from steersman.types.events import LoopDetected


def again(*texts: str) -> list[Any]:
    return [answer(call("echo", text=text)) for text in texts]


def noticed(heard: Any) -> list[tuple[list[str], int, str]]:
    return [(list(event.tool_names), event.repetitions, event.action) for event in heard.of(LoopDetected)]


async def test_the_same_call_again_and_again_is_first_nudged_and_then_stopped() -> None:
    """loop.md D9"""
    script = ScriptedModel(*again("x"), repeat_last=True)
    agent, heard = agent_of(script, [echo])
    result = await agent.run("go")
    assert noticed(heard) == [(["echo"], 8, "nudge"), (["echo"], 16, "stop")]
    assert (result.end_reason, script.asked) == ("stopped", 16)
    assert result.detail == "The same tool calls with the same arguments (echo) came 16 times in a row."
    nudges = [message for message in result.messages if isinstance(message, UserMessage) and message.synthetic]
    assert [message.text for message in nudges] == [
        "The same tool calls with the same arguments (echo) came 8 times in a row. Repeating them will not give "
        "anything new: try another way, or answer with what you have."
    ]


async def test_the_nudge_is_what_the_next_request_ends_with() -> None:
    """loop.md D9"""
    script = ScriptedModel(*again("x", "x", "x"), "I see.")
    agent, _ = agent_of(script, [echo], repeated_calls=RepeatedCalls(nudge_after=3, stop_after=5))
    result = await agent.run("go")
    assert result.text == "I see."
    last = script.requests[3][0].messages[-1]
    assert (last.role, last.synthetic, "try another way" in last.text) == ("user", True, True)


async def test_two_calls_in_turns_are_noticed_too() -> None:
    """loop.md D9"""
    script = ScriptedModel(*again(*("a", "b") * 16), "never said")
    agent, heard = agent_of(script, [echo])
    result = await agent.run("go")
    assert noticed(heard) == [(["echo", "echo"], 8, "nudge"), (["echo", "echo"], 16, "stop")]
    assert (result.end_reason, script.asked) == ("stopped", 32)


async def test_other_arguments_other_tools_or_other_batches_are_no_repetition() -> None:
    """loop.md D9: generous."""
    turns = [answer(call("echo", text=str(number // 7)), *[call("fail")] * (number % 5)) for number in range(40)]
    agent, heard = agent_of(ScriptedModel(*turns, "ok"), [echo, fail])
    result = await agent.run("go")
    assert (result.end_reason, noticed(heard)) == ("done", [])


async def test_something_a_user_says_ends_the_streak() -> None:
    """loop.md D9"""
    script = ScriptedModel(*again("x"), repeat_last=True)
    turns = 0

    def steer(*_: Any) -> None:
        nonlocal turns
        turns += 1
        if turns in (5, 10, 15):
            agent.steer("once more, please")
        if turns == 18:
            agent.abort()

    agent, heard = agent_of(script, [echo], after_turn=steer)
    await agent.run("go")
    assert noticed(heard) == []


async def test_a_repetition_in_one_run_is_not_held_against_the_next() -> None:
    """loop.md D9"""
    turns = [*again(*"xxxxx"), "ok"]
    agent, heard = agent_of(ScriptedModel(*turns, *turns, *turns), [echo])
    for _ in range(3):
        assert (await agent.run("go")).end_reason == "done"
    assert noticed(heard) == []


async def test_it_can_be_turned_off() -> None:
    """loop.md D9"""
    agent, heard = agent_of(ScriptedModel(*again(*"x" * 40), "ok"), [echo], repeated_calls=None)
    result = await agent.run("go")
    assert (result.end_reason, noticed(heard)) == ("done", [])


@pytest.mark.parametrize("raw", ['{"text": "cut', "[]"])
async def test_broken_calls_repeated_are_noticed_too(raw: str) -> None:
    """loop.md D9"""
    agent, heard = agent_of(ScriptedModel(answer(call("echo", raw=raw)), repeat_last=True), [echo])
    result = await agent.run("go")
    assert (result.end_reason, len(noticed(heard))) == ("stopped", 2)


async def test_failed_calls_repeated_are_noticed_whatever_they_failed_with() -> None:
    """loop.md D9"""
    agent, heard = agent_of(ScriptedModel(answer(call("nope", x=1)), repeat_last=True), [echo])
    result = await agent.run("go")
    assert (result.end_reason, noticed(heard)[-1]) == ("stopped", (["nope"], 16, "stop"))
