"""What is loaded with `Agent`, and what waits for the first prompt."""

from __future__ import annotations

import subprocess
import sys

_LIST = (
    "\nprint(*sorted(name for name in sys.modules if name.partition('.')[0] in ('asyncio', 'logging', 'steersman')))"
)


def list_modules(code: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{code}{_LIST}"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_an_agent_is_made_without_the_loop_and_without_asyncio() -> None:
    code = """
from steersman import Agent
def add(a: int, b: int = 0) -> int:
    "Add two numbers."
    return a + b
Agent("ollama:some-model", api_key="none", tools=[add])
"""
    made = list_modules(code)
    assert "steersman.agent.agent" in made
    assert {name for name in made if not name.startswith("steersman")} == set()
    late = ("steersman.loop.entry", "steersman.loop.run_loop", "steersman.provider.http", "steersman.events.stream")
    assert made.isdisjoint(late)


def test_a_queued_message_loads_the_loop() -> None:
    code = "from steersman import Agent; Agent('ollama:some-model', api_key='none').steer('Hello.')"
    assert "steersman.loop.run_loop" in list_modules(code)
