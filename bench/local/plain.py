"""How good and how fast the embedded model is for plain requests.

Each prompt is a whole run of an agent with the built-in tools in a small project. Counted are the right first call with
its arguments (or none where none is needed), the right last sentence, and seconds.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.local.plain_cases import Case, make_project

from steersman import Agent, ExecutionLimits, get_model
from steersman.provider.local import prepare
from steersman.tools.builtin import builtin_tools
from steersman.types.messages import AssistantMessage

CALLS, NONE, ANSWERS = 0.9, 1.0, 0.85
"""The goals, as shares: right calls, none where none is needed, right last sentences."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a prompt."""

    case: Case
    called: bool
    answered: bool
    seconds: float
    said: str


async def outcome(case: Case, model: str) -> Outcome:
    """One prompt in a project of its own."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_project(folder)
        agent = Agent(model, tools=builtin_tools(folder, sandbox="auto"), limits=ExecutionLimits(max_turns=8))
        began = time.perf_counter()
        result = await agent.prompt(case.prompt)
        seconds = time.perf_counter() - began
    answers = [message for message in result.messages if isinstance(message, AssistantMessage)]
    calls = [call for answer in answers for call in answer.tool_calls]
    called = case.right_call(calls[0].name, calls[0].arguments) if calls else case.right_call(None, {})
    shown = " ".join(f"{call.name}{dict(call.arguments)!r:.120}" for call in calls)
    said = f"[{shown}] {' '.join(result.text.split())[:300]} {result.detail}"
    return Outcome(case, called, case.right_answer(result.text), seconds, said)


async def campaign(model: str, chosen: list[Case]) -> list[Outcome]:
    """All prompts, one after another."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        await prepare(get_model(model), tools=builtin_tools(place))
        print(f"ready after {time.perf_counter() - began:.1f} s", flush=True)
    for case in chosen:
        got = await outcome(case, model)
        outcomes.append(got)
        marks = f"{'call' if got.called else '    '} {'answer' if got.answered else '      '}"
        print(f"{marks} {got.seconds:5.1f} s  {case.prompt}\n      {got.said}", flush=True)
    return outcomes


def report(outcomes: list[Outcome]) -> bool:
    """Tell the counts; whether all goals are met."""
    needing = [got for got in outcomes if got.case.calls]
    others = [got for got in outcomes if not got.case.calls]
    rows = (
        ("right tool and arguments", sum(got.called for got in needing), len(needing), CALLS),
        ("none where none is needed", sum(got.called for got in others), len(others), NONE),
        ("right last sentence", sum(got.answered for got in needing), len(needing), ANSWERS),
    )
    print()
    for name, count, of, goal in rows:
        print(f"{name:28} {count:3} of {of:3}   goal {goal:.0%}")
    if outcomes:
        print(f"{'seconds a prompt':28} {fmean(got.seconds for got in outcomes):5.1f}")
    return all(count >= goal * of for _, count, of, goal in rows)
