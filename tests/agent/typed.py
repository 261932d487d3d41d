"""Checked by basedpyright and by mypy, and never run: what a type checker knows about an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from steersman import Agent, AgentLoopConfig, EventStream, ExecutionLimits, Retry, RunResult, get_model
from steersman.tools import Tool
from steersman.types import (
    AssistantMessage,
    Content,
    ExtensionMessage,
    Model,
    TextContent,
    ToolResultMessage,
    Usage,
    UserMessage,
)


@dataclass
class Report:
    """A report."""

    words: int


class Town(TypedDict):
    """A town."""

    name: str


async def use_plain_agent() -> None:
    """An agent without `output_type` gives text."""
    agent = Agent("anthropic:claude-sonnet-4-5", limits=None, retry=Retry(), tool_choice="required", max_tool_calls=3)
    assert_type(agent, Agent[str])
    assert_type(await agent.run("Hi", images=["plan.png", b"..."]), RunResult[str])
    assert_type((await agent.run("Hi")).output, str)
    assert_type(agent.run_sync("Hi").raise_for_error().output, str)
    assert_type(agent.prompt("Hi"), EventStream[str])
    assert_type((await agent.prompt("Hi")).output, str)
    assert_type((await agent.continue_()).output, str)


async def use_typed_agents(agents: Sequence[Agent[Any]]) -> None:
    """`output_type` says what `result.output` is."""
    agent = Agent("anthropic:claude-sonnet-4-5", output_type=Report, before_turn=print, limits=ExecutionLimits())
    assert_type(agent, Agent[Report])
    assert_type((await agent.run("Hi")).output, Report)
    assert_type((await agent.run("Hi")).raise_for_error().output.words, int)
    assert_type((await agent.prompt("Hi")).output, Report)
    assert_type((await Agent("scripted:x", output_type=Town).run("Hi")).output, Town)
    assert_type((await Agent("scripted:x", output_type=list[Report]).run("Hi")).output, list[Report])
    assert_type(agent.variant(temperature=0.5), Agent[Report])
    assert_type(agent.variant(output_type=Town), Agent[Town])
    assert_type(agent.variant(output_type=None), Agent[str])
    every: list[Agent[Any]] = [agent, Agent("scripted:x"), *agents]
    every[0].abort()
    wide: Agent[object] = agent
    wide.abort()


def change_agent(agent: Agent[Report]) -> None:
    """What can be read and assigned."""
    agent.model = "openai:gpt-5.5"
    assert_type(agent.model, Model)
    agent.system_prompt = "Be brief."
    agent.thinking_level = "low"
    assert_type(agent.usage, Usage)
    assert_type(agent.cost, float | None)
    agent.configure(temperature=0.5, tool_timeout=3.0, execution_limits=None, output_type=Town)
    AgentLoopConfig(model=get_model("scripted:x"), limits=ExecutionLimits(), retry=None)
    tools: list[Tool] = []
    agent.tools = tools
    agent.tools.append(*tools)
    agent.messages = ["Hi", {"role": "assistant", "content": "Hello"}]


def write_messages(agent: Agent) -> None:
    """Content may be given as a text or as blocks, and is read as blocks; the rest is given by keyword."""
    agent.messages = [
        UserMessage("Hi", timestamp=1.0),
        UserMessage([TextContent("Hi")]),
        AssistantMessage("Hello", stop_reason="stop", usage=Usage(input=1)),
        ToolResultMessage("5", tool_call_id="c1", tool_name="add", is_error=False, details={"of": 1}),
        ExtensionMessage(kind="note", data=1),
    ]
    assert_type(UserMessage("Hi").content, Sequence[Content])


def refuse(agent: Agent) -> None:
    """What a checker refuses; a line that it does not refuse is an error by itself."""
    Agent("scripted:x", befor_turn=print)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Agent("scripted:x", tool_choice="maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    agent.configure(temprature=0.5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    agent.configure(max_tool_calls="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    UserMessage("Hi", 1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    UserMessage(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AssistantMessage("Hi", stop_reason="banana")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    agent.thinking_level = "extreme"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    words: int = agent.run_sync("Hi").output  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(words)
