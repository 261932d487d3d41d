"""`steersman eval`: evaluates an agent on a file of cases, and says whether it is worse than a baseline.

Exit codes: 0 not worse than the baseline, or no baseline; 1 worse; 2 a mistake in the call or in a file.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steersman.cli.arguments import Options, add_limit_options, add_tool_options
from steersman.cli.evals.agent_folder import FolderAgents
from steersman.cli.evals.evaluation_file import Evaluation, read_evaluation
from steersman.cli.evals.progress_bar import ProgressBar
from steersman.cli.exits import DONE, ERROR, USAGE, UserError
from steersman.cli.flag_values import parse_count
from steersman.cli.setup.settings import make_private_folder
from steersman.cli.terminal.columns import make_canvas, truncate
from steersman.cli.terminal.sanitize import escape_json, sanitize_line
from steersman.cli.terminal.signals import StopRequest, catch_signals
from steersman.evals.case import DatasetError
from steersman.evals.evaluation import evaluate
from steersman.evals.report import Report, ReportError
from steersman.evals.scorer_names import parse_scorer
from steersman.evals.scorers import Scorer, ScorerLike
from steersman.evals.table import render_failures, render_table
from steersman.evals.tapes import Cassettes

REPORT = "report.json"
"""The name of the report in the folder of an evaluation; it is written last, so a folder with one is finished."""

_DATE = re.compile(r"Today is \d{4}-\d\d-\d\d\.")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the cases: a .yaml, .jsonl or .py file")
    parser.add_argument("--baseline", type=Path, metavar="REPORT", help="compare with this report.json, or its folder")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="keep report and sessions here, and go on with what is there; a new folder beside FILE if missing",
    )
    parser.add_argument(
        "--model",
        action="append",
        dest="models",
        metavar="PROVIDER:ID",
        help="the model to evaluate; several are compared with the first",
    )
    parser.add_argument("--repeat", type=parse_count, metavar="N", help="run each case so many times")
    parser.add_argument("--concurrency", type=parse_count, default=8, metavar="N", help="the most runs at once")
    parser.add_argument(
        "--scorer",
        action="append",
        default=[],
        dest="scorers",
        metavar="NAME[=SETTINGS]",
        help="judge by this too, for example contains, or max_cost=0.05",
    )
    parser.add_argument(
        "--cassettes", type=Path, metavar="DIR", help="record what models say here, and replay what is recorded"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_tool_options(parser)
    add_limit_options(parser)


async def run(options: Options) -> int:
    """Evaluates; returns the exit code. The first Ctrl-C or other signal cancels the runs in order."""
    stopping = StopRequest()
    with catch_signals(stopping.request) as signals:
        try:
            return await _evaluate(options)
        except asyncio.CancelledError as error:
            if signals.code is None or not stopping.consume_cancel(error):
                raise
            return signals.code


async def _evaluate(options: Options) -> int:
    arguments = options.arguments
    assert arguments is not None
    try:
        baseline = None if arguments.baseline is None else _load_baseline(arguments.baseline)
        evaluation = read_evaluation(arguments.file)
        scorers = [*evaluation.dataset.scorers, *_parse_scorers(arguments.scorers)]
    except (DatasetError, ReportError) as error:
        raise UserError(str(error), code=USAGE) from error
    if not scorers:
        raise UserError(
            "No scorer is given, so only a crash would fail a case. Add one, such as --scorer contains, which compares "
            "with what is 'expected'.",
            code=USAGE,
        )
    work = _Work(options, arguments, evaluation, scorers, _choose_folder(arguments.file, arguments.out))
    report = await work.evaluate()
    try:
        report = report if baseline is None else report.compare(baseline)
    except ReportError as error:
        raise UserError(str(error), code=USAGE) from error
    finally:
        await asyncio.to_thread(work.write, report)
    _print(report, work.folder, as_json=arguments.json)
    return ERROR if report.worse else DONE


@dataclass(frozen=True, slots=True)
class _Work:
    """One evaluation and its folder."""

    options: Options
    arguments: argparse.Namespace
    evaluation: Evaluation
    scorers: Sequence[ScorerLike]
    folder: Path

    async def evaluate(self) -> Report:
        """Runs what is not done yet; on Ctrl+C it says how to go on."""
        arguments = self.arguments
        make_private_folder(self.folder)
        progress = ProgressBar(sys.stderr)
        try:
            async with FolderAgents(self.options) as agents:
                given = self.evaluation.agents
                if given is None:
                    given = await agents.start(arguments.models or self.evaluation.dataset.models)
                elif arguments.models:
                    raise UserError("The agents of a .py file have their models: leave out --model.", code=USAGE)
                return await evaluate(
                    given,
                    self.evaluation.dataset,
                    self.scorers,
                    arguments.repeat or self.evaluation.dataset.repeat,
                    arguments.concurrency,
                    store=self.folder / "sessions.db",
                    workspaces=self.folder / "workspaces",
                    cassettes=self._make_cassettes(),
                    clock=None if arguments.cassettes is None else _stand_still,
                    progress=progress.show,
                )
        except TypeError as error:
            raise UserError(str(error), code=USAGE) from error
        except asyncio.CancelledError:
            progress.close()
            print("steersman: Interrupted. The same command goes on where it was.", file=sys.stderr)
            raise
        finally:
            progress.close()

    def write(self, report: Report) -> None:
        """Writes the report; the JSON last, because it says that the evaluation is finished."""
        report.write_html(self.folder / "report.html", self.folder / "sessions.db")
        report.write_json(self.folder / REPORT)

    def _make_cassettes(self) -> Cassettes | None:
        folder = self.arguments.cassettes
        return None if folder is None else Cassettes(folder, scrub=lambda text: _DATE.sub("Today is <date>.", text))


def _stand_still() -> float:
    """The clock of a replay: what is recorded has no times of its own, so every run takes none."""
    return 0.0


def _load_baseline(path: Path) -> Report:
    return Report.load(path / REPORT if path.is_dir() else path)


def _parse_scorers(given: Sequence[str]) -> list[Scorer]:
    try:
        return [parse_scorer(text, Path.cwd()) for text in given]
    except ValueError as error:
        raise UserError(str(error), code=USAGE) from error


def _choose_folder(file: Path, out: Path | None) -> Path:
    """The folder of the evaluation: the given one, else the last numbered one that is not finished, else a new one."""
    if out is not None:
        return out
    root = file.with_suffix(".eval")
    numbers = sorted(int(path.name) for path in root.glob("*") if path.name.isdecimal())
    last = numbers[-1] if numbers else 0
    unfinished = last > 0 and not (root / str(last) / REPORT).exists()
    return root / str(last if unfinished else last + 1)


def _print(report: Report, folder: Path, *, as_json: bool) -> None:
    if as_json:
        text = report.to_json().decode()
        sys.stdout.write(escape_json(text) if sys.stdout.isatty() else text)
        return
    canvas = make_canvas()
    lines = list(render_table(report))
    failures = list(render_failures(report))
    for place, line in enumerate(lines):
        print(canvas.style(line, "bold") if place < 2 else line)
    if failures:
        print("\nFailed:")
    for line in failures:
        print("  " + (line if canvas.width is None else truncate(line, canvas.width - 2)))
    print(f"\nReport: {sanitize_line(str(folder / 'report.html'))}")
    print(f"Sessions: steersman sessions list --session-dir {sanitize_line(str(folder))}")
