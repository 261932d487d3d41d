"""The agents of the cluster on this machine: `steersman worker --agent bench.cluster_agents:make_stepper`.

None of them needs a key: their models are scripts that go on from whatever the conversation says, in any process.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from time import perf_counter
from typing import Any

from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call
from steersman.types.events import AgentEvent
from steersman.types.model import Request

STEPS = 12
LEDGER = "CLUSTER_LEDGER"
"""The variable that names the file in which `step` notes what it began: the session, the step, and its process."""


def count_answers(request: Request) -> int:
    """How many answers the model has given."""
    return sum(message.role == "assistant" for message in request.messages)


def make_stepper() -> Agent:
    """An agent that takes twelve steps of half a second, none of which may be taken twice."""

    @tool
    async def step(job: str, number: int) -> str:
        """Take a step."""
        note_begin(f"{job} {number} {os.getpid()}")
        await asyncio.sleep(0.5)
        return f"Step {number} done by process {os.getpid()}."

    def react(request: Request) -> Any:
        # A second prompt takes all steps once more.
        number = count_answers(request) % (STEPS + 1) + 1
        if number > STEPS:
            return f"All {STEPS} steps are done."
        job = request.messages[0].text.split()[-1]
        return answer(f"Now step {number}.", call("step", job=job, number=number))

    model = ScriptedModel(react, repeat_last=True)
    return Agent(model.model, tools=[step], limits=None, repeated_calls=None)


def note_begin(line: str) -> None:
    """Add a line to the ledger at once; it outlives this process."""
    if LEDGER in os.environ:
        descriptor = os.open(Path(os.environ[LEDGER]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)


def make_noter() -> Agent:
    """An agent that calls a tool that takes no time, as many turns long as the last word of its prompt says."""

    @tool
    async def note(number: int) -> str:
        """Note a number."""
        return f"noted {number}"

    def react(request: Request) -> Any:
        number, turns = count_answers(request), int(request.messages[0].text.split()[-1])
        return answer(f"Now {number}.", call("note", number=number)) if number < turns else "Done."

    model = ScriptedModel(react, repeat_last=True)
    return Agent(model.model, tools=[note], limits=None, repeated_calls=None)


def make_listener() -> Agent:
    """An agent that is in a tool until it is steered, and prints when it has heard a message."""

    @tool
    async def hold() -> str:
        """Hold until a message comes."""
        await asyncio.Event().wait()
        return ""

    agent = Agent(
        ScriptedModel(answer(call("hold")), repeat_last=True).model,
        tools=[hold],
        steering="cancel",
        cancel_grace=0.001,
        limits=None,
        repeated_calls=None,
    )
    agent.subscribe(_tell)
    return agent


def _tell(event: AgentEvent) -> None:
    if event.type == "message_end" and event.message.role == "user":
        # The clock of the machine, the same for all processes.
        print(f"heard {perf_counter()} {event.message.text}", flush=True)
