"""`instrument` and `uninstrument`: which runs are recorded, with which names, and that recording is never felt."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest
from opentelemetry.context import get_current
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from tests.telemetry.kit import Collected, attributes, context_of, events

from steersman import Agent, AgentContext, AgentLoopConfig, Session, Usage, agent_loop, get_model, tool
from steersman.events import AgentEvent
from steersman.loop import watching
from steersman.provider.streaming.batches import Batch
from steersman.provider.streaming.normalize import NormalizedStreamFn
from steersman.session import MemoryStore
from steersman.team import run_branches
from steersman.telemetry import end_open_spans, instrument, uninstrument
from steersman.telemetry.request_trace import AskedModel, trace_requests
from steersman.testing import EventCollector, ScriptedModel, answer, call, cut, error
from steersman.types.model import Model, Request, StreamOptions


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_agent(*script: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*script or ("Hi.",), repeat_last=True).model, **options)


# Which runs


async def test_all_means_agents_made_later_and_bare_contexts_until_it_is_undone(collected: Collected) -> None:
    before = make_agent()
    collected.record("all")
    await before.run("One.")
    await make_agent().run("Two.")
    model = ScriptedModel("Three.").model
    await agent_loop([{"role": "user", "content": "Go."}], AgentContext(), AgentLoopConfig(model=model))
    assert len(collected.find("invoke_agent")) == 3
    uninstrument("all")
    await before.run("Four.")
    await make_agent().run("Five.")
    assert len(collected.find("invoke_agent")) == 3


async def test_runs_are_watched_only_while_an_agent_is_recorded(collected: Collected) -> None:
    """Also where a task that a tool has left running keeps the context of its run."""
    left: list[asyncio.Task[bool]] = []
    stop = asyncio.Event()

    @tool
    async def leave() -> str:
        """Leave a task behind."""
        left.append(asyncio.create_task(stop.wait()))
        return "left"

    agents = [make_agent(answer(call("leave")), "Done.", tools=[leave]), make_agent()]
    collected.record(agents[0])
    collected.record(agents[1])
    await agents[0].run("Go.")
    for expected in (1, 0):
        agents.pop(0)
        await asyncio.sleep(0)  # the event loop still has callbacks of the run
        gc.collect()
        assert len(watching.watchers) == expected
    stop.set()
    await left[0]


async def test_a_measurement_has_no_exemplar_of_another_span(collected: Collected) -> None:
    """They are recorded many at a time, when another span may be the current one."""
    collected.record("all")
    with collected.tracer_provider.get_tracer("test").start_as_current_span("outside"):
        await make_agent(answer(call("add", a=1, b=2)), "Done.", tools=[add]).run("Go.")
    found = collected.reader.get_metrics_data()
    assert found is not None
    points: list[Any] = [
        point
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    ]
    assert len(points) >= 4
    assert [point.exemplars for point in points] == [[] for _ in points]


async def test_what_is_told_of_one_request_is_not_told_of_the_next(collected: Collected) -> None:
    """Names and attributes are made once for a model: another model, other options and a failure have their own."""

    @tool
    async def divide(a: int, b: int) -> float:
        """Divide."""
        return a / b

    calls = [answer(call("divide", a=1, b=number)) for number in (0, 1)]
    first = ScriptedModel(*calls, cut("half", after=1), "never asked", id="first")
    second = ScriptedModel("Done.", id="second")
    agent = Agent(first.model, tools=[divide], retry=None, fallbacks=[second.model])
    collected.record(agent)
    await agent.run("Go.")
    chats = collected.find("chat")
    assert [span.name for span in chats] == ["chat first", "chat first", "chat first", "chat second"]
    assert [attributes(span)["gen_ai.request.model"] for span in chats] == ["first", "first", "first", "second"]
    assert [attributes(span).get("error.type") for span in chats] == [None, None, "incomplete", None]
    assert all("gen_ai.response.time_to_first_chunk" in attributes(span) for span in chats)
    tools = collected.find("execute_tool")
    assert [attributes(span).get("error.type") for span in tools] == ["tool_error", None]
    found = collected.reader.get_metrics_data()
    assert found is not None
    counted = {
        (point.attributes["gen_ai.tool.name"], point.attributes.get("error.type")): point.count
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in cast(Any, metric.data).data_points
        if "gen_ai.tool.name" in point.attributes
    }
    assert counted == {("divide", "tool_error"): 1, ("divide", None): 1}


def test_a_request_with_other_options_has_attributes_of_its_own() -> None:
    model, usual = ScriptedModel("x").model, StreamOptions(temperature=0.1)
    asked = AskedModel(model, usual)
    assert asked.fits(model, StreamOptions(temperature=0.1, api_key="another"))
    others: list[Any] = [{"temperature": 0.2}, {"max_tokens": 5}, {"top_p": 0.5}, {"seed": 1}, {"output_schema": {}}]
    assert not any(asked.fits(model, dataclasses.replace(usual, **other)) for other in others)
    assert not asked.fits(ScriptedModel("x").model, usual)


def test_events_in_normal_form_are_not_put_into_it_again() -> None:
    plain = NormalizedStreamFn(stream_nothing)
    assert type(trace_requests(plain)) is NormalizedStreamFn


async def stream_nothing(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Batch]:
    """No event at all."""
    for _ in ():
        yield []


async def test_one_agent_means_no_other(collected: Collected) -> None:
    one, other = make_agent(), make_agent()
    collected.record(one, name="one")
    await one.run("Go.")
    await other.run("Go.")
    assert collected.draw() == [["invoke_agent one", ["chat script"]]]
    uninstrument(one)
    await one.run("Go.")
    assert len(collected.find("invoke_agent")) == 1


async def test_an_instrumentation_of_its_own_goes_before_that_of_all_and_a_run_is_recorded_once(
    collected: Collected,
) -> None:
    agent = make_agent()
    collected.record("all", name="all")
    collected.record(agent, name="first")
    collected.record(agent, name="second")
    await agent.run("Go.")
    assert collected.draw() == [["invoke_agent second", ["chat script"]]]


async def test_an_agent_that_a_tool_runs_by_itself_is_below_the_call(collected: Collected) -> None:
    inner = make_agent("Inside.")

    @tool
    async def ask() -> str:
        """Ask the other agent."""
        return (await inner.run("Go.")).text

    agent = make_agent(answer(call("ask")), "Done.", tools=[ask])
    collected.record(agent, name="outer")
    await agent.run("Go.")
    inside = ["invoke_agent outer", ["chat script"]]
    assert collected.draw() == [
        ["invoke_agent outer", [["chat script", [["execute_tool ask", [inside]]]], "chat script"]]
    ]


def _answer_once(request: Any) -> Any:
    """Call the tool for each message of the user, and then answer."""
    return answer("Done.") if request.messages[-1].role == "tool_result" else answer(call("add", a=1, b=2))


async def test_branches_are_recorded_with_their_agent(collected: Collected) -> None:
    script = ScriptedModel(_answer_once, repeat_last=True)
    agent = Agent(script.model, tools=[add])
    collected.record(agent)
    await agent.run("Go.")
    await run_branches(agent, ["This way.", "That way."])
    runs = collected.find("invoke_agent")
    assert [attributes(run)["steersman.turns"] for run in runs] == [2, 2, 2]
    assert [attributes(run)["steersman.end_reason"] for run in runs] == ["done"] * 3
    whole = ["invoke_agent steersman", [["chat script", ["execute_tool add"]], "chat script"]]
    assert collected.draw() == [whole] * 3


def test_runs_in_many_threads_and_loops_have_their_own_spans(collected: Collected) -> None:
    collected.record("all")

    async def run_some(number: int) -> None:
        agents = [make_agent(answer(call("add", a=number, b=1)), "Done.", tools=[add]) for _ in range(5)]
        async with asyncio.TaskGroup() as group:
            for agent in agents:
                group.create_task(agent.run("Go."))

    def run_loop(number: int) -> None:
        asyncio.run(run_some(number))

    threads = [Thread(target=run_loop, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = ["invoke_agent steersman", [["chat script", ["execute_tool add"]], "chat script"]]
    assert collected.draw() == [whole] * 20
    assert len({context_of(span).trace_id for span in collected.started}) == 20


# What is recorded


async def test_attributes_follow_the_conventions(collected: Collected) -> None:
    usage = Usage(input=10, output=4, cache_read=3, cache_write=2, reasoning=1, cost=0.25)
    script = ScriptedModel(answer(call("add", a=1, b=2), usage=usage), answer("3", usage=usage))
    model = Model("bedrock", "claude-x", base_url="https://user:pass@models.example:8443/v1?key=k")
    agent = Agent(model, stream_fn=script, tools=[add], temperature=0.5, max_tokens=100)
    collected.record(agent, name="adder")
    result = await agent.run("1 + 2?")
    run, chat, call_span = (collected.find(name)[0] for name in ("invoke_agent", "chat", "execute_tool"))
    asked = attributes(chat)
    assert asked.pop("gen_ai.response.time_to_first_chunk") >= 0
    tokens = {
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1,
        "steersman.cost_usd": 0.25,
    }
    assert asked == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "aws.bedrock",
        "gen_ai.request.model": "claude-x",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": attributes(chat)["gen_ai.response.model"],
        "gen_ai.response.finish_reasons": ("tool_call",),
        "server.address": "models.example",
        "server.port": 8443,
        **tokens,
    }
    assert attributes(call_span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "steersman.tool.status": "completed",
    }
    assert attributes(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": agent.context.agent_id,
        "gen_ai.agent.name": "adder",
        "gen_ai.conversation.id": agent.context.session_id,
        "gen_ai.provider.name": "aws.bedrock",
        "gen_ai.request.model": "claude-x",
        "steersman.loop_id": agent.context.last_loop_id,
        "steersman.continuation": "initial",
        "steersman.end_reason": "done",
        "steersman.turns": 2,
        **{name: count * 2 for name, count in tokens.items()},
    }
    assert [span.kind.name for span in (run, chat, call_span)] == ["INTERNAL", "CLIENT", "INTERNAL"]
    assert result.usage.cost == 0.5


async def test_metrics_have_durations_tokens_and_the_time_to_the_first_chunk(collected: Collected) -> None:
    usage = Usage(input=10, output=4, cache_read=3)
    agent = make_agent(error("overloaded"), answer(call("add", a=1, b=2), usage=usage), answer("3"), tools=[add])
    collected.record(agent)
    await agent.run("1 + 2?")
    durations = {
        (found["gen_ai.operation.name"], found.get("error.type")): point.count
        for found, point in collected.points("gen_ai.client.operation.duration")
    }
    assert durations == {
        ("chat", "overloaded"): 1,
        ("chat", None): 2,
        ("execute_tool", None): 1,
        ("invoke_agent", None): 1,
    }
    tokens = collected.points("gen_ai.client.token.usage")
    assert sorted((found["gen_ai.token.type"], point.sum) for found, point in tokens) == [("input", 13), ("output", 4)]
    first = collected.points("gen_ai.client.operation.time_to_first_chunk")
    assert sum(point.count for _, point in first) == 3


async def test_a_long_run_records_its_metrics_while_it_runs(collected: Collected) -> None:
    counts: list[int] = []

    @tool
    async def count() -> str:
        """Count what is recorded so far."""
        found = collected.points("gen_ai.client.operation.duration")
        counts.append(sum(point.count for _, point in found))
        return "counted"

    agent = make_agent(*[answer(call("count"))] * 200, "Done.", tools=[count], repeated_calls=None, limits=None)
    collected.record(agent)
    await agent.run("Go.")
    assert counts[0] == 0 < counts[-1]
    found = collected.points("gen_ai.client.operation.duration")
    assert sum(point.count for _, point in found) == 201 + 200 + 1


async def test_a_failed_request_and_a_failed_tool_are_errors_by_kind(collected: Collected) -> None:
    @tool
    async def broken() -> str:
        """Fail."""
        raise ValueError("no")

    agent = make_agent(answer(call("broken")), error("quota"), tools=[broken], retry=None)
    collected.record(agent)
    await agent.run("Go.")
    failed = {
        span.name.split()[0]: (span.status.status_code.name, attributes(span).get("error.type"))
        for span in collected.ended
    }
    assert failed == {
        "chat": ("ERROR", "quota"),
        "execute_tool": ("ERROR", "tool_error"),
        "invoke_agent": ("ERROR", "quota"),
    }


async def test_steering_and_follow_ups_are_span_events(collected: Collected) -> None:
    agent = make_agent(answer(call("add", a=1, b=2)), "Done.", tools=[add])

    def steer(event: AgentEvent) -> None:
        if event.type == "tool_execution_start":
            agent.steer("Left.")

    agent.subscribe(steer)
    agent.follow_up("And then?")
    collected.record(agent)
    await agent.run("Go.")
    (run,) = collected.find("invoke_agent")
    assert events(run) == [("steersman.steering", {}), ("steersman.follow_up", {})]


_ELSEWHERE = """
import asyncio, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from steersman import Agent
from steersman.telemetry import instrument

