"""What may be changed of a session's agent from outside. It is kept with the session."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from steersman.policy.limits import ExecutionLimits
from steersman.types.errors import SteersmanError

if TYPE_CHECKING:
    from steersman.agent.settings import AgentSettings

_log = logging.getLogger("steersman")


def change_settings(agent: AgentSettings, changes: Mapping[str, Any], models: Collection[str] | None = None) -> None:
    """Change the model (of those offered, if they are given), the thinking level, limits and the approval mode.

    All of them are changed, or none: raises `ValueError` for what is not offered, and as `configure` does.
    """
    options = {name: changes[name] for name in ("model", "thinking_level") if name in changes}
    model = changes.get("model")
    if model is not None and models is not None and model != agent.model.name:
        check_offered(model, models)
    if "limits" in changes:
        known: Any = agent.config.execution_limits
        options["limits"] = dataclasses.replace(known if known is not None else ExecutionLimits(), **changes["limits"])
    approval: Any = agent.config.approval
    if "mode" in changes and approval is None:
        raise ValueError("This agent has no approval policy, so it has no mode.")
    agent.configure(**options)
    if "mode" in changes:
        approval.mode = changes["mode"]


def check_offered(model: str, models: Collection[str]) -> None:
    """Raise `ValueError` unless the model is one of those that may be chosen."""
    if model not in models:
        choice = f"Models here: {', '.join(models)}" if models else "No other model may be chosen here"
        raise ValueError(f"The model {model!r:.100} is not offered. {choice}.")


def restore_settings(
    agent: AgentSettings, settings: Mapping[str, Any], session_id: str, models: Collection[str] | None = None
) -> None:
    """Change what was changed for the session before; what is not possible any more is logged."""
    try:
        change_settings(agent, settings, models)
    except (TypeError, ValueError, SteersmanError) as error:
        _log.warning("The session %r goes on without what was configured before: %s", session_id, error)
