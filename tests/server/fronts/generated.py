"""Generated agents for the grammars of fronts: text, thinking, calls of all kinds, errors and cuts at any place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from steersman import Agent, Retry, tool
from steersman.testing import ScriptedModel, answer, call, cut, error, text, thinking


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
class Run:
    """The turns of a model, and those of its sub-agent."""

    turns: tuple[Any, ...]
    nested: tuple[Any, ...] = ()

    def make_agent(self) -> Agent:
        """The agent; it has a last word after every script."""
        retry = Retry(max_attempts=2, base_delay=0.001, max_delay=0.001)
        helper = Agent(ScriptedModel(*self.nested, *["Nested."] * 20).model, tools=[risky, safe], retry=retry)
        tools = [risky, safe, broken, helper.as_tool("helper", "Help.")]
        return Agent(ScriptedModel(*self.turns, *["The end."] * 20).model, tools=tools, retry=retry)


_words = st.sampled_from(["Hello.", "a b c d e f", "é\u2028\n\n", "x" * 200])
_errors: list[Any] = ["overloaded", "authentication", "invalid_request"]


@st.composite
def _draw_block(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["text", "thinking", "risky", "safe", "broken", "helper", "nothing"]))
    if kind == "text":
        return text(draw(_words))
    if kind == "thinking":
        return thinking(draw(_words))
    return call("helper", prompt="Go.") if kind == "helper" else call(kind, target=draw(_words))


@st.composite
def _draw_turn(draw: st.DrawFn) -> Any:
    blocks: list[Any] = draw(st.lists(_draw_block(), min_size=1, max_size=4))
    match draw(st.sampled_from(["answer", "answer", "cut", "error"])):
        case "answer":
            return answer(*blocks, deltas=draw(st.sampled_from([None, 1, 3])), pace=0)
        case "cut":
            return cut(*blocks, after=draw(st.integers(0, 6)))
        case _:
            return error(draw(st.sampled_from(_errors)), *blocks, after=draw(st.integers(0, 6)))


def runs() -> st.SearchStrategy[Run]:
    """All kinds of runs."""
    turns = st.lists(_draw_turn(), max_size=3).map(tuple)
    return st.builds(Run, turns, turns)
