"""Agents by name, for programs that make one for each session: an agent to copy, or a function that makes one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

from steersman.agent.agent import Agent

AgentFactory: TypeAlias = Callable[[], "Agent[Any] | Awaitable[Agent[Any]]"]
Agents: TypeAlias = "Agent[Any] | AgentFactory | Mapping[str, AgentFactory | Agent[Any]]"

DEFAULT_AGENT = "default"
"""The name of an agent that was given without one."""


def read_agents(agents: Agents) -> dict[str, Any]:
    """The agents by name; raises `TypeError` or `ValueError` for what is none."""
    found: dict[Any, Any] = {DEFAULT_AGENT: agents}
    if isinstance(agents, Mapping):
        found = dict(cast(Mapping[Any, Any], agents))
    if not found:
        raise ValueError("At least one agent is needed: {'name': make_agent}.")
    for name, made in found.items():
        if not isinstance(name, str) or not (isinstance(made, Agent) or callable(made)):
            raise TypeError(
                f"agents is an Agent, a function that makes one, or a dict of these by name, got {name!r}: {made!r}."
            )
    return found


async def make_named_agent(name: str, made: Any) -> Agent[Any]:
    """An agent for one session: a copy of the one that is given, or what the function returns."""
    agent: Any = cast(Agent[Any], made).variant() if isinstance(made, Agent) else made()
    if inspect.isawaitable(agent):
        agent = await agent
    if not isinstance(agent, Agent):
        raise TypeError(f"The factory of the agent {name!r} returned {agent!r}, which is no Agent.")
    agent = cast(Agent[Any], agent)
    if agent.config.approval is not None:
        # What one session is allowed from now on is not allowed in another one.
        agent.configure(approval=agent.config.approval.copy())
    return agent
