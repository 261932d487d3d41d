"""Say hello to an agent with one tool. It runs on the scripted model: no key, no network.

python examples/01_hello.py "What is 20 + 22?"
"""

from __future__ import annotations

import re
import sys

from steersman import Agent, Request, ToolResultMessage, tool
from steersman.testing import ScriptedModel, Turn, answer, call


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def play(request: Request) -> Turn:
    """What a model would do, as a script: two numbers are added, anything else is repeated."""
    last = request.messages[-1]
    if isinstance(last, ToolResultMessage):
        return answer(f"The sum is {last.text}.")
    numbers = re.findall(r"-?\d+", last.text)
    if len(numbers) == 2:
        return answer("Let me add these.", call("add", a=int(numbers[0]), b=int(numbers[1])))
    return answer(f"I am a script and can only add two numbers. You said: {last.text}")


def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "What is 2 + 3?"
    model = ScriptedModel(play, repeat_last=True).model  # a real one: Agent("provider:model-id", ...)
    agent = Agent(model, tools=[add], system_prompt="Be brief.")
    result = agent.run_sync(prompt)
    print("(scripted model)")
    for message in result.messages:
        print(f"{message.role:>11}: {message.text}")
    print(f"        end: {result.end_reason}")


if __name__ == "__main__":
    main()
