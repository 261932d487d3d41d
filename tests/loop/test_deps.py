"""`deps`: what an application gives to its tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steersman import Agent, AgentContext, AgentLoopConfig, ToolContext, agent_loop, tool
from steersman.team import TaskKind, task_tool
from steersman.testing import ScriptedModel, answer, call


@dataclass
class Store:
    name: str


def collect() -> Any:
    """A tool that writes down whose store it gets, and the list it writes to."""
    found: list[Any] = []

    @tool
    def look(ctx: ToolContext[Store]) -> str:
        """Look."""
        found.append(None if ctx.deps is None else ctx.deps.name)  # pyright: ignore[reportUnnecessaryComparison]
        return "seen"

    return look, found


def script(*names: str) -> ScriptedModel:
    """A model that calls the tools of these names, one a turn, and ends."""
    return ScriptedModel(*[answer(call(name)) for name in names], "Done.")


async def test_a_tool_gets_the_deps_of_its_agent() -> None:
    """api.md, `deps`: anything; a tool's `ctx.deps` is it."""
    look, found = collect()
    store = Store("own")
    agent = Agent(script("look").model, tools=[look], deps=store)
    assert (await agent.run("Go.")).end_reason == "done"
    assert (found, agent.config.deps) == (["own"], store)


async def test_without_deps_there_are_none() -> None:
    """As above."""
    look, found = collect()
    await Agent(script("look").model, tools=[look]).run("Go.")
    assert found == [None]


async def test_a_run_may_have_deps_of_its_own() -> None:
    """api.md: `agent.run(..., deps=...)` sets it for one run."""
    look, found = collect()
    turns = [answer(call("look")), "Done."] * 4 + [answer(call("look"))]
    agent = Agent(ScriptedModel(*turns).model, tools=[look], deps=Store("own"))
    await agent.run("Go.", deps=Store("of one run"))
    await agent.prompt("Go.", deps=Store("of another"))
    await agent.run("Go.")
    agent.follow_up("And now?")
    await agent.continue_(deps=Store("of a continuation"))
    assert found == ["of one run", "of another", "own", "of a continuation"]


async def test_a_run_may_have_none_though_its_agent_has_some() -> None:
    """As above: `None` is a value like any other."""
    look, found = collect()
    agent = Agent(script("look", "look", "look").model, tools=[look], deps=Store("own"))
    await agent.run("Go.", deps=None)
    await agent.prompt("Go.", deps=None)
    agent.follow_up("And now?")
    await agent.continue_(deps=None)
    assert (found, agent.deps) == ([None] * 3, Store("own"))


async def test_the_deps_of_an_agent_can_be_read_and_assigned() -> None:
    """api.md: an agent can be changed, also while it runs, from the next turn on."""
    found: list[object] = []

    @tool
    async def swap(ctx: ToolContext[int]) -> str:
        """Change the deps."""
        found.append(ctx.deps)
        agent.deps = ctx.deps + 1
        return "ok"

    turns = [answer(call("swap"), call("swap")), answer(call("swap")), "Done."]
    agent = Agent(ScriptedModel(*turns, *turns).model, tools=[swap], deps=1, tool_execution="sequential")
    assert agent.deps == 1
    await agent.run("Go.")
    assert (found, agent.deps) == ([1, 1, 2], 3)
    agent.deps = 10
    await agent.run("Go.", deps=5)
    assert (found[3:], agent.deps) == ([5, 5, 5], 6)


def test_a_run_without_an_event_loop_takes_them_too() -> None:
    """As above."""
    look, found = collect()
    Agent(script("look").model, tools=[look]).run_sync("Go.", deps=Store("sync"))
    assert found == ["sync"]


async def test_a_bare_loop_takes_deps_in_its_configuration() -> None:
    """api.md: `AgentLoopConfig` takes `deps` too."""
    look, found = collect()
    config = AgentLoopConfig(model=script("look").model, deps=Store("bare"))
    await agent_loop("Go.", AgentContext(tools=[look]), config)
    assert found == ["bare"]


async def test_a_sub_agent_gets_its_parents_deps_unless_it_has_its_own() -> None:
    """docs/sub-agents.md: deps"""
    look, found = collect()
    heir = Agent(script("look").model, tools=[look]).as_tool("heir", "Works with its parent's.")
    owner = Agent(script("look").model, tools=[look], deps=Store("own")).as_tool("owner", "Has its own.")
    turns = [answer(call("heir", prompt="x")), answer(call("owner", prompt="x")), "Done."]
    agent = Agent(ScriptedModel(*turns).model, tools=[heir, owner], deps=Store("agent"))
    await agent.run("Go.", deps=Store("run"))
    assert found == ["run", "own"]


async def test_a_task_gets_the_deps_of_the_run_that_gave_it() -> None:
    """docs/sub-agents.md: deps"""
    look, found = collect()
    turns = [answer(call("task", prompt="x")), answer(call("look")), "Found.", "Done."]
    agent = Agent(
        ScriptedModel(*turns).model,
        tools=[look, task_tool({"scout": TaskKind("Looks.", tools=["look"])})],
        deps=Store("agent"),
    )
    assert (await agent.run("Go.", deps=Store("run"))).text == "Done."
    assert found == ["run"]


async def test_a_variant_keeps_the_deps() -> None:
    """api.md: an option like any other."""
    look, found = collect()
    agent = Agent(script("look").model, tools=[look], deps=Store("own"))
    await agent.variant().run("Go.")
    await agent.variant(deps=Store("other"), model=script("look").model).run("Go.")
    assert found == ["own", "other"]
