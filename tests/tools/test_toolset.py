"""Tools that come together: a toolset in a list stands for the tools it has when a run begins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from steersman import Agent, AgentContext, AgentLoopConfig, Tool, agent_loop, tool
from steersman.testing import ScriptedModel, answer, call
from steersman.types.messages import ToolResultMessage


@tool
def one() -> str:
    """The first."""
    return "one"


@tool
def two() -> str:
    """The second."""
    return "two"


class Changing:
    """Has whatever it is given."""

    def __init__(self, *tools: Tool) -> None:
        self.tools: Sequence[Tool] = list(tools)


def results(messages: Sequence[object]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolResultMessage)]


async def test_each_run_has_the_tools_of_its_beginning() -> None:
    script = ScriptedModel(answer(call("two")), "No.", answer(call("two")), "Yes.")
    changing = Changing(one)
    agent = Agent(script.model, tools=[changing])
    first = await agent.run("Try.")
    changing.tools = [one, two]
    second = await agent.run("Try again.")
    assert results(first.messages) == ["No tool named 'two'. Available tools: one."]
    assert results(second.messages) == ["two"]
    assert [[spec.name for spec in request.tools] for request, _ in script.requests] == [
        ["one"],
        ["one"],
        ["one", "two"],
        ["one", "two"],
    ]
    assert [*agent.tool_table.by_name] == ["one", "two"]


async def test_a_toolset_may_be_empty_and_stand_among_others() -> None:
    agent = Agent(ScriptedModel("Hello.").model, tools=[one, Changing(), Changing(two)])
    assert (await agent.run("Hello")).text == "Hello."
    assert [*agent.tool_table.by_name] == ["one", "two"]


async def test_a_bare_context_takes_toolsets_too() -> None:
    script = ScriptedModel(answer(call("two")), "Done.")
    context = AgentContext(tools=[Changing(two)])
    messages = await agent_loop("Try.", context, AgentLoopConfig(model=script.model)).result()
    assert results(messages) == ["two"]


async def test_a_sub_agent_has_the_tools_of_its_own_beginning() -> None:
    changing = Changing(one)
    helper = Agent(ScriptedModel(answer(call("two")), "Done.").model, tools=[changing])
    boss = Agent(
        ScriptedModel(answer(call("helper", prompt="Try.")), "Done.").model, tools=[helper.as_tool("helper", "")]
    )
    before = helper.tool_table.read(helper.tools)
    changing.tools = [two]
    assert (await boss.run("Go.")).text == "Done."
    # The agent itself has not run.
    assert helper.tool_table.by_name is before
    assert [*before] == ["one"]


def test_two_tools_of_one_name_are_refused_wherever_they_come_from() -> None:
    """failures.md L10."""
    with pytest.raises(ValueError, match="Two tools are named 'one'"):
        Agent("scripted:echo", tools=[one, Changing(one)])


async def test_a_collision_that_came_later_is_refused_before_the_run_changes_anything() -> None:
    """failures.md L10."""
    changing = Changing(two)
    agent = Agent(ScriptedModel("Hello.").model, tools=[one, changing])
    changing.tools = [one]
    with pytest.raises(ValueError, match="Two tools are named 'one'"):
        agent.prompt("Hello")
    changing.tools = [two]
    assert (await agent.run("Hello")).text == "Hello."


@pytest.mark.parametrize("stranger", [object(), 5, "read", Agent("scripted:echo")])
def test_what_is_neither_tool_nor_toolset_is_refused(stranger: object) -> None:
    with pytest.raises(TypeError, match="A tool is a typed function"):
        Agent("scripted:echo", tools=[stranger])  # pyright: ignore[reportArgumentType]  # on purpose


async def test_a_parameter_of_a_tool_may_be_called_arguments() -> None:
    @tool
    def run(program: str, arguments: list[str]) -> str:
        """Run a program."""
        return f"{program} {arguments}"

    script = ScriptedModel(answer(call("run", program="ls", arguments=["-l"])), "Done.")
    result = await Agent(script.model, tools=[run]).run("Go.")
    assert results(result.messages) == ["ls ['-l']"]
