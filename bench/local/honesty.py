"""How often the embedded model is right, says that it does not know, or is confidently wrong about a project."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.local.questions import Question, Verdict

from steersman import Agent, ExecutionLimits, get_model
from steersman.provider.local import prepare
from steersman.tools.builtin import builtin_tools
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model

MOST_WRONG = 0.1
SECONDS = 15.0
"""The goals: the share of answers that may be confidently wrong, and the median seconds of an answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a question, its verdict, and what it cost: seconds, and CPU seconds of the model's process."""

    question: Question
    verdict: Verdict
    seconds: float
    cpu: float
    first: float
    calls: str
    text: str


async def ask(question: Question, model: Model) -> Outcome:
    """Ask one question in a fresh copy of its project."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / question.project.name
        folder.mkdir()
        truth = question.find_truth(question.project.make(folder))
        agent = Agent(model, tools=builtin_tools(folder, sandbox="auto"), limits=ExecutionLimits(max_turns=8))
        heard: list[float] = []
        agent.subscribe(lambda event: heard.append(time.perf_counter()) if event.type == "message_update" else None)
        began, cpu = time.perf_counter(), _read_cpu_seconds()
        result = await agent.prompt(question.prompt)
        seconds, cpu = time.perf_counter() - began, _read_cpu_seconds() - cpu
        verdict = question.judge(result.text, truth)
    answers = [message for message in result.messages if isinstance(message, AssistantMessage)]
    calls = [call for answer in answers for call in answer.tool_calls]
    shown = " ".join(f"{call.name}{dict(call.arguments)!r:.120}" for call in calls)
    first = heard[0] - began if heard else seconds
    return Outcome(question, verdict, seconds, cpu, first, shown, f"{result.text} {result.detail or ''}".strip())


def _read_cpu_seconds() -> float:
    """The CPU seconds of this process and of the model's process, which is a child of it."""
    ticks = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == os.getpid():
            ticks += int(fields[11]) + int(fields[12])
    own = resource.getrusage(resource.RUSAGE_SELF)
    return ticks / os.sysconf("SC_CLK_TCK") + own.ru_utime + own.ru_stime


async def run_campaign(model: Model, questions: Sequence[Question]) -> list[Outcome]:
    """Ask all questions, one after another."""
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        await prepare(model, tools=builtin_tools(place))
        print(f"ready after {time.perf_counter() - began:.1f} s", flush=True)
    outcomes: list[Outcome] = []
    for question in questions:
        got = await ask(question, model)
        outcomes.append(got)
        words = f"[{got.calls}] {' '.join(got.text.split())[:300]}"
        print(
            f"{got.verdict:8} {got.seconds:5.1f} s {got.cpu:5.1f} cpu  {question.prompt}\n         {words}", flush=True
        )
    return outcomes


def report(outcomes: Sequence[Outcome]) -> bool:
    """Print the table, a row for each project; whether the goal is met."""
    print(f"\n{'project':12} {'right':>6} {'unknown':>8} {'wrong':>6}")
    names = list(dict.fromkeys(got.question.project.name for got in outcomes))
    for name in names:
        _print_row(name, [got for got in outcomes if got.question.project.name == name])
    _print_row("all", outcomes)
    seconds, cpu = [got.seconds for got in outcomes], [got.cpu for got in outcomes]
    print(f"seconds      median {median(seconds):.1f}, longest {max(seconds):.1f}")
    print(f"CPU seconds  median {median(cpu):.1f}, longest {max(cpu):.1f}, all {sum(cpu):.0f}")
    wrong = sum(got.verdict == "wrong" for got in outcomes)
    print(f"goals        at most {MOST_WRONG:.0%} wrong ({wrong / len(outcomes):.1%}), {SECONDS:g} s a prompt")
    return wrong <= MOST_WRONG * len(outcomes) and median(seconds) <= SECONDS


def _print_row(name: str, outcomes: Sequence[Outcome]) -> None:
    counts = Counter(got.verdict for got in outcomes)
    print(f"{name:12} {counts['right']:6} {counts['unknown']:8} {counts['wrong']:6}   of {len(outcomes)}")


def measure(model: str, questions: Sequence[Question], tools: str | None, save: Path | None) -> bool:
    """Run the campaign and print its table; whether the goals are met."""
    given = get_model(model, settings={"tools": tools} if tools else {})
    outcomes = asyncio.run(run_campaign(given, questions))
    if save is not None:
        rows = [
            {"prompt": got.question.prompt, "verdict": got.verdict, "calls": got.calls, "text": got.text}
            for got in outcomes
        ]
        save.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return report(outcomes)
