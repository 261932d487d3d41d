"""What a run looks like to a person: events in, lines of text with our own colours out; only `terminal` writes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.cli.render.diffs import changed_lines, compared, diff
    from steersman.cli.render.show import Show
    from steersman.cli.render.streamed import markdown
    from steersman.cli.render.terminal import TerminalView, show_on_terminal, wants_color
    from steersman.cli.render.words import cost_line

_HOMES = {
    "Show": "show",
    "TerminalView": "terminal",
    "changed_lines": "diffs",
    "compared": "diffs",
    "cost_line": "words",
    "diff": "diffs",
    "markdown": "streamed",
    "show_on_terminal": "terminal",
    "wants_color": "terminal",
}

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


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: a command that prints plain text needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "markdown_it"):
            raise
        raise MissingExtra("The view on a terminal needs an extra: pip install 'steersman[cli]'.") from error
