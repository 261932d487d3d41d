from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, echo, texts, told

from steersman import Agent, Prun, ToolOutput, prun, prun_with_memo, tool
from steersman.context.entries import Live, Pruned, PrunEntry
from steersman.testing import ScriptedModel, answer, call
from steersman.types.events import PrunApplied

TEXT = "x" * 400  # about a hundred tokens


def work(*names: str) -> list[Any]:
    return [answer(call("echo", text=f"{name} {TEXT}")) for name in names]


async def test_the_model_drops_its_own_recent_work_and_the_group_that_asked_stays() -> None:
    """loop.md C2"""
    script = ScriptedModel(*work("a", "b", "c"), answer(call("prun", tokens=300)), "ok")
    agent, heard = agent_of(script, [echo, prun])
    result = await agent.run("the task")
    (applied,) = heard.of(PrunApplied)
    sent = script.requests[4][0].messages
    assert [(message.role, message.text[:1]) for message in sent] == [
        ("user", "t"),
        ("assistant", ""),
        ("tool_result", "a"),
        ("assistant", ""),
        ("tool_result", "A"),
    ]
    assert (applied.tokens_removed >= 300, applied.memo, len(applied.entry_ids)) == (True, None, 4)
    assert result.text == "ok"


async def test_the_event_comes_after_the_results_and_before_the_end_of_the_turn() -> None:
    """loop.md C2, T10"""
    script = ScriptedModel(*work("a"), answer(call("prun", tokens=1)), "ok")
    agent, heard = agent_of(script, [echo, prun])
    await agent.run("the task")
    place = heard.shape.index("prun_applied")
    assert heard.shape[place - 1 : place + 2] == ["message_end", "prun_applied", "turn_end"]


async def test_a_memo_stands_where_the_earliest_pruned_group_stood() -> None:
    """loop.md C2"""
    script = ScriptedModel(
        *work("a", "b"), answer(call("prun_with_memo", tokens=100_000, memo="Nothing in a or b.")), "ok"
    )
    agent, heard = agent_of(script, [echo, prun_with_memo])
    await agent.run("the task")
    sent = script.requests[3][0].messages
    assert texts(sent)[:2] == [("user", "the task"), ("user", "[Memo: Nothing in a or b.]")]
    assert [message.role for message in sent] == ["user", "user", "assistant", "tool_result"]
    assert (sent[1].synthetic, heard.of(PrunApplied)[0].memo) == (True, "Nothing in a or b.")


async def test_what_the_user_said_is_never_pruned() -> None:
    """loop.md C2, failures.md S11"""
    script = ScriptedModel(*work("a"), "first", *work("b"), answer(call("prun", tokens=100_000)), "ok")
    agent, _ = agent_of(script, [echo, prun])
    await agent.run("the task")
    await agent.run("and another")
    sent = script.requests[-1][0].messages
    assert [message.text for message in sent if message.role == "user"] == ["the task", "and another"]
    assert [message.role for message in sent] == ["user", "user", "assistant", "tool_result"]


async def test_the_log_keeps_what_was_pruned_and_it_can_be_undone() -> None:
    """loop.md C1, C2"""
    script = ScriptedModel(*work("a"), answer(call("prun", tokens=1)), "ok")
    agent, heard = agent_of(script, [echo, prun])
    result = await agent.run("the task")
    assert list(agent.messages) == result.messages
    kinds = [type(item) for item in agent.context.inrun_context]
    assert kinds == [Pruned, Pruned, Live, Live, Live]
    assert texts(agent.context.user_context) == [("user", "the task")]
    log = agent.context.log
    ids = [log.entry_id_of(index) for index in (1, 2)]
    assert list(heard.of(PrunApplied)[0].entry_ids) == ids
    (entry,) = [entry for entry in log.entries if isinstance(entry, PrunEntry)]
    log.undo(entry.id)
    assert list(log.visible) == result.messages


async def test_the_first_thing_a_model_does_has_nothing_to_prune() -> None:
    """loop.md C2"""
    script = ScriptedModel(answer(call("prun", tokens=10)), "ok")
    agent, heard = agent_of(script, [prun])
    result = await agent.run("the task")
    assert (heard.of(PrunApplied), result.text) == ([], "ok")


async def test_a_batch_with_other_calls_is_spared_as_a_whole() -> None:
    """loop.md C2"""
    script = ScriptedModel(
        *work("a"), answer(call("echo", text="beside"), call("prun", tokens=100_000), call("echo", text="too")), "ok"
    )
    agent, _ = agent_of(script, [echo, prun])
    await agent.run("the task")
    sent = script.requests[2][0].messages
    assert [message.role for message in sent] == ["user", "assistant", "tool_result", "tool_result", "tool_result"]
    assert (sent[2].text, sent[4].text) == ("beside", "too")


async def test_two_requests_in_one_batch_are_both_granted() -> None:
    """loop.md C2"""
    script = ScriptedModel(*work("a", "b"), answer(call("prun", tokens=1), call("prun", tokens=1)), "ok")
    agent, heard = agent_of(script, [echo, prun])
    await agent.run("the task")
    assert [len(event.entry_ids) for event in heard.of(PrunApplied)] == [2, 2]
    assert [message.role for message in script.requests[3][0].messages] == [
        "user",
        "assistant",
        "tool_result",
        "tool_result",
    ]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (call("prun", tokens=0), "arguments.tokens: expected"),
        (call("prun", tokens=-5), "arguments.tokens: expected"),
        (call("prun"), "arguments.tokens: missing"),
        (call("prun_with_memo", tokens=5, memo=""), "arguments.memo: expected"),
    ],
    ids=["zero", "negative", "missing", "no memo"],
)
async def test_a_request_that_makes_no_sense_is_answered_and_nothing_is_pruned(asked: Any, text: str) -> None:
    """loop.md C2, D3"""
    script = ScriptedModel(*work("a"), answer(asked), "ok")
    agent, heard = agent_of(script, [echo, prun, prun_with_memo])
    result = await agent.run("the task")
    assert heard.of(PrunApplied) == []
    name, words, is_error, status = told(result.messages)[-1]
    assert (name, text in words, is_error, status) == (asked.name, True, True, "invalid")


async def test_any_tool_may_ask_by_returning_the_effect() -> None:
    """loop.md C2, section 5"""

    @tool
    async def forget() -> ToolOutput:
        """Forget what came before."""
        return ToolOutput("forgotten", effects=[Prun(1, "It was nothing.")])

    script = ScriptedModel(*work("a"), answer(call("forget")), "ok")
    agent, heard = agent_of(script, [echo, forget])
    await agent.run("the task")
    assert [event.memo for event in heard.of(PrunApplied)] == ["It was nothing."]


async def test_an_effect_of_a_call_that_was_cut_is_not_granted() -> None:
    """loop.md C2, D6"""

    @tool
    async def forget() -> ToolOutput:
        """Forget, but only when it is too late."""
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            pass
        return ToolOutput("forgotten", effects=[Prun(1)])

    script = ScriptedModel(*work("a"), answer(call("forget")), "ok")
    agent, heard = agent_of(script, [echo, forget], tool_timeout=5)
    await agent.run("the task")
    assert heard.of(PrunApplied) == []


def test_both_tools_are_tools_like_any_other() -> None:
    """loop.md C2"""
    agent = Agent(ScriptedModel("x").model, tools=[prun, prun_with_memo])
    assert [tool.name for tool in agent.tool_table.read(agent.tools).values()] == ["prun", "prun_with_memo"]
