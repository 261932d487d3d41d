"""Events of a run, written down, and what they look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steersman.cli.render import RunDisplay
from steersman.types.content import TextContent
from steersman.types.continuation import Initial
from steersman.types.errors import ErrorInfo
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    LoopConfigSnapshot,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnStart,
)
from steersman.types.messages import AgentMessage, AssistantMessage, EndReason, ToolResultMessage
from steersman.types.stream import Delta, TextDelta
from steersman.types.usage import Usage

WORKSPACE = Path("/home/me/project")
_HEAD: tuple[str, int, float] = ("run", 0, 0.0)
_SGR = re.compile(r"\x1b\[[0-9;]*m")


class Clock:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def a_show(*, color: bool = False, verbose: bool = False, clock: Clock | None = None) -> RunDisplay:
    """A show with a clock that stands still."""
    return RunDisplay(color=color, verbose=verbose, workspace=WORKSPACE, clock=clock or Clock())


def heard(show: RunDisplay, events: Iterable[AgentEvent]) -> RunDisplay:
    """The show when it has heard the events."""
    for event in events:
        show.show_event(event)
    return show


def plain(text: str) -> str:
    """Text without its colours."""
    return _SGR.sub("", text)


def start(model: str = "gpt-x") -> AgentStart:
    return AgentStart(*_HEAD, "agent", "session", Initial(), config_snapshot=LoopConfigSnapshot(model))


def turn(index: int) -> TurnStart:
    return TurnStart(*_HEAD, index, "user")


def end(reason: EndReason = "done", detail: str = "", usage: Usage | None = None) -> AgentEnd:
    return AgentEnd(*_HEAD, [], usage or Usage(), reason, detail)


def said(message: AgentMessage) -> list[AgentEvent]:
    """A message that was complete when it came."""
    return [MessageStart(*_HEAD, message), MessageEnd(*_HEAD, message)]


def answer_start() -> MessageStart:
    return MessageStart(*_HEAD, AssistantMessage())


def answer_end(text: str = "", **fields: Any) -> MessageEnd:
    return MessageEnd(*_HEAD, AssistantMessage([TextContent(text)] if text else [], **fields))


def update(*deltas: Delta | str) -> list[AgentEvent]:
    """Pieces of an answer; a string is some of its text."""
    return [MessageUpdate(*_HEAD, TextDelta(delta) if isinstance(delta, str) else delta) for delta in deltas]


def answered(*deltas: Delta | str, **fields: Any) -> list[AgentEvent]:
    """A whole answer, in these pieces."""
    return [answer_start(), *update(*deltas), answer_end(**fields)]


def tool_start(name: str, args: Mapping[str, Any] | None = None, *, id: str = "c1") -> ToolExecutionStart:
    return ToolExecutionStart(*_HEAD, id, name, dict(args or {}))


def tool_update(name: str, shown: Any, *, id: str = "c1") -> ToolExecutionUpdate:
    return ToolExecutionUpdate(*_HEAD, id, name, {}, shown)


def tool_end(
    name: str,
    args: Mapping[str, Any] | None = None,
    text: str = "",
    *,
    id: str = "c1",
    error: bool = False,
    duration: float = 0.0,
    **details: Any,
) -> ToolExecutionEnd:
    details.setdefault("status", "completed")
    result = ToolResultMessage([TextContent(text)], tool_call_id=id, tool_name=name, is_error=error, details=details)
    loop_id, seq, timestamp = _HEAD
    return ToolExecutionEnd(
        loop_id, seq, timestamp, id, name, dict(args or {}), result=result, is_error=error, duration=duration
    )


def retry(delay: float = 3.0, message: str = "too many of us") -> RetryScheduled:
    return RetryScheduled(*_HEAD, 1, delay, ErrorInfo("overloaded", message))
