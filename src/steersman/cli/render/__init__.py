"""Renders a run for people: takes events and returns lines with colours. Only `terminal_view` writes to a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily
from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.cli.render.calls import compare_texts, count_changes, render_diff
    from steersman.cli.render.show import RunDisplay
    from steersman.cli.render.streaming_markdown import render_markdown
    from steersman.cli.render.terminal_view import TerminalView, show_on_terminal, wants_color
    from steersman.cli.terminal.numbers import describe_cost


def _explain(error: ModuleNotFoundError) -> Exception | None:
    if (error.name or "").partition(".")[0] not in ("rich", "markdown_it"):
        return None
    return MissingExtra("The view on a terminal needs an extra: pip install 'steersman[cli]'.")


__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "calls": "compare_texts count_changes render_diff",
        "show": "RunDisplay",
        "steersman.cli.terminal.numbers": "describe_cost",
        "streaming_markdown": "render_markdown",
        "terminal_view": "TerminalView show_on_terminal wants_color",
    },
    explain=_explain,
)

__all__ = [
    "RunDisplay",
    "TerminalView",
    "compare_texts",
    "count_changes",
    "describe_cost",
    "render_diff",
    "render_markdown",
    "show_on_terminal",
    "wants_color",
]
