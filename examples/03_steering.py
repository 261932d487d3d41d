"""Steer an agent while it works: calls that have not started are skipped, and the model reads your message next."""

from __future__ import annotations

import asyncio

from steersman import Agent, tool
from steersman.events import MessageEnd, ToolExecutionStart
from steersman.testing import ScriptedModel, answer, call

said = asyncio.Event()


@tool
async def cook(dish: str) -> str:
    """Cook a dish."""
    await said.wait()  # a dish takes long enough to change your mind
    return f"{dish} is ready"


async def main() -> None:
    script = ScriptedModel(
        answer("Three courses.", call("cook", dish="soup"), call("cook", dish="roast"), call("cook", dish="cake")),
        answer("Only the soup, then. It is ready."),
    )
    agent = Agent(script.model, tools=[cook], tool_execution="sequential")
    stream = agent.prompt("Cook a dinner of three courses.")
    receipt = None
    async for event in stream:
        if isinstance(event, ToolExecutionStart) and receipt is None:
            receipt = agent.steer("Just the soup, please.")  # mode="cancel" would also stop the soup
            print(f"--- steered while {event.args['dish']!r} is on the stove: {receipt.status}")
            said.set()
        elif isinstance(event, MessageEnd):
            message = event.message
            status = f" [{message.details['status']}]" if message.role == "tool_result" else ""
            print(f"{message.role:>11}: {message.text}{status}")
    assert receipt is not None
    print(f"--- {receipt.status}; the model was asked {script.asked} times; {(await stream).end_reason}")


if __name__ == "__main__":
    asyncio.run(main())
