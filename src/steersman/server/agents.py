"""The agents of a server, by name, and how one is made for a session."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeAlias, cast

from steersman.agent.agent import Agent
from steersman.server.outline import Outline
from steersman.server.settings import change_settings

AgentFactory: TypeAlias = Callable[[], "Agent[Any] | Awaitable[Agent[Any]]"]
Agents: TypeAlias = "Agent[Any] | AgentFactory | Mapping[str, AgentFactory | Agent[Any]]"
DEFAULT_AGENT: Final = "default"
"""The name of an agent that was given without one."""

_log = logging.getLogger("steersman.server")


def read_agents(agents: Agents) -> dict[str, Any]:
    """The agents by name; raises for what is no agent and makes none."""
    found: dict[Any, Any] = {DEFAULT_AGENT: agents}
    if isinstance(agents, Mapping):
        found = dict(cast(Mapping[Any, Any], agents))
    if not found:
        raise ValueError("A server needs at least one agent: Server({'name': make_agent}).")
    for name, made in found.items():
        if not isinstance(name, str) or not (isinstance(made, Agent) or callable(made)):
            raise TypeError(
                f"agents is an Agent, a function that makes one, or a dict of these by name, got {name!r}: {made!r}."
            )
    return found


async def make_agent(
    agents: Mapping[str, Any], outline: Outline, models: Collection[str], session_id: str
) -> Agent[Any]:
    """An agent for a session; a session of an agent that is no longer here goes on with the first one."""
    name = outline.agent
    made = agents.get(name) or next(iter(agents.values()))
    agent: Any = cast(Agent[Any], made).variant() if isinstance(made, Agent) else made()
    if inspect.isawaitable(agent):
        agent = await agent
    if not isinstance(agent, Agent):
        raise TypeError(f"The factory of the agent {name!r} returned {agent!r}, which is no Agent.")
    agent = cast(Agent[Any], agent)
    if agent.config.approval is not None:
        # What one session is allowed from now on is not allowed in another one.
        agent.configure(approval=agent.config.approval.copy())
    try:
        change_settings(agent, outline.settings, models)
    except ValueError as error:
        _log.warning("The session %r goes on without what was configured before: %s", session_id, error)
    return agent
