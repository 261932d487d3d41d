"""Renders a run: takes events, and returns lines. No terminal and no waiting; a delta costs one append.

`take_finished` returns lines that no longer change, each once and in order; `render_live` returns the changing part.
A call of `take_finished` is a step that ends soon, however long an answer is; `page.waiting` says that there is more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from steersman.cli.render.answer import Answer, Kind, Page
from steersman.cli.render.calls import (
    RunningCall,
    parse_update,
    render_call,
    render_finished_call,
    render_whole_call,
)
from steersman.cli.render.lines import BOLD, CYAN, DIM, RED, YELLOW, crop, paint
from steersman.cli.render.notes import describe_end, describe_event, describe_failure, describe_retry
from steersman.cli.render.whole_output import read_whole_output
from steersman.cli.terminal.numbers import SEPARATOR, describe_cost, describe_usage, format_count, format_elapsed
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.types.content import TextContent
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ApprovalRequested,
    ApprovalResolved,
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
"""The id of a call after the ids of the calls it belongs to."""

_Followed: TypeAlias = ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd | RetryScheduled
_FOLLOWED = ("tool_execution_start", "tool_execution_update", "tool_execution_end", "retry_scheduled")

SPINNER = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_FRAMES_PER_SECOND = 10
Said: TypeAlias = Literal["user", "notice", "error", "answer"]


class ToolCalls:
    """The running tool calls, including those of sub-agents; finished ones go to the page."""

    def __init__(
        self, page: Page, *, verbose: bool, workspace: Path, clock: Callable[[], float], hint: str = ""
    ) -> None:
        self._page = page
        self._verbose = verbose
        self._workspace = workspace
        self._clock = clock
        self._hint = hint
        self._calls: dict[_Path, RunningCall] = {}
        self._finished: list[ToolExecutionEnd] = []
        self._stale = False
        self._expanded = 0
        self.refused: set[str] = set()

    @property
    def running(self) -> bool:
        """Whether a tool is running."""
        return bool(self._calls)

    def clear(self) -> None:
        """Forgets all running calls; the finished ones can be expanded until the next run has finished one."""
        self._calls = {}
        self._stale = True

    def expand(self) -> bool:
        """Shows the last finished call with its whole output; asked again, all of the run. Returns whether it could."""
        if self._expanded == len(self._finished):
            return False
        self._expanded = len(self._finished) if self._expanded else 1
        calls = self._finished if self._expanded > 1 else self._finished[-1:]
        for event in calls:
            self._page.put("whole", partial(self._render_whole, event))
        return True

    def _render_whole(self, event: ToolExecutionEnd, width: int) -> Iterator[str]:
        text = read_whole_output(event.result)
        return render_whole_call(event, text, self._workspace, width, color=self._page.color)

    def render_live(self, sign: str, width: int) -> list[str]:
        """Renders the running calls, with the end of their output."""
        now = self._clock()
        return [line for call in self._calls.values() for line in call.render(sign, width, now, color=self._page.color)]

    def start_call(self, event: ToolExecutionStart, above: _Path = ()) -> None:
        """Adds a call."""
        self._calls[*above, event.tool_call_id] = RunningCall(
            event.tool_name, event.args, began=self._clock(), depth=len(above), workspace=self._workspace
        )

    def update_call(self, event: ToolExecutionUpdate, above: _Path = ()) -> None:
        """Adds output or progress to a running call."""
        path = (*above, event.tool_call_id)
        call = self._calls.get(path)
        if call is None:
            return
        if (told := parse_update(event.update)) is not None:
            kind, text = told
            if kind == "output":
                call.add_output(text)
            else:
                call.progress = sanitize_line(text)
        elif isinstance(event.update, Mapping):
            self._show_sub_agent(call, path, cast("Mapping[str, Any]", event.update))

    def end_call(self, event: ToolExecutionEnd, above: _Path = ()) -> None:
        """Moves a finished call to the page."""
        path = (*above, event.tool_call_id)
        for other in [other for other in self._calls if other[: len(path)] == path]:
            del self._calls[other]
        depth, color = len(above), self._page.color
        if self._stale:
            self._finished, self._stale = [], False
        self._finished.append(event)
        self._expanded = 0
        # Who said no knows why; the rest of that result is advice for the model.
        most = 1 if event.tool_call_id in self.refused and not self._verbose else None
        self._page.put(
            "tool",
            lambda width: render_finished_call(
                event, self._workspace, width, depth, color=color, verbose=self._verbose, hint=self._hint
            )[:most],
        )

    def _show_sub_agent(self, call: RunningCall, path: _Path, update: Mapping[str, Any]) -> None:
        """Shows what a sub-agent does below the call that started it, indented."""
        event = update.get("event")
        if update.get("type") != "agent_event" or not isinstance(event, Mapping):
            return
        self._announce(call)
        told = cast("Mapping[str, Any]", event)
        match told:
            case {"type": "message_update", "delta": {"type": "text_delta", "delta": str(text)}}:
                call.add_output(text)
            case {"type": str(kind)} if kind in _FOLLOWED:
                self._show_sub_agent_event(call, path, told)
            case _:
                pass

    def _show_sub_agent_event(self, call: RunningCall, path: _Path, told: Mapping[str, Any]) -> None:
        try:
            event: _Followed = msgspec.convert(told, _Followed)
        except (msgspec.ValidationError, RecursionError):
            # A tool may send any update; what is not an event is not shown as one.
            return
        match event:
            case ToolExecutionStart():
                self.start_call(event, path)
            case ToolExecutionUpdate():
                self.update_call(event, path)
            case ToolExecutionEnd():
                self.end_call(event, path)
            case RetryScheduled():
                call.progress = sanitize_line(describe_retry(event))

    def _announce(self, call: RunningCall) -> None:
        """Prints the name of a sub-agent's call before what it does."""
        if call.announced:
            return
        call.announced = True
        sign, color = ("\u21b3", CYAN), self._page.color
        self._page.put(
            "tool", lambda width: [render_call(sign, call.name, call.about, [], width, call.depth, color=color)]
        )


