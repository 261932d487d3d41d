"""The scripted model: plays a script without a network, records every request and checks its transcript.

    script = ScriptedModel(answer(call("add", a=2, b=3)), "5")
    agent = Agent(script.model, tools=[add])

It answers an invalid transcript as a strict server does, with an `invalid_request` error.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from steersman.provider.scripted.script import Reaction, Turn, TurnLike, answer, error, to_turn
from steersman.provider.scripted.strict import RequestReader
from steersman.provider.streaming.partial import partial_message
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.frozen import FrozenList
from steersman.types.messages import AssistantMessage, StopReason, UserMessage
from steersman.types.model import Model, Request, StreamOptions, StreamResponse
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
from steersman.types.usage import Prices, Usage, add_cost

_DELTAS = (TextDelta, ThinkingDelta, ToolCallDelta)
_PIECES = 4
_UNKNOWN = Usage()


@dataclass(frozen=True, slots=True)
class _Plan:
    """A turn with its events built in advance, so that playing it is fast."""

    turn: Turn
    events: tuple[StreamEvent, ...]
    content: FrozenList[Content]
    stop_reason: StopReason
    numbered: bool


class ScriptedModel:
    """A `StreamFn` that plays one scripted turn per request.

    `requests` and `models` record every call; `streaming` counts the streams that are open now. `pace` (seconds) and
    `usage` are defaults for turns; `repeat_last` repeats the last turn; `strict=False` accepts any transcript.
    """

    def __init__(
        self,
        *turns: TurnLike | Reaction,
        repeat_last: bool = False,
        strict: bool = True,
        pace: float | None = None,
        usage: Usage | None = None,
        id: str = "script",
        context_window: int | None = None,
        prices: Prices | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.requests: list[tuple[Request, StreamOptions]] = []
        self.models: list[Model] = []
        self.streaming = 0
        self.model = Model(
            "scripted",
            id,
            context_window=context_window,
            prices=prices,
            settings={**(settings or {}), "script": self},
        )
        self._pace = pace
        self._usage = usage
        self._calls = 0
        self._played = 0
        self._repeat_last = repeat_last
        self._reader = RequestReader() if strict else None
        self._turns = [turn if callable(turn) else self._plan(to_turn(turn)) for turn in turns]

    def __call__(self, model: Model, request: Request, options: StreamOptions, /) -> StreamResponse:
        """Play the next turn."""
        self.requests.append((request, options))
        self.models.append(model)
        fault = None if self._reader is None else self._reader.find_fault(request, model)
        if fault is not None:
            refusal = ErrorInfo("invalid_request", fault, model.provider, 400)
            return self._play(self._plan(error(refusal)), model, request)
        return self._play(self._next_turn(), model, request)

    @property
    def asked(self) -> int:
        """The number of requests so far."""
        return len(self.requests)

    @property
    def left(self) -> int:
        """The number of turns that were not played yet."""
        return max(0, len(self._turns) - self._played)

    def _next_turn(self) -> _Plan | Reaction:
        index = self._played
        self._played += 1
        if index < len(self._turns):
            return self._turns[index]
        if not self._repeat_last or not self._turns:
            length = len(self._turns)
            advice = (
                f"The script has {length} turns and was asked for turn {index + 1}. Add turns, or repeat_last=True."
            )
            return self._plan(error(ErrorInfo("internal", advice)))
        last = self._turns[-1]
        # A model never uses the same call id twice, unless the script says so.
        return self._plan(last.turn) if isinstance(last, _Plan) and last.numbered else last

    def _plan(self, turn: Turn) -> _Plan:
        numbered = any(isinstance(block, ToolCall) and not block.id for block in turn.blocks)
        content = (
            FrozenList([self._number_call(block) for block in turn.blocks]) if numbered else FrozenList(turn.blocks)
        )
        stop: StopReason = "tool_use" if any(isinstance(block, ToolCall) for block in content) else "stop"
        return _Plan(turn, _build_events(turn, content), content, turn.stop_reason or stop, numbered)

    def _number_call(self, block: Content) -> Content:
        if not isinstance(block, ToolCall) or block.id:
            return block
        self._calls += 1
        return msgspec.structs.replace(block, id=f"call_{self._calls}")

    async def _play(self, next_turn: _Plan | Reaction, model: Model, request: Request) -> AsyncGenerator[StreamEvent]:
        self.streaming += 1
        try:
            # No server answers before the event loop has run once.
            await asyncio.sleep(0)
            plan = next_turn if isinstance(next_turn, _Plan) else self._plan(await _react(next_turn, request))
            pace = self._pace if plan.turn.pace is None else plan.turn.pace
            if pace is None:
                for event in plan.events:
                    yield event
            else:
                for event in plan.events:
                    if isinstance(event, _DELTAS):
                        await asyncio.sleep(pace)
                    yield event
            if plan.turn.ending == "stall":
                await _stall(plan.turn.ignored_cancels)
            elif plan.turn.ending != "cut":
                yield self._end_turn(plan, model)
        finally:
            self.streaming -= 1

    def _end_turn(self, plan: _Plan, model: Model) -> StreamEvent:
        turn = plan.turn
        usage = add_cost(turn.usage or self._usage or _UNKNOWN, model.prices)
        if isinstance(turn.ending, BaseException):
            raise turn.ending
        if isinstance(turn.ending, ErrorInfo):
            return _build_failure(plan, turn.ending, model, usage)
        message = AssistantMessage(
            plan.content,
            stop_reason=plan.stop_reason,
            raw_stop_reason=turn.raw_stop_reason or plan.stop_reason,
            usage=usage,
            model=model.id,
            provider=model.provider,
        )
        return Failed(message) if plan.stop_reason in ("error", "aborted") else Done(message)


def stream_scripted(model: Model, request: Request, options: StreamOptions) -> StreamResponse:
    """The provider `scripted`: plays the script in the model's settings; `scripted:echo` repeats the prompt."""
    script = model.settings.get("script")
    if script is None:
        script = ScriptedModel(
            _echo if model.id == "echo" else error(ErrorInfo("invalid_request", _describe_missing_script(model)))
        )
    return cast(ScriptedModel, script)(model, request, options)


