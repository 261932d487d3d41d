"""Collects the events of runs, and checks each run against the grammar of events and for a valid transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from steersman.testing.grammar import GrammarChecker, check_transcript
from steersman.types.events import AgentEnd, AgentEvent, MessageEnd, MessageUpdate
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
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


class Witness:
    """A subscriber that judges, and remembers what it finds: a raise inside a run would look like the run's failure."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.finished = 0
        self._open: dict[str, GrammarChecker] = {}
        self._dropped: set[str] = set()

    def __call__(self, event: AgentEvent) -> None:
        loop_id = event.loop_id
        if loop_id in self._dropped:
            return
        checker = self._open.get(loop_id)
        if checker is None:
            checker = self._open[loop_id] = GrammarChecker()
        try:
            checker.feed(event)
            if isinstance(event, AgentEnd):
                check_transcript(_prepend_open_calls(checker.settled, event.messages))
        except AssertionError as fault:
            self.faults.append(str(fault))
            self._dropped.add(loop_id)
            del self._open[loop_id]
        else:
            self.finished += checker.finished

    def check(self) -> None:
        """Fail with everything that was wrong, runs that did not end among it."""
        faults = list(self.faults)
        for checker in self._open.values():
            try:
                checker.finish()
            except AssertionError as fault:
                faults.append(str(fault))
        if faults:
            raise AssertionError("\n".join(faults))


def _prepend_open_calls(settled: AssistantMessage | None, messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
    """The messages of a run, after the answer of an earlier program whose open calls it settled."""
    if settled is None:
        return messages
    results = {message.tool_call_id for message in messages if isinstance(message, ToolResultMessage)}
    return [replace(settled, content=[call for call in settled.tool_calls if call.id in results]), *messages]


class Subscribable(Protocol):
    """Something with events to hear, such as an `Agent`."""

    def subscribe(self, callback: Callable[[AgentEvent], object], /) -> object:
        """Call back with every event."""
        ...


def watch(agent: Subscribable) -> Witness:
    """Hold every run of the agent from now on to the grammar; `check()` the result when done."""
    witness = Witness()
    agent.subscribe(witness)
    return witness
