"""What a run's records say besides the conversation, so that it can be replayed: how its calls overlapped, its turns.

Only what cannot be told from the other records is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steersman.session.records import Payload
from steersman.types.events import AgentEnd, ToolExecutionEnd, ToolExecutionStart, TurnEnd, TurnStart
from steersman.types.model import ToolSpec


class Marks:
    """Hears the events of an agent's runs, and gives what the records of a call, a run and its end say more."""

    def __init__(self) -> None:
        self._intended: set[str] = set()
        self._open: dict[str, int] = {}
        self._crowded: set[str] = set()
        self._turns = 0
        self._trigger = ""
        self._before = ""
        self._spoken: tuple[str, tuple[ToolSpec, ...]] | None = None
        self._written: tuple[str, tuple[ToolSpec, ...]] | None = None

    def spoken(self, system_prompt: str, tools: Iterable[ToolSpec]) -> None:
        """How the model is spoken to in the run that is about to begin."""
        self._spoken = system_prompt, tuple(tools)

    def run_began(self) -> Payload:
        """How the model is spoken to, where that is not what was written last."""
        if self._spoken is None or self._spoken == self._written:
            return {}
        self._written = system_prompt, tools = self._spoken
        specs: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
        ]
        return {"system_prompt": system_prompt, "tools": specs}

    def run_ended(self, event: AgentEnd) -> Payload:
        """How many turns the run took, what made the first one happen, and why it was ending when it was aborted."""
        turns, trigger, before = self._turns, self._trigger, self._before
        self._turns, self._trigger, self._before = 0, "", ""
        self._intended.clear()
        self._open.clear()
        self._crowded.clear()
        if not turns:
            return {}
        more = {"turns": turns, "trigger": trigger}
        return {**more, "before": before} if before not in ("", event.end_reason) else more

    def turn_began(self, event: TurnStart) -> None:
        """One more turn; the first may only settle old calls, and then says nothing about why the run was started."""
        if self._trigger in ("", "continuation"):
            self._trigger = event.triggered_by
        self._turns = event.turn_index + 1

    def turn_ended(self, event: TurnEnd) -> None:
        """A turn without an answer says why the run ends."""
        self._before = "" if event.message is not None else event.reason

    def intended(self, call_id: str) -> None:
        """The arguments of this call are written already."""
        self._intended.add(call_id)

    def call_began(self, event: ToolExecutionStart) -> None:
        """A call is open; if another one is, their order has to be told."""
        self._open[event.tool_call_id] = event.seq
        if len(self._open) > 1:
            self._crowded.update(self._open)

    def call_ended(self, event: ToolExecutionEnd) -> Payload:
        """The numbers of a call's two events if others lay between them, and its arguments where nobody has them."""
        began = self._open.pop(event.tool_call_id, None)
        more: Payload = {}
        if event.tool_call_id in self._crowded and began is not None:
            self._crowded.discard(event.tool_call_id)
            more["span"] = [began, event.seq]
        if event.tool_call_id not in self._intended:
            more["arguments"] = event.args
        return more
