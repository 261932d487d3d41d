"""From a model's name to a server that answers: the file is found or fetched, and its process started."""

from __future__ import annotations

import atexit
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from steersman.provider.local.serving.server import Server, serving
from steersman.provider.local.serving.settings import check_installed, settings_of
from steersman.provider.local.weights.find import VARIABLE, Weights, weights
from steersman.provider.local.weights.progress import Progress, Report
from steersman.provider.local.weights.shelf import cache_folder
from steersman.types.model import Model

# A file is looked for and looked at once, not with every request.
_found: dict[tuple[str, str, str], Weights] = {}


async def served(model: Model, report: Report | None) -> Server:
    """The server of this model, started where need be."""
    check_installed()
    name = _name(model)
    found = _found.get(name)
    if found is None or not found.path.exists():
        found = _found[name] = await weights(model.id, report=report)
    settings = settings_of(model, found.path, slots_folder())
    if report is not None:
        report(Progress("starting the model", 0, 1))
    server = await serving(settings)
    if report is not None:
        report(Progress("starting the model", 1, 1))
    return server


def as_served(model: Model) -> Model:
    """The model under the name of the one that answers for it, where that is another one."""
    found = _found.get(_name(model))
    return model if found is None else named(model, found)


def named(model: Model, found: Weights) -> Model:
    """The model under the name it was asked for, or that of the one that was found instead."""
    return replace(model, id=found.model.name) if found.word else model


def _name(model: Model) -> tuple[str, str, str]:
    return (model.id, os.environ.get(VARIABLE, ""), str(cache_folder()))


def slots_folder() -> Path:
    """Where prompts that were read are kept, for this user alone; where nothing can be kept, until we end."""
    folder = cache_folder().parent / "slots"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return _passing()
    return folder if os.access(folder, os.W_OK | os.X_OK) else _passing()


@cache
def _passing() -> Path:
    folder = TemporaryDirectory(prefix="steersman-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return Path(folder.name)
