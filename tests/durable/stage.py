"""The agents that the tests supervise, and what their tools leave outside of the session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steersman import Agent, ToolContext, tool
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import Tool
from steersman.types.model import Request

TURNS = 4


class Ledger:
    """A file of what tools have begun, one line each; it outlives the process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: str) -> None:
        """Write a line at once."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def lines(self) -> list[str]:
        """What was written so far."""
        return self.path.read_text().splitlines() if self.path.exists() else []


def count_answers(request: Request) -> int:
    """How many answers the model has given: another process goes on with the same script."""
    return sum(message.role == "assistant" for message in request.messages)


def make_plan(turns: int) -> Callable[[Request], Any]:
    """A model that calls a tool that must not be repeated and one that may be, so many times, and then ends."""

    def react(request: Request) -> Any:
        number, name = count_answers(request), request.messages[0].text
        if number < turns:
            what = f"{name} {number}"
            return answer(f"Step {number}.", call("pay", what=what), call("look", what=what))
        return f"All {number} done."

    return react


def make_worker_agent(ledger: Ledger, turns: int = TURNS) -> Agent:
    """An agent whose every call is in the ledger, by the text of its prompt."""

    @tool
    async def pay(what: str) -> str:
        """Pay."""
        ledger.add(f"pay {what}")
        return f"paid {what}"

    @tool(idempotent=True)
    async def look(what: str) -> str:
        """Look."""
        ledger.add(f"look {what}")
        return f"seen {what}"

    model = ScriptedModel(make_plan(turns), repeat_last=True)
    return Agent(model.model, tools=[pay, look], limits=None, repeated_calls=None)


def make_agents(say: Callable[[str], None]) -> dict[str, Callable[[], Agent]]:
    """Agents that tell what they do: one holds in a tool until it is steered, and one needs approval for a tool."""

    @tool
    async def hold() -> str:
        """Hold."""
        say("holding")
        try:
            await asyncio.Event().wait()
        finally:
            say("let go")
        return ""

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        say("paid")
        return "paid"

    def make(called: Tool) -> Agent:
        def react(request: Request) -> Any:
            last = request.messages[-1]
            return answer(call(called.name)) if last.text == "Begin." else f"Read: {last.text}"

        model = ScriptedModel(react, repeat_last=True)
        return Agent(model.model, tools=[called], steering="cancel", cancel_grace=0.01)

    @tool
    async def keep(ctx: ToolContext) -> str:
        """Keep something."""
        ctx.state["count"] = count = ctx.state.get("count", 0) + 1
        version = ctx.artifacts.save("kept.txt", f"The number is {count}.")
        return f"version {version}: {ctx.artifacts.load('kept.txt').decode()}"

    def make_keeper() -> Agent:
        plan = [call("keep"), call("hold"), call("keep")]

        def react(request: Request) -> Any:
            number = count_answers(request)
            return answer(plan[number]) if number < len(plan) else request.messages[-1].text

        return Agent(ScriptedModel(react, repeat_last=True).model, tools=[keep, hold])

    return {"holder": lambda: make(hold), "payer": lambda: make(pay), "keeper": make_keeper}
