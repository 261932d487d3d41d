"""What fills the context window of the model, by kind, as bars."""

from __future__ import annotations

from steersman.agent.agent import Agent
from steersman.context.tokens import estimate_tokens
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, user_message

_BAR, _SHORTEST_BAR = 20, 5


def get_window(agent: Agent) -> int | None:
    """The context window of the model; the size that is assumed for it where its own is unknown."""
    config = agent.config.context_config
    return agent.config.model.context_window or (None if config is None else config.max_context_tokens)


def estimate_window_use(agent: Agent) -> int:
    """Estimates how many tokens the next request has."""
    return sum(_measure(agent).values())


def render_window_use(agent: Agent, counted: int | None, width: int) -> list[str]:
    """Renders a bar for each kind of content, in lines that fit into a width; bars are shorter where it is narrow.

    `counted` is what the provider counted for the last answer.
    """
    kinds = _measure(agent)
    used, window = sum(kinds.values()), get_window(agent)
    whole = max(1, used if window is None else max(window, used))
    rows = [*kinds.items(), *([] if window is None else [("free", max(0, window - used))])]
    wide, numbers = max(len(name) for name, _ in rows), max(len(f"{tokens:,}") for _, tokens in rows)
    bar = max(_SHORTEST_BAR, min(_BAR, width - wide - numbers - 4))
    lines = [f"{name:<{wide}}  {_render_bar(tokens / whole, bar)}  {tokens:>{numbers},}" for name, tokens in rows]
    assumed = "" if agent.config.model.context_window else "; assumed, the window is unknown"
    size = "of an unknown window" if window is None else f"of {window:,} ({used * 100 // window}%{assumed})"
    told = "" if counted is None else f" The provider counted {counted:,} for the last answer."
    return [*lines, f"About {used:,} tokens {size}, estimated.{told}"]


def _measure(agent: Agent) -> dict[str, int]:
    tools = agent.tool_table.read(agent.context.tools).values()
    schemas = [f"{tool.name} {tool.description} {dict(tool.parameters)!r}" for tool in tools]
    kinds = {
        "system prompt": _estimate(agent.context.system_prompt),
        "tools": sum(map(_estimate, schemas)),
        "your messages": 0,
        "answers": 0,
        "tool results": 0,
    }
    for message in agent.context.log.visible:
        kinds[_name_kind(message)] += estimate_tokens(message)
    return kinds


def _estimate(text: str) -> int:
    return estimate_tokens(user_message(text)) if text else 0


def _name_kind(message: AgentMessage) -> str:
    if isinstance(message, AssistantMessage):
        return "answers"
    return "tool results" if isinstance(message, ToolResultMessage) else "your messages"


def _render_bar(share: float, length: int) -> str:
    full = min(length, round(share * length)) if share < 0.5 / length or share > 1 / length else 1
    return f"{'█' * full}{'░' * (length - full)}"
