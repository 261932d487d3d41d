"""The tool calls that are under way, those of sub-agents among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from steersman.cli.render.calls import Running, entry, settled, update_text
from steersman.cli.render.lines import CYAN
from steersman.cli.render.notes import retry_words
from steersman.cli.render.page import Page
from steersman.cli.terminal.sanitize import one_line
from steersman.types.events import (
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)

_Path: TypeAlias = tuple[str, ...]
"""The id of a call behind those of the calls it was made for."""


_Followed: TypeAlias = ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd | RetryScheduled
_FOLLOWED = ("tool_execution_start", "tool_execution_update", "tool_execution_end", "retry_scheduled")


class Work:
    """What the tools are doing; a call that is over goes to the page."""

    def __init__(self, page: Page, *, verbose: bool, workspace: Path, clock: Callable[[], float]) -> None:
        self._page = page
        self._verbose = verbose
        self._workspace = workspace
        self._clock = clock
        self._calls: dict[_Path, Running] = {}

    @property
    def going_on(self) -> bool:
        """Whether a tool is running."""
        return bool(self._calls)

    def stop(self) -> None:
        """Nothing is running any more."""
        self._calls = {}

    def live(self, sign: str, width: int) -> list[str]:
        """The calls that are running, with the end of what they wrote."""
        now = self._clock()
        return [line for call in self._calls.values() for line in call.lines(sign, width, now, color=self._page.color)]

    def begin(self, event: ToolExecutionStart, above: _Path = ()) -> None:
        """A call begins."""
        self._calls[*above, event.tool_call_id] = Running(
            event.tool_name, event.args, began=self._clock(), depth=len(above), workspace=self._workspace
        )

    def update(self, event: ToolExecutionUpdate, above: _Path = ()) -> None:
        """A running call shows something."""
        path = (*above, event.tool_call_id)
        call = self._calls.get(path)
        if call is None:
            return
        if (told := update_text(event.update)) is not None:
            kind, text = told
            if kind == "output":
                call.wrote(text)
            else:
                call.progress = one_line(text)
        elif isinstance(event.update, Mapping):
            self._sub_agent(call, path, cast("Mapping[str, Any]", event.update))

    def end(self, event: ToolExecutionEnd, above: _Path = ()) -> None:
        """A call is settled."""
        path = (*above, event.tool_call_id)
        for other in [other for other in self._calls if other[: len(path)] == path]:
            del self._calls[other]
        depth, color = len(above), self._page.color
        self._page.put(
            "tool", lambda width: settled(event, self._workspace, width, depth, color=color, verbose=self._verbose)
        )

    def _sub_agent(self, call: Running, path: _Path, update: Mapping[str, Any]) -> None:
        """What a sub-agent does is shown under the call that asked it, one step further in."""
        event = update.get("event")
        if update.get("type") != "agent_event" or not isinstance(event, Mapping):
            return
        self._announce(call)
        told = cast("Mapping[str, Any]", event)
        match told:
            case {"type": "message_update", "delta": {"type": "text_delta", "delta": str(text)}}:
                call.wrote(text)
            case {"type": str(kind)} if kind in _FOLLOWED:
                self._follow(call, path, told)
            case _:
                pass

    def _follow(self, call: Running, path: _Path, told: Mapping[str, Any]) -> None:
        try:
            event: _Followed = msgspec.convert(told, _Followed)
        except (msgspec.ValidationError, RecursionError):
            # A tool may show what it likes; what is no event is not shown as one.
            return
        match event:
            case ToolExecutionStart():
                self.begin(event, path)
            case ToolExecutionUpdate():
                self.update(event, path)
            case ToolExecutionEnd():
                self.end(event, path)
            case RetryScheduled():
                call.progress = one_line(retry_words(event))

    def _announce(self, call: Running) -> None:
        """The call of a sub-agent is named before what it does, which stands below it."""
        if call.announced:
            return
        call.announced = True
        sign, color = ("\u21b3", CYAN), self._page.color
        self._page.put("tool", lambda width: [entry(sign, call.name, call.about, [], width, call.depth, color=color)])
