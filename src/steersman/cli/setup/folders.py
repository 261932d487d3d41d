"""Where the command keeps things: settings, history and sessions, each readable by its owner alone."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from steersman.cli.troubles import UserError


def config_folder() -> Path:
    """Where the user's settings and trust are: `$XDG_CONFIG_HOME/steersman`, or `~/.config/steersman`."""
    return _under("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path:
    """Where sessions and history are: `$XDG_STATE_HOME/steersman`, or `~/.local/state/steersman`."""
    return _under("XDG_STATE_HOME", ".local/state")


def config_file() -> Path:
    """The user's settings."""
    return config_folder() / "config.toml"


def history_file() -> Path:
    """What was typed in chats; nothing is made yet."""
    return state_folder() / "history"


def session_file(session_dir: Path | None, folder: Path) -> Path:
    """The file with the sessions of a folder; nothing is made yet.

    With a folder of the user's own, all sessions are in `sessions.db` there; else each project folder has its file.
    """
    if session_dir is not None:
        return Path(os.path.abspath(session_dir.expanduser())) / "sessions.db"
    real = os.path.realpath(folder)
    mark = hashlib.sha256(os.fsencode(real)).hexdigest()[:8]
    # A name for people; the mark is what tells two folders apart.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(real)).strip("-.")[:48] or "root"
    return state_folder() / "sessions" / f"{name}-{mark}.db"


def made(folder: Path) -> Path:
    """The folder, and what is missing above it, made for its owner alone."""
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    for above in reversed(missing):
        above.mkdir(mode=0o700, exist_ok=True)
    return folder


def current_folder() -> Path:
    """The folder the command was started in; `UserError` where it has been removed meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UserError("The current folder is no longer there; change to another one.") from error


def _under(variable: str, usual: str) -> Path:
    base = os.environ.get(variable, "")
    if os.path.isabs(base):
        return Path(base) / "steersman"
    try:
        return Path.home() / usual / "steersman"
    except RuntimeError as error:  # no HOME, and the system does not know the user
        raise UserError("There is no home folder to keep anything in; set the variable HOME.") from error
