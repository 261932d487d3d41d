"""A run as plain text: the answer on standard output, what led to it on standard error.

With -p in a pipe standard output gets the final answer and nothing else, so that `x=$(steersman -p ...)` holds what was
asked for. An answer is the final one when it calls no tool, which is known at its end; so it is streamed as it arrives
only where there are no tools to call, and elsewhere written when it is complete. What the model says between its tools
goes to standard error, for whoever follows the work there. Without -p, and on a terminal, everything is streamed.

Text that was streamed cannot be taken back: when the model's answer breaks off and is asked for again, standard error
says so, and the new answer begins on a new line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cli.exits import Keyless, keyless
from steersman.cli.render.lines import cost_line
from steersman.cli.terminal.descriptors import STDOUT, is_terminal
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.cli.terminal.stderr import Telling
from steersman.cli.terminal.stdout import Outlet
from steersman.events.stream import EventStream
from steersman.types.content import ToolCall
from steersman.types.continuation import Initial
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageUpdate,
    RetryScheduled,
    ToolExecutionStart,
)
from steersman.types.ids import new_id
from steersman.types.messages import AssistantMessage, EndReason
from steersman.types.result import RunResult
from steersman.types.usage import Usage
from steersman.types.wire import encode

if TYPE_CHECKING:
    from steersman.cli.setup.startup import Outfit
    from steersman.events.stream import EventStream


_SHORT = 100
_PASSED_ON = 0.1
"""Seconds for whoever reads standard output, such as `tee`, to show it on the terminal a question comes to."""


class Plain:
    """Shows runs as text. `streaming` writes every answer as it arrives; `structured` writes the output instead."""

    def __init__(self, outlet: Outlet, telling: Telling, *, streaming: bool, structured: bool = False) -> None:
        self._outlet = outlet
        self._telling = telling
        self._streaming = streaming and not structured
        self._structured = structured
        self._without_keys: Callable[[str], str] = str
        self._streamed = Keyless()
        self._line_open = False
        self._shown = False
        self._spoken = False
        self._stream: EventStream | None = None
        self._free = asyncio.Event()
        self._free.set()

    async def settle(self) -> None:
        """Wait until everything that was said is written: what is asked on the same terminal comes after it."""
        while self._stream is not None and self._stream.channel.buffer:
            await self._outlet.drained()
            await asyncio.sleep(0)
        await self._outlet.drained()
        if not is_terminal(STDOUT):
            await asyncio.sleep(_PASSED_ON)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Write nothing while somebody is asked: no words of the model stand between a question and its answer."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    async def show(self, stream: EventStream) -> RunResult:
        """Write a run to its end."""
        self._stream = stream
        began = time.monotonic()
        self._without_keys, self._streamed = keyless(), Keyless()
        async for event in stream:
            await self._free.wait()
            if isinstance(event, ToolExecutionStart | RetryScheduled):
                await self._outlet.drained()  # a terminal shows both outputs, and neither may overtake the other
            self._hear(event)
            if self._outlet.full:
                await self._outlet.room()
        result = await stream
        self._finish(result)
        await self._outlet.drained()
        if self._telling.chatty:
            self._telling.tell(cost_line(result.usage, seconds=time.monotonic() - began))
        return result

    def _hear(self, event: AgentEvent) -> None:
        match event:
            case MessageUpdate():
                if self._streaming:
                    self._update(event)
            case MessageEnd(message=AssistantMessage() as message):
                self._message_end(message)
            case ToolExecutionStart():
                if self._telling.chatty:
                    self._telling.say(f"  {call_line(event.tool_name, event.args)}")
            case RetryScheduled():
                if self._telling.chatty:
                    again = f"asking again in {event.delay:.1f} s" if event.delay >= 0.05 else "asking again"
                    self._telling.tell(f"{event.error.message} ({again})")
            case _:
                return

    def _update(self, event: MessageUpdate) -> None:
        delta = event.delta
        if delta.type == "text_delta" and delta.delta:
            if not self._shown and self._spoken:
                self._write("\n")
            self._shown = self._spoken = True
            self._write(self._streamed.take(delta.delta))
        elif delta.type == "reset" and self._shown:
            self._end_line()
            self._shown = self._spoken = False
            self._telling.tell("the answer broke off and starts again")

    def _message_end(self, message: AssistantMessage) -> None:
        if self._streaming:
            if not self._shown and message.text:
                self._write("\n" if self._spoken else "")
                self._spoken = True
                self._write(message.text)
            self._end_line()
            self._shown = False
        elif _calls(message) and message.text.strip() and self._telling.chatty:
            self._telling.say(message.text.strip())

    def _finish(self, result: RunResult) -> None:
        if self._structured and result.output is not None:
            import msgspec

            self._write(msgspec.json.encode(result.output, enc_hook=repr).decode())
        elif not self._streaming and (text := final_text(result)):
            self._write(text)
        self._end_line()

    def _write(self, text: str) -> None:
        if text:
            self._line_open = not text.endswith("\n")
            self._outlet.write(safe(self._without_keys(text)).encode(errors="replace"))

    def _end_line(self) -> None:
        self._write(self._streamed.rest())
        if self._line_open:
            self._write("\n")


def final_text(result: RunResult) -> str:
    """The text of the last answer, unless that was still calling tools."""
    for message in reversed(result.messages):
        if isinstance(message, AssistantMessage):
            return "" if _calls(message) else message.text
    return ""


def call_line(name: str, args: Mapping[str, Any]) -> str:
    """A tool call in short: its name, and its arguments on one line."""
    values = [value if isinstance(value, str) else repr(value) for value in args.values()]
    shown = one_line(" ".join(values))
    return f"{one_line(name)} {shown if len(shown) <= _SHORT else shown[: _SHORT - 1] + '…'}".rstrip()


def _calls(message: AssistantMessage) -> bool:
    return any(isinstance(block, ToolCall) for block in message.content)


class StreamJson:
    """Shows runs as their events."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    async def show(self, stream: EventStream) -> RunResult:
        """Write a run to its end; while the reader is behind, the run waits."""
        outlet = self._outlet
        async for event in stream:
            outlet.write(line_of(event))
            if outlet.full:
                await outlet.room()
        return await stream

    def missed(self, reason: EndReason, detail: str) -> None:
        """Say that there was no run, and why."""
        loop_id, now = new_id("loop"), time.time()
        self._outlet.write(line_of(AgentStart(loop_id, 0, now, "", "", Initial())))
        self._outlet.write(line_of(AgentEnd(loop_id, 1, now, [], Usage(), reason, detail)))


