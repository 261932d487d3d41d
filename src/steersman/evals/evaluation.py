"""`evaluate`: runs every case with every agent, and reports. A store makes it go on after an interruption."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from steersman.evals.agents import AgentSources, EvaluatedAgent, read_agent_sources
from steersman.evals.case import Case, Dataset
from steersman.evals.comparison import compare_agents
from steersman.evals.report import Comparison, Report, RunReport, summarize
from steersman.evals.run_case import Job, Setting, run_case
from steersman.evals.scorers import ScorerLike, read_scorers
from steersman.evals.tapes import Cassettes
from steersman.session.opening import Where, open_store
from steersman.session.stores.memory import MemoryStore
from steersman.types.guards import is_instance


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an evaluation is: `run` is the run that has just been finished, or found in the store."""

    done: int
    total: int
    run: RunReport


async def evaluate(
    agent: AgentSources,
    dataset: Dataset | Sequence[Case],
    scorers: Sequence[ScorerLike] | None = None,
    repeat: int | None = None,
    concurrency: int = 8,
    *,
    store: Where | None = None,
    workspaces: str | PathLike[str] | None = None,
    cassettes: Cassettes | str | PathLike[str] | None = None,
    clock: Callable[[], float] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Run every case `repeat` times with every agent, at most `concurrency` at once, and score the runs.

    `agent` is an `Agent`, a function of a case's folder that makes one, or a dict of these by name. Each run is a
    session in `store`; those that are finished there are not run again. `workspaces` is where the folders of cases are
    made. `cassettes` records what models say, and replays it. `scorers` and `repeat` are those of the dataset if
    missing. A case that fails does not raise; a mistake in the arguments does, before anything runs.
    """
    cases = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    agents = read_agent_sources(agent)
    chosen = read_scorers(cases.scorers if scorers is None else scorers)
    times = cases.repeat if repeat is None else repeat
    _check_count("repeat", times)
    _check_count("concurrency", concurrency)
    _check_folders(agents, cases)
    jobs = [Job(one, case, number) for one in agents for case in cases for number in range(1, times + 1)]
    tapes = cassettes if cassettes is None or isinstance(cassettes, Cassettes) else Cassettes(cassettes)
    with ExitStack() as stack:
        if workspaces is None:
            workspaces = stack.enter_context(tempfile.TemporaryDirectory(prefix="steersman-eval-"))
        place = MemoryStore() if store is None else open_store(store)
        setting = Setting(place, _resolve(workspaces), chosen, tapes, clock)
        runs = await _run_all(jobs, setting, concurrency, progress)
    names = [scorer.name for scorer in chosen]
    size = len(cases) * times
    reports = [
        summarize(one.name, one.model, runs[place * size : (place + 1) * size], names)
        for place, one in enumerate(agents)
    ]
    comparisons: list[Comparison] = []
    for other in reports[1:]:
        comparisons += compare_agents(other, reports[0], names)
    return Report(cases.name, times, names, reports, comparisons)


def evaluate_sync(
    agent: AgentSources,
    dataset: Dataset | Sequence[Case],
    scorers: Sequence[ScorerLike] | None = None,
    repeat: int | None = None,
    concurrency: int = 8,
    *,
    store: Where | None = None,
    workspaces: str | PathLike[str] | None = None,
    cassettes: Cassettes | str | PathLike[str] | None = None,
    clock: Callable[[], float] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """The same without an event loop."""
    return asyncio.run(
        evaluate(
            agent,
            dataset,
            scorers,
            repeat,
            concurrency,
            store=store,
            workspaces=workspaces,
            cassettes=cassettes,
            clock=clock,
            progress=progress,
        )
    )


async def _run_all(
    jobs: Sequence[Job], setting: Setting, concurrency: int, progress: Callable[[Progress], None] | None
) -> list[RunReport]:
    """The reports of all jobs, in their order."""
    found: dict[int, RunReport] = {}
    waiting = iter(enumerate(jobs))

    async def work(source: Iterator[tuple[int, Job]]) -> None:
        for place, job in source:
            found[place] = await run_case(job, setting)
            if progress is not None:
                progress(Progress(len(found), len(jobs), found[place]))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(jobs))):
                group.create_task(work(waiting))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [found[place] for place in range(len(jobs))]


def _resolve(folder: str | PathLike[str]) -> Path:
    """The absolute path: tools may not change where a relative one leads."""
    return Path(folder).absolute()


def _check_count(name: str, value: int) -> None:
    if not is_instance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is a whole number from 1 on, got {value!r}.")


def _check_folders(agents: Sequence[EvaluatedAgent], cases: Dataset) -> None:
    with_files = next((case for case in cases if case.files), None)
    without = next((agent for agent in agents if not agent.takes_folder), None)
    if with_files is not None and without is not None:
        raise TypeError(
            f"The case {with_files.id!r} has files, so the agent {without.name!r} must be a function of its folder: "
            "evaluate(lambda folder: Agent(..., tools=builtin_tools(folder)), ...)."
        )
