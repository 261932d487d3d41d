"""The loop. Only this package changes a run and emits its events; the others are called and return values.

An agent starts its runs through the names below: the loop, and asyncio with it, is loaded with the first prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.loop.entry import Start, check_answerable, parse_prompts, read_one_prompt, read_prompts, start_run

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "entry": "Start check_answerable parse_prompts read_one_prompt read_prompts start_run",
    },
)

__all__ = [
    "Start",
    "check_answerable",
    "parse_prompts",
    "read_one_prompt",
    "read_prompts",
    "start_run",
]
