"""How a file is served: its window, its threads, and whether the model chooses tools in its own way or in two steps."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from steersman.provider.local.serving.process import Settings
from steersman.types.errors import MissingExtra
from steersman.types.model import Model

Way: TypeAlias = Literal["steps", "template"]
"""How tools are chosen: in two steps of ours, or as the model's own chat template has it."""

SMALL = 1_000_000_000
"""A file of fewer bytes holds a model that chooses tools better in our two steps than by its own template."""

_NUMBERS = ("n_ctx", "threads", "gpu_layers")


def check_installed() -> None:
    """Raise unless what runs the model is installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtra(
            "The embedded model needs the package xllamacpp: pip install 'steersman[local]'. Where that has no build "
            f"(this is Python {platform.python_version()} on {platform.system()} {platform.machine()}), set a key such "
            "as ANTHROPIC_API_KEY or OPENAI_API_KEY, or run Ollama and use 'ollama:<model>'."
        )


def settings_of(model: Model, path: Path, slots: Path) -> Settings:
    """The settings for a file, with what `Model.settings` names over the usual ones."""
    given = {name: _number(model, name) for name in _NUMBERS}
    path = path.resolve()
    small = path.stat().st_size < SMALL
    return Settings(
        path=path,
        context=given["n_ctx"] or (4096 if small else 16384),
        threads=given["threads"] or usual_threads(),
        # A slot for decisions and one for answers; with a big model, one window is memory enough.
        parallel=2 if small else 1,
        gpu_layers=given["gpu_layers"],
        slots=slots,
    )


def way_of(model: Model, settings: Settings, props: Any) -> Way:
    """How this model chooses tools: as the settings say, else by its template if it is big enough and has one."""
    wanted = model.settings.get("tools")
    if wanted is not None and wanted not in ("steps", "template"):
        raise ValueError(f"The setting 'tools' of {model.name} is 'steps' or 'template', got {wanted!r}.")
    if wanted is not None:
        return wanted
    return "template" if settings.path.stat().st_size >= SMALL and declares_tools(props) else "steps"


def declares_tools(props: Any) -> bool:
    """Whether the chat template of the served model has a place for tools."""
    fields = cast(dict[str, Any], props) if isinstance(props, dict) else {}
    caps: object = fields.get("chat_template_caps")
    if isinstance(caps, dict) and "supports_tools" in caps:
        return bool(cast(dict[str, Any], caps)["supports_tools"])
    return "tools" in str(fields.get("chat_template_tool_use") or fields.get("chat_template") or "")


def usual_threads() -> int:
    """One less than there are cores for us: with all of them, a busy machine brings the model nearly to a halt."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota(cores)) - 1)


def _quota(cores: int) -> int:
    """The cores a container may use, which may be fewer than it sees."""
    try:
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return cores if most == "max" else max(1, int(most) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return cores


def _number(model: Model, name: str) -> int | None:
    value = model.settings.get(name)
    least = 0 if name == "gpu_layers" else 1
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ValueError(f"The setting {name!r} of {model.name} is a whole number from {least} on, got {value!r}.")
    return value
