"""What a run looks like: events in, lines out; no terminal, no waiting, and nothing per delta beyond an append.

`finished` gives lines that will not change any more, each once and in order; `live` gives what still changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from steersman.cli.render.answer import Answer
from steersman.cli.render.calls import Running, entry, settled, update_text
from steersman.cli.render.lines import (
    BOLD,
    CYAN,
    DIM,
    RED,
    SEPARATOR,
    YELLOW,
    cost_line,
    count,
    cropped,
    elapsed,
    painted,
    usage_words,
)
from steersman.cli.render.notes import end_note, note_of, retry_words
from steersman.cli.render.page import Kind, Page
from steersman.cli.terminal.sanitize import one_line
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    CompactionEnded,
    CompactionStarted,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnStart,
)
from steersman.types.messages import AssistantMessage, UserMessage
from steersman.types.stream import Reset
from steersman.types.usage import Usage

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


SPINNER = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_FRAMES_PER_SECOND = 10

Said: TypeAlias = Literal["user", "notice", "error"]


class Show:
    """What to show of a run, or of one after another."""

    def __init__(
        self,
        *,
        color: bool,
        verbose: bool,
        workspace: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._color = color
        self._verbose = verbose
        self._clock = clock
        self._page = Page(color=color)
        self._answer = Answer(self._page, verbose=verbose)
        self._work = Work(self._page, verbose=verbose, workspace=workspace, clock=clock)
        self._waiting = ""
        self._usage = Usage()
        self._model = ""
        self._began: float | None = None
        self._turn = 0
        self._dirty = False
        self._frame = -1
        self._hears: Mapping[type[Any], Callable[[Any], None]] = {
            MessageUpdate: self._message_update,
            AgentStart: self._agent_start,
            AgentEnd: self._agent_end,
            TurnStart: self._turn_start,
            MessageStart: self._message_start,
            MessageEnd: self._message_end,
            ToolExecutionStart: self._tool_start,
            ToolExecutionUpdate: self._work.update,
            ToolExecutionEnd: self._work.end,
            CompactionStarted: self._compaction_started,
            CompactionEnded: self._compaction_ended,
            RetryScheduled: self._retry,
            ModelFallback: self._fallback,
        }

    @property
    def busy(self) -> bool:
        """Whether a run is going on."""
        return self._began is not None

    @property
    def changed(self) -> bool:
        """Whether there is something new to draw since the last `live`."""
        return self._dirty or self._page.waiting or (self.busy and self._frame_now() != self._frame)

    def hear(self, event: AgentEvent) -> None:
        """Take in what happened."""
        self._dirty = True
        if (hear := self._hears.get(type(event))) is not None:
            hear(event)
        if (note := note_of(event, verbose=self._verbose)) is not None:
            self._page.note(*note)

    def say(self, kind: Said, text: str) -> None:
        """Something that is no event: what a user typed, a notice, an error. Untrusted as all the rest."""
        self._dirty = True
        if kind == "user":
            self._page.put("user", lambda width: self._page.prefixed("\u276f ", CYAN, text, BOLD, width))
        elif kind == "error":
            self._page.note(text, RED, "\u2717 ")
        else:
            self._page.note(text)

    def finished(self, width: int) -> str:
        """The lines that will not change any more and have not been given yet, each with its line break."""
        return "".join([f"{line}\n" for line in self._page.take(width)])

    def live(self, width: int, rows: int) -> str:
        """The lines that still change, at most `rows` of them; nothing when no run is going on."""
        self._dirty = False
        self._frame = self._frame_now()
        if not self.busy or rows < 1:
            return ""
        sign = SPINNER[self._frame]
        parts: tuple[tuple[Kind, list[str]], ...] = (
            ("thinking", self._answer.live_thinking(width)),
            ("text", self._answer.live_text(width)),
            ("tool", [*self._work.live(sign, width), *self._answer.live_calls(sign, width)]),
        )
        body: list[str] = []
        for kind, part in parts:
            if part and part[0] and (body or self._page.last not in (None, kind)):
                body.append("")
            body += part
        if rows > 2 and (body or self._page.last is not None):
            body.append("")
        return "\n".join([*body[max(0, len(body) - rows + 1) :], self._status(width)])

    def _frame_now(self) -> int:
        return int(self._clock() * _FRAMES_PER_SECOND) % len(SPINNER)

    def _status(self, width: int) -> str:
        doing = self._waiting or ("working" if self._work.going_on else self._answer.activity)
        seconds = 0.0 if self._began is None else self._clock() - self._began
        text = cropped(SEPARATOR.join([one_line(doing), elapsed(seconds), *usage_words(self._usage)]), width - 2)
        return painted([(SPINNER[self._frame], CYAN), (" ", ""), (text, DIM)], color=self._color)

    def _agent_start(self, event: AgentStart) -> None:
        self._began = self._clock()
        self._usage = Usage()
        self._model = event.config_snapshot.model if event.config_snapshot else ""
        self._turn = 0

    def _turn_start(self, event: TurnStart) -> None:
        self._turn = event.turn_index

    def _message_start(self, event: MessageStart) -> None:
        if isinstance(event.message, AssistantMessage):
            self._answer.begin()
        elif isinstance(event.message, UserMessage) and self._turn > 0 and event.message.text.strip():
            # The prompt itself was shown by whoever took it; these were heard on the way.
            self.say("notice" if event.message.synthetic else "user", event.message.text)

    def _message_update(self, event: MessageUpdate) -> None:
        if type(event.delta) is not Reset:
            self._waiting = ""
        self._answer.hear(event.delta)

    def _message_end(self, event: MessageEnd) -> None:
        message = event.message
        if not isinstance(message, AssistantMessage):
            return
        self._answer.end(message.text)
        self._waiting = ""
        self._usage = self._usage + message.usage
        self._model = message.model or self._model
        if message.stop_reason == "length":
            self._page.note("The answer was cut off: it reached the most tokens it may have.", YELLOW)

    def _tool_start(self, event: ToolExecutionStart) -> None:
        self._answer.forget_calls()
        self._work.begin(event)

    def _compaction_started(self, event: CompactionStarted) -> None:
        self._waiting = f"making the conversation shorter ({count(event.message_count, 'message')})"

    def _compaction_ended(self, _event: CompactionEnded) -> None:
        self._waiting = ""

    def _retry(self, event: RetryScheduled) -> None:
        self._answer.void()
        self._waiting = retry_words(event)

    def _fallback(self, event: ModelFallback) -> None:
        self._answer.void()
        self._model = event.to_model

    def _agent_end(self, event: AgentEnd) -> None:
        self._answer.close()
        self._work.stop()
        self._waiting = ""
        if (note := end_note(event, verbose=self._verbose)) is not None:
            self._page.note(*note)
        seconds = None if self._began is None else self._clock() - self._began
        if line := cost_line(event.usage, seconds=seconds, model=self._model):
            self._page.put("end", lambda width: self._page.prefixed("", DIM, line, DIM, width))
        self._began = None
