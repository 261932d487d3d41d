"""Talk to OpenAI's Responses API: reasoning, two calls at once, and an answer of a given type.

OPENAI_API_KEY=... python examples/11_openai.py      asks the real one
python examples/11_openai.py                         asks a strict server on this machine that plays a script
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from steersman import Agent, Model, ThinkingContent, Usage, get_model, tool
from steersman.testing import answer, call, thinking
from steersman.testing.servers import OpenAIResponsesServer


@dataclass
class Verdict:
    """Which of two cities is warmer."""

    warmer: str
    by_degrees: int


@tool
def temperature(city: str) -> int:
    """The temperature in a city, in degrees Celsius."""
    return {"Oslo": 7, "Lisbon": 21}.get(city, 15)


SCRIPT = (
    answer(thinking("I need both."), call("temperature", city="Oslo"), call("temperature", city="Lisbon")),
    answer('{"warmer": "Lisbon", "by_degrees": 14}', usage=Usage(input=40, output=20, cache_read=1024)),
)


async def talk(model: Model) -> None:
    agent = Agent(model, tools=[temperature], output_type=Verdict, thinking_level="low")
    result = await agent.run("Which is warmer now, Oslo or Lisbon?")
    for message in result.messages:
        thoughts = [block.thinking for block in message.content if isinstance(block, ThinkingContent)]
        print(f"{message.role:>11}: {' '.join(filter(None, [*thoughts, message.text]))}")
    print(f"     output: {result.output}")
    print(f"{result.end_reason}; {result.usage.cache_read or 0} tokens came from the prompt cache")


async def main() -> None:
    if os.environ.get("OPENAI_API_KEY"):
        await talk(get_model("openai:gpt-5-mini"))
        return
    print("(no OPENAI_API_KEY: a strict server on this machine plays a script)")
    async with OpenAIResponsesServer(*SCRIPT) as server:
        await talk(server.model("gpt-5-mini"))


if __name__ == "__main__":
    asyncio.run(main())
