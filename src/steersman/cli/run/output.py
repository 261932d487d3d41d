"""Writes runs to standard output: as plain text, as a JSON event stream, or as one JSON object.

With -p in a pipe, plain text is the final answer and nothing else, so that `x=$(steersman -p ...)` works. An answer is
final if it calls no tool, which is known only at its end. So it is streamed if the agent has no tools, and otherwise
written when it is complete; text between tool calls goes to standard error. Without -p, and on a terminal, everything
is streamed.

Streamed text cannot be taken back. If the answer breaks off and is retried, standard error says so, and the new answer
starts on a new line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cli.redact import StreamRedactor, make_key_redactor
from steersman.cli.terminal.descriptors import STDOUT, is_terminal
from steersman.cli.terminal.numbers import describe_cost, format_count, format_duration
from steersman.cli.terminal.sanitize import escape_json, sanitize, sanitize_line
from steersman.cli.terminal.stderr import StderrMessages
from steersman.cli.terminal.stdout import OutputWriter
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
    ToolExecutionEnd,
    ToolExecutionStart,
)
from steersman.types.ids import new_id
from steersman.types.messages import AssistantMessage, EndReason
from steersman.types.result import RunResult, find_value
from steersman.types.usage import Usage
from steersman.types.wire import encode

if TYPE_CHECKING:
    from steersman.cli.setup.startup import StartedAgent
    from steersman.events.stream import EventStream


_OUTPUT_LINES = 5
_SHORT = 100
_PASSED_ON = 0.1
"""Seconds for a reader such as `tee` to show the output on the terminal before a question appears there."""


class PlainText:
    """Shows runs as text. `streaming` writes answers as they arrive; `structured` writes only the structured output."""

    def __init__(
        self, writer: OutputWriter, stderr: StderrMessages, *, streaming: bool, structured: bool = False
    ) -> None:
        self._writer = writer
        self._stderr = stderr
        self._streaming = streaming and not structured
        self._structured = structured
        self._without_keys: Callable[[str], str] = str
        self._streamed = StreamRedactor()
        self._line_open = False
        self._shown = False
        self._spoken = False
        self._stream: EventStream | None = None
        self._free = asyncio.Event()
        self._free.set()

    async def wait_until_written(self) -> None:
        """Waits until all output so far is written, so that a question on the same terminal comes after it."""
        while self._stream is not None and self._stream.channel.buffer:
            await self._writer.drain()
            await asyncio.sleep(0)
        await self._writer.drain()
        if not is_terminal(STDOUT):
            await asyncio.sleep(_PASSED_ON)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Writes nothing while a question is open."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    async def show(self, stream: EventStream) -> RunResult:
        """Writes a run until it ends."""
        self._stream = stream
        began = time.monotonic()
        self._without_keys, self._streamed = make_key_redactor(), StreamRedactor()
        async for event in stream:
            await self._free.wait()
            if isinstance(event, ToolExecutionStart | RetryScheduled):
                await self._show_on_stderr(event)
            else:
                self._show_event(event)
            if self._writer.full:
                await self._writer.wait_for_space()
        result = await stream
        self._finish(result)
        await self._writer.drain()
        if self._stderr.shows_work:
            self._stderr.notify(describe_cost(result.usage, seconds=time.monotonic() - began))
        return result

    async def _show_on_stderr(self, event: ToolExecutionStart | RetryScheduled) -> None:
        """Keeps stdout and stderr in order on a terminal: each has a thread that writes."""
        await self._writer.drain()
        self._show_event(event)
        if self._stderr.terminal and is_terminal(STDOUT):
            await self._stderr.flush()

    def _show_event(self, event: AgentEvent) -> None:
        match event:
            case MessageUpdate():
                if self._streaming:
                    self._show_delta(event)
            case MessageEnd(message=AssistantMessage() as message):
                self._end_message(message)
            case ToolExecutionStart():
                if self._stderr.shows_work:
                    self._stderr.write_lines(f"  {describe_call(event.tool_name, event.args)}")
            case RetryScheduled():
                if self._stderr.shows_work:
                    again = f"retrying in {event.delay:.1f} s" if event.delay >= 0.05 else "retrying"
                    self._stderr.notify(f"{event.error.message} ({again})")
            case _:
                return

    def _show_delta(self, event: MessageUpdate) -> None:
        delta = event.delta
        if delta.type == "text_delta" and delta.delta:
            if not self._shown and self._spoken:
                self._write("\n")
            self._shown = self._spoken = True
            self._write(self._streamed.feed(delta.delta))
        elif delta.type == "reset" and self._shown:
            self._end_line()
            self._shown = self._spoken = False
            self._stderr.notify("the answer broke off and starts over")

    def _end_message(self, message: AssistantMessage) -> None:
        if self._streaming:
            if not self._shown and message.text:
                self._write("\n" if self._spoken else "")
                self._spoken = True
                self._write(message.text)
            self._end_line()
            self._shown = False
        elif _has_tool_calls(message) and message.text.strip() and self._stderr.shows_work:
            self._stderr.write_lines(message.text.strip())

    def _finish(self, result: RunResult) -> None:
        if self._structured and (value := find_value(result)) is not None:
            self._write(msgspec.json.encode(value, enc_hook=repr).decode())
        elif not self._streaming and (text := find_final_text(result)):
            self._write(text)
        self._end_line()

    def _write(self, text: str) -> None:
        if text:
            self._line_open = not text.endswith("\n")
            self._writer.write(sanitize(self._without_keys(text)).encode(errors="replace"))

    def _end_line(self) -> None:
        self._write(self._streamed.flush())
        if self._line_open:
            self._write("\n")


def find_final_text(result: RunResult) -> str:
    """Returns the text of the last answer; empty if it still calls tools."""
    for message in reversed(result.messages):
        if isinstance(message, AssistantMessage):
            return "" if _has_tool_calls(message) else message.text
    return ""


def describe_call(name: str, args: Mapping[str, Any]) -> str:
    """Describes a tool call on one line: its name and its arguments, truncated."""
    values = [value if isinstance(value, str) else repr(value) for value in args.values()]
    shown = sanitize_line(" ".join(values))
    return f"{sanitize_line(name)} {shown if len(shown) <= _SHORT else shown[: _SHORT - 1] + '…'}".rstrip()


def summarize_result(event: ToolExecutionEnd) -> list[str]:
    """Describes how a tool call ended, in lines: its exit code and time, and the end of its output."""
    result = event.result
    code: object = result.details.get("exit_code")
    if not isinstance(code, int):
        return [sanitize_line(result.text)[:200]] if event.is_error else [format_duration(event.duration)]
    lines = sanitize(result.text.replace("\r", "\n")).strip("\n").split("\n")
    total: object = result.details.get("lines")
    left = total - _OUTPUT_LINES if isinstance(total, int) else 0
    above = [f"… {format_count(left, 'line')} above"] if left > 0 else []
    return [f"exit {code}, {format_duration(event.duration)}", *above, *lines[-_OUTPUT_LINES:]]


def _has_tool_calls(message: AssistantMessage) -> bool:
    return any(isinstance(block, ToolCall) for block in message.content)


class StreamJson:
    """Writes runs as events, one JSON object per line."""

    def __init__(self, writer: OutputWriter, *, on_terminal: bool = False) -> None:
        self._writer = writer
        self._encode = encode_line_for_terminal if on_terminal else encode_line

    async def show(self, stream: EventStream) -> RunResult:
        """Writes a run until it ends; waits while the reader is behind."""
        writer, encode_event = self._writer, self._encode
        async for event in stream:
            writer.write(encode_event(event))
            if writer.full:
                await writer.wait_for_space()
        return await stream

    def report_no_run(self, reason: EndReason, detail: str) -> None:
        """Writes that no run took place, and why."""
        loop_id, now = new_id("loop"), time.time()
        self._writer.write(self._encode(AgentStart(loop_id, 0, now, "", "", Initial())))
        self._writer.write(self._encode(AgentEnd(loop_id, 1, now, [], Usage(), reason, detail)))


def encode_line(event: AgentEvent) -> bytes:
    """Encodes an event as a line; values without a JSON form are written as their `repr`."""
    try:
        return encode(event) + b"\n"
    except (TypeError, ValueError):
        return msgspec.json.encode(event, enc_hook=repr) + b"\n"


def encode_line_for_terminal(event: AgentEvent) -> bytes:
    """Encodes an event as a line without characters that a terminal would act on."""
    return escape_json(encode_line(event).decode(errors="replace")).encode()


class JsonResult:
    """Writes each run as one JSON object on one line."""

    def __init__(self, writer: OutputWriter, *, on_terminal: bool = False) -> None:
        self._writer = writer
        self._on_terminal = on_terminal
        self._started: StartedAgent | None = None
        self._began = time.monotonic()

    def attach(self, started: StartedAgent) -> None:
        """Sets the agent whose runs these are."""
        self._started = started

    async def show(self, stream: EventStream) -> RunResult:
        """Waits for the end of a run and writes its result."""
        self._began = time.monotonic()
        result = await stream
        self._write(result)
        return result

    def report_no_run(self, reason: EndReason, detail: str) -> None:
        """Writes that no run took place, and why."""
        self._write(RunResult([], Usage(), reason, detail))

    def _write(self, result: RunResult) -> None:
        started = self._started
        fields: dict[str, Any] = {
            "text": result.text,
            "output": find_value(result),
            "end_reason": result.end_reason,
            "detail": result.detail,
            "model": None if started is None else f"{started.model.provider}:{started.model.id}",
            "session_id": None if started is None else started.agent.context.session_id,
            "usage": result.usage,
            "cost": result.cost,
            "duration": round(time.monotonic() - self._began, 3),
            "messages": [msgspec.Raw(encode(message)) for message in result.messages],
        }
        line = msgspec.json.encode(fields, enc_hook=repr).decode()
        line = make_key_redactor()(line)
        self._writer.write((escape_json(line) if self._on_terminal else line).encode() + b"\n")
