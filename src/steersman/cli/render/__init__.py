"""What a run looks like to a person: events in, lines of text with our own colours out; only `terminal` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily
from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.cli.render.calls import changed_lines, compared, diff
    from steersman.cli.render.lines import cost_line
    from steersman.cli.render.page import markdown
    from steersman.cli.render.show import Show
    from steersman.cli.render.terminal import TerminalView, show_on_terminal, wants_color


def _explain(error: ModuleNotFoundError) -> Exception | None:
    if (error.name or "").partition(".")[0] not in ("rich", "markdown_it"):
        return None
    return MissingExtra("The view on a terminal needs an extra: pip install 'steersman[cli]'.")


__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "calls": "changed_lines compared diff",
        "lines": "cost_line",
        "show": "Show",
        "page": "markdown",
        "terminal": "TerminalView show_on_terminal wants_color",
    },
    explain=_explain,
)

__all__ = [
    "Show",
    "TerminalView",
    "changed_lines",
    "compared",
    "cost_line",
    "diff",
    "markdown",
    "show_on_terminal",
    "wants_color",
]
