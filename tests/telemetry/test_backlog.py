"""Spans and measurements wait before OpenTelemetry gets them; what a tool does with its span is not delayed."""

from __future__ import annotations

import asyncio

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Span, SpanContext, StatusCode, get_current_span
from tests.telemetry.kit import Collected, attributes, context_of

from steersman import Agent, tool
from steersman.telemetry import instrument
from steersman.telemetry.backlog import LateSpan
from steersman.testing import ScriptedModel, answer, call


async def test_opentelemetry_has_what_waits_within_a_second(collected: Collected) -> None:
    """Spans that have ended are ended there, open ones are started, and measurements are recorded."""
    seen: list[tuple[list[str], list[str], int]] = []

    def look() -> None:
        started = [span.name for span in collected.started]
        measured = collected.points("gen_ai.client.operation.duration")
        seen.append((started, [span.name for span in collected.ended], len(measured)))

    @tool
    async def wait() -> str:
        """Wait for a while."""
        look()
        await asyncio.sleep(1.5)
        look()
        return "waited"

    agent = Agent(ScriptedModel(answer(call("wait")), "Done.").model, tools=[wait])
    collected.record(agent)
    await agent.run("Go.")
    run, chat, called = "invoke_agent steersman", "chat script", "execute_tool wait"
    assert seen == [([run], [], 0), ([run, chat, called], [chat], 1)]
    assert [span.name for span in collected.ended] == [chat, called, chat, run]


async def test_a_tool_changes_its_span_until_the_call_is_over(collected: Collected) -> None:
    kept: list[Span] = []

    @tool
    def work() -> str:
        """Use the span of the call."""
        span = get_current_span()
        kept.append(span)
        assert span.is_recording()
        assert isinstance(span, LateSpan)
        assert span.context == span.get_span_context()
        assert (span.name, span.attributes["gen_ai.tool.name"]) == ("execute_tool work", "work")
        assert not hasattr(span, "no_such_thing")
        span.set_attribute("one", 1)
        span.set_attributes({"two": 2})
        span.add_event("happened", {"three": 3})
        span.add_link(SpanContext(1, 2, is_remote=True))
        span.record_exception(ValueError("four"))
        span.set_status(StatusCode.OK)
        span.update_name("five")
        return "worked"

    agent = Agent(ScriptedModel(answer(call("work")), "Done.").model, tools=[work])
    collected.record(agent)
    await agent.run("Go.")
    (span,) = collected.find("execute_tool")
    told = attributes(span)
    assert (span.name, told["one"], told["two"], told["steersman.tool.status"]) == ("five", 1, 2, "completed")
    assert [event.name for event in span.events] == ["happened", "exception"]
    assert [link.context.span_id for link in span.links] == [2]
    assert span.status.status_code is StatusCode.OK
    kept[0].set_attribute("late", True)
    kept[0].end()
    assert not kept[0].is_recording()
    assert kept[0].get_span_context() == context_of(span)
    assert "late" not in attributes(span)


class BrokenFor(SpanProcessor):
    """A span processor that raises when a call of this tool starts."""

    def __init__(self, tool: str) -> None:
        self._name = f"execute_tool {tool}"

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        if span.name == self._name:
            raise RuntimeError("no space left")


async def test_a_tool_does_not_see_that_its_span_cannot_be_started() -> None:
    seen: list[bool] = []

    @tool
    async def look() -> str:
        """Ask for the span of the call."""
        seen.append(get_current_span().get_span_context().is_valid)
        return "looked"

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BrokenFor("look"))
    agent = Agent(ScriptedModel(answer(call("look")), "Done.").model, tools=[look])
    instrument(agent, provider)
    assert (await agent.run("Go.")).tool_results[0].text == "looked"
    assert seen == [False]


async def test_the_spans_before_one_that_cannot_be_started_are_ended(collected: Collected) -> None:
    @tool
    async def wait() -> str:
        """Wait until the open spans are started."""
        await asyncio.sleep(1.5)
        return "waited"

    @tool(name="fail")
    async def wait_too() -> str:
        """Wait as long, with a span that fails."""
        await asyncio.sleep(1.5)
        return "waited"

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BrokenFor("fail"))
    provider.add_span_processor(collected)
    agent = Agent(ScriptedModel(answer(call("wait"), call("fail")), "Done.").model, tools=[wait, wait_too])
    instrument(agent, provider)
    assert (await agent.run("Go.")).text == "Done."
    assert [span.name for span in collected.ended] == ["chat script", "execute_tool wait", "invoke_agent steersman"]
