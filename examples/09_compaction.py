"""A conversation longer than the window: what the model sees shrinks, what was said stays."""

from __future__ import annotations

import asyncio

from steersman import Agent, ContextConfig, tool
from steersman.context import CompactionEntry
from steersman.events import CompactionEnded
from steersman.testing import ScriptedModel, answer, call


@tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "and so on, " * 200


async def main() -> None:
    script = ScriptedModel(*[answer(call("read", page=page)) for page in range(1, 13)], "I have read all of it.")
    agent = Agent(
        script.model,
        tools=[read],
        context_config=ContextConfig(max_context_tokens=4_000, keep_recent=2, old_output_chars=2_000),
    )
    stream = agent.prompt("Read all twelve pages.")
    async for event in stream:
        if isinstance(event, CompactionEnded):
            print(
                f"compacted: {event.tokens_before} -> {event.tokens_after} tokens, "
                f"{event.messages_before} -> {event.messages_after} messages shown"
            )
    print((await stream).text)

    log = agent.context.log
    print(f"said: {len(log.messages)} messages, shown: {len(log.visible)}, about {log.tokens} tokens")
    for message in log.visible[:3]:
        print(f"  the model sees {message.role}: {message.text[:60]}")
    for entry in [entry for entry in log.entries if isinstance(entry, CompactionEntry)][::-1]:
        log.undo(entry.id)  # compactions are entries of the log, and can be undone
    print(f"undone: {len(log.visible)} messages shown, about {log.tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())
