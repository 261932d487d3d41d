"""The conformance checks of a `StreamFn`.

    def subject(scenario: Scenario) -> Subject | None:
        return Subject(my_stream_fn, model, request)      # set up so that the scenario happens; None if it cannot

    for check in conformance_checks():
        await check(subject)

Each check is an async function of such a factory and fails with an `AssertionError` that says what was wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall, parse_tool_call
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import (
    Done,
    Failed,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

_STARTS = (TextStart, ThinkingStart, ToolCallStart)
_PIECES = (TextDelta, ThinkingDelta, ToolCallDelta)
_ENDS = (TextEnd, ThinkingEnd, ToolCallEnd)


class DeltaReader:
    """Checks the order of the start, deltas and end of each block, and collects the content of each block."""

    def __init__(self) -> None:
        self._kinds: dict[int, str] = {}
        self._words: dict[int, list[str]] = {}
        self._ended: dict[int, ToolCall | None] = {}
        self._starts: dict[int, ToolCallStart] = {}

    @classmethod
    def read(cls, events: Iterable[StreamEvent]) -> DeltaReader:
        """Read all deltas of an answer."""
        reader = cls()
        for event in events:
            reader.feed(event)
        return reader

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join("".join(words) for index, words in self._words.items() if self._kinds[index] == "text")

    def feed(self, event: StreamEvent) -> None:
        """Read the next event; what is not a delta is passed over."""
        if isinstance(event, _STARTS):
            index = event.content_index
            assert index not in self._kinds, f"Expected one start of block {index}, got {event!r} as well."
            self._kinds[index] = _get_kind(event.type)
            self._words[index] = []
            if isinstance(event, ToolCallStart):
                self._starts[index] = event
        elif isinstance(event, _PIECES):
            self._check_open(event, event.content_index)
            self._words[event.content_index].append(event.delta)
        elif isinstance(event, _ENDS):
            self._check_open(event, event.content_index)
            self._ended[event.content_index] = event.tool_call if isinstance(event, ToolCallEnd) else None

    def check(self, message: AssistantMessage) -> None:
        """Fail unless the message equals the deltas, block by block."""
        unended = sorted(set(self._kinds) - set(self._ended))
        assert not unended, f"Expected every block to end, but {unended} did not."
        said = [self._get_block(index) for index in sorted(self._kinds)]
        got = [_describe_block(block) for block in message.content]
        assert said == got, f"Expected the message to be what its deltas said, {said!r}, got {got!r}."

    def _get_block(self, index: int) -> tuple[str, object]:
        kind, words = self._kinds[index], "".join(self._words[index])
        if kind != "tool_call":
            return kind, words
        start, call = self._starts[index], self._ended[index]
        parsed = parse_tool_call(start.id, start.name, words)
        ended = parsed if call is None else call
        assert (ended.name, ended.arguments) == (parsed.name, parsed.arguments), (
            f"Expected the call its deltas spelled, {parsed!r}, got {ended!r}."
        )
        return kind, (ended.id, ended.name, ended.arguments)

    def _check_open(self, event: StreamEvent, index: int) -> None:
        kind = _get_kind(event.type)
        fits = self._kinds.get(index) == kind and index not in self._ended
        assert fits, f"Expected {event!r} between the start and the end of its {kind} block."


def _get_kind(event_type: str) -> str:
    return event_type.rpartition("_")[0]


def _describe_block(block: Content) -> tuple[str, object]:
    match block:
        case TextContent():
            return "text", block.text
        case ThinkingContent():
            return "thinking", block.thinking
        case ToolCall():
            return "tool_call", (block.id, block.name, block.arguments)
        case _:
            return block.type, block


Scenario: TypeAlias = Literal["text", "thinking", "tool_calls", "error", "cut", "stall"]
"""What the model does: answers, thinks, calls two tools, fails, breaks off, or falls silent after its first delta."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A `StreamFn` and what to ask it."""

    stream_fn: StreamFn
    model: Model
    request: Request
    options: StreamOptions = field(default_factory=StreamOptions)

    async def open(self) -> AsyncIterator[StreamEvent]:
        """The events of one answer, whichever of the two forms the `StreamFn` has."""
        given = self.stream_fn(self.model, self.request, self.options)
        return aiter(await given if isinstance(given, Awaitable) else given)

    async def events(self) -> list[StreamEvent]:
        """All events of one answer."""
        return [event async for event in await self.open()]


Factory: TypeAlias = Callable[[Scenario], Subject | None]
Check: TypeAlias = Callable[[Factory], Awaitable[None]]


def conformance_checks() -> list[Check]:
    """Every check, in a sensible order; their names are sentences."""
    return [
        a_text_answer_is_what_its_deltas_said,
        thinking_is_what_its_deltas_said,
        tool_calls_are_what_their_deltas_said,
        a_failure_is_an_event_with_a_reason,
        a_stream_that_breaks_off_is_not_a_success,
        a_request_is_left_as_it_was,
        two_answers_at_once_do_not_mix,
        a_stream_can_be_left_early,
        a_silent_stream_can_be_cancelled,
    ]


