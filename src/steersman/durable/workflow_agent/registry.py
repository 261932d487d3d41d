"""The agents of this process by name, where workflows find them: their code gets only names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.workflow import ActivityConfig

from steersman.agent.agent import Agent
from steersman.types.guards import is_instance


@dataclass(frozen=True, slots=True)
class Registered:
    """An agent, and the options of its activities: of those that ask the model, run tools and record the end."""

    agent: Agent[Any]
    model: ActivityConfig = field(default_factory=ActivityConfig)
    tools: Mapping[str, ActivityConfig] = field(default_factory=dict[str, ActivityConfig])
    session: ActivityConfig = field(default_factory=ActivityConfig)


_registered: dict[str, Registered] = {}


def register(agents: Mapping[str, Registered]) -> None:
    """Add agents, or replace those of the same names."""
    for name, found in agents.items():
        if not is_instance(name, str) or not is_instance(found.agent, Agent):
            raise TypeError(f"agents is a dict of names and Agent(...), got {name!r}: {found.agent!r}.")
        known = {"*", *found.agent.tool_table.read(found.agent.context.tools)}
        if unknown := sorted(set(found.tools) - known):
            raise ValueError(f"The agent {name!r} has no tool {unknown[0]!r}. Its tools: {', '.join(sorted(known))}.")
    _registered.update(agents)


def find_registered(name: str) -> Registered:
    """The agent with this name; raises `LookupError`."""
    found = _registered.get(name)
    if found is None:
        known = ", ".join(map(repr, sorted(_registered))) or "none"
        raise LookupError(f"This worker has no agent {name!r}, but {known}. Give it to AgentPlugin({{name: agent}}).")
    return found
