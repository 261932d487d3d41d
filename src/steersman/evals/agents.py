"""The agents of an evaluation: each by its name, and how to make one for a case."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from steersman.agent.agent import Agent
from steersman.agent.named import DEFAULT_AGENT, make_named_agent

MadeAgent: TypeAlias = "Agent[Any] | Awaitable[Agent[Any]] | AbstractAsyncContextManager[Agent[Any]]"
AgentMaker: TypeAlias = "Callable[[Path], MadeAgent] | Callable[[], MadeAgent]"
AgentSource: TypeAlias = "Agent[Any] | AgentMaker"
AgentSources: TypeAlias = "AgentSource | Mapping[str, AgentSource]"


@dataclass(frozen=True, slots=True)
class EvaluatedAgent:
    """An agent under its name. `digest` is a hash of what is known of it, so that a changed agent runs again."""

    name: str
    source: Any
    takes_folder: bool
    model: str
    digest: str

    @asynccontextmanager
    async def open(self, folder: Path | None) -> AsyncGenerator[Agent[Any]]:
        """An agent with an empty conversation, for the folder of a case."""
        source: Any = self.source
        made: Any
        if isinstance(source, Agent):
            made = cast(Agent[Any], source).variant()
        else:
            made = source(folder) if self.takes_folder else source()
        if isinstance(made, AbstractAsyncContextManager):
            async with cast(AbstractAsyncContextManager[Any], made) as agent:
                yield await make_named_agent(self.name, lambda: agent)
            return
        agent = await make_named_agent(self.name, lambda: made)
        try:
            yield agent
        finally:
            agent.close()


def read_agent_sources(agents: AgentSources) -> list[EvaluatedAgent]:
    """The agents in their order; raises `TypeError` or `ValueError` for what is none."""
    given: dict[Any, Any] = dict(cast(Mapping[Any, Any], agents)) if isinstance(agents, Mapping) else {None: agents}
    if not given:
        raise ValueError("At least one agent is needed: evaluate({'name': agent}, ...).")
    return [_read_source(name, source) for name, source in given.items()]


def _read_source(name: Any, source: Any) -> EvaluatedAgent:
    if isinstance(source, Agent):
        agent = cast(Agent[Any], source)
        label = agent.model.name
        return EvaluatedAgent(_check_name(name, label), agent, takes_folder=False, model=label, digest=_hash(agent))
    if not callable(source):
        raise TypeError(
            f"An agent is an Agent, or a function of the folder of a case that makes one, got {source!r:.100}."
        )
    try:
        takes = len(inspect.signature(source).parameters) > 0
    except ValueError:  # a function of C without a signature
        takes = True
    label = str(getattr(source, "model", ""))
    return EvaluatedAgent(_check_name(name, label or DEFAULT_AGENT), source, takes_folder=takes, model=label, digest="")


def _check_name(name: Any, usual: str) -> str:
    if name is None:
        return usual
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 100:
        raise TypeError(f"The name of an agent is a line of at most 100 printable characters, got {name!r:.150}.")
    return name


def _hash(agent: Agent[Any]) -> str:
    """A hash of the model, the system prompt, the tools and the settings of an agent."""
    config = agent.config
    tools = agent.tool_table.read(agent.context.tools).values()
    known = [
        agent.model.name,
        agent.system_prompt,
        [[tool.name, tool.description, tool.parameters] for tool in tools],
        [config.thinking_level, config.max_tokens, config.temperature, config.output_schema],
    ]
    return hashlib.sha256(msgspec.json.encode(known, enc_hook=repr, order="sorted")).hexdigest()
