"""Calls and results over real sockets: whatever becomes of a call, the strict server gets one result, in its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import MODELS, ONCE, Call, Text, calls_in, ids_in, items_in, results_in, spoken, talk
from tests.rows import each_row

from steersman import Agent, Approval, ContextConfig, SummaryCompaction, tool
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import answer, call
from steersman.testing.servers import Received
from steersman.tools.tool import Tool
from steersman.types.content import TextContent, ToolCall
from steersman.types.messages import AssistantMessage, ToolResultMessage, user_message

pytestmark = pytest.mark.real_time

ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


@pytest.mark.parametrize("name", SERVERS)
async def test_one_of_three_calls_raises_and_all_have_a_result_in_their_order(name: str) -> None:
    """failures.md A4, A13: though the first of them ends last."""
    failed = asyncio.Event()

    @tool
    async def slow() -> str:
        """Let the other go first."""
        await failed.wait()
        return "slowly"

    @tool(name="fail")
    async def failing() -> str:
        """Fail."""
        failed.set()
        raise ValueError("no luck")

    stream = spoken(name, Call(name="slow"), Call(name="fail", id="c2"), Call(id="c3"))
    got = await talk(name, stream, tools=[slow, failing])
    assert (got.result.end_reason, got.result.detail, got.result.text) == ("done", "", "Fine.")
    told = ["slowly", "ValueError: no luck", "acted"]
    assert ([text for _, text, _ in got.told], results_in(name, got.server.requests[1])) == (told, told)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_call_that_was_denied_has_its_result_among_the_others(name: str) -> None:
    """failures.md A13, A14: the same number of results as of calls, in the same order."""

    async def judged(asked: ToolCall, reason: str) -> bool:
        del reason
        return asked.arguments != {"n": 2}

    stream = spoken(name, *(Call(f'{{"n":{n}}}', id=f"c{n}") for n in (1, 2, 3)))
    got = await talk(name, stream, approval=Approval(ask=["act"]), approve=judged)
    assert (got.result.end_reason, got.result.detail, got.ran) == ("done", "", [{"n": 1}, {"n": 3}])
    assert [(text == "acted", failed) for _, text, failed in got.told] == [(True, False), (False, True), (True, False)]
    assert results_in(name, got.server.requests[1]) == [text for _, text, _ in got.told]


@pytest.mark.parametrize("name", SERVERS)
async def test_what_the_user_says_meanwhile_comes_after_the_results(name: str) -> None:
    """failures.md A6."""
    agents: list[Agent] = []

    @tool
    async def listen() -> str:
        """Hear the user."""
        agents[0].steer("Stop that.", mode="wait")
        return "heard"

    async with SERVERS[name](spoken(name, Call(name="listen"), Call(name="fail", id="c2")), "Fine.") as server:
        agents.append(Agent(server.model(MODELS.get(name, "test-model")), tools=[listen, fail], retry=ONCE))
        result = await agents[0].run("Go.")
    assert (result.end_reason, result.detail, result.text) == ("done", "", "Fine.")
    assert results_in(name, server.requests[1]) == ["heard", "ValueError: no luck"]
    sent = [repr(item) for item in items_in(name, server.requests[1])]
    places = [next(at for at, item in enumerate(sent) if words in item) for words in ("heard", "no luck", "Stop that.")]
    assert places == sorted(places)
    assert len(set(places)) == 3


def unnamed(name: str, id: Any) -> bytes:
    """Two calls that have the same id, or none at all (`...`)."""
    ids = {} if id is ... else {"id": id}
    match name:
        case "anthropic":
            blocks = [
                anthropic.start(at, "tool_use", name="act", input={"n": at}, **ids) + anthropic.stop(at)
                for at in range(2)
            ]
            return b"".join((anthropic.begun(), *blocks, anthropic.ended("tool_use")))
        case "bedrock":
            given = {} if id is ... else {"toolUseId": id}
            blocks = [
                bedrock.start(at, toolUse={"name": "act", **given})
                + bedrock.delta(at, toolUse={"input": f'{{"n":{at}}}'})
                + bedrock.stop(at)
                for at in range(2)
            ]
            return b"".join((bedrock.begun(), *blocks, bedrock.ended("tool_use")))
        case "google":
            parts = [{"functionCall": {"name": "act", "args": {"n": at}, **ids}} for at in range(2)]
            return google.stream(google.chunk(*parts, finish="STOP"))
        case "responses":
            given = {} if id is ... else {"call_id": id}
            items = [
                responses.done(at, "function_call", name="act", arguments=f'{{"n":{at}}}', **given) for at in range(2)
            ]
            return b"".join((responses.begun(), *items, responses.ended()))
        case _:
            calls = [{"index": at, "function": {"name": "act", "arguments": f'{{"n":{at}}}'}, **ids} for at in range(2)]
            return chat.calls(*calls) + chat.chunk(None, "tool_calls") + chat.DONE


@each_row("id", ["call_0", "act", "", None, ..., "an id / of another kind ü", "x" * 200])
@each_row("name", SERVERS)
async def test_ids_that_are_repeated_or_missing_or_odd_are_one_for_each_call(name: str, id: Any) -> None:
    """failures.md A9, A12: within a turn and from one to the next. A server takes back an odd id that it made."""
    odd = isinstance(id, str) and (len(id) > 40 or " " in id)
    got = await talk(name, unnamed(name, id), unnamed(name, id), strict=not odd)
    assert (got.result.end_reason, got.result.detail, got.result.text) == ("done", "", "Fine.")
    sent = got.server.requests[-1]
    assert calls_in(name, sent) == [("act", {"n": at}) for _ in range(2) for at in range(2)]
    # Gemini needs no ids, and is told only those that it gave.
    ids = [id for id in ids_in(name, sent) if id or name != "google"]
    assert (len(results_in(name, sent)), len(set(ids))) == (4, 4 if name != "google" else len(ids))
    assert got.ran == [{"n": 0}, {"n": 1}, {"n": 0}, {"n": 1}]
    assert not odd or name == "bedrock" or ids[0] == id  # Bedrock is known to refuse such ids


@pytest.mark.parametrize("name", SERVERS)
async def test_a_result_that_comes_late_is_no_second_one(name: str) -> None:
    """failures.md A10: the tool takes no notice of being cancelled, and gives its result while the model answers."""
    loop, may = asyncio.get_running_loop(), asyncio.Event()
    ended: list[str] = []

    @tool
    async def stubborn() -> str:
        """Take no notice."""
        while not may.is_set():
            try:
                await may.wait()
            except asyncio.CancelledError:
                continue
        ended.append("late")
        return "late"

    def meanwhile(received: Received) -> str:
        del received
        loop.call_soon_threadsafe(may.set)
        return "Moving on."

    async with SERVERS[name](spoken(name, Call(name="stubborn")), meanwhile, "Fine.") as server:
        model = server.model(MODELS.get(name, "test-model"))
        agent = Agent(model, tools=[stubborn], retry=ONCE, tool_timeout=0.02, cancel_grace=0.01)
        assert (await agent.run("Go.")).text == "Moving on."
        again = await agent.run("Go on.")
    assert (again.end_reason, again.detail, again.text, ended) == ("done", "", "Fine.", ["late"])
    assert len(results_in(name, server.requests[-1])) == 1
    assert sum(isinstance(message, ToolResultMessage) for message in agent.messages) == 1


@pytest.mark.parametrize("name", SERVERS)
async def test_the_request_for_a_summary_is_taken_as_well(name: str) -> None:
    """failures.md A14, A3: of a conversation that a kill, an abort and an empty prompt left as it is."""
    kept = [
        user_message("Go."),
        AssistantMessage([ToolCall("c1", "act", {"n": 1}), ToolCall("c2", "act", {"n": 2})], stop_reason="tool_use"),
        ToolResultMessage([TextContent("acted")], tool_call_id="c1", tool_name="act"),
        user_message("x" * 8_000),
        AssistantMessage([TextContent("Half")], stop_reason="aborted"),
        user_message(""),
        user_message("y"),
    ]
    config = ContextConfig(
        max_context_tokens=4_000, threshold=0.5, keep_recent=1, compaction=CompactionConfig(SummaryCompaction())
    )
    async with SERVERS[name]("A summary.", "Fine.") as server:
        model = server.model(MODELS.get(name, "test-model"))
        result = await Agent(model, tools=[fail], retry=ONCE, messages=kept, context_config=config).run("Go on.")
    assert (result.end_reason, result.detail, result.text) == ("done", "", "Fine.")
    assert b"A summary." in server.raw[1].body


ODD = ("calendar.list", "calendar_list", "x" * 200, "x" * 199 + "y", "9 lives", "größe", "two words", "-dash")


def declared(body: Any) -> list[str]:
    """The names of the tools in a request."""
    if "toolConfig" in body and "tools" in body["toolConfig"]:
        return [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"] if "toolSpec" in tool]
    tools = body["tools"][0].get("functionDeclarations") or body["tools"]
    return [(given.get("function") or given)["name"] for given in tools]


@pytest.mark.parametrize("name", SERVERS)
async def test_tools_of_any_name_are_told_apart_and_called_by_their_own(name: str) -> None:
    """failures.md C14: also in the history, which the server looks at as well."""
    ran: list[str] = []

    def named(own: str) -> Tool:
        async def run(args: dict[str, Any]) -> str:
            ran.append(own)
            return "ran"

        return Tool(own, "Odd.", ANY_OBJECT, run)

    def all_of_them(received: Received) -> Any:
        return answer(*(call(given) for given in declared(received.json)))

    async with SERVERS[name](all_of_them, "Fine.") as server:
        agent = Agent(server.model(MODELS.get(name, "test-model")), tools=[*map(named, ODD)], retry=ONCE)
        result = await agent.run("Go.")
    assert (result.end_reason, result.detail, ran) == ("done", "", list(ODD))
    assert [tool for tool, _ in calls_in(name, server.requests[1])] == declared(server.requests[0])


@pytest.mark.parametrize("name", SERVERS)
async def test_a_tool_that_says_nothing_has_a_result_all_the_same(name: str) -> None:
    """failures.md A7: no empty block is sent, of a tool, of the user or of the model."""

    @tool
    async def silent() -> str:
        """Say nothing."""
        return ""

    got = await talk(name, spoken(name, Text(" \n"), Call(name="silent")), tools=[silent])
    assert (got.result.end_reason, got.result.detail) == ("done", "")
    assert results_in(name, got.server.requests[1]) == ["(no output)"]
