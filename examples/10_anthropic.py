"""Talk to Claude: thinking, a tool, a picture, and what the prompt cache saved.

ANTHROPIC_API_KEY=... python examples/10_anthropic.py      asks the real one
python examples/10_anthropic.py                            asks a strict server on this machine that plays a script
"""

from __future__ import annotations

import asyncio
import os

from steersman import Agent, ImageContent, Model, TextContent, ThinkingContent, Usage, UserMessage, get_model, tool
from steersman.testing import answer, call, thinking
from steersman.testing.servers import AnthropicServer

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SCRIPT = (
    answer(thinking("Two numbers."), "Let me add.", call("add", a=2, b=3), usage=Usage(input=90, cache_write=800)),
    answer("The sum is 5, and the picture is a red dot.", usage=Usage(input=90, output=20, cache_read=800)),
)


async def talk(model: Model) -> None:
    agent = Agent(model, tools=[add], system_prompt="Be brief.", thinking_level="low")
    question = UserMessage([TextContent("What is 2 + 3, and what is this?"), ImageContent(DOT)])
    result = await agent.run(question)
    for message in result.messages:
        for block in message.content:
            if isinstance(block, ThinkingContent):
                print(f"   thinking: {block.thinking}")
        print(f"{message.role:>11}: {message.text}")
    usage = result.usage
    print(f"{result.end_reason}: {usage.total} tokens, {usage.cache_read or 0} of them read from the cache")


async def main() -> None:
    if os.environ.get("ANTHROPIC_API_KEY"):
        await talk(get_model("anthropic:claude-haiku-4-5"))
        return
    print("(no ANTHROPIC_API_KEY: a strict server on this machine plays a script)")
    async with AnthropicServer(*SCRIPT) as server:
        await talk(server.model("claude-haiku-4-5"))


if __name__ == "__main__":
    asyncio.run(main())
