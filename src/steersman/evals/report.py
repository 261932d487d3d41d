"""`Report`: what an evaluation found, as values, as JSON and as a table. The same sessions give the same report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from steersman.evals.significance import compute_interval
from steersman.types.errors import SteersmanError
from steersman.types.usage import Usage

if TYPE_CHECKING:
    from steersman.session.opening import Where

FORMAT: Final = "1.0"
"""The version of the JSON form: a report of a newer major is not read."""


class ReportError(SteersmanError, ValueError):
    """A report cannot be read or compared; the message says why."""


class ScoreResult(msgspec.Struct, frozen=True):
    """The score of one scorer for one run; `error` says why the scorer itself failed."""

    value: float
    passed: bool
    reason: str = ""
    error: str = ""


class RunReport(msgspec.Struct, frozen=True):
    """One run of a case. It passed if it did not crash and every scorer passed it.

    `session` is the id of its session. `crashed` says why it crashed, and is empty if it did not. `duration` is in
    seconds, `cost` in US dollars, `null` where it is not known; `judge_cost` is what judging this run cost.
    """

    case: str
    repeat: int
    session: str
    passed: bool
    crashed: str
    scores: dict[str, ScoreResult]
    end_reason: str
    detail: str
    turns: int
    tool_calls: int
    duration: float
    usage: Usage
    cost: float | None
    judge_cost: float | None


class Rate(msgspec.Struct, frozen=True):
    """A mean from 0 to 1 over all runs, crashed ones included, and its 95 % interval."""

    mean: float
    low: float
    high: float


class AgentReport(msgspec.Struct, frozen=True):
    """What one agent did: its rates, its sums, and each of its runs in the order of the dataset.

    `score` are the means of the scorers' values, `pass_rate` the shares they passed; `rate` is that of the runs.
    """

    name: str
    model: str
    cases: int
    passed: int
    crashed: int
    rate: Rate
    score: dict[str, Rate]
    pass_rate: dict[str, Rate]
    cost: float | None
    judge_cost: float | None
    duration: float
    runs: list[RunReport]

    def group(self, scorer: str | None = None) -> dict[str, list[float]]:
        """The values of the repeats of each case: those of a scorer, or 1 and 0 for passed and failed."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            value = float(run.passed) if scorer is None else run.scores[scorer].value
            found.setdefault(run.case, []).append(value)
        return found


Verdict: TypeAlias = Literal["better", "worse", "no difference"]


class Comparison(msgspec.Struct, frozen=True):
    """One agent against another, over the cases that both have.

    `scorer` is `passed` for all scorers together. `before` and `after` are means, `p_value` that of a paired sign-flip
    permutation test. `verdict` is "no difference" where the difference may be noise (p >= 0.05). `unshared` is how many
    cases only one of the two has, `baseline` whether the other one is of an earlier report.
    """

    agent: str
    against: str
    scorer: str
    cases: int
    unshared: int
    before: float
    after: float
    p_value: float
    verdict: Verdict
    baseline: bool = False

    @property
    def difference(self) -> float:
        """How much higher the mean is."""
        return self.after - self.before


class Report(msgspec.Struct, frozen=True):
    """The result of an evaluation. `print(report)` shows it as a table; `write_json` and `write_html` keep it.

    `comparisons` are those with a baseline, and those of the agents with the first one.
    """

    name: str
    repeat: int
    scorers: list[str]
    agents: list[AgentReport]
    comparisons: list[Comparison] = []
    format: str = FORMAT

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read a report that `write_json` has written; raises `ReportError`."""
        place = Path(path)
        try:
            data = place.read_bytes()
        except OSError as error:
            raise ReportError(f"Cannot read the report {str(place)!r}: {error.strerror}.") from error
        return decode_report(data, str(place))

    def compare(self, baseline: Report) -> Report:
        """This report with its comparisons with a baseline, case by case."""
        from steersman.evals.comparison import compare_reports  # it needs the values of this module

        others = [one for one in self.comparisons if not one.baseline]
        return msgspec.structs.replace(self, comparisons=[*compare_reports(self, baseline), *others])

    @property
    def worse(self) -> bool:
        """Whether an agent passes fewer cases than in the baseline, by more than noise."""
        return any(one.baseline and one.scorer == "passed" and one.verdict == "worse" for one in self.comparisons)

    def to_json(self) -> bytes:
        """The report as JSON, indented, with a line break at its end."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file, which is replaced at once or not at all."""
        write_whole(Path(path), self.to_json())

    def to_html(self, store: Where | None = None) -> str:
        """The report as one HTML document; with the store of the sessions also their transcripts."""
        from steersman.evals.html_report import render_report  # many reports are never shown so

        return render_report(self, store)

    def write_html(self, path: str | os.PathLike[str], store: Where | None = None) -> None:
        """Write the report as one HTML file, with the transcripts of the sessions in `store`."""
        write_whole(Path(path), self.to_html(store).encode("utf-8", "replace"))

    def __str__(self) -> str:
        from steersman.evals.table import render_table  # as above

        return "\n".join(render_table(self))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is never there in part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def decode_report(data: bytes, where: str) -> Report:
    """The report in a JSON text; `where` is how errors call it."""
    try:
        version = msgspec.json.decode(data, type=_Version).format
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportError(f"{where!r} is no report of an evaluation: {error}.") from error
    if version.partition(".")[0] != FORMAT.partition(".")[0]:
        raise ReportError(f"{where!r} has the format {version}, and this version reads {FORMAT}; update Steersman.")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportError(f"{where!r} is no report of an evaluation: {error}.") from error


class _Version(msgspec.Struct, frozen=True):
    format: str


_decoder: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)


def summarize(name: str, model: str, runs: Sequence[RunReport], names: Sequence[str]) -> AgentReport:
    """The report of one agent from its runs; `names` are those of the scorers."""
    return AgentReport(
        name=name,
        model=model,
        cases=len({run.case for run in runs}),
        passed=sum(run.passed for run in runs),
        crashed=sum(bool(run.crashed) for run in runs),
        rate=_compute_rate([(run.case, float(run.passed)) for run in runs]),
        score={of: _compute_rate([(run.case, run.scores[of].value) for run in runs]) for of in names},
        pass_rate={of: _compute_rate([(run.case, float(run.scores[of].passed)) for run in runs]) for of in names},
        cost=_add([run.cost for run in runs]),
        judge_cost=_add([run.judge_cost for run in runs]),
        duration=fsum(run.duration for run in runs),
        runs=list(runs),
    )


def _compute_rate(found: Iterable[tuple[str, float]]) -> Rate:
    cases: dict[str, list[float]] = {}
    for case, value in found:
        cases.setdefault(case, []).append(value)
    means = [fsum(values) / len(values) for values in cases.values()]
    low, high = compute_interval(list(cases.values()))
    return Rate(fsum(means) / len(means), low, high)


def _add(costs: Iterable[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return fsum(known) if known else None
