"""Trace context over borders: from the caller, from HTTP clients of a server, to MCP servers, to models on demand."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.context import get_current
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import get_current_span
from tests.server.kit import make_agent, run_server
from tests.telemetry.kit import Collected, attributes, context_of, events, parent_id
from tests.telemetry.meta_server import answer as answer_mcp

from steersman import Agent, get_model, tool
from steersman.telemetry import TraceHeaders, continue_trace
from steersman.testing import ScriptedModel, answer, call
from steersman.testing.servers import OpenAIChatServer
from steersman.tools.mcp import HttpServer, McpServers, StdioServer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


def describe(span: ReadableSpan) -> str:
    """A span as a traceparent."""
    context = context_of(span)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


async def test_a_run_is_below_the_current_span_of_its_caller_which_stays_current(collected: Collected) -> None:
    agent = Agent(ScriptedModel("Hi.", repeat_last=True).model)
    collected.record(agent)
    tracer = collected.tracer_provider.get_tracer("program")
    with tracer.start_as_current_span("request") as outer:
        await agent.run("Hello.")
        async for _ in agent.prompt("Again."):
            pass
        assert get_current_span() is outer
    runs = collected.find("invoke_agent")
    assert [parent_id(run) for run in runs] == [outer.get_span_context().span_id] * 2
    assert get_current() == {}


async def test_tools_work_in_the_span_of_their_call_also_in_threads(collected: Collected) -> None:
    seen: dict[str, int] = {}

    @tool
    async def here(name: str) -> str:
        """Note the current span."""
        await asyncio.sleep(0.1)
        seen[name] = get_current_span().get_span_context().span_id
        return name

    @tool
    def there(name: str) -> str:
        """The same in a thread."""
        seen[name] = get_current_span().get_span_context().span_id
        return name

    calls = answer(call("here", name="a"), call("there", name="b"), call("here", name="c"))
    agent = Agent(ScriptedModel(calls, "Done.").model, tools=[here, there])
    collected.record(agent)
    await agent.run("Go.")
    assert list(sorted(seen)) == ["a", "b", "c"]
    assert [seen[name] for name in "abc"] == [context_of(span).span_id for span in collected.find("execute_tool")]


@pytest.mark.real_time
async def test_a_traceparent_of_a_request_to_a_server_is_the_parent_of_its_run(collected: Collected) -> None:
    collected.record("all")
    async with run_server(make_agent("One.", "Two."), enter_request=continue_trace) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Go."}, traceparent=TRACEPARENT)
        told = await client.collect(id)
        await client.act(id, "prompt", {"content": "Go on."})
        await client.collect(id, after=told[-1][0])
    first, second = collected.find("invoke_agent")
    assert (events(first), events(second)) == ([], [])  # a prompt is queued there, and is no steering
    assert (context_of(first).trace_id, parent_id(first)) == (int(TRACE, 16), int(SPAN, 16))
    assert (context_of(second).trace_id == int(TRACE, 16), parent_id(second)) == (False, None)
    assert [dict(link.attributes or {}) for link in second.links] == [{"steersman.link": "session"}]
    assert [link.context.span_id for link in second.links] == [context_of(first).span_id]


def test_a_trace_is_current_only_while_it_is_continued() -> None:
    with continue_trace({"traceparent": TRACEPARENT}):
        assert get_current_span().get_span_context().span_id == int(SPAN, 16)
    assert get_current() == {}
    with continue_trace({"traceparent": "nonsense"}):
        assert not get_current_span().get_span_context().is_valid


@asynccontextmanager
async def serve_mcp() -> AsyncGenerator[str]:
    """The MCP server over HTTP; gives its URL."""

    async def respond(request: web.Request) -> web.Response:
        found = answer_mcp(await request.json())
        return web.Response(status=202) if found is None else web.json_response(found)

    app = web.Application()
    app.router.add_post("/mcp", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@pytest.mark.real_time
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_mcp_server_gets_the_span_of_the_call(transport: str, collected: Collected) -> None:
    async with serve_mcp() as url:
        program = str(Path(__file__).with_name("meta_server.py"))
        stdio = StdioServer(command=sys.executable, args=["-E", "-S", program])
        async with McpServers({"there": stdio if transport == "stdio" else HttpServer(url=url)}) as servers:
            name = servers.tools[0].name
            agent = Agent(ScriptedModel(answer(call(name)), "Done.").model, tools=[servers])
            collected.record(agent)
            result = await agent.run("Go.")
    meta = json.loads(result.messages[2].text)
    (span,) = collected.find("execute_tool")
    assert (attributes(span)["gen_ai.tool.name"], meta.get("traceparent")) == (name, describe(span))


@pytest.mark.real_time
async def test_a_model_gets_a_traceparent_only_where_its_headers_say_so(collected: Collected) -> None:
    async with OpenAIChatServer("Hi.", "Hi.") as server:
        model = get_model("openai-chat:gpt-x", base_url=server.url, api_key="test-key")
        told = replace(model, headers=TraceHeaders({"x-team": "blue"}))
        for one in (model, told):
            agent = Agent(one)
            collected.record(agent)
            assert (await agent.run("Hello.")).end_reason == "done"
        headers = [request.headers for request in server.raw]
    first, second = [_lower(one) for one in headers]
    assert ("traceparent" in first, "x-team" in first) == (False, False)
    assert (second["traceparent"], second["x-team"]) == (describe(collected.find("chat")[1]), "blue")


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
