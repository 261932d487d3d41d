"""`Agent`, what most programs use: it owns a conversation, and the loop does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.agent.agent import Agent

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "agent": "Agent",
    },
)

__all__ = [
    "Agent",
]
