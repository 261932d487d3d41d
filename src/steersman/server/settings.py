"""What may be changed of a session's agent from outside. It is kept with the session."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from steersman.agent.agent import Agent
from steersman.policy.limits import ExecutionLimits


def change_settings(agent: Agent[Any], changes: Mapping[str, Any], models: Collection[str]) -> None:
    """Change the model (of those offered), the thinking level, limits and the approval mode: all of them, or none.

    Raises `ValueError` for what is not offered.
    """
    options = {name: changes[name] for name in ("model", "thinking_level") if name in changes}
    model = changes.get("model")
    if model is not None and model not in models and model != agent.model.name:
        raise ValueError(f"The model {model!r:.100} is not offered. Models here: {', '.join(models)}.")
    if "limits" in changes:
        known: Any = agent.config.execution_limits
        options["limits"] = dataclasses.replace(known if known is not None else ExecutionLimits(), **changes["limits"])
    approval: Any = agent.config.approval
    if "mode" in changes and approval is None:
        raise ValueError("This agent has no approval policy, so it has no mode.")
    agent.configure(**options)
    if "mode" in changes:
        approval.mode = changes["mode"]