provider = TracerProvider(shutdown_on_exit=False)
write = lambda span: f"{span.context.span_id:x} {[f'{link.context.span_id:x}' for link in span.links]}\\n"
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=write)))
instrument("all", provider)
with Agent("scripted:echo", session=sys.argv[1]) as agent:
    asyncio.run(agent.run("Go."))
"""


def test_runs_of_a_session_in_several_processes_are_linked(tmp_path: Path) -> None:
    """O3: the session names the span of its last run."""
    runs: list[list[str]] = []
    for _ in range(3):
        arguments = [sys.executable, "-c", _ELSEWHERE, str(tmp_path / "sessions.db")]
        ran = subprocess.run(arguments, capture_output=True, text=True, check=True)
        runs.append(ran.stdout.splitlines()[-1].split(" ", 1))
    linked = [links for _, links in runs]
    assert linked == ["[]", f"[{runs[0][0]!r}]", f"[{runs[1][0]!r}]"]


@pytest.mark.parametrize("text", ["", "00-x-y-01", f"00-{'0' * 32}-{'0' * 16}-01", "\x1b[31m"])
async def test_a_session_that_names_no_span_is_no_reason_to_fail(collected: Collected, text: str) -> None:
    store = MemoryStore()
    with Session.create(store) as session:
        session.recorder.record_trace(text)
    collected.record("all")
    with Session.open(store) as session, make_agent(session=session) as agent:
        await agent.run("Go.")
    (span,) = collected.find("invoke_agent")
    assert list(span.links) == []


async def test_the_span_of_an_imported_session_is_not_linked(collected: Collected, tmp_path: Path) -> None:
    store = MemoryStore()
    with Session.create(store, "s") as session:
        session.recorder.record_trace(f"00-{'a' * 32}-{'b' * 16}-01")
        session.export(tmp_path / "s.jsonl")
    collected.record("all")
    with Session.import_(tmp_path / "s.jsonl", store, "imported") as session, make_agent(session=session) as agent:
        await agent.run("Go.")
    (span,) = collected.find("invoke_agent")
    assert list(span.links) == []


async def test_runs_of_a_session_are_linked_also_where_another_agent_goes_on(
    collected: Collected, tmp_path: Any
) -> None:
    collected.record("all")
    path = tmp_path / "session.db"
    for _ in range(2):
        with make_agent("One.", session=path) as agent:
            await agent.run("Go.")
    with make_agent("Two.", session=path) as agent:
        await agent.branch(0, "other")
    first, second, third = collected.find("invoke_agent")
    linked = [[link.context.span_id for link in span.links] for span in (first, second, third)]
    ids = [context_of(span).span_id for span in (first, second, third)]
    assert linked == [[], [ids[0]], [ids[1], ids[0]]]
    assert {attributes(span)["gen_ai.conversation.id"] for span in (first, second, third)} == {agent.context.session_id}


# Recording is never felt


class Broken(SpanProcessor):
    """A span processor that raises."""

    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        if self.where == "start" or (self.where == "tool" and span.name.startswith("execute_tool")):
            raise RuntimeError("no space left")

    def on_end(self, span: ReadableSpan) -> None:
        if self.where == "end":
            raise RuntimeError("no space left")


class BrokenSampler(Sampler):
    """A sampler that raises."""

    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no idea")

    def get_description(self) -> str:
        return "broken"


@pytest.mark.parametrize("where", ["start", "end", "sampler", "tool"])
async def test_a_failure_of_the_recording_is_not_seen_in_the_run(where: str) -> None:
    provider = TracerProvider(sampler=BrokenSampler() if where == "sampler" else None, shutdown_on_exit=False)
    provider.add_span_processor(Broken(where))
    plain = make_agent(answer(call("add", a=1, b=2)), "Done.", tools=[add])
    traced = make_agent(answer(call("add", a=1, b=2)), "Done.", tools=[add])
    told = [EventCollector(), EventCollector()]
    plain.subscribe(told[0])
    traced.subscribe(told[1])
    instrument(traced, provider)
    results = [await agent.run("Go.") for agent in (plain, traced)]
    assert [result.end_reason for result in results] == ["done", "done"]
    assert [event.type for event in told[1]] == [event.type for event in told[0]]
    assert len(traced.dispatcher.callbacks) == 1  # only our own collector is left


async def test_a_trace_that_is_not_sampled_changes_nothing() -> None:
    agent = make_agent(answer(call("add", a=1, b=2)), "Done.", tools=[add])
    instrument(agent, TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False), content=True)
    assert (await agent.run("Go.")).text == "Done."
    instrument(agent)  # the global provider, which does nothing
    assert (await agent.run("Go.")).end_reason == "done"


def _refuse(*_: Any) -> bool:
    return False


async def test_a_run_that_a_hook_vetoes_is_a_span(collected: Collected) -> None:
    agent = make_agent(before_loop=_refuse)
    collected.record(agent)
    await agent.run("Go.")
    (run,) = collected.find("invoke_agent")
    assert attributes(run)["steersman.end_reason"] == "vetoed"


async def test_a_reader_that_leaves_ends_all_spans(collected: Collected) -> None:
    agent = make_agent(answer("One two three four.", pace=0.1))
    collected.record(agent)
    async for event in agent.prompt("Go."):
        if event.type == "message_update":
            break
    await agent.wait_for_idle()
    chat, run = collected.ended
    assert attributes(chat)["error.type"] == "cancelled"
    assert attributes(run)["steersman.end_reason"] == "aborted"


def test_spans_of_a_run_whose_loop_was_closed_are_ended_before_the_exit(collected: Collected) -> None:
    agent = make_agent(answer("One two.", pace=1000))
    collected.record(agent)
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        agent.prompt("Go.")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    assert collected.ended == []
    end_open_spans()
    collected.check()
    assert get_current() == {}
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
    collected.check()


async def test_spans_of_tool_calls_that_go_on_are_ended_before_the_exit(collected: Collected) -> None:
    @tool
    async def wait() -> str:
        """End the recording in the middle of the call."""
        end_open_spans()
        collected.check()
        return "waited"

    agent = make_agent(answer(call("wait")), "Done.", tools=[wait])
    collected.record(agent)
    assert (await agent.run("Go.")).text == "Done."
    assert [span.name for span in collected.ended] == ["chat script", "execute_tool wait", "invoke_agent steersman"]


async def test_a_run_that_is_traced_builds_no_deltas(collected: Collected) -> None:
    agent, wanted = make_agent("One two three."), list[int]()
    agent.subscribe(lambda _: wanted.append(len(agent.dispatcher.delta_callbacks)), deltas=False)
    collected.record(agent)
    await agent.run("Go.")
    assert set(wanted) == {0}


@pytest.mark.parametrize("wrong", ["every", None, Agent, get_model])
def test_what_is_no_agent_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match='takes an Agent or "all"'):
        instrument(wrong)


def test_without_the_extra_the_error_names_it() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from steersman.types import MissingExtra\n"
        "import steersman.telemetry\n"
        "try:\n    steersman.telemetry.instrument\nexcept MissingExtra as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (
        "steersman.telemetry needs OpenTelemetry: pip install 'steersman[otel]'.\n",
        "",
    )
