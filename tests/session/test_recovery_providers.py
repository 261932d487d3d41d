"""A session opens with other tools, another model, another provider, and the strict servers take its next request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rows import each_row
from tests.session.kit import planted, records, said

from steersman import Agent, Retry, Session, ToolOutput, prun_with_memo, tool
from steersman.session.records import Record
from steersman.session.stores.memory import MemoryStore
from steersman.testing import ScriptedModel, answer, call, error, thinking
from steersman.testing.servers import (
    AnthropicServer,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    StrictServer,
)
from steersman.types.content import ImageContent, TextContent

pytestmark = pytest.mark.real_time

SERVERS: dict[str, tuple[type[StrictServer], str]] = {
    "anthropic": (AnthropicServer, "claude-sonnet-4-5"),
    "openai": (OpenAIResponsesServer, "gpt-5"),
    "openai-chat": (OpenAIChatServer, "deepseek-reasoner"),
    "google": (GoogleServer, "gemini-3-pro-preview"),
}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
ONCE = Retry(max_attempts=1)


@tool
async def look(at: str) -> ToolOutput:
    """Look at something."""
    return ToolOutput([TextContent(f"Saw {at}."), ImageContent(DOT)])


@tool
async def other(n: int) -> int:
    """A tool of another time."""
    return n


async def _written() -> tuple[MemoryStore, list[Record]]:
    """A session with all that can be in one: thinking, pictures, parallel calls, a failure, a prun, a compaction."""
    store = MemoryStore()
    script = ScriptedModel(
        answer(thinking("Hm.", signature="sig"), "Let me.", call("look", at="a", id="id/1 ä"), call("look", at="b")),
        answer(call("prun_with_memo", tokens=1, memo="looked at a and b")),
        "Seen.",
        error("overloaded", "Half an ans", after=2),
        answer(call("look", at="c", id="call_0"), call("nope", x=1), call("look", raw="[1, 2]")),
        "All seen.",
    )
    with Session.create(store, "whole") as session:
        agent = Agent(script.model, tools=[look, prun_with_memo], session=session, retry=ONCE)
        await agent.run("Look around.")
        await agent.run("And there?")
        await agent.continue_()
        agent.compact()
    return store, records(store, "whole")


@each_row("name", SERVERS)
@each_row("tools", [[], [other]], ids=["no tools", "other tools"])
async def test_a_session_of_another_time_goes_on(name: str, tools: list[Any]) -> None:
    """failures.md H10, A3, A9, D7: after every record at which the program may have been killed."""
    store, whole = await _written()
    kind, model = SERVERS[name]
    ends = [place for place, record in enumerate(whole, 1) if record.type not in ("session", "run_start")]
    async with kind(answer("Going on."), repeat_last=True) as server:
        for length in ends:
            with Session.open(store, planted(store, whole[:length])) as session:
                agent = Agent(server.model(model), tools=tools, session=session, retry=ONCE)
                before = said(agent.messages)
                result = await agent.run("Go on.")
                assert (result.end_reason, result.detail, result.text) == ("done", "", "Going on."), length
                assert said(agent.messages)[: len(before)] == before


@pytest.mark.parametrize("name", SERVERS)
async def test_every_entry_of_a_session_of_another_time_is_a_place_to_go_on_from(name: str) -> None:
    """failures.md H10, H11: branch and rerun, on servers that refuse what the real ones refuse."""
    store, whole = await _written()
    kind, model = SERVERS[name]
    entries = [record.id for record in whole if record.type in ("message", "prun", "compaction")]
    async with kind(answer("Going on."), repeat_last=True) as server:
        with Session.open(store, planted(store, whole)) as session:
            agent = Agent(server.model(model), tools=[look], session=session, retry=ONCE)
            for entry in entries:
                for stream in (agent.branch(entry, prompt="From here."), None):
                    result = await (stream or agent.rerun(at=entry))
                    assert (result.end_reason, result.detail, result.text) == ("done", "", "Going on."), entry
