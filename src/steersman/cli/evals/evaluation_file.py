"""Reads the file of an evaluation: a dataset, or a Python program that defines `dataset`, `agent` and `scorers`."""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steersman.evals.agents import AgentSources
from steersman.evals.case import Dataset, DatasetError
from steersman.evals.scorers import read_scorers
from steersman.types.errors import describe_exception


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a file says. Without agents, that of the folder is evaluated."""

    dataset: Dataset
    agents: AgentSources | None = None


def read_evaluation(path: Path) -> Evaluation:
    """Read a `.yaml`, `.jsonl` or `.py` file; raises `DatasetError`, also for a program that raises."""
    if path.suffix != ".py":
        return Evaluation(Dataset.load(path))
    if not path.is_file():
        raise DatasetError(f"Cannot read {str(path)!r}: no such file. Check its path.")
    # As Python does for a program: it may import what lies beside it.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        found = runpy.run_path(str(path), run_name="steersman_eval")
    except Exception as error:  # the program may raise anything, and that is for its author
        raise DatasetError(
            f"{str(path)!r} raised {describe_exception(error)}. Run the same command with --verbose to see where."
        ) from error
    return Evaluation(_read_dataset(path, found), _find(path, found, "agents", "agent"))


def _read_dataset(path: Path, found: dict[str, Any]) -> Dataset:
    given = _find(path, found, "dataset", "cases")
    dataset = given if isinstance(given, Dataset) else Dataset(given, name=path.stem)
    try:
        scorers = read_scorers(found.get("scorers", dataset.scorers))
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{str(path)!r}: {error}") from error
    return replace(dataset, scorers=scorers, repeat=found.get("repeat", dataset.repeat))


def _find(path: Path, found: dict[str, Any], *names: str) -> Any:
    for name in names:
        if name in found:
            return found[name]
    raise DatasetError(f"{str(path)!r} defines no {names[-1]!r}. It needs 'dataset', 'agent' and 'scorers'.")
