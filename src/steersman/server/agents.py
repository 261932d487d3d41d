"""How a server makes an agent for a session."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from steersman.agent.agent import Agent
from steersman.agent.named import make_named_agent
from steersman.agent.outside import restore_settings
from steersman.server.outline import Outline


async def make_agent(
    agents: Mapping[str, Any], outline: Outline, models: Collection[str], session_id: str
) -> Agent[Any]:
    """An agent for a session; a session of an agent that is no longer here goes on with the first one."""
    name = outline.agent
    made = agents.get(name) or next(iter(agents.values()))
    agent = await make_named_agent(name, made)
    restore_settings(agent, outline.settings, session_id, models)
    return agent
