"""Evaluates scripted cases, killing itself with SIGKILL at random writes, and goes on until there is a report.

    python -m tests.evals.killed FOLDER CASES ROUNDS SEED

Each process is forked from this one, which has everything imported and no thread. The first one is not killed: its
report is what all others must come to. Prints the number of kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steersman import Agent, tool
from steersman.evals import Case, CaseRun, Dataset, Score, contains, equals, evaluate, judge, max_cost
from steersman.evals.evaluation import Progress
from steersman.evals.html_report import render_report
from steersman.session.records import Record
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import Handle, Problem, Summary
from steersman.testing import ScriptedModel, answer, call, error
from steersman.types import Request, Usage

SPENT = Usage(input=100, output=10, cost=0.001)


class DeadlyStore:
    """An SQLite file whose process dies before or after the write of a certain number."""

    def __init__(self, path: Path, place: int) -> None:
        self.inner = SqliteStore(path)
        self.place = place
        self.writes = 0
        self._lock = threading.Lock()

    def create(self, session_id: str, /, *, first: bool = False) -> Handle:
        return DeadlyHandle(self.inner.create(session_id, first=first), self)

    def open(self, session_id: str, /, *, write: bool = True) -> Handle:
        return DeadlyHandle(self.inner.open(session_id, write=write), self)

    def list(self) -> Sequence[Summary]:
        return self.inner.list()

    def delete(self, session_id: str, /) -> None:
        self.inner.delete(session_id)

    def count(self) -> None:
        """Count a moment; the process ends at the one of its number."""
        with self._lock:
            self.writes += 1
            if self.writes == self.place:
                os.kill(os.getpid(), signal.SIGKILL)


class DeadlyHandle:
    """A handle that counts the moments before and after each write."""

    def __init__(self, inner: Handle, store: DeadlyStore) -> None:
        self.inner = inner
        self.store = store

    @property
    def session_id(self) -> str:
        return self.inner.session_id

    @property
    def writable(self) -> bool:
        return self.inner.writable

    @property
    def problems(self) -> Sequence[Problem]:
        return self.inner.problems

    @property
    def last_seq(self) -> int:
        return self.inner.last_seq

    def append(self, records: Sequence[Record], /) -> None:
        self.store.count()
        self.inner.append(records)
        self.store.count()

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        return self.inner.lines(after)

    def set_title(self, title: str, /) -> None:
        self.inner.set_title(title)

    def close(self) -> None:
        self.inner.close()


def make_agent(folder: Path) -> Agent:
    """An agent that answers by the number in its prompt: some right, some wrong, some by a tool, and some crash."""

    @tool
    def note(text: str) -> str:
        """Add a line to a file: twice would be seen."""
        with (folder / "notes.txt").open("a") as file:
            file.write(text + "\n")
        return (folder / "notes.txt").read_text()

    def reply(request: Request) -> Any:
        number = int(request.messages[0].text.split()[-1])
        last = request.messages[-1]
        if number % 10 == 7:
            return error("authentication")
        if last.role == "tool_result":
            return answer(f"noted {last.text.strip()}", usage=SPENT)
        if number % 3 == 0:
            return answer(call("note", text=f"line {number}"), usage=SPENT)
        return answer(f"the answer is {number if number % 4 else 'unknown'}", usage=SPENT)

    return Agent(ScriptedModel(reply, repeat_last=True).model, tools=[note], retry=None)


def give_points(request: Request) -> Any:
    """A judge whose points depend on what it reads."""
    points = len(request.messages[0].text) % 11
    return answer(f'{{"reason": "counted", "points": {points}}}', usage=Usage(input=7, output=3, cost=0.0001))


async def keep_length(run: CaseRun) -> Score:
    """A score that is neither 0 nor 1."""
    return Score(min(1.0, len(run.text) / 40), passed=True, reason=run.text)


async def run_evaluation(folder: Path, count: int, place: int) -> int:
    """Evaluate and write the report; returns how many moments to die there were."""
    cases = [
        Case(f"case {number}", expected=str(number), files={"notes.txt": "begin\n"}, id=f"n{number}")
        for number in range(count)
    ]
    store = DeadlyStore(folder / "sessions.db", place)
    judging = judge("Count.", ScriptedModel(give_points, repeat_last=True).model)
    scorers = [contains(), equals("the answer is 1"), max_cost(0.0015), keep_length, judging]
    done: list[Progress] = []
    report = await evaluate(
        make_agent,
        Dataset(cases, name="killed"),
        scorers,
        store=store,
        workspaces=folder / "workspaces",
        clock=lambda: 0.0,
        progress=done.append,
    )
    (folder / "report.html").write_text(render_report(report, store))
    report.write_json(folder / "report.json")
    return store.writes


def fork(folder: Path, count: int, place: int) -> int | None:
    """Evaluate in a process of its own: the moments it counted, `None` if it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            moments = asyncio.run(run_evaluation(folder, count, place))
            os.write(writer, str(moments).encode())
        except BaseException as failed:  # noqa: BLE001  # a forked process must not go on as this program
            print(f"{folder}: {failed!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        said = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return None
    assert status == 0, f"the process ended with {status}"
    return int(said)


def main(folder: Path, count: int, rounds: int, seed: int) -> None:
    """Evaluate once in peace, then again and again under fire."""
    source = random.Random(seed)
    (folder / "calm").mkdir(parents=True)
    moments = fork(folder / "calm", count, 0)
    assert moments is not None
    wanted = [(folder / "calm" / name).read_bytes() for name in ("report.json", "report.html")]
    kills = 0
    for number in range(rounds):
        place = folder / f"round-{number}"
        place.mkdir()
        while fork(place, count, source.randint(1, moments)) is None:
            kills += 1
        found = [(place / name).read_bytes() for name in ("report.json", "report.html")]
        assert found == wanted, f"another report in {place}"
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:5]))
