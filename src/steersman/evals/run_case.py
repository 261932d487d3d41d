"""Runs one case in its session and scores it. What is in the session already is not done again."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from steersman.agent.agent import Agent
from steersman.context.log import Log
from steersman.evals.agents import EvaluatedAgent
from steersman.evals.case import Case
from steersman.evals.case_run import CRASHES, EVALUATED, SCORE, CaseRun, find_record, find_scores, load_case_run
from steersman.evals.report import RunReport, ScoreResult
from steersman.evals.scorers import Score, Scorer
from steersman.evals.tapes import Cassettes
from steersman.session.records import Payload, to_json_value
from steersman.session.session import Session
from steersman.session.stores.store import Store
from steersman.types.errors import describe_exception
from steersman.types.result import RunResult, find_value
from steersman.types.usage import Usage


@dataclass(frozen=True, slots=True)
class Job:
    """One run to make: a case, an agent and the number of the repeat, from 1 on."""

    agent: EvaluatedAgent
    case: Case
    repeat: int

    @property
    def session_id(self) -> str:
        """The id of its session: readable, and another one when the agent, the prompt or the files have changed."""
        words = "\0".join((self.agent.name, self.agent.digest, self.case.id, self.case.digest, str(self.repeat)))
        mark = sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{_make_slug(self.case.id, 48)}.{self.repeat}.{_make_slug(self.agent.name, 32)}.{mark}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of an evaluation share."""

    store: Store
    workspaces: Path
    scorers: Sequence[Scorer]
    cassettes: Cassettes | None
    clock: Callable[[], float] | None


def _make_slug(text: str, longest: int) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:longest] or "x"


async def run_case(job: Job, setting: Setting) -> RunReport:
    """Run a case, or find its run in the store; then score it. Only a mistake in the setting raises."""
    name = job.session_id
    folder = setting.workspaces / name if job.agent.takes_folder else None
    with Session.open(setting.store, name, create=True) as session:
        ended = find_record(session, EVALUATED)
        if ended is None or not (setting.cassettes is None or setting.cassettes.has(name)):
            ended = await _run(job, setting, session, folder)
        run = load_case_run(session, ended, job.case, job.agent.name, job.repeat, folder)
        return await _report(run, setting, session, ended)


async def _run(job: Job, setting: Setting, session: Session, folder: Path | None) -> Payload:
    """Run a case from its prompt on. What an earlier process left of it stays in the session as another branch."""
    if folder is not None:
        await asyncio.to_thread(_make_workspace, job.case, folder)
    if session.log.entries:
        session.move_to(Log())
    read_clock = setting.clock or asyncio.get_running_loop().time
    began = read_clock()
    ended: Payload = {}
    try:
        async with job.agent.open(folder) as agent:
            result = await _ask(agent, job, setting, session, folder)
        ended = _describe_result(result)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001  # a case that crashes is a failed case, and the others go on
        ended = {"end_reason": "error", "error": _describe_failure(error), **ended}
    entries = session.log.entries
    ended["leaf"] = entries[-1].id if entries else None
    ended["duration"] = round(read_clock() - began, 6)
    session.recorder.add(EVALUATED, {"case": job.case.id, "agent": job.agent.name, "repeat": job.repeat, **ended})
    await session.save()
    return find_record(session, EVALUATED) or ended


async def _ask(agent: Agent[Any], job: Job, setting: Setting, session: Session, folder: Path | None) -> RunResult[Any]:
    with ExitStack() as stack:
        if setting.clock is not None:
            agent.configure(clock=setting.clock)
        if setting.cassettes is not None:
            tape = setting.cassettes.play(job.session_id, agent.config.stream_fn, folder)
            agent.configure(stream_fn=stack.enter_context(tape))
        agent.configure(session=session)
        return await agent.run(job.case.prompt)


def _describe_result(result: RunResult[Any]) -> Payload:
    value = find_value(result)
    crashed = result.end_reason in CRASHES
    return {
        "end_reason": result.end_reason,
        "detail": result.detail,
        "usage": to_json_value(result.usage),
        "output": result.text if value is None else to_json_value(value),
        "error": (result.detail or result.end_reason) if crashed else "",
    }


def _make_workspace(case: Case, folder: Path) -> None:
    """Make the folder of a case anew: an earlier process may have left a changed one."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, mode=0o700)
    case.write_files(folder)


async def _report(run: CaseRun, setting: Setting, session: Session, ended: Payload) -> RunReport:
    kept = find_scores(session, ended.get("leaf")) if any(scorer.keep for scorer in setting.scorers) else {}
    scores: dict[str, ScoreResult] = {}
    judging = Usage()
    for scorer in setting.scorers:
        if run.error:
            scores[scorer.name] = ScoreResult(0.0, passed=False, reason="the case crashed")
            continue
        try:
            found = await _score(scorer, run, kept, session, ended.get("leaf"), setting)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001  # a scorer that fails has not passed the case
            scores[scorer.name] = ScoreResult(0.0, passed=False, error=_describe_failure(error))
        else:
            judging = judging if found.usage is None else judging + found.usage
            scores[scorer.name] = ScoreResult(found.value, passed=found.passed, reason=found.reason)
    return RunReport(
        case=run.case.id,
        repeat=run.repeat,
        session=run.session_id,
        passed=not run.error and all(score.passed for score in scores.values()),
        crashed=run.error,
        scores=scores,
        end_reason=run.end_reason,
        detail=run.detail,
        turns=run.turns,
        tool_calls=len(run.tool_calls),
        duration=run.duration,
        usage=run.usage,
        cost=run.cost,
        judge_cost=judging.cost,
    )


def _describe_failure(error: BaseException) -> str:
    """What the report says of an agent or scorer that failed; raises the error where the evaluation is cancelled.

    An exit, or a cancel of something inside that was awaited, is a failure like any other.
    """
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return describe_exception(error)


async def _score(
    scorer: Scorer, run: CaseRun, kept: dict[str, Payload], session: Session, leaf: str | None, setting: Setting
) -> Score:
    """The score of a run: the one in its session, where it is kept there, or a new one."""
    key = f"{scorer.name}:{scorer.key}"
    if scorer.keep and key in kept:
        return msgspec.convert(kept[key]["score"], Score)
    if scorer.keep and setting.cassettes is not None and scorer.play is not None:
        tapes, name = setting.cassettes, f"{run.session_id}.{_make_slug(scorer.name, 32)}"
        found = await scorer.play(run, lambda stream_fn: tapes.play(name, stream_fn, run.workspace))
    else:
        found = await scorer.score(run)
    if scorer.keep:
        session.recorder.add(SCORE, {"key": key, "leaf": leaf, "score": to_json_value(found)})
        await session.save()
    return found
