"""`Supervisor`: an agent whose model gives work to other agents, and answers with what they found."""

from __future__ import annotations

from typing import Any, Unpack

from steersman.agent.agent import Agent
from steersman.agent.options import AgentOptions, remove_output_policy
from steersman.team.pattern import Parts, read_parts
from steersman.types.guards import is_instance

_BRIEFING = (
    "You lead a team. Give work to its members by calling them as tools: each call starts with nothing but your "
    "prompt, so put everything in it that is needed. Several calls at once run side by side. Check what comes back, "
    "ask again where it is not good enough, and answer yourself at the end."
)


class Supervisor(Agent[Any]):
    """A copy of an agent that has other agents as tools, and is told to lead them.

    `workers` are agents by name, or in a list; `Part(agent, description)` says what one is good for. `options` change
    options of `Agent`. The given agent stays as it is.
    """

    __slots__ = ()

    def __init__(self, agent: Agent[Any], workers: Parts, **options: Unpack[AgentOptions]) -> None:
        if not is_instance(agent, Agent):
            raise TypeError(f"A supervisor is made of an Agent, got {agent!r}.")
        named = read_parts(workers, "supervisor")
        tools = [
            part.agent.as_tool(name, part.description or f"A member of your team: {name}.")
            for name, part in named.items()
        ]
        prompt = f"{agent.system_prompt}\n\n{_BRIEFING}".strip()
        copied = agent.variant(tools=[*agent.tools, *tools], system_prompt=prompt)
        output = copied._output  # the same class: a supervisor is an agent
        config = copied.config if output is None else remove_output_policy(copied.config)
        self._assemble(config, output, copied.context, copied.inbox)
        if options:
            self._change(options, "Supervisor()")
