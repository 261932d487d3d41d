"""An answer as a value of your own type: checked, and requested again with the error if it does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steersman import Agent
from steersman.testing import ScriptedModel


@dataclass
class Ticket:
    """A report from a customer."""

    title: str
    priority: Literal["low", "high"]
    hours: int


script = ScriptedModel(
    'Sure! {"title": "Login fails", "priority": "urgent"}',
    '{"title": "Login fails", "priority": "urgent", "hours": 2}',
    '{"title": "Login fails", "priority": "high", "hours": 2}',
)
agent = Agent(script.model, output_type=Ticket, system_prompt="Turn reports into tickets.")
result = agent.run_sync("No one can log in! Fix it within two hours.")

for message in result.messages:
    print(f"{message.role:>9}{'*' if message.synthetic else ' '} {message.text}")
print("          (* said by the loop)")
print(repr(result.output))
assert isinstance(result.output, Ticket)
print(f"{result.output.title!r} has {result.output.hours} hours; asked {script.asked} times; {result.end_reason}")
