"""Compaction by the run's own model."""

from __future__ import annotations

from typing import Any

import pytest

from steersman import Agent, ContextConfig, SummaryCompaction, Usage
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import EventCollector, ScriptedModel, answer, call, error
from steersman.types.events import CompactionEnded

LONG = "word " * 300


def conversation() -> list[dict[str, Any]]:
    return [
        {"role": role, "content": f"{role} {number} {LONG}"} for number in range(3) for role in ("user", "assistant")
    ]


def agent_of(script: ScriptedModel, reasons: list[str] | None = None) -> Agent:
    strategy = SummaryCompaction(on_fallback=None if reasons is None else reasons.append)
    config = ContextConfig(
        max_context_tokens=2_000, threshold=0.6, keep_recent=1, compaction=CompactionConfig(strategy)
    )
    return Agent(script.model, messages=conversation(), context_config=config)


async def test_a_summary_is_written_by_the_runs_own_model_and_its_usage_counts() -> None:
    """loop.md C3, T8; failures.md S10: no tools, a report instead of a conversation, and every request is paid for."""
    script = ScriptedModel(
        answer("They talked.", usage=Usage(input=100, output=10)), answer("Fine.", usage=Usage(input=50, output=5))
    )
    agent = agent_of(script)
    events = EventCollector()
    agent.subscribe(events)
    result = await agent.run("And now?")
    assert (result.end_reason, result.text) == ("done", "Fine.")
    assert result.usage == Usage(input=150, output=15)
    asked, answered = [request for request, _ in script.requests]
    assert (len(asked.messages), list(asked.tools)) == (1, [])
    assert asked.messages[0].text.startswith("[assistant] assistant 0 word")
    assert answered.messages[1].text == "[Summary of earlier messages]\nThey talked."
    (ended,) = events.of(CompactionEnded)
    assert (ended.reduced, ended.error) == (True, None)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (error("invalid_request"), "the summary failed: InvalidRequestError: scripted error: invalid_request"),
        (answer(""), "the summary was empty"),
        (answer("Cut", stop_reason="length"), "the summary failed: ValueError: the summary ended with 'length'"),
        (answer(call("read")), "the summary failed: ValueError: the summary ended with 'tool_use'"),
        (error("refused"), "the summary failed: RefusedError: scripted error: refused"),
    ],
    ids=["error", "empty", "cut", "tool call", "refusal"],
)
async def test_a_summary_that_cannot_be_used_falls_back_to_the_deterministic_way(turn: Any, reason: str) -> None:
    """loop.md C3; failures.md I4: the run goes on whatever the summariser does."""
    reasons: list[str] = []
    script = ScriptedModel(turn, "Fine.")
    result = await agent_of(script, reasons).run("And now?")
    assert (result.end_reason, result.text, reasons) == ("done", "Fine.", [reason])
