"""Sub-agents for tasks: two in parallel, of a kind that may only read, and one budget for all."""

from __future__ import annotations

import asyncio

from steersman import Agent, ExecutionLimits, Request, TaskKind, Usage, task_tool, tool
from steersman.events import ToolExecutionUpdate
from steersman.testing import ScriptedModel, Turn, answer, call

FILES = {"a.txt": "one\ntwo\nthree", "b.txt": "only one line"}


@tool(access="read")
async def read(path: str) -> str:
    """Read a file."""
    return FILES[path]


@tool
async def write(path: str, content: str) -> str:
    """Write a file."""
    FILES[path] = content
    return "written"


def worker(request: Request) -> Turn:
    """What a sub-agent says: it reads the file it was told about, and counts."""
    last = request.messages[-1]
    if last.role == "user":
        return answer(call("read", path=last.text.split()[-1]))
    return answer(f"{len(last.text.splitlines())} lines")


async def main() -> None:
    usage = Usage(input=100, output=10)
    explorer = ScriptedModel(worker, repeat_last=True, usage=usage, id="small")
    kinds = {
        "general": TaskKind("For any work."),
        "explorer": TaskKind("Looks and changes nothing.", tools=["read"], model=explorer.model),
    }
    calls = [call("task", kind="explorer", prompt=f"Count the lines of {path}") for path in FILES]
    script = ScriptedModel(answer("I will have them counted.", *calls), "a.txt has 3 lines, b.txt has 1.", usage=usage)
    agent = Agent(script.model, tools=[read, write, task_tool(kinds)], limits=ExecutionLimits(max_sub_agents=5))
    stream = agent.prompt("How long are my files?")
    async for event in stream:
        if isinstance(event, ToolExecutionUpdate) and event.update["event"]["type"] == "agent_end":
            said = event.update["event"]["messages"][-1]["content"][0]["text"]
            print(f"[{event.update['agent']}] {event.args['prompt']}: {said}")
    result = await stream
    print(result.text)
    print("an explorer has:", [tool.name for tool in explorer.requests[0][0].tools])
    print(f"{result.end_reason}; {result.usage.total} tokens for {script.asked + explorer.asked} requests")


if __name__ == "__main__":
    asyncio.run(main())
