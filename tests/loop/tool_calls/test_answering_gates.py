"""`before_tool_execution` and `pre_dispatch_policies` may answer for the tool with a `ToolOutput`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, always, told

from steersman import (
    Agent,
    Approval,
    Rewrite,
    Session,
    Skip,
    TextContent,
    ToolCall,
    ToolOutput,
    ToolResultMessage,
    tool,
)
from steersman.events import ToolExecutionEnd, ToolExecutionStart
from steersman.policy import PolicyView
from steersman.testing import ScriptedModel, answer, call, replay

CACHED = ToolOutput("from the cache", {"age": 3})


def answer_from_cache(_: ToolCall) -> ToolOutput:
    return CACHED


class Counter:
    """A tool that counts how often it really ran."""

    def __init__(self, **settings: Any) -> None:
        self.ran = 0

        @tool(name="look", **settings)
        async def look(where: str) -> str:
            """Look."""
            self.ran += 1
            return f"nothing in {where}"

        self.tool = look


class CacheHook:
    """A hook object that answers for the tool."""

    async def before_tool_execution(self, call: ToolCall) -> ToolOutput:
        assert call.name == "look"
        return CACHED


def answer_by_policy(view: PolicyView) -> ToolOutput:
    assert view.call is not None
    return CACHED


@pytest.mark.parametrize(
    "options",
    [
        {"before_tool_execution": answer_from_cache},
        {"hooks": [CacheHook()]},
        {"pre_dispatch_policies": [answer_by_policy]},
    ],
    ids=["single hook", "hook object", "policy"],
)
async def test_a_gate_answers_for_the_tool_with_an_output(options: dict[str, Any]) -> None:
    """api.md, details: `before_tool_execution` may answer for the tool by returning a `ToolOutput`."""
    counter = Counter()
    script = ScriptedModel(answer(call("look", where="here")), "ok")
    agent, heard = agent_of(script, [counter.tool], **options)
    result = await agent.run("go")
    assert (result.end_reason, result.text, counter.ran) == ("done", "ok", 0)
    assert told(result.messages) == [("look", "from the cache", False, "completed")]
    message = next(message for message in result.messages if isinstance(message, ToolResultMessage))
    assert message.details == {"age": 3, "status": "completed"}
    # The events are those of a call that ran: a start, an end with the result, both with the arguments.
    started, ended = heard.of(ToolExecutionStart), heard.of(ToolExecutionEnd)
    assert [(event.tool_call_id, event.args) for event in started] == [(message.tool_call_id, {"where": "here"})]
    assert [(event.result, event.is_error) for event in ended] == [(message, False)]


async def test_later_hooks_see_the_answer_of_a_gate_as_any_output() -> None:
    """docs/hooks.md: what redacts outputs also redacts those of a gate."""
    seen: list[tuple[str, str]] = []

    def redact(call: ToolCall, output: ToolOutput) -> str:
        seen.append((call.name, str(output.content)))
        return str(output.content).replace("cache", "[redacted]")

    counter = Counter()
    script = ScriptedModel(answer(call("look", where="here")), "ok")
    agent, _ = agent_of(script, [counter.tool], before_tool_execution=answer_from_cache, after_tool_execution=redact)
    assert told((await agent.run("go")).messages) == [("look", "from the [redacted]", False, "completed")]
    assert seen == [("look", "from the cache")]


async def test_an_answer_of_a_gate_may_be_an_error_end_the_run_and_have_blocks() -> None:
    """api.md, tools: `ToolOutput(content, details=..., is_error=..., terminate=...)` means the same from a gate."""
    output = ToolOutput([TextContent("blocked")], is_error=True, terminate=True)
    agent, _ = agent_of(
        ScriptedModel(answer(call("look", where="here")), "never asked"),
        [Counter().tool],
        before_tool_execution=always(output),
    )
    result = await agent.run("go")
    assert (result.end_reason, told(result.messages)) == ("terminated", [("look", "blocked", True, "completed")])


async def test_the_first_answer_wins_and_rewritten_arguments_are_shown() -> None:
    """docs/hooks.md: the first `Stop`, `Skip` or `ToolOutput` wins."""
    asked: list[str] = []

    class Late:
        def before_tool_execution(self, call: ToolCall) -> Skip:
            asked.append(call.name)
            return Skip("too late")

    class Early:
        def before_tool_execution(self, call: ToolCall) -> Rewrite | ToolOutput:
            return Rewrite({"where": "there"}) if call.arguments == {"where": "here"} else CACHED

    counter = Counter()
    script = ScriptedModel(answer(call("look", where="here")), "ok")
    agent, heard = agent_of(script, [counter.tool], hooks=[Early(), Early(), Late()])
    assert told((await agent.run("go")).messages) == [("look", "from the cache", False, "completed")]
    assert ([event.args for event in heard.of(ToolExecutionStart)], asked) == ([{"where": "there"}], [])


async def test_a_call_that_a_gate_answers_needs_no_approval() -> None:
    """docs/hooks.md: the tool is not run, so there is nothing to approve."""
    asked: list[ToolCall] = []

    def approve(call: ToolCall) -> bool:
        asked.append(call)
        return True

    counter = Counter(needs_approval=True)
    script = ScriptedModel(answer(call("look", where="here")), "ok")
    agent, _ = agent_of(
        script,
        [counter.tool],
        before_tool_execution=answer_from_cache,
        approve=approve,
        approval=Approval("ask"),
    )
    assert told((await agent.run("go")).messages) == [("look", "from the cache", False, "completed")]
    assert (asked, counter.ran) == ([], 0)


async def test_a_guard_of_the_parent_answers_for_the_tool_of_a_sub_agent() -> None:
    """loop.md: a run's tool guards also judge the calls of its sub-agents."""
    counter = Counter()
    child = Agent(ScriptedModel(answer(call("look", where="here")), "the child is done").model, tools=[counter.tool])

    def guard(call: ToolCall) -> ToolOutput | None:
        return CACHED if call.name == "look" else None

    script = ScriptedModel(answer(call("child", prompt="look")), "ok")
    seen: list[Any] = []

    def watch(_: ToolCall, output: ToolOutput) -> None:
        seen.append(output.content)

    agent, _ = agent_of(
        script,
        [child.as_tool("child", "A child.")],
        before_tool_execution=guard,
        after_tool_execution=watch,
    )
    assert told((await agent.run("go")).messages) == [("child", "the child is done", False, "completed")]
    assert (counter.ran, seen) == (0, ["from the cache", "the child is done"])


async def test_the_answer_of_a_gate_is_in_the_session_and_in_its_replay(tmp_path: Path) -> None:
    """loop.md: events, session and replay are as for a tool that ran."""
    counter = Counter()
    session = Session.create(tmp_path / "s.db")
    script = ScriptedModel(answer(call("look", where="here")), "ok")
    agent = Agent(script.model, tools=[counter.tool], session=session, before_tool_execution=answer_from_cache)
    result = await agent.run("go")
    agent.close()
    assert told(session.messages) == told(result.messages) == [("look", "from the cache", False, "completed")]
    again = await replay(session)
    assert told(again.messages) == told(result.messages)
    session.close()
