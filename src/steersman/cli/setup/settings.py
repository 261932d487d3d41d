"""Settings: the user's, and a project's, which count only after trust and can only be stricter.

Also where the command keeps its files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import select
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from steersman.cli.exits import UserError
from steersman.cli.terminal.theme import THEMES, Theme, guess_theme

PIPE_SECONDS = 3.0
"""How long to wait for data from a pipe given as a file, such as `<(...)`."""

Notify: TypeAlias = Literal["auto", "bell", "osc", "off"]
Seam: TypeAlias = Literal["before_tool", "after_tool", "prompt", "end", "waiting"]
Mode: TypeAlias = Literal["ask", "accept-edits", "plan", "bypass"]
MAX_SETTINGS_BYTES = 256 * 1024
PROJECT_FILE = ".steersman/config.toml"
_STRICTNESS: tuple[Mode, ...] = ("bypass", "accept-edits", "ask", "plan")
_T = TypeVar("_T", int, float)


def find_config_folder() -> Path:
    """Where settings and trust are stored: `$XDG_CONFIG_HOME/steersman`, or `~/.config/steersman`."""
    return _find_folder("XDG_CONFIG_HOME", ".config")


def find_state_folder() -> Path:
    """Where sessions and history are stored: `$XDG_STATE_HOME/steersman`, or `~/.local/state/steersman`."""
    return _find_folder("XDG_STATE_HOME", ".local/state")


def find_config_file() -> Path:
    """The user's settings file."""
    return find_config_folder() / "config.toml"


def find_history_file() -> Path:
    """The file with the input history of chats; may not exist yet."""
    return find_state_folder() / "history"


def find_session_file(session_dir: Path | None, folder: Path) -> Path:
    """The file with the sessions of a folder; may not exist yet.

    With `session_dir`, all sessions are in `sessions.db` there; otherwise each project folder has its own file.
    """
    if session_dir is not None:
        return Path(os.path.abspath(session_dir.expanduser())) / "sessions.db"
    return find_state_folder() / "sessions" / _name_file(folder)


def find_checkpoint_file(session_dir: Path | None, folder: Path) -> Path:
    """The file with the checkpoints of a project folder; may not exist yet."""
    base = find_state_folder() if session_dir is None else Path(os.path.abspath(session_dir.expanduser()))
    return base / "checkpoints" / _name_file(folder)


def _name_file(folder: Path) -> str:
    """The name of the file for a project folder. It begins with a name for people; the hash tells folders apart."""
    real = os.path.realpath(folder)
    mark = hashlib.sha256(os.fsencode(real)).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(real)).strip("-.")[:48] or "root"
    return f"{name}-{mark}.db"


def make_private_folder(folder: Path) -> Path:
    """Creates a folder and its missing parents, readable only by the owner."""
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    for above in reversed(missing):
        above.mkdir(mode=0o700, exist_ok=True)
    return folder


def get_current_folder() -> Path:
    """The current folder; raises `UserError` if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UserError("The current folder no longer exists; change to another one.") from error


def _find_folder(variable: str, usual: str) -> Path:
    base = os.environ.get(variable, "")
    if os.path.isabs(base):
        return Path(base) / "steersman"
    home = os.path.expanduser("~")
    # Otherwise HOME is not set, and the user has no entry in the password database; or it is relative, and a project
    # that is looked at would bring along the user's settings.
    if not os.path.isabs(home):
        raise UserError("There is no home folder; set the environment variable HOME.")
    return Path(home) / usual / "steersman"


def read_file_bytes(path: Path, *, most: int, of_project: bool = False) -> bytes:
    """Reads a file; raises `ValueError` if it has more than `most` bytes, `OSError` if it cannot be read.

    One of a project must be a regular file.
    """
    if of_project and not stat.S_ISREG(os.stat(path).st_mode):
        # A link may lead to a device, or to our standard input: to open it may do something, to read it takes what was
        # meant for another reader, and to wait for it holds up other sessions.
        raise OSError(errno.EINVAL, "it is not a regular file")
    pieces: list[bytes] = []
    # Non-blocking: opening a FIFO without a writer would block for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        left = most + 1
        while left > 0 and (piece := _read_chunk(handle, min(left, 65_536), wait=not of_project)):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(handle)
    if left <= 0:
        raise ValueError(f"it has more than {most:,} bytes")
    return b"".join(pieces)


def _read_chunk(handle: int, size: int, *, wait: bool) -> bytes:
    try:
        return os.read(handle, size)
    except BlockingIOError:  # a pipe whose writer has not written yet
        if not wait or not select.select([handle], [], [], PIPE_SECONDS)[0]:
            raise
        return os.read(handle, size)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """A provider's base URL and key variable; `protocol` for a provider that is not known by name."""

    base_url: str | None = None
    api_key_env: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class HookSettings:
    """A command that runs at a seam: for all tools if `tools` is empty, at most `timeout` seconds.

    Without `sandbox`, one of the user's own settings runs as the user.
    """

    at: Seam
    command: str
    tools: tuple[str, ...] = ()
    timeout: float = 30.0
    of_project: bool = False
    sandbox: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings; `None` where nothing is set. `model_from` is the file that names the model."""

    model: str | None = None
    model_from: Path | None = None
    thinking: str | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    mode: Mode | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    max_turns: int | None = None
    checkpoints: bool | None = None
    max_budget_usd: float | None = None
    max_duration: float | None = None
    fallbacks: tuple[str, ...] = ()
    mcp_variables: tuple[str, ...] = ()
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])
    hooks: tuple[HookSettings, ...] = ()
    theme: str | None = None
    themes: Mapping[str, Theme] = field(default_factory=dict[str, Theme])
    notify: Notify | None = None
    notify_after: float | None = None
    vim: bool | None = None

    def tighten(self, project: Settings) -> Settings:
        """Adds a project's settings: its model and prompt take precedence, its rules and limits only if stricter."""
        return replace(
            self,
            model=project.model or self.model,
            model_from=project.model_from if project.model else self.model_from,
            thinking=project.thinking or self.thinking,
            system_prompt=self.system_prompt if project.system_prompt is None else project.system_prompt,
            tools=_intersect(self.tools, project.tools),
            mode=_pick_stricter(self.mode, project.mode),
            ask=(*self.ask, *project.ask),
            deny=(*self.deny, *project.deny),
            max_turns=_pick_lower(self.max_turns, project.max_turns),
            max_budget_usd=_pick_lower(self.max_budget_usd, project.max_budget_usd),
            max_duration=_pick_lower(self.max_duration, project.max_duration),
            fallbacks=project.fallbacks or self.fallbacks,
            # A project's hook may change a call, and a gate of the user judges what really runs.
            hooks=(*project.hooks, *self.hooks),
        )


def find_theme(settings: Settings) -> Theme:
    """The theme of the settings, or one that suits the terminal."""
    return guess_theme() if settings.theme is None else {**THEMES, **settings.themes}[settings.theme]


def _intersect(left: tuple[str, ...] | None, right: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if left is None or right is None:
        return right if left is None else left
    return tuple(name for name in right if name in left)


def _pick_lower(left: _T | None, right: _T | None) -> _T | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _pick_stricter(left: Mode | None, right: Mode | None) -> Mode | None:
    if left is None or right is None:
        return right if left is None else left
    return left if _STRICTNESS.index(left) > _STRICTNESS.index(right) else right
