"""Generated runs for the fronts: text, thinking, calls, errors, cuts, aborts, steering and questions anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tests.conftest import SOAK
from tests.server.kit import Client

from steersman import Agent, Retry, tool
from steersman.testing import ScriptedModel, answer, call, cut, error, text, thinking

_RUNS = settings.default.max_examples if settings.default is not None else 30
GRAMMAR = settings(
    suppress_health_check=[HealthCheck.too_slow], max_examples=max(_RUNS, 1_000) if SOAK else _RUNS, deadline=None
)
"""How many runs the grammar of a front is tried with: a thousand with `make fuzz`."""


@tool(needs_approval=True)
def risky(target: str) -> str:
    """Needs approval."""
    return f"did {target}"


@tool
def safe(target: str) -> str:
    """Needs none."""
    return f"saw {target}"


@tool
def broken(target: str) -> str:
    """Fails."""
    raise ValueError(f"no {target}")


@dataclass(frozen=True)
class Script:
    """The turns of a model and, if the agent has a sub-agent, those of its model."""

    turns: tuple[Any, ...]
    nested: tuple[Any, ...] | None = None

    def make_agent(self) -> Agent:
        """The agent; it has a last word after every script."""
        retry = Retry(max_attempts=2, base_delay=0.001, max_delay=0.001)
        tools: list[Any] = [risky, safe, broken]
        if self.nested is not None:
            helper = Agent(ScriptedModel(*self.nested, *["Nested."] * 20).model, tools=[risky, safe], retry=retry)
            tools.append(helper.as_tool("helper", "Help."))
        return Agent(ScriptedModel(*self.turns, *["The end."] * 20).model, tools=tools, retry=retry)


@dataclass(frozen=True)
class Play(Script):
    """A script, and what a person does: answers to questions, and an event at which to abort or to steer."""

    answers: tuple[bool, ...] = ()
    abort_at: int | None = None
    steer_at: int | None = None


_words = st.sampled_from(["Hello.", "a b c d e f", "é\u2028\n\n", "x" * 200])
_targets = st.sampled_from(["live", "test", 'quote " and \n', "é\u2028\n\n", "x" * 200])
_errors: list[Any] = ["overloaded", "authentication", "invalid_request"]


@st.composite
def _draw_block(draw: st.DrawFn, *tools: str) -> Any:
    kind = draw(st.sampled_from(["text", "thinking", "risky", "safe", "broken", "nothing", *tools]))
    if kind == "text":
        return text(draw(_words))
    if kind == "thinking":
        return thinking(draw(_words))
    return call("helper", prompt="Go.") if kind == "helper" else call(kind, target=draw(_targets))


@st.composite
def _draw_turn(draw: st.DrawFn, *tools: str) -> Any:
    blocks: list[Any] = draw(st.lists(_draw_block(*tools), min_size=1, max_size=4))
    match draw(st.sampled_from(["answer", "answer", "cut", "error"])):
        case "answer":
            return answer(*blocks, deltas=draw(st.sampled_from([None, 1, 3])), pace=0)
        case "cut":
            return cut(*blocks, after=draw(st.integers(0, 6)))
        case _:
            return error(draw(st.sampled_from(_errors)), *blocks, after=draw(st.integers(0, 6)))


def _draw_turns(*tools: str) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(_draw_turn(*tools), max_size=3).map(tuple)


def scripts_with_sub_agent() -> st.SearchStrategy[Script]:
    """All kinds of runs, of an agent that can call another one."""
    return st.builds(Script, _draw_turns("helper"), _draw_turns())


def plays() -> st.SearchStrategy[Play]:
    """All kinds of runs, with a person who takes part."""
    places = st.none() | st.integers(0, 30)
    answers = st.lists(st.booleans(), max_size=4).map(tuple)
    return st.builds(Play, _draw_turns(), answers=answers, abort_at=places, steer_at=places)


@asynccontextmanager
async def meddle(client: Client, play: Play, id: str) -> AsyncGenerator[str]:
    """Abort or steer a run of a session when it has shown so many events, while the play goes on; yields its id."""

    async def watch() -> None:
        async with client.watch(id) as events:
            number = 0
            async for _ in events:
                if number == play.abort_at:
                    await client.send("POST", f"/sessions/{id}/abort", {})
                if number == play.steer_at:
                    await client.send("POST", f"/sessions/{id}/steer", {"content": "Steered."})
                number += 1

    task = asyncio.create_task(watch())
    try:
        yield id
    finally:
        task.cancel()
        await asyncio.wait([task])
