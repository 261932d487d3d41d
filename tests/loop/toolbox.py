"""Tools, agents and short accounts of what happened, for the tests of tool calls inside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from steersman import Agent, AgentMessage, AssistantMessage, TextContent, Tool, ToolContext, ToolResultMessage, tool
from steersman.testing import EventCollector, ScriptedModel, run_virtual
from steersman.types.content import Content
from steersman.types.events import CustomEvent

Told: TypeAlias = tuple[str, str, bool, str]
"""A tool result in short: tool name, text, whether it is an error, status."""


def agent_of(
    script: ScriptedModel, tools: Sequence[Tool | Callable[..., Any]] = (), **options: Any
) -> tuple[Agent, EventCollector]:
    """An agent that plays the script, and what it tells."""
    agent = Agent(script.model, tools=tools, **options)
    heard = EventCollector()
    agent.subscribe(heard)
    return agent, heard


def unmanaged_agent_of(
    script: ScriptedModel, tools: Sequence[Tool | Callable[..., Any]] = (), **options: Any
) -> tuple[Agent, EventCollector]:
    """The same without context management, for what happens after a provider's refusal."""
    return agent_of(script, tools, **{"context_config": None, **options})


def told(messages: Iterable[AgentMessage]) -> list[Told]:
    """The tool results among the messages, in short."""
    return [
        (message.tool_name, message.text, message.is_error, message.details["status"])
        for message in messages
        if isinstance(message, ToolResultMessage)
    ]


def customs(heard: EventCollector, name: str) -> list[dict[str, Any]]:
    """The data of the custom events of that name."""
    return [event.data for event in heard.of(CustomEvent) if event.name == name]


class Workshop:
    """Tools that write down when they begin and end: `log` reads like `+a`, `+b`, `-a`, `-b`.

    `seconds` is how long a job takes, in virtual time.
    """

    def __init__(self) -> None:
        self.log: list[str] = []

    def job(self, name: str = "job", **options: Any) -> Tool:
        """A tool that takes `name` and `seconds`."""

        @tool(name=name, **options)
        async def work(name: str, seconds: float = 1.0) -> str:
            """Do something that takes a while."""
            self.log.append(f"+{name}")
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.log.append(f"!{name}")
                raise
            self.log.append(f"-{name}")
            return f"{name} done"

        return work

    def write(self) -> Tool:
        """A tool that takes a second, and one call for each path at a time."""

        @tool(keys=lambda args: [args["path"]])
        async def write(path: str, name: str) -> str:
            """Write a file."""
            self.log.append(f"+{name}")
            await asyncio.sleep(1)
            self.log.append(f"-{name}")
            return path

        return write

    def stubborn(self, name: str = "stubborn", *, swallows: int = 1, takes: float = 1.0) -> Tool:
        """A tool that takes no notice of being cancelled, so many times, and works on for as long again."""

        @tool(name=name)
        async def work() -> str:
            """Do something that cannot be stopped."""
            self.log.append(f"+{name}")
            left = swallows
            while True:
                try:
                    await asyncio.sleep(takes)
                    break
                except asyncio.CancelledError:
                    self.log.append(f"!{name}")
                    if not left:
                        raise
                    left -= 1
            self.log.append(f"-{name}")
            return f"{name} done"

        return work


def count_steps(agent: Agent, abort_at: int | None, check: Callable[[], None]) -> int:
    """Run an agent, aborted before that step or else after a minute, and check its end; how many steps there were."""
    steps = 0

    def on_step(number: int) -> None:
        nonlocal steps
        steps = number
        if number == abort_at:
            agent.abort()

    async def work() -> None:
        asyncio.get_running_loop().call_later(60, agent.abort)
        result = await agent.run("go")
        assert result.end_reason == "aborted"
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        check()

    run_virtual(work(), on_step=on_step)
    return steps


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def nap() -> str:
    """Take a second: what comes at the same time as the answer before it is there when the next one is asked for."""
    await asyncio.sleep(1)
    return "awake"


@tool
async def fail(text: str = "no luck") -> str:
    """Raise."""
    raise ValueError(text)


@tool
async def key_of(ctx: ToolContext) -> str:
    """Say which call this is."""
    return ctx.tool_call_id


def always(value: Any) -> Callable[..., Any]:
    """A hook that gives the same answer whatever it is asked."""

    def hook(*_: Any) -> Any:
        return value

    return hook


def said(*blocks: str | Content, **fields: Any) -> AssistantMessage:
    """An answer of the scripted model, as an earlier run left it."""
    content = [TextContent(block) if isinstance(block, str) else block for block in blocks]
    return AssistantMessage(content, model="script", provider="scripted", **fields)


def gave(call_id: str, text: str, name: str = "echo") -> ToolResultMessage:
    """The result of a call, as an earlier run left it."""
    return ToolResultMessage([TextContent(text)], tool_call_id=call_id, tool_name=name, details={"status": "completed"})


def texts(messages: Iterable[AgentMessage]) -> list[tuple[str, str]]:
    """Role and text of each message."""
    return [(message.role, message.text) for message in messages]