def line_of(event: AgentEvent) -> bytes:
    """An event as a line; what an application put into one and JSON has no form for is shown as Python shows it."""
    try:
        return encode(event) + b"\n"
    except (TypeError, ValueError):
        return msgspec.json.encode(event, enc_hook=_shown) + b"\n"


def _shown(value: Any) -> str:
    return repr(value)


class WholeJson:
    """Shows each run as one object on one line."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._outfit: Outfit | None = None
        self._began = time.monotonic()

    def wear(self, outfit: Outfit) -> None:
        """Know whose runs these are."""
        self._outfit = outfit

    async def show(self, stream: EventStream) -> RunResult:
        """Wait for the end of a run and write what it came to."""
        self._began = time.monotonic()
        result = await stream
        self._write(result)
        return result

    def missed(self, reason: EndReason, detail: str) -> None:
        """Say that there was no run, and why."""
        from steersman.types.usage import Usage

        self._write(RunResult([], Usage(), reason, detail))

    def _write(self, result: RunResult) -> None:
        outfit = self._outfit
        fields: dict[str, Any] = {
            "text": result.text,
            "output": result.output,
            "end_reason": result.end_reason,
            "detail": result.detail,
            "model": None if outfit is None else f"{outfit.model.provider}:{outfit.model.id}",
            "session_id": None if outfit is None else outfit.agent.context.session_id,
            "usage": result.usage,
            "cost": result.cost,
            "duration": round(time.monotonic() - self._began, 3),
            "messages": [msgspec.Raw(encode(message)) for message in result.messages],
        }
        line = msgspec.json.encode(fields, enc_hook=repr).decode()
        self._outlet.write(keyless()(line).encode() + b"\n")
