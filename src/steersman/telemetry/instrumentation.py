"""`instrument`: record the runs of an agent, or of all agents, as OpenTelemetry spans and metrics."""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from threading import RLock
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary, finalize

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanContext, TracerProvider

from steersman.agent.agent import Agent
from steersman.events.dispatch import Dispatcher
from steersman.loop.run import Run
from steersman.loop.watching import add_watcher, remove_watcher
from steersman.session.recorder import Recorder
from steersman.telemetry import names
from steersman.telemetry.propagation import read_span_context, write_span_context
from steersman.telemetry.recording import Recording, make_recording
from steersman.telemetry.request_trace import trace_requests
from steersman.telemetry.run_trace import RunTrace, get_current_trace
from steersman.types.errors import describe_exception
from steersman.types.model import StreamFn

# For links: the last run of so many sessions, and so many runs, are remembered.
_MOST_REMEMBERED = 4_096

_log = logging.getLogger("steersman")


def instrument(
    agent_or_all: Agent[Any] | Literal["all"],
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
    *,
    name: str = "steersman",
) -> None:
    """Record every run that starts from now on as spans and metrics, with its requests, tool calls and sub-agents.

    `"all"` means every agent of the process, also those made later. Without providers the global ones are used. Text
    (prompts, answers, arguments, results, error messages) is recorded only with `content`, and keys are redacted in
    it. `name` is the agent's in its spans; a sub-agent has that of its tool. A second call replaces the first.
    """
    _registry.add(
        _find_target(agent_or_all), make_recording(tracer_provider, meter_provider, name=name, content=content)
    )


def uninstrument(agent_or_all: Agent[Any] | Literal["all"]) -> None:
    """Record no more runs of this agent, or undo `instrument("all")`; runs that go on are recorded to their end."""
    _registry.remove(_find_target(agent_or_all))


def end_open_spans() -> None:
    """End the spans of all runs that are being recorded, before the process exits; these runs are recorded no more."""
    _registry.end_open()


def _find_target(agent_or_all: object) -> Dispatcher | None:
    if agent_or_all == "all":
        return None
    if not isinstance(agent_or_all, Agent):
        raise TypeError(f'instrument() takes an Agent or "all", got {agent_or_all!r}.')
    return agent_or_all.dispatcher


class _Registry:
    """What is instrumented, and the runs that are being recorded. It is the watcher that the loop shows its runs to."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may call `_stop_if_unused` in the thread that holds it.
        self._lock = RLock()
        # By dispatcher, which the branches of an agent share with it.
        self._agents: WeakKeyDictionary[Dispatcher, Recording] = WeakKeyDictionary()
        self._all: Recording | None = None
        self._is_watching = False
        self._open: dict[Run, RunTrace] = {}
        # The spans of earlier runs, by session and by run.
        self._earlier: OrderedDict[str, SpanContext] = OrderedDict()

    def add(self, target: Dispatcher | None, recording: Recording) -> None:
        with self._lock:
            if target is None:
                self._all = recording
            else:
                if target not in self._agents:
                    finalize(target, self._stop_if_unused).atexit = False
                self._agents[target] = recording
            if not self._is_watching:
                self._is_watching = True
                add_watcher(self)

    def remove(self, target: Dispatcher | None) -> None:
        with self._lock:
            if target is None:
                self._all = None
            else:
                self._agents.pop(target, None)
            self._stop_if_unused()

    def _stop_if_unused(self) -> None:
        """Watch no more runs once the last agent that is recorded is gone; called when one is collected, too."""
        with self._lock:
            # Not by their number: it may still count the one that is being collected.
            if self._is_watching and self._all is None and next(iter(self._agents), None) is None:
                self._is_watching = False
                remove_watcher(self)

    def end_open(self) -> None:
        for trace in list(self._open.values()):
            trace.end()

    # As a watcher of the loop

    def watch_run(self, run: Run, /) -> None:
        """Start to record a run, if it is one to record: also one inside a tool call of a recorded run."""
        try:
            outer = self._find_outer(run)
            recording = self._agents.get(run.host.dispatcher) or self._all
            recording = recording or (None if outer is None else outer.recording)
            if recording is not None and not _is_workflow():
                self._start(recording, run, outer)
        except Exception as error:  # noqa: BLE001  # telemetry that fails, such as a sampler, must not be seen in the run
            _log.warning("The run is not traced: %s", describe_exception(error))

    def watch_requests(self, stream_fn: StreamFn, /) -> StreamFn:
        """The `StreamFn` with a span for each request of a recorded run."""
        return trace_requests(stream_fn)

    def _find_outer(self, run: Run) -> RunTrace | None:
        """The trace of the run inside which this one starts."""
        outer = None if run.parent is None else self._open.get(run.parent)
        return outer if outer is not None and not outer.is_over else get_current_trace()

    def _start(self, recording: Recording, run: Run, outer: RunTrace | None) -> None:
        session, context = run.context.session_id or "", run.context
        before = None if run.parent is not None else context.parent_loop_id or run.start.parent_loop_id
        recorder = _find_recorder(run)
        with self._lock:
            found = {"session": self._earlier.get(session), "parent_run": self._earlier.get(before or "")}
        if found["session"] is None and recorder is not None:
            # The run before was of another process.
            found["session"] = read_span_context(recorder.index.traceparent)
        # By the id of the span: the run before may also be the one that this run goes on from.
        links = {span.span_id: Link(span, {names.LINK: kind}) for kind, span in found.items() if span is not None}
        self._open[run] = trace = RunTrace(
            recording, run, outer, [*links.values()], lambda _: self._open.pop(run, None)
        )
        if recorder is not None and trace.span.get_span_context().is_valid:
            recorder.record_trace(write_span_context(trace.span.get_span_context()))
        with self._lock:
            for key in (session, run.loop_id):
                self._earlier[key] = trace.span.get_span_context()
                self._earlier.move_to_end(key)
            while len(self._earlier) > _MOST_REMEMBERED:
                self._earlier.popitem(last=False)


_registry = _Registry()


def _find_recorder(run: Run) -> Recorder | None:
    """What writes the session of a run; `None` for one without a session."""
    host: object = run.host
    session = cast(Agent[Any], host).session if isinstance(host, Agent) else None
    return None if session is None or session.closed else session.recorder


def _is_workflow() -> bool:
    """Whether this code runs in a workflow of Temporal, which repeats it: its spans would come twice."""
    workflow: Any = sys.modules.get("temporalio.workflow")
    return workflow is not None and workflow.in_workflow()