def _describe_missing_script(model: Model) -> str:
    return f"No script for the model {model.name!r}. Use the .model of a ScriptedModel(...), or 'scripted:echo'."


def _echo(request: Request) -> Turn:
    for message in reversed(request.messages):
        if isinstance(message, UserMessage) and message.text:
            return answer(message.text)
    return answer("(nothing to echo)")


async def _react(reaction: Reaction, request: Request) -> Turn:
    given = reaction(request)
    return to_turn(await given if isinstance(given, Awaitable) else given)


async def _stall(ignored_cancels: int) -> None:
    while True:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            # Tests need a stream that ignores a cancel.
            if ignored_cancels == 0:
                raise
            ignored_cancels -= 1


def _build_failure(plan: _Plan, info: ErrorInfo, model: Model, usage: Usage) -> Failed:
    stop: StopReason = "refusal" if info.kind == "refused" else "error"
    message = partial_message(
        plan.events,
        stop_reason=stop,
        error_message=info.message,
        error_kind=info.kind,
        usage=usage,
        model=model.id,
        provider=model.provider,
    )
    return Failed(message, info)


def _build_events(turn: Turn, content: FrozenList[Content]) -> tuple[StreamEvent, ...]:
    if turn.ending != "done" and turn.after is None and not content:
        return ()
    events: list[StreamEvent] = [StreamStart()]
    shown = 0
    for index, block in enumerate(content):
        for event in _build_block_events(index, block, turn.deltas):
            if isinstance(event, _DELTAS):
                if shown == turn.after:
                    return tuple(events)
                shown += 1
            events.append(event)
    return tuple(events)


def _build_block_events(index: int, block: Content, deltas: int | None) -> Iterator[StreamEvent]:
    match block:
        case TextContent():
            yield TextStart(index)
            for piece in _split_text(block.text, deltas):
                yield TextDelta(piece, index)
            yield TextEnd(index)
        case ThinkingContent():
            yield ThinkingStart(index)
            for piece in _split_text(block.thinking, deltas):
                yield ThinkingDelta(piece, index)
            yield ThinkingEnd(index)
        case ToolCall():
            yield ToolCallStart(index, block.id, block.name)
            written = block.raw_arguments or msgspec.json.encode(block.arguments).decode()
            for piece in _split_text(written, deltas):
                yield ToolCallDelta(piece, index)
            yield ToolCallEnd(index, block)
        case _:
            raise TypeError(f"A turn holds text, thinking and tool calls, got {block!r}.")


def _split_text(text: str, count: int | None) -> list[str]:
    """Split a text into `count` pieces of nearly equal length; none is empty."""
    pieces = min(len(text), _PIECES if count is None else count)
    cuts = [len(text) * number // pieces for number in range(pieces + 1)] if pieces > 0 else [0]
    return [text[start:end] for start, end in itertools.pairwise(cuts)]
