"""An agent that does what the last prompt says, for fronts whose clients drive it from another process."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from steersman import Agent, Approval, ToolOutput, tool
from steersman.testing import ScriptedModel, answer, call, error, thinking
from steersman.tools.builtin import builtin_tools
from steersman.types.messages import ToolResultMessage, UserMessage
from steersman.types.usage import Usage


@tool(needs_approval=True)
def deploy(target: str) -> str:
    """Deploy."""
    return f"deployed to {target}"


def _react(request: Any, gate: asyncio.Event) -> Any:
    last = request.messages[-1]
    if isinstance(last, ToolResultMessage):
        return answer("Not done." if last.is_error else "Done.")
    assert isinstance(last, UserMessage)
    words = last.text.strip()
    if words == "open":
        gate.set()
    count = sum(isinstance(message, UserMessage) for message in request.messages)
    return _TURNS.get(words) or answer(f"You said {words!r}; that is prompt {count}.")


_TURNS: dict[str, Any] = {
    "think": answer(thinking("Hmm."), "Thought."),
    "tell": answer("Thought.", call("wait")),
    "open": answer("Opened."),
    "deploy": answer("Let me see. ", call("deploy", target="live")),
    "delegate": answer(call("helper", prompt="deploy")),
    "write": answer(call("write", path="new.txt", content="one\ntwo\n")),
    "edit": answer(call("edit", path="old.txt", edits=[{"old": "b", "new": "B"}])),
    "fail": error("invalid_request", "Half an ans", after=1),
    "slow": answer("One two three four five. " * 40, deltas=400, pace=0.02),
    "long": answer("Cut off", stop_reason="length"),
    "refuse": answer("I will not.", stop_reason="refusal"),
}


def make_agent(folder: Path, gate: asyncio.Event | None = None) -> Agent:
    """The agent of a folder. `helper` is its sub-agent, which asks as well.

    A run of the prompt "tell" ends when the gate is open; the prompt "open" opens it.
    """
    opened = gate or asyncio.Event()

    @tool
    async def wait() -> ToolOutput:
        """Wait for the gate, then end the run: a client can see all progress before the answer comes."""
        await opened.wait()
        return ToolOutput("waited", terminate=True)

    usage = Usage(input=100, output=10, total=110)
    reaction = partial(_react, gate=opened)
    model = ScriptedModel(reaction, repeat_last=True, usage=usage, context_window=100_000).model
    helper = Agent(model, tools=[deploy]).as_tool("helper", "Help.")
    tools = [deploy, helper, wait, *builtin_tools(folder)]
    return Agent(
        model,
        tools=tools,
        system_prompt=f"Work in {folder}.",
        approval=Approval("ask", allow=["wait"], workspace=folder),
    )
