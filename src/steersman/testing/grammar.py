"""Checks whether a run may emit a sequence of events.

    run        := agent_end(vetoed)                                   # before_loop said no
                | agent_start body agent_end
    body       := input_rejected | settling? turn*                    # no turn only if the run ended before its first
    settling   := turn_start (tools | result)+ limit_notice? turn_end # the open calls of an answer before this run
    turn       := turn_start heard* (limit_notice | work limit_notice?) wrap_up? turn_end
    heard      := message_start(m) message_end(m) | compaction        # prompts, steering, follow-ups, injections
    work       := (turn_request? answer tools?)?                      # turn_request only for those who ask for it
    wrap_up    := turn_request? answer tools?                         # only after a limit notice
    compaction := compaction_started compaction_ended
    answer     := message_start (update | retry_scheduled | model_fallback | compaction)* message_end(assistant)
    update     := message_update | turn_request                       # another request if the first did not fit
    tools      := shuffle(span_1 .. span_n) result_1 .. result_n (loop_detected | prun_applied)*
    span       := question? tool_execution_start (tool_execution_update | question)* tool_execution_end
    question   := approval_requested approval_resolved                # before the start, or of a sub-agent after it

`input_rejected` of steering and follow-ups may stand between turns and among what is heard; `custom` and unknown events
anywhere between `agent_start` and `agent_end`. `Witness` collects the events of runs and checks each of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Never, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from steersman.provider.scripted.strict import find_request_fault, find_transcript_fault
from steersman.testing.call_grammar import UnexpectedEvent
from steersman.testing.turn_grammar import RULES as TURN_RULES
from steersman.testing.turn_grammar import TurnGrammar
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    CustomEvent,
    InputRejected,
    MessageEnd,
    MessageUpdate,
    TurnEnd,
    TurnStart,
    UnknownEvent,
)
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.model import Model, Request
from steersman.types.stream import Reset, TextDelta

_ENDS_WITHOUT_TURN = frozenset(("vetoed", "rejected", "aborted", "error", "stopped"))
_RECENT = 12


class GrammarError(AssertionError):
    """An event that is not allowed at this place."""


class GrammarChecker:
    """Checks the events of one run as they arrive, and raises `GrammarError` at the first that is not allowed.

    `settled` is the answer of an earlier program whose calls the run settled first, if it did.
    """

    def __init__(self) -> None:
        self.finished = False
        self._index = -1
        self._loop_id = ""
        self._seq = 0
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._started = False
        self._rejected = False
        self._turns = 0
        self._messages: list[AgentMessage] = []
        self._turn: TurnGrammar | None = None
        self.settled: AssistantMessage | None = None
        self._rules: dict[type[Any], Callable[[Any], None]] = {
            AgentStart: self._read_agent_start,
            AgentEnd: self._read_agent_end,
            TurnStart: self._read_turn_start,
            TurnEnd: self._read_turn_end,
            InputRejected: self._read_input_rejection,
            MessageEnd: self._read_message_end,
        }

    def feed(self, event: AgentEvent | UnknownEvent) -> None:
        """Read the next event."""
        self._index += 1
        self._recent.append(f"{self._index} {event.type}")
        self._check_envelope(event)
        if type(event) is CustomEvent or type(event) is UnknownEvent:
            return
        try:
            self._rules.get(type(event), self._read_in_turn)(event)
        except UnexpectedEvent as unfit:
            self._fail(event, str(unfit))

    def finish(self) -> None:
        """Check that the run has ended."""
        if not self.finished:
            where = "inside a turn" if self._turn is not None else "without its agent_end"
            raise GrammarError(
                f"The run {self._loop_id!r} ended {where}. Last events: {', '.join(self._recent) or 'none'}."
            )

    def _check_envelope(self, event: AgentEvent | UnknownEvent) -> None:
        if self.finished:
            self._fail(event, "nothing follows agent_end")
        if self._index == 0:
            self._loop_id = event.loop_id
            if not event.loop_id or event.seq != 0:
                self._fail(event, f"expected a loop_id and seq 0, got {event.loop_id!r} and {event.seq}")
        elif event.loop_id != self._loop_id:
            self._fail(event, f"expected loop_id {self._loop_id!r}, got {event.loop_id!r}")
        elif event.seq != self._seq + 1:
            self._fail(event, f"expected seq {self._seq + 1}, got {event.seq}")
        self._seq = event.seq
        if not self._started and type(event) is not AgentStart and not _is_veto(event):
            self._fail(event, "expected agent_start first, or agent_end(vetoed) alone")

    def _fail(self, event: AgentEvent | UnknownEvent, expected: str) -> Never:
        head = f"event {self._index} ({event.type}, seq {event.seq}): {expected}."
        raise GrammarError(f"{head} Last events: {', '.join(self._recent)}. The event: {event!r}")

    def _read_agent_start(self, _: AgentStart) -> None:
        if self._started:
            raise UnexpectedEvent("agent_start comes once")
        self._started = True

    def _read_agent_end(self, event: AgentEnd) -> None:
        if self._turn is not None:
            raise UnexpectedEvent("expected turn_end of the open turn before agent_end")
        self.finished = True
        if self._turns == 0:
            if event.end_reason not in _ENDS_WITHOUT_TURN:
                raise UnexpectedEvent(f"expected a turn before agent_end({event.end_reason})")
            return
        told, self._messages = self._messages, []
        if list(event.messages) != told:
            raise UnexpectedEvent(
                f"expected agent_end to carry the {len(told)} messages of this run in order, got {len(event.messages)}"
            )

    def _read_turn_start(self, event: TurnStart) -> None:
        if self._turn is not None:
            raise UnexpectedEvent(f"expected turn_end of turn {self._turns} first")
        if self._rejected:
            raise UnexpectedEvent("expected agent_end after the prompt was rejected")
        if event.turn_index != self._turns:
            raise UnexpectedEvent(f"expected turn_index {self._turns}, got {event.turn_index}")
        self._turn = TurnGrammar(first=self._turns == 0)

    def _read_turn_end(self, event: TurnEnd) -> None:
        turn = self._get_open_turn()
        turn.end(event)
        if turn.old_calls:
            self.settled = event.message
        if event.turn_index != self._turns:
            raise UnexpectedEvent(f"expected turn_index {self._turns}, got {event.turn_index}")
        self._turn = None
        self._turns += 1

    def _read_input_rejection(self, event: InputRejected) -> None:
        if event.source == "prompt":
            if self._turns or self._turn is not None:
                raise UnexpectedEvent("a prompt is rejected before the first turn")
            self._rejected = True
        elif self._turn is not None:
            self._turn.check_quiet("input_rejected")

    def _read_message_end(self, event: MessageEnd) -> None:
        self._get_open_turn().end_message(event.message)
        self._messages.append(event.message)

    def _read_in_turn(self, event: Any) -> None:
        TURN_RULES[type(event)](self._get_open_turn(), event)

    def _get_open_turn(self) -> TurnGrammar:
        if self._turn is None:
            raise UnexpectedEvent("expected turn_start first")
        return self._turn


def _is_veto(event: AgentEvent | UnknownEvent) -> bool:
    return isinstance(event, AgentEnd) and event.end_reason == "vetoed" and not event.messages


def check_events(events: Iterable[AgentEvent | UnknownEvent]) -> None:
    """Fail unless the events are those of one whole run."""
    checker = GrammarChecker()
    for event in events:
        checker.feed(event)
    checker.finish()


def check_transcript(messages: Sequence[AgentMessage], *, complete: bool = True) -> None:
    """Fail unless each tool call has its one result, in order, directly after, under an id of its own.

    Failed answers stay in a log and their calls are not answered; `complete=False` lets the last calls wait.
    """
    fault = find_transcript_fault(messages, complete=complete)
    if fault is not None:
        raise AssertionError(f"{fault}\nThe transcript:\n{_format_transcript(messages)}")


def check_request(request: Request, model: Model | None = None) -> None:
    """Fail unless a strict server takes the request: a valid transcript without empties that ends with a question."""
    fault = find_request_fault(request, model)
    if fault is not None:
        raise AssertionError(f"{fault}\nThe request:\n{_format_transcript(request.messages)}")


def _format_transcript(messages: Sequence[AgentMessage]) -> str:
    return "\n".join(f"  {index} {_format_message(message)}" for index, message in enumerate(messages))


def _format_message(message: AgentMessage) -> str:
    words = message.text
    parts = [message.role, repr(words if len(words) <= 60 else words[:60] + "...")]
    if message.role == "assistant":
        parts.append(message.stop_reason)
        parts.extend(f"call {call.id} {call.name}" for call in message.tool_calls)
    if message.role == "tool_result":
        parts.append(f"of {message.tool_call_id}")
    return " ".join(parts)


E = TypeVar("E", bound=msgspec.Struct)


class EventCollector:
    """A subscriber that keeps all events: `agent.subscribe(collector)`."""

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
        """The text that a live reader sees: every text delta, without those before a reset."""
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
    """A subscriber that checks every run and collects the faults; an exception would look like a failure of the run."""

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
        """Raise `AssertionError` with all faults, including runs that did not end."""
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
    """An object with events to subscribe to, such as an `Agent`."""

    def subscribe(self, callback: Callable[[AgentEvent], object], /) -> object:
        """Call back with every event."""
        ...


def watch(agent: Subscribable) -> Witness:
    """Check every run of the agent from now on; call `check()` on the result at the end."""
    witness = Witness()
    agent.subscribe(witness)
    return witness