async def a_text_answer_is_what_its_deltas_said(factory: Factory) -> None:
    """The `done` message holds the text of the deltas."""
    message = await _read_answer(factory, "text")
    assert message is None or message.text, f"Expected some text, got {message!r}."


async def thinking_is_what_its_deltas_said(factory: Factory) -> None:
    """The `done` message holds the thinking of the deltas."""
    message = await _read_answer(factory, "thinking")
    thought = message is None or any(block.type == "thinking" for block in message.content)
    assert thought, f"Expected a thinking block, got {message!r}."


async def tool_calls_are_what_their_deltas_said(factory: Factory) -> None:
    """Two calls, with ids of their own, and the arguments their deltas spelled."""
    message = await _read_answer(factory, "tool_calls")
    if message is not None:
        ids = [call.id for call in message.tool_calls]
        assert len(ids) == len(set(ids)) == 2, f"Expected two tool calls with ids of their own, got {ids!r}."
        assert message.stop_reason == "tool_use", f"Expected the stop reason 'tool_use', got {message.stop_reason!r}."


async def a_failure_is_an_event_with_a_reason(factory: Factory) -> None:
    """A failure ends the stream with one `error` event that says why."""
    subject = factory("error")
    if subject is not None:
        failed = _get_failure(await subject.events())
        assert failed.message.error_message, f"Expected error_message to say what happened, got {failed!r}."
        assert failed.error is not None, "Expected the error event to carry an ErrorInfo, so that retry can act on it."


async def a_stream_that_breaks_off_is_not_a_success(factory: Factory) -> None:
    """A stream without its terminal event is an error that keeps what had arrived."""
    subject = factory("cut")
    if subject is not None:
        events = await subject.events()
        failed = _get_failure(events)
        kind = None if failed.error is None else failed.error.kind
        assert kind in ("incomplete", "network"), f"Expected the kind 'incomplete' or 'network', got {kind!r}."
        shown = DeltaReader.read(events[:-1]).text
        assert failed.message.text == shown, f"Expected the partial text {shown!r}, got {failed.message.text!r}."


async def a_request_is_left_as_it_was(factory: Factory) -> None:
    """Asking changes nothing in the request."""
    subject = factory("text")
    if subject is not None:
        before = (subject.request.system_prompt, list(subject.request.messages), list(subject.request.tools))
        await subject.events()
        after = (subject.request.system_prompt, list(subject.request.messages), list(subject.request.tools))
        assert before == after, "Expected the request to be as it was before."


async def two_answers_at_once_do_not_mix(factory: Factory) -> None:
    """Two streams read in turns give what each would have given alone."""
    first, second = factory("text"), factory("tool_calls")
    if first is None or second is None:
        return
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(subject.events()) for subject in (first, second)]
    for task in tasks:
        check_stream(task.result())


async def a_stream_can_be_left_early(factory: Factory) -> None:
    """Closing the iterator after the first event raises nothing and leaves no task."""
    subject = factory("text")
    if subject is None:
        return
    before = asyncio.all_tasks()
    stream = await subject.open()
    async with aclosing(cast(Any, stream)):
        await anext(stream)
    await _check_no_new_task(before)


async def a_silent_stream_can_be_cancelled(factory: Factory) -> None:
    """A cancel reaches a stream that waits, and is not swallowed."""
    subject = factory("stall")
    if subject is None:
        return
    before = asyncio.all_tasks()
    arrived = asyncio.Event()

    async def read() -> None:
        async for _ in await subject.open():
            arrived.set()

    reader = asyncio.create_task(read())
    await arrived.wait()
    reader.cancel()
    await asyncio.wait([reader])
    assert reader.cancelled(), f"Expected the reader to end cancelled, got {reader!r}."
    await _check_no_new_task(before)


def check_stream(events: list[StreamEvent]) -> AssistantMessage:
    """The whole message of a well-formed, successful stream."""
    assert events, "Expected events, got none."
    assert isinstance(events[0], StreamStart), f"Expected 'start' first, got {events[0]!r}."
    last = _get_terminal(events)
    assert isinstance(last, Done), f"Expected 'done', got {last!r}."
    DeltaReader.read(events[1:-1]).check(last.message)
    return last.message


async def _read_answer(factory: Factory, scenario: Scenario) -> AssistantMessage | None:
    subject = factory(scenario)
    return None if subject is None else check_stream(await subject.events())


def _get_failure(events: list[StreamEvent]) -> Failed:
    last = _get_terminal(events)
    assert isinstance(last, Failed), f"Expected 'error', got {last!r}."
    assert last.message.failed, f"Expected the stop reason of a failed answer, got {last.message.stop_reason!r}."
    return last


def _get_terminal(events: list[StreamEvent]) -> StreamEvent:
    ends = [index for index, event in enumerate(events) if isinstance(event, Done | Failed)]
    assert ends == [len(events) - 1], f"Expected one terminal event, at the end; of {len(events)} events got {ends}."
    return events[-1]


async def _check_no_new_task(before: set[asyncio.Task[Any]]) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before
    assert not left, f"Expected no task to be left, got {left!r}."
