"""A shell for the model: in a sandbox, with live output, and nothing keeps running when it is done."""

from __future__ import annotations

import asyncio
import os
import tempfile

from steersman import Agent
from steersman.events import ToolExecutionEnd, ToolExecutionUpdate
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import bash_tool, confinement

SCRIPT = ScriptedModel(
    answer(call("bash", command="echo building; sleep 0.2; echo built")),
    answer(call("bash", command="env | grep SECRET || echo no secrets here")),
    answer(call("bash", command="sleep 600 & echo started a server")),
    answer(call("bash", command="seq 1 100000")),
    answer(call("bash", command="sleep 600", timeout=0.3)),
    "I have seen enough.",
)


def short(text: str) -> str:
    lines = text.splitlines()
    return text.strip() if len(lines) < 5 else f"{lines[0]} ... {lines[-1]}: {len(lines)} of its lines"


async def main() -> None:
    walls = confinement()
    print(f"sandbox: {walls.kind}")
    os.environ["MY_SECRET"] = "not for commands"
    with tempfile.TemporaryDirectory() as folder:
        # Where no sandbox works, commands are refused, unless you say that they may do whatever you can.
        bash = bash_tool(folder, sandbox="off" if walls.kind == "none" else "auto")
        agent = Agent(SCRIPT.model, tools=[bash])
        stream = agent.prompt("Try the shell.")
        async for event in stream:
            match event:
                case ToolExecutionUpdate(update={"type": "output", "text": text}):
                    print(f"  ... {short(text)}")
                case ToolExecutionEnd(result=result, args=args):
                    print(f"$ {args['command']}\n{short(result.text)}")
                case _:
                    pass
        print((await stream).text)


if __name__ == "__main__":
    asyncio.run(main())