class RunDisplay:
    """Renders one run after another."""

    def __init__(
        self,
        *,
        color: bool,
        verbose: bool,
        workspace: Path,
        clock: Callable[[], float] = time.monotonic,
        hint: str = "",
    ) -> None:
        self.shorten: Callable[[str], str] = str  # of what the user sent; a chat shows a paste as its placeholder
        self._color = color
        self._verbose = verbose
        self._clock = clock
        self.page = Page(color=color)
        self._answer = Answer(self.page, verbose=verbose)
        self._work = ToolCalls(self.page, verbose=verbose, workspace=workspace, clock=clock, hint=hint)
        self._waiting = ""
        self._retry_at: float | None = None
        self._usage = Usage()
        self._model = ""
        self._began: float | None = None
        self._asks_model = False
        self._asked: dict[str, str] = {}
        self._turn = 0
        self._dirty = False
        self._frame = -1
        self._event_methods: Mapping[type[Any], Callable[[Any], None]] = {
            MessageUpdate: self._on_message_update,
            AgentStart: self._on_agent_start,
            AgentEnd: self._on_agent_end,
            TurnStart: self._on_turn_start,
            MessageStart: self._on_message_start,
            MessageEnd: self._on_message_end,
            ToolExecutionStart: self._on_tool_start,
            ToolExecutionUpdate: self._work.update_call,
            ToolExecutionEnd: self._work.end_call,
            ApprovalRequested: self._on_approval_requested,
            ApprovalResolved: self._on_approval_resolved,
            CompactionStarted: self._on_compaction_started,
            CompactionEnded: self._on_compaction_ended,
            RetryScheduled: self._on_retry,
            ModelFallback: self._on_fallback,
        }

    @property
    def busy(self) -> bool:
        """Whether a run is going on."""
        return self._began is not None

    @property
    def changed(self) -> bool:
        """Whether there is something new to draw since the last `render_live`."""
        return self._dirty or self.page.waiting or (self.busy and self._pick_frame() != self._frame)

    def show_event(self, event: AgentEvent) -> None:
        """Takes an event."""
        self._dirty = True
        if (hear := self._event_methods.get(type(event))) is not None:
            hear(event)
        if (note := describe_event(event, verbose=self._verbose)) is not None:
            self.page.add_note(*note)

    def say(self, kind: Said, text: str) -> None:
        """Adds a text that is not an event: typed input, a notice, an error or an earlier answer; sanitizes it."""
        self._dirty = True
        if kind == "user":
            self.page.put("user", lambda width: self.page.render_prefixed("\u276f ", CYAN, text, BOLD, width))
        elif kind == "answer":
            self.page.add_markdown(text)
        elif kind == "error":
            self.page.add_note(text, RED, "\u2717 ")
        else:
            self.page.add_note(text)

    def expand(self) -> None:
        """Shows the whole output of the last tool call; asked again, of all calls of the run."""
        if not self._work.expand():
            self.say("notice", "There is no more output to show.")
        self._dirty = True

    def take_finished(self, width: int) -> str:
        """Returns the next lines that no longer change and were not returned before, each with its line break."""
        return "".join([f"{line}\n" for line in self.page.take_finished(width)])

    def render_live(self, width: int, rows: int) -> str:
        """Renders the lines that still change, at most `rows`; empty if no run is going on."""
        self._dirty = False
        self._frame = self._pick_frame()
        if not self.busy or rows < 1:
            return ""
        sign = SPINNER[self._frame]
        parts: tuple[tuple[Kind, list[str]], ...] = (
            ("thinking", self._answer.render_thinking(width)),
            ("text", self._answer.render_text(width)),
            ("tool", [*self._work.render_live(sign, width), *self._answer.render_calls(sign, width)]),
        )
        body: list[str] = []
        for kind, part in parts:
            if part and part[0] and (body or self.page.last not in (None, kind)):
                body.append("")
            body += part
        if rows > 2 and (body or self.page.last is not None):
            body.append("")
        return "\n".join([*body[max(0, len(body) - rows + 1) :], self._render_status(width)])

    def _pick_frame(self) -> int:
        return int(self._clock() * _FRAMES_PER_SECOND) % len(SPINNER)

    def _render_status(self, width: int) -> str:
        # Before the first turn and between two of them there may be hooks, which are no work of the model.
        models = self._asks_model and not self._work.running
        doing = self._describe_waiting() or (self._answer.activity if models else "working")
        seconds = 0.0 if self._began is None else self._clock() - self._began
        text = crop(
            SEPARATOR.join([sanitize_line(doing), format_elapsed(seconds), *describe_usage(self._usage)]), width - 2
        )
        return paint([(SPINNER[self._frame], CYAN), (" ", ""), (text, DIM)], color=self._color)

    def _describe_waiting(self) -> str:
        """What the run waits for; a wait for a retry is counted down."""
        if self._retry_at is None or not self._waiting:
            return self._waiting
        left = math.ceil(max(0.0, self._retry_at - self._clock()))
        return f"retrying in {format_elapsed(left)}: {self._waiting}"

    def _stop_waiting(self) -> None:
        self._waiting, self._retry_at = "", None

    def _on_agent_start(self, event: AgentStart) -> None:
        self._began = self._clock()
        self._asks_model = False
        self._usage = Usage()
        name = event.config_snapshot.model if event.config_snapshot else ""
        self._model = name.partition(":")[2] or name  # as answers name it, without the provider
        self._turn = 0

    def _on_turn_start(self, event: TurnStart) -> None:
        self._turn = event.turn_index
        self._asks_model = True

    def _on_message_start(self, event: MessageStart) -> None:
        if isinstance(event.message, AssistantMessage):
            self._asks_model = True
            self._answer.begin()
        elif isinstance(event.message, UserMessage) and self._turn > 0 and event.message.text.strip():
            # The prompt itself is shown by the caller; these messages arrived during the run.
            first = event.message.content[0]
            # What is attached comes after what was typed, and is not shown again.
            typed = first.text if isinstance(first, TextContent) else event.message.text
            self.say(*(("notice", typed) if event.message.synthetic else ("user", self.shorten(typed))))

    def _on_message_update(self, event: MessageUpdate) -> None:
        if type(event.delta) is not Reset and self._waiting:
            self._stop_waiting()
        self._answer.add(event.delta)

    def _on_message_end(self, event: MessageEnd) -> None:
        message = event.message
        if not isinstance(message, AssistantMessage):
            return
        self._answer.end(message.text)
        self._asks_model = False
        self._stop_waiting()
        self._usage = self._usage + message.usage
        self._model = message.model or self._model
        if message.stop_reason == "length":
            self.page.add_note("The answer was truncated: it reached its token limit.", YELLOW)

    def _on_tool_start(self, event: ToolExecutionStart) -> None:
        self._answer.clear_calls()
        self._work.start_call(event)

    def _on_approval_requested(self, event: ApprovalRequested) -> None:
        self._asked[event.approval_id] = event.tool_call_id

    def _on_approval_resolved(self, event: ApprovalResolved) -> None:
        call = self._asked.pop(event.approval_id, None)
        if call is not None and event.decision == "denied" and event.by == "function":
            self._work.refused.add(call)

    def _on_compaction_started(self, event: CompactionStarted) -> None:
        self._waiting = f"compacting the conversation ({format_count(event.message_count, 'message')})"

    def _on_compaction_ended(self, _event: CompactionEnded) -> None:
        self._stop_waiting()

    def _on_retry(self, event: RetryScheduled) -> None:
        self._answer.withdraw()
        self._waiting = describe_failure(event.error)
        self._retry_at = self._clock() + event.delay

    def _on_fallback(self, event: ModelFallback) -> None:
        self._answer.withdraw()
        self._model = event.to_model

    def _on_agent_end(self, event: AgentEnd) -> None:
        self._answer.close()
        self._work.clear()
        self._stop_waiting()
        if (note := describe_end(event, verbose=self._verbose)) is not None:
            self.page.add_note(*note)
        seconds = None if self._began is None else self._clock() - self._began
        if line := describe_cost(event.usage, seconds=seconds, model=self._model):
            self.page.put("end", lambda width: self.page.render_prefixed("", DIM, line, DIM, width))
        self._began = None
