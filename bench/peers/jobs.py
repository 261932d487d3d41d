"""The job of every peer: the prompt, two tools, and what must come out. The name of the model is the script.

`bench-t50-d1-k1` means 50 turns with tools, 1 text delta in each answer, 1 tool call in each turn, then a final text.
`a9`: the call is `note(text)`, and its argument comes in 9 fragments. `p2`: 2 ms between events. `c1`: the server
checks every request. `s30`: each tool sleeps for 30 ms.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

PROMPT = "Run the benchmark."
SYSTEM = "You are a benchmark agent. Use the tools."


class State:
    """What the tools have seen since the last `reset`."""

    calls = 0
    running = 0
    most_running = 0
    delay = 0.0
    # The CPU clock at each tool call, if asked for.
    marks: list[float] | None = None


def reset(delay: float = 0.0) -> None:
    """Forget what the tools have seen."""
    State.calls = State.running = State.most_running = 0
    State.delay = delay
    if State.marks is not None:
        State.marks = []


def _enter() -> None:
    State.calls += 1
    State.running += 1
    State.most_running = max(State.most_running, State.running)
    if State.marks is not None:
        State.marks.append(time.process_time())


async def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: The first integer.
        b: The second integer.
    """
    _enter()
    if State.delay:
        await asyncio.sleep(State.delay)
    State.running -= 1
    return a + b


async def note(text: str) -> int:
    """Take a note.

    Args:
        text: The text of the note.
    """
    _enter()
    State.running -= 1
    return len(text)


def _describe(kind: str, **properties: str) -> dict[str, Any]:
    fields = {name: {"type": kind, "description": text} for name, text in properties.items()}
    return {"type": "object", "properties": fields, "required": list(properties)}


SCHEMAS = [
    ("add", "Add two integers.", _describe("integer", a="The first integer.", b="The second integer.")),
    ("note", "Take a note.", _describe("string", text="The text of the note.")),
]


def parse_script(model: str) -> dict[str, int]:
    """The numbers in the name of a model."""
    script = dict.fromkeys("tdkapcs", 0)
    script.update((letter, int(number)) for letter, number in re.findall(r"-([a-z])(\d+)", model))
    return script


def split_text(first: str, count: int) -> list[str]:
    """A text in so many pieces of five characters."""
    return [first, *(f"{number % 10000:04d} " for number in range(1, count))][:count]


def build_final_text(script: dict[str, int]) -> str:
    """The last answer."""
    return "".join(split_text("FINAL", script["d"]))


def build_whole_text(script: dict[str, int]) -> str:
    """All text deltas of a run, joined."""
    return "".join(split_text("think", script["d"])) * script["t"] + build_final_text(script)
