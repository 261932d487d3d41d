"""Tools of MCP servers: named after their server, started with a clean environment, gone when you leave."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server.mcpserver import Context, MCPServer

from steersman import Agent
from steersman.events import MessageEnd, ToolExecutionUpdate
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import McpServers, StdioServer


def serve() -> None:
    """A server to try it with; a real one is another program, such as `StdioServer(command="mcp-server-time")`."""
    server = MCPServer("kitchen", log_level="ERROR")

    @server.tool()
    async def bake(cake: str, ctx: Context) -> str:
        """Bake a cake."""
        for minute in (10, 20):
            await ctx.report_progress(minute, 20, f"{minute} minutes in the oven")
        return f"One {cake} cake. My key is {os.environ.get('OPENAI_API_KEY', 'not here')}."

    server.run("stdio")


async def main() -> None:
    os.environ["OPENAI_API_KEY"] = "sk-no-business-of-any-server"
    script = ScriptedModel(
        answer("I will ask the kitchen.", call("mcp:kitchen:bake", cake="lemon")),
        answer("And another.", call("mcp:kitchen:bake", cake=5)),
        "There is cake.",
    )
    kitchen = StdioServer(command=sys.executable, args=[__file__, "serve"])
    async with McpServers({"kitchen": kitchen}) as servers:
        print(f"tools: {[tool.name for tool in servers.tools]}")
        stream = Agent(script.model, tools=[servers]).prompt("Bake something.")
        async for event in stream:
            match event:
                case ToolExecutionUpdate(update={"text": text}):
                    print(f"{'...':>11}  {text}")
                case MessageEnd(message=message):
                    print(f"{message.role:>11}: {message.text}")
                case _:
                    pass


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else asyncio.run(main())
