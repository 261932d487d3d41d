"""An agent as a tool of another: its usage counts for the parent, its events name it, it shares limits and cancel."""

from __future__ import annotations

import asyncio

from steersman import Agent, ExecutionLimits, Usage, tool
from steersman.events import MessageEnd, ToolExecutionUpdate
from steersman.testing import ScriptedModel, answer, call


@tool
def look_up(topic: str) -> str:
    """Look something up."""
    return f"{topic}: 8,849 metres"


async def main() -> None:
    usage = Usage(input=100, output=20)
    librarian = Agent(
        ScriptedModel(answer(call("look_up", topic="Everest")), "Everest is 8,849 m high.", usage=usage).model,
        tools=[look_up],
        system_prompt="You look things up.",
    )
    script = ScriptedModel(
        answer("I will ask the librarian.", call("librarian", prompt="How high is Everest?")),
        "It is 8,849 metres high.",
        usage=usage,
    )
    boss = Agent(
        script.model,
        tools=[librarian.as_tool("librarian", "Looks things up. Give it a whole question.")],
        limits=ExecutionLimits(max_turns=10),  # the librarian's turns count here too
    )
    stream = boss.prompt("How high is the highest mountain?")
    async for event in stream:
        match event:
            case ToolExecutionUpdate(tool_name=name, update={"type": "agent_event", "event": inner}):
                if inner["type"] in ("turn_start", "tool_execution_start"):
                    print(f"    [{name}] {inner['type']}")
            case MessageEnd(message=message):
                print(f"{message.role:>11}: {message.text}")
            case _:
                pass
    result = await stream
    print(f"tokens of both agents: {result.usage.total}")


if __name__ == "__main__":
    asyncio.run(main())
