"""What a tool may know about the call it answers, and the way it shows progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.types.cancel import CancelToken
from steersman.types.tools import ToolOutput


def ignore(_: Any) -> None:
    """Nobody watches."""


class ToolContext:
    """One call: its ids, whether it should stop, and a way to show something before it is done.

    `scope` belongs to whoever runs the tool. `on_late` is told the outcome of a `def` tool that was abandoned.
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
        """Whether the tool should stop; a `def` tool that runs long does well to look now and then."""
        return self.token.cancelled

    def update(self, value: Any) -> None:
        """Show something to whoever watches the run: partial output, a number, any JSON value. Safe from any thread."""
        self.on_update(value)

    def progress(self, text: str) -> None:
        """Show a line of progress."""
        self.on_update({"type": "progress", "text": text})

    def __repr__(self) -> str:
        return f"ToolContext({self.tool_call_id!r}, {self.tool_name!r})"
