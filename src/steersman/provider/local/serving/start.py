"""Starts the server of a local model: finds or downloads the file, chooses its settings, starts the process."""

from __future__ import annotations

import atexit
import os
import platform
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias, cast

from steersman.provider.local.serving.server import Server, Settings, get_or_start_server
from steersman.provider.local.weights.cache import find_cache_folder
from steersman.provider.local.weights.disk import Progress, Report
from steersman.provider.local.weights.find import MODEL_VARIABLE, Weights, fetch_weights
from steersman.types.errors import MissingExtra
from steersman.types.model import Model

PromptMode: TypeAlias = Literal["steps", "template"]
"""How tools are prompted: in two steps of ours, or by the model's own chat template."""

SMALL = 1_000_000_000
"""The model in a file of fewer bytes has a short context window, and one slot more for decisions."""

STEPS_BELOW = 2_000_000_000
"""The model in a file of fewer bytes is asked in our two steps, with rules against invented answers."""

_NUMBERS = ("n_ctx", "threads", "gpu_layers")


def check_installed() -> None:
    """Raise `MissingExtra` unless the engine is installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtra(
            "The embedded model needs the package xllamacpp: pip install 'steersman[local]'. Where that has no build "
            f"(this is Python {platform.python_version()} on {platform.system()} {platform.machine()}), set a key such "
            "as ANTHROPIC_API_KEY or OPENAI_API_KEY, or run Ollama and use 'ollama:<model>'."
        )


def build_settings(model: Model, path: Path, slots: Path) -> Settings:
    """The settings for a file: those in `Model.settings` over the defaults."""
    given = {name: _check_number(model, name) for name in _NUMBERS}
    path = path.resolve()
    small = path.stat().st_size < SMALL
    return Settings(
        path=path,
        context=given["n_ctx"] or (4096 if small else 16384),
        threads=given["threads"] or count_threads(),
        # One slot for decisions and one for answers; a big model gets one, because each context window takes memory.
        parallel=2 if small else 1,
        gpu_layers=given["gpu_layers"],
        slots=slots,
    )


def choose_prompt_mode(model: Model, settings: Settings, props: Any) -> PromptMode:
    """How this model chooses tools: as the settings say, else by its template if it is big and has one for tools."""
    wanted = model.settings.get("tools")
    if wanted is not None and wanted not in ("steps", "template"):
        raise ValueError(f"The setting 'tools' of {model.name} must be 'steps' or 'template', got {wanted!r}.")
    if wanted is not None:
        return wanted
    return "template" if settings.path.stat().st_size >= STEPS_BELOW and supports_tools(props) else "steps"


def supports_tools(props: Any) -> bool:
    """Whether the chat template of the served model supports tools."""
    fields = cast(dict[str, Any], props) if isinstance(props, dict) else {}
    caps: object = fields.get("chat_template_caps")
    if isinstance(caps, dict) and "supports_tools" in caps:
        return bool(cast(dict[str, Any], caps)["supports_tools"])
    return "tools" in str(fields.get("chat_template_tool_use") or fields.get("chat_template") or "")


def count_threads() -> int:
    """One thread less than there are cores: with all of them, a busy machine slows the model down extremely."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _read_cpu_quota(cores)) - 1)


def _read_cpu_quota(cores: int) -> int:
    """The cores that a container may use (cgroup v2), which may be fewer than it sees."""
    try:
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return cores if most == "max" else max(1, int(most) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return cores


def _check_number(model: Model, name: str) -> int | None:
    value = model.settings.get(name)
    least = 0 if name == "gpu_layers" else 1
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ValueError(f"The setting {name!r} of {model.name} must be a whole number from {least} on, got {value!r}.")
    return value


# A file is searched and checked once, not with every request.
_found: dict[tuple[str, str, str], Weights] = {}


async def start_server(model: Model, report: Report | None) -> Server:
    """The server of this model, started if need be."""
    check_installed()
    name = _get_cache_key(model)
    found = _found.get(name)
    if found is None or not found.path.exists():
        found = _found[name] = await fetch_weights(model.id, report=report)
    settings = build_settings(model, found.path, find_slots_folder())
    if report is not None:
        report(Progress("starting the model", 0, 1))
    server = await get_or_start_server(settings)
    if report is not None:
        report(Progress("starting the model", 1, 1))
    return server


def name_as_served(model: Model) -> Model:
    """The model, under the name of the stand-in if one is served instead."""
    found = _found.get(_get_cache_key(model))
    return model if found is None else name_as_found(model, found)


def name_as_found(model: Model, found: Weights) -> Model:
    """The model under its own name, or that of the stand-in that was found."""
    return replace(model, id=found.model.name) if found.notice else model


def _get_cache_key(model: Model) -> tuple[str, str, str]:
    return (model.id, os.environ.get(MODEL_VARIABLE, ""), str(find_cache_folder()))


def find_slots_folder() -> Path:
    """The folder for saved prompts, readable by this user only; a temporary one if the cache cannot be written."""
    folder = find_cache_folder().parent / "slots"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return _make_temporary_folder()
    return folder if os.access(folder, os.W_OK | os.X_OK) else _make_temporary_folder()


@cache
def _make_temporary_folder() -> Path:
    folder = TemporaryDirectory(prefix="steersman-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return Path(folder.name)
