"""Talk to Gemini: thinking, a tool, a picture, and an answer as a value.

GEMINI_API_KEY=... python examples/13_google.py      asks the real one
python examples/13_google.py                         asks a strict server on this machine that plays a script
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from steersman import Agent, ImageContent, Model, TextContent, ThinkingContent, Usage, UserMessage, get_model, tool
from steersman.testing import answer, call, thinking
from steersman.testing.servers import GoogleServer

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@dataclass
class Finding:
    colour: str
    pixels: int


@tool
def measure(what: str) -> int:
    """Count the pixels of a thing in the picture."""
    return len(what.split())


SCRIPT = (
    answer(thinking("A dot. How large?"), call("measure", what="dot"), usage=Usage(input=300, output=30, reasoning=9)),
    answer('{"colour": "red", "pixels": 1}', usage=Usage(input=60, output=12, cache_read=280)),
)


async def talk(model: Model) -> None:
    agent = Agent(model, tools=[measure], system_prompt="Be brief.", thinking_level="low", output_type=Finding)
    result = await agent.run(UserMessage([TextContent("What is in this picture?"), ImageContent(DOT)]))
    for message in result.messages:
        thoughts = [block.thinking for block in message.content if isinstance(block, ThinkingContent)]
        print(f"{message.role:>11}: {message.text or thoughts}")
    usage = result.usage
    print(f"{result.end_reason}: {result.output}; {usage.total} tokens, {usage.reasoning or 0} of them to think")


async def main() -> None:
    if os.environ.get("GEMINI_API_KEY") or os.environ.get("GOOGLE_API_KEY"):
        await talk(get_model("google:gemini-3-flash-preview"))
        return
    print("(no GEMINI_API_KEY: a strict server on this machine plays a script)")
    async with GoogleServer(*SCRIPT) as server:
        await talk(server.model("gemini-3-flash-preview"))


if __name__ == "__main__":
    asyncio.run(main())
