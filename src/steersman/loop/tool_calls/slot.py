"""A tool call on its way to its result, of which it gets exactly one."""

from __future__ import annotations

import asyncio
import time
from typing import Any, get_args

from steersman.loop.run import Run
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.content import TextContent, ToolCall, text_of
from steersman.types.events import CustomEvent, ToolExecutionEnd, ToolExecutionStart
from steersman.types.frozen import FrozenDict, FrozenList, freeze
from steersman.types.messages import ToolResultMessage, ToolStatus
from steersman.types.tools import Effect, ToolOutput

ABORTED = "tool call cancelled: operation aborted"
_NO_KEYS: frozenset[str] = frozenset()
_STATUS = {status: FrozenDict({"status": status}) for status in get_args(ToolStatus)}


class Slot:
    """A tool call on its way to its result."""

    __slots__ = (
        "admitted", "args", "began", "call", "effects", "index", "intended", "keys", "result", "started", "stopping",
        "task", "terminate", "timer", "token", "tool",
    )  # fmt: skip

    def __init__(self, call: ToolCall, index: int, result: ToolResultMessage | None = None) -> None:
        self.call = call
        self.index = index
        self.tool: Tool | None = None
        self.args: dict[str, Any] = call.arguments
        self.keys: frozenset[str] = _NO_KEYS
        self.admitted = False
        self.intended = False
        self.started = False
        self.began = 0.0
        self.token: CancelToken | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.stopping: str | None = None
        self.result = result
        self.effects: tuple[Effect, ...] = ()
        self.terminate = False

    @property
    def is_alone(self) -> bool:
        """Whether nothing else may run beside it."""
        return self.tool is not None and self.tool.sequential

    @property
    def uninterruptible(self) -> bool:
        """Whether steering lets it finish."""
        return self.tool is not None and self.tool.uninterruptible

    def stop(self, text: str) -> None:
        """Cancel a running call; its result will have this text."""
        if self.result is None and self.task is not None:
            self.stopping = self.stopping or text
            if self.token is not None:
                self.token.cancel(text)
            self.task.cancel()


def emit_start(run: Run, slot: Slot) -> None:
    """Emit `tool_execution_start`, with the effective arguments."""
    slot.started = True
    slot.began = asyncio.get_running_loop().time()
    slot.args = freeze(slot.args)
    run.emit(ToolExecutionStart, tool_call_id=slot.call.id, tool_name=slot.call.name, args=slot.args)


def report_late_output(run: Run, slot: Slot, outcome: ToolOutput | BaseException) -> None:
    """Emit the output of a call that was already settled, as an event; never as a second message."""
    text = repr(outcome) if isinstance(outcome, BaseException) else _describe(outcome)
    data = {"tool_call_id": slot.call.id, "tool_name": slot.call.name, "output": text[:1000]}
    run.emit(CustomEvent, name="late_tool_result", data=data)


def settle_output(run: Run, slot: Slot, output: ToolOutput) -> None:
    """Settle a call with the output of its tool."""
    slot.effects = tuple(output.effects)
    slot.terminate = output.terminate
    settle(run, slot, output, status="completed", is_error=output.is_error, details=output.details)


def settle(
    run: Run,
    slot: Slot,
    output: ToolOutput | str,
    *,
    status: ToolStatus,
    is_error: bool = True,
    details: dict[str, Any] | None = None,
) -> None:
    """Give a call its one result; the first one stays."""
    if slot.result is not None:
        return
    if slot.timer is not None:
        slot.timer.cancel()
    if not slot.started:
        emit_start(run, slot)
    content = output if isinstance(output, str) else output.content
    slot.result = result = ToolResultMessage(
        FrozenList((TextContent(content),)) if isinstance(content, str) else content,
        time.time(),
        status in ("not_started", "interrupted"),
        tool_call_id=slot.call.id,
        tool_name=slot.call.name,
        is_error=is_error,
        details={**details, "status": status} if details else _STATUS[status],
    )
    run.emit(
        ToolExecutionEnd,
        tool_call_id=slot.call.id,
        tool_name=slot.call.name,
        args=slot.args,
        result=result,
        is_error=is_error,
        duration=asyncio.get_running_loop().time() - slot.began,
    )
    run.wake()


def _describe(output: ToolOutput) -> str:
    return output.content if isinstance(output.content, str) else text_of(output.content)
