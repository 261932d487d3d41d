"""`ToolContext`: what a tool knows about its call, and how it reports progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.types.cancel import CancelToken
from steersman.types.tools import ToolOutput


def ignore(_: Any) -> None:
    """Drop an update that has no reader."""


class ToolContext:
    """One tool call: its ids, whether it is cancelled, and a way to report progress.

    `scope` belongs to the caller that runs the tool. `on_late` gets the outcome of an abandoned `def` tool.
    """

    __slots__ = ("idempotency_key", "on_late", "on_update", "scope", "token", "tool_call_id", "tool_name")

    def __init__(
        self,
        tool_call_id: str,
        tool_name: str,
        token: CancelToken,
        *,
        idempotency_key: str = "",
        on_update: Callable[[Any], None] = ignore,
        on_late: Callable[[ToolOutput | BaseException], None] | None = None,
        scope: Any = None,
    ) -> None:
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.token = token
        self.idempotency_key = idempotency_key
        self.on_update = on_update
        self.on_late = on_late
        self.scope = scope

    @property
    def cancelled(self) -> bool:
        """Whether the tool should stop; a long-running `def` tool should check this regularly."""
        return self.token.cancelled

    def update(self, value: Any) -> None:
        """Report partial output, a number or any JSON value to the subscribers of the run. Safe from any thread."""
        self.on_update(value)

    def progress(self, text: str) -> None:
        """Report a line of progress."""
        self.on_update({"type": "progress", "text": text})

    def __repr__(self) -> str:
        return f"ToolContext({self.tool_call_id!r}, {self.tool_name!r})"
