"""Watch a run while it happens: iterate over it, then await the same stream for its result."""

from __future__ import annotations

import asyncio

from steersman import Agent, ToolContext, tool
from steersman.events import MessageUpdate, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, TurnStart
from steersman.testing import ScriptedModel, answer, call
from steersman.types import TextDelta


@tool
async def count_words(text: str, ctx: ToolContext) -> int:
    """Count the words of a text.

    Args:
        text: The text to look at.
    """
    words = text.split()
    ctx.progress(f"{len(words)} pieces found")
    return len(words)


async def main() -> None:
    script = ScriptedModel(
        answer("I will count. ", call("count_words", text="the quick brown fox")),
        answer("There are four words in it.", deltas=6),
    )
    agent = Agent(script.model, tools=[count_words])
    stream = agent.prompt("How many words are in 'the quick brown fox'?")
    async for event in stream:
        match event:
            case TurnStart(turn_index=index):
                print(f"\n[turn {index}] ", end="")
            case MessageUpdate(delta=TextDelta(delta=piece)):
                print(f"{piece}|", end="", flush=True)
            case ToolExecutionStart(tool_name=name, args=args):
                print(f"\n  {name}({args['text']!r})")
            case ToolExecutionUpdate(update=update):
                print(f"  ... {update['text']}")
            case ToolExecutionEnd(result=output):
                print(f"  = {output.text}")
            case _:
                pass  # agent_start, message_start, ... : docs/events.md has the list
    result = await stream
    print(
        f"\n[{result.end_reason}] {len(result.messages)} new messages: {[message.role for message in result.messages]}"
    )


if __name__ == "__main__":
    asyncio.run(main())
