"""The model of a session: a later `-c` goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.sessions.saved import read_session_model
from steersman.cli.setup.model_choice import Choice, apply_providers, resolve_model
from steersman.cli.setup.settings import Settings
from steersman.cli.terminal.sanitize import sanitize_line


async def choose_kept_model(
    options: Options, settings: Settings, workspace: Path, notify: Callable[[str], None]
) -> Choice | None:
    """Returns the model of the session that is continued; `None` if there was none, or `--model` names one.

    The one chosen there with `/model` comes before the settings; the one its last run used holds where they name none.
    One that cannot be used now, as without its key, is told to `notify`.
    """
    if options.model is not None or not (options.continue_ or options.resume is not None):
        return None
    kept = read_session_model(options, workspace)
    name = kept.chosen or (kept.used if settings.model is None else None)
    if name is None:
        return None
    apply_providers(settings.providers)
    try:
        model = await resolve_model(name)
    except UserError as error:
        notify(sanitize_line(f"The session used {name}, which cannot be used now: {error}"))
        return None
    return Choice(model, f"Using {model.name} ({'chosen' if kept.chosen else 'used'} in this session).")
