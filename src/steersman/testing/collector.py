"""A subscriber that keeps what it hears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from steersman.types.events import AgentEvent, MessageEnd, MessageUpdate
from steersman.types.messages import AgentMessage
from steersman.types.stream import Reset, TextDelta

E = TypeVar("E", bound=msgspec.Struct)


class EventCollector:
    """Called with each event, keeps them all: `agent.subscribe(collector)`."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []

    def __call__(self, event: AgentEvent) -> None:
        self.events.append(event)

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[AgentEvent]:
        return iter(self.events)

    @property
    def types(self) -> list[str]:
        """The types of the events, in order."""
        return [event.type for event in self.events]

    @property
    def shape(self) -> list[str]:
        """The types of the events, in order, without the updates of answers."""
        return [event.type for event in self.events if type(event) is not MessageUpdate]

    @property
    def messages(self) -> list[AgentMessage]:
        """The messages that were completed, in order."""
        return [event.message for event in self.events if isinstance(event, MessageEnd)]

    @property
    def text(self) -> str:
        """The text a live reader has in front of it: every text delta, minus what a reset took back."""
        kept: list[str] = []
        current: list[str] = []
        for event in self.events:
            if isinstance(event, MessageEnd):
                kept.extend(current)
                current = []
            elif isinstance(event, MessageUpdate):
                if isinstance(event.delta, TextDelta):
                    current.append(event.delta.delta)
                elif isinstance(event.delta, Reset):
                    current = []
        return "".join(kept + current)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one type."""
        return [event for event in self.events if isinstance(event, kind)]
