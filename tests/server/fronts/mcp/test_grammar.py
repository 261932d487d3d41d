"""The grammar of the MCP server over generated runs: errors, cuts, cancels and questions anywhere (server.md 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.fronts.plays import GRAMMAR, Script, scripts_with_sub_agent

from steersman.server.fronts.mcp.front import McpFront
from steersman.server.sessions import Sessions
from steersman.session.stores.memory import MemoryStore

pytestmark = pytest.mark.real_time
_ANSWERS: list[Any] = [
    {"result": {"action": "accept", "content": {"approved": True}}},
    {"result": {"action": "accept", "content": {"approved": "yes"}}},
    {"result": {"action": "decline"}},
    {"result": None},
    {"error": {"code": -32601, "message": "no"}},
]


@GRAMMAR
@given(scripts_with_sub_agent(), st.none() | st.sampled_from(_ANSWERS), st.none() | st.integers(0, 20), st.booleans())
async def test_a_call_has_one_answer_and_nothing_comes_after_it(
    script: Script, person: Any, cancel_at: int | None, told: bool
) -> None:
    """Progress grows and comes before the answer; a call that was cancelled has none, unless it had ended before."""
    messages: list[dict[str, Any]] = []
    news = asyncio.Event()
    sessions = Sessions(script.make_agent, MemoryStore())

    def take(message: dict[str, Any]) -> None:
        messages.append(message)
        if message.get("method") == "elicitation/create":
            front.peer.take({"id": message["id"], **person})
        if cancel_at == len(messages):
            front.peer.take({"method": "notifications/cancelled", "params": {"requestId": 1}})
        news.set()

    front = McpFront(sessions, take)
    abilities: dict[str, Any] = {} if person is None else {"elicitation": {"form": {}}}
    hello = {"protocolVersion": "2025-11-25", "capabilities": abilities}
    front.peer.take({"id": 0, "method": "initialize", "params": hello})
    await front.peer.finish()
    messages.clear()
    meta = {"_meta": {"progressToken": 7}} if told else {}
    params = {"name": "run", "arguments": {"prompt": "Go."}, **meta}
    front.peer.take({"id": 1, "method": "tools/call", "params": params})
    if cancel_at == 0:
        front.peer.take({"method": "notifications/cancelled", "params": {"requestId": 1}})
    await front.peer.finish()
    await sessions.close()
    answers = [at for at, one in enumerate(messages) if one.get("id") == 1 and "method" not in one]
    if answers or cancel_at is None or cancel_at > len(messages):
        assert answers == [len(messages) - 1]
        assert messages[-1]["result"]["content"][0]["type"] == "text"
    counts = [one["params"]["progress"] for one in messages if one.get("method") == "notifications/progress"]
    assert counts == list(range(1, len(counts) + 1))
    assert told or not counts
    assert person is not None or not [one for one in messages if one.get("method") == "elicitation/create"]
