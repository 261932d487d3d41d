"""The model that was chosen with `/model` in a session: a later `-c` goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.sessions.saved import read_configured_model
from steersman.cli.setup.model_choice import Choice, apply_providers, resolve_model
from steersman.cli.setup.settings import Settings
from steersman.cli.terminal.sanitize import sanitize_line


async def choose_kept_model(
    options: Options, settings: Settings, workspace: Path, notify: Callable[[str], None]
) -> Choice | None:
    """Returns the model of the session that is continued; `None` if none was chosen there, or `--model` names one.

    One that cannot be used now, as without its key, is told to `notify`.
    """
    if options.model is not None or not (options.continue_ or options.resume is not None):
        return None
    name = read_configured_model(options, workspace)
    if name is None:
        return None
    apply_providers(settings.providers)
    try:
        model = await resolve_model(name)
    except UserError as error:
        notify(sanitize_line(f"The session used {name}, which cannot be used now: {error}"))
        return None
    return Choice(model, f"Using {model.name} (chosen in this session).")
