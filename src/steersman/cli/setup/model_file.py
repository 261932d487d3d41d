"""Downloads a model that runs on this machine, and proposes one that fits its memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from steersman.cli.exits import USAGE, UserError
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.stderr import StderrMessages
from steersman.provider.local.weights.cache import LOCAL_MODELS, find_cache_folder
from steersman.provider.local.weights.huggingface import PREFIX, find_downloaded, find_hub_model, parse_reference
from steersman.types.errors import SteersmanError

# Weights take their size in memory. A context window takes some more, and other programs need their share.
_AROUND, _SHARE = 1_000_000_000, 0.6


@dataclass(frozen=True, slots=True)
class Proposal:
    """A model to get with `steersman models get NAME`; `size` in bytes, rounded."""

    name: str
    size: int
    note: str = ""

    def fits(self, memory: int) -> bool:
        """Whether it runs well in so many bytes of memory."""
        return self.size * 1.25 + _AROUND <= memory * _SHARE


PROPOSALS = (
    Proposal("qwen2.5-coder-0.5b", 491_400_064),
    Proposal("qwen2.5-coder-1.5b", 1_117_320_768),
    Proposal(
        "hf:Qwen/Qwen2.5-Coder-7B-Instruct-GGUF/qwen2.5-coder-7b-instruct-q4_k_m.gguf",
        4_700_000_000,
        "slow without a graphics card",
    ),
)
"""From the smallest, which runs nearly everywhere, to the largest."""


def propose_model(memory: int) -> Proposal:
    """The largest proposal that fits so many bytes of memory; the smallest if none does."""
    return next((each for each in reversed(PROPOSALS) if each.fits(memory)), PROPOSALS[0])


def measure_memory(limits: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """The memory of this machine in bytes, or what a container may use of it."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        allowed = limits.read_text().strip()
    except OSError:
        return total
    return min(total, int(allowed)) if allowed.isdecimal() else total


async def get_model_file(name: str | None, *, verbose: bool) -> int:
    """Downloads the model of a name and prints how to use it; returns the exit code."""
    if name is None:
        known = ", ".join(LOCAL_MODELS)
        raise UserError(f"Name the model: steersman models get hf:ORG/REPO/FILE.gguf, or one of {known}.", code=USAGE)
    from steersman.provider.local.weights.find import fetch_weights

    stderr = StderrMessages(verbose=verbose)
    try:
        model = await find_hub_model(parse_reference(name)) if name.startswith(PREFIX) else name
        found = await fetch_weights(model, report=stderr.show_progress)
    finally:
        await stderr.close()
    print(sanitize_line(str(found.path)))
    print(f"Use it: steersman --model local:{sanitize_line(_choose_name(found.model.name, found.model.reference))}")
    return 0


def _choose_name(name: str, reference: str) -> str:
    """The short name; the whole reference where several models have the short one."""
    try:
        find_downloaded(name, find_cache_folder())
    except SteersmanError:
        return reference
    return name
