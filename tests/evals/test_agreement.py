"""Agreement with pydantic-evals on 50 shared cases: the same verdicts, apart from those that crash."""

from __future__ import annotations

from typing import Any

import pytest

from steersman import Agent
from steersman.evals import Case, CaseRun, contains, equals, evaluate
from steersman.testing import ScriptedModel, answer, error
from steersman.types import Request

QUESTIONS = [
    (f"question {number}", f"answer {number}" if number % 3 else f"Answer {number % 7}", number % 10 == 9)
    for number in range(50)
]
"""What is asked, what is expected, and whether it crashes."""


def say(number: int) -> str:
    """What both are answered."""
    return f"answer {number}" if number % 4 else f"the answer {number}, I think"


def reply(request: Request) -> Any:
    number = int(request.messages[-1].text.split()[-1])
    return error("authentication") if QUESTIONS[number][2] else answer(say(number))


def length(run: CaseRun) -> float:
    return min(1.0, len(run.text) / 30)


@pytest.mark.real_time
async def test_both_judge_fifty_cases_alike_apart_from_crashed_ones() -> None:
    # Imported here, for every test process would spend a second on it. Typed as anything: a checkout without it must
    # still pass the type checker.
    theirs: Any = pytest.importorskip("pydantic_evals", reason="needs pydantic-evals, which is in the extra dev")
    evaluators: Any = pytest.importorskip("pydantic_evals.evaluators", reason="needs pydantic-evals")
    agent = Agent(ScriptedModel(reply, repeat_last=True).model, retry=None)
    cases = [Case(prompt, expected=expected, id=prompt) for prompt, expected, _ in QUESTIONS]
    report = await evaluate(agent, cases, [equals(), contains(), length])

    async def task(prompt: str) -> str:
        return (await agent.variant().run(prompt)).raise_for_error().text

    class Length(evaluators.Evaluator):
        def evaluate(self, ctx: Any) -> float:
            return min(1.0, len(ctx.output) / 30)

    class Contains(evaluators.Evaluator):
        def evaluate(self, ctx: Any) -> bool:
            return ctx.expected_output in ctx.output

    dataset = theirs.Dataset(
        name="shared",
        cases=[theirs.Case(name=prompt, inputs=prompt, expected_output=expected) for prompt, expected, _ in QUESTIONS],
        evaluators=[evaluators.EqualsExpected(), Contains(), Length()],
    )
    other = await dataset.evaluate(task, progress=False)

    found = {run.case: run for run in report.agents[0].runs}
    crashed = {prompt for prompt, _, crashes in QUESTIONS if crashes}
    assert {prompt for prompt, run in found.items() if run.crashed} == crashed
    assert {case.name for case in other.failures} == crashed
    assert len(other.cases) == 45
    for case in other.cases:
        scores = found[case.name].scores
        assert scores["equals"].passed == case.assertions["EqualsExpected"].value
        assert scores["contains"].passed == case.assertions["Contains"].value
        assert scores["length"].value == case.scores["Length"].value
    # They count 45 cases, and we count all of them.
    ours = report.agents[0].pass_rate["contains"].mean
    judged = sum(case.assertions["Contains"].value for case in other.cases)
    assert 0 < judged < 45
    assert ours == pytest.approx(judged / 50)
