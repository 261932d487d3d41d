"""Generated runs for the fronts: text, thinking, calls, errors, cuts, aborts, steering and questions anywhere."""

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
class Play:
    """A script, and what a person does: answers to questions, and an event at which to abort or to steer."""

    turns: tuple[Any, ...]
    answers: tuple[bool, ...] = ()
    abort_at: int | None = None
    steer_at: int | None = None

    def make_agent(self) -> Agent:
        """The agent of the play; it has a last word after every script."""
        model = ScriptedModel(*self.turns, *(["The end."] * 20)).model
        return Agent(model, tools=[risky, safe, broken], retry=Retry(max_attempts=2, base_delay=0.001, max_delay=0.001))


_words = st.sampled_from(["Hello.", "a b c d e f", "é\u2028\n\n", "x" * 200])
_targets = st.sampled_from(["live", "test", 'quote " and \n'])
_errors: list[Any] = ["overloaded", "authentication", "invalid_request"]


@st.composite
def _draw_block(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["text", "thinking", "risky", "safe", "broken"]))
    if kind == "text":
        return text(draw(_words))
    return thinking(draw(_words)) if kind == "thinking" else call(kind, target=draw(_targets))


@st.composite
def _draw_turn(draw: st.DrawFn) -> Any:
    blocks: list[Any] = draw(st.lists(_draw_block(), min_size=1, max_size=4))
    after = draw(st.integers(0, 4))
    match draw(st.sampled_from(["answer", "cut", "error"])):
        case "answer":
            return answer(*blocks, deltas=draw(st.sampled_from([None, 1, 3])), pace=0)
        case "cut":
            return cut(*blocks, after=after)
        case _:
            return error(draw(st.sampled_from(_errors)), *blocks, after=after)


@st.composite
def plays(draw: st.DrawFn) -> Play:
    """All kinds of runs."""
    places = st.one_of(st.none(), st.integers(0, 30))
    turns: list[Any] = draw(st.lists(_draw_turn(), max_size=3))
    return Play(tuple(turns), tuple(draw(st.lists(st.booleans(), max_size=4))), draw(places), draw(places))
