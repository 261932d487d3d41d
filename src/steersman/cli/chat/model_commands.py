"""The commands that change how the model answers, and what needs approval: `/model`, `/thinking`, `/mode`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

from steersman.cli.exits import UserError, suggest_nearest
from steersman.cli.setup.budget import add_usual_prices, explain_missing_budget, has_unknown_price
from steersman.cli.setup.model_choice import resolve_model
from steersman.cli.setup.startup import make_context_config
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.policy.approval import Mode
from steersman.session.records import CONFIGURED
from steersman.types.model import Model, ThinkingLevel

if TYPE_CHECKING:
    from steersman.cli.chat.commands import Chat


async def change_model(chat: Chat, name: str) -> None:
    """Shows the model, or changes it."""
    agent = chat.conversation.agent
    if not name:
        chat.say("notice", f"The model is {describe_model(agent.config.model)}. /model provider:model-id changes it.")
        return
    model = await resolve_model(name)
    limits = agent.config.execution_limits
    budget = None if limits is None else limits.max_cost
    if budget is not None:
        model = add_usual_prices(model)
    if budget is not None and has_unknown_price(model) and not has_unknown_price(agent.config.model):
        raise UserError(f"{explain_missing_budget(model)} The model stays {agent.config.model.name}.")
    await chat.prepare(model)
    words = chat.get_system_prompt(model)
    agent.configure(model=model, context_config=make_context_config(model), system_prompt=words)
    if agent.session is not None:
        # Kept with the session, so that a later `-c` goes on with this model.
        agent.session.recorder.add(CONFIGURED, {"model": model.name})
    when = "From the next turn on" if chat.conversation.running else "Now"
    chat.say("notice", f"{when} the model is {describe_model(model)}. The conversation continues with it.")


def describe_model(model: Model) -> str:
    """Describes a model: its name, context window and prices."""
    window = "window unknown" if model.context_window is None else f"window {model.context_window:,} tokens"
    prices = model.prices
    price = "price unknown" if prices is None else f"${prices.input:g} in, ${prices.output:g} out per million tokens"
    if model.provider == "local":
        price = "free, on this machine"
    return f"{sanitize_line(model.name)} ({window}; {price})"


def change_thinking(chat: Chat, level: str) -> None:
    """Shows how much the model thinks, or changes it."""
    agent = chat.conversation.agent
    levels = get_args(ThinkingLevel)
    if not level:
        chat.say("notice", f"Thinking is {agent.config.thinking_level}. Levels: {', '.join(levels)}.")
    elif level not in levels:
        chat.say(
            "error",
            f"Thinking is one of {', '.join(levels)}, got {sanitize_line(level)!r}.{suggest_nearest(level, levels)}",
        )
    else:
        agent.configure(thinking_level=cast(ThinkingLevel, level))
        chat.say("notice", f"From the next turn on thinking is {level}.")


def change_mode_by_name(chat: Chat, name: str) -> None:
    """Shows the mode, or changes it."""
    modes: tuple[str, ...] = get_args(Mode)
    if not name:
        approval = chat.conversation.agent.config.approval
        rules = ", ".join(() if approval is None else approval.allowed)
        allowed = f" Rules: {rules}." if rules else ""
        chat.say("notice", f"The mode is {chat.conversation.mode}. Modes: {', '.join(modes)}.{sanitize_line(allowed)}")
    elif name not in modes:
        chat.say(
            "error",
            f"The mode is one of {', '.join(modes)}, got {sanitize_line(name)!r}.{suggest_nearest(name, modes)}",
        )
    else:
        chat.change_mode(cast(Mode, name))


def list_modes() -> tuple[str, ...]:
    """Lists the permission modes."""
    return cast(tuple[str, ...], get_args(Mode))


def list_thinking_levels() -> tuple[str, ...]:
    """Lists the thinking levels."""
    return cast(tuple[str, ...], get_args(ThinkingLevel))
