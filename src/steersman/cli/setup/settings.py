"""Settings from `config.toml`: the user's, and a project's, which count only after trust and can only be stricter.

A malformed file is rejected with its path, the key, and what is allowed there. Also where the command keeps its files.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

from steersman.cli.arguments import THINKING
from steersman.cli.exits import UserError, suggest_nearest
from steersman.provider.local.weights.cache import LOCAL_MODELS

PIPE_SECONDS = 3.0
"""How long to wait for data from a pipe given as a file, such as `<(...)`."""

Mode: TypeAlias = Literal["ask", "accept-edits", "plan", "bypass"]
MAX_SETTINGS_BYTES = 256 * 1024
PROJECT_FILE = ".steersman/config.toml"
_STRICTNESS: tuple[Mode, ...] = ("bypass", "accept-edits", "ask", "plan")
_T = TypeVar("_T", int, float)
_Form: TypeAlias = tuple[Callable[[Any], bool], str]


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
    try:
        return Path.home() / usual / "steersman"
    except RuntimeError as error:  # HOME is not set, and the user has no entry in the password database
        raise UserError("There is no home folder; set the environment variable HOME.") from error


def read_file_bytes(path: Path, *, most: int) -> bytes:
    """Reads a file; raises `ValueError` if it has more than `most` bytes, `OSError` if it cannot be read."""
    pieces: list[bytes] = []
    # Non-blocking: opening a FIFO without a writer would block for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        left = most + 1
        while left > 0 and (piece := _read_chunk(handle, min(left, 65_536))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(handle)
    if left <= 0:
        raise ValueError(f"it has more than {most:,} bytes")
    return b"".join(pieces)


def _read_chunk(handle: int, size: int) -> bytes:
    try:
        return os.read(handle, size)
    except BlockingIOError:  # a pipe whose writer has not written yet
        if not select.select([handle], [], [], PIPE_SECONDS)[0]:
            raise
        return os.read(handle, size)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """A provider's base URL and key variable; `protocol` for a provider that is not known by name."""

    base_url: str | None = None
    api_key_env: str | None = None
    protocol: str | None = None


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
        )


def read_settings(path: Path) -> Settings:
    """Reads the user's settings; empty if there is no file."""
    content = read_settings_bytes(path)
    return Settings() if content is None else parse_settings(content, path)


def read_settings_bytes(path: Path) -> bytes | None:
    """Reads a settings file; `None` if it does not exist."""
    try:
        return read_file_bytes(path, most=MAX_SETTINGS_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"Cannot read the settings {str(path)!r}: {error.strerror}.", code=2) from error
    except ValueError as error:
        raise UserError(f"Cannot use the settings {str(path)!r}: {error}.", code=2) from error


def parse_settings(content: bytes, path: Path, *, project: bool = False) -> Settings:
    """Parses settings. A project's must not contain what only the user may decide."""
    try:
        found = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"The settings {str(path)!r} are not UTF-8.", code=2) from error
    except (ValueError, RecursionError) as error:  # malformed TOML, or a number that is too long
        raise UserError(f"The settings {str(path)!r} are not valid TOML: {error}.", code=2) from error
    return _SettingsParser(path, project=project).parse(found)


class _SettingsParser:
    """Parses one file; every error names the file and the key."""

    def __init__(self, path: Path, *, project: bool) -> None:
        self._path = path
        self._project = project

    def parse(self, found: Mapping[str, Any]) -> Settings:
        self._check_keys(found, (*_FORMS, "approval", "providers"), "")
        given = {key: self._parse_value(key, value, _FORMS[key]) for key, value in found.items() if key in _FORMS}
        allow = given.pop("allowed_tools", ())
        given |= self._parse_approval(found.get("approval", {}))
        given["allow"] = (*allow, *given.get("allow", ()))
        given["providers"] = self._parse_providers(found.get("providers", {}))
        if "model" in given:
            given["model_from"] = self._path
        settings = Settings(**given)
        if self._project:
            self._check_project(settings)
        return settings

    def _parse_approval(self, found: object) -> dict[str, Any]:
        table = self._require_table("approval", found)
        self._check_keys(table, _APPROVAL, "approval.")
        return {key: self._parse_value(f"approval.{key}", value, _APPROVAL[key]) for key, value in table.items()}

    def _parse_providers(self, found: object) -> dict[str, ProviderSettings]:
        providers: dict[str, ProviderSettings] = {}
        for name, entry in self._require_table("providers", found).items():
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
                raise self._make_error(
                    f"providers.{name}", "a provider's name consists of lowercase letters, digits, '.', '_' and '-'"
                )
            table = self._require_table(f"providers.{name}", entry)
            if "api_key" in table:
                raise self._make_error(
                    f"providers.{name}.api_key",
                    "do not put a key into a file; put it into an environment variable and name that: "
                    'api_key_env = "NAME"',
                )
            self._check_keys(table, _PROVIDER, f"providers.{name}.")
            values = {
                key: self._parse_value(f"providers.{name}.{key}", value, _PROVIDER[key]) for key, value in table.items()
            }
            providers[name] = ProviderSettings(**values)
        return providers

    def _check_project(self, settings: Settings) -> None:
        """Rejects settings that would give a project more rights than its user has given."""
        own = "only your own settings may set this, not a project's"
        if settings.allow:
            raise self._make_error("approval.allow or allowed_tools", own)
        if settings.providers:
            raise self._make_error("providers", own)
        if settings.mcp_variables:
            raise self._make_error("mcp_variables", own)
        if settings.checkpoints is not None:
            raise self._make_error("checkpoints", own)
        if settings.mode in ("accept-edits", "bypass"):
            raise self._make_error("approval.mode", f"{own}; a project's may be 'ask' or 'plan'")
        for name in (settings.model or "", *settings.fallbacks):
            provider, _, model_id = name.partition(":")
            # Any other name may be a file that comes with the project.
            if provider.strip() == "local" and model_id.strip() not in ("", *LOCAL_MODELS):
                raise self._make_error("model", f"{own}: it names a file to run as a model")

    def _parse_value(self, key: str, value: object, form: _Form) -> Any:
        fits, what = form
        if not fits(value):
            # Never show the value: a user may have put the key itself there.
            got = "" if key.endswith(".api_key_env") else f", got {value!r:.100}"
            raise self._make_error(key, f"expected {what}{got}")
        return tuple(cast(list[Any], value)) if isinstance(value, list) else value

    def _require_table(self, key: str, found: object) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self._make_error(key, f"expected a table, got {found!r:.100}")
        return cast(dict[str, Any], found)

    def _check_keys(self, found: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...], before: str) -> None:
        for key in found:
            if key not in known:
                names = ", ".join(sorted(known))
                raise self._make_error(
                    f"{before}{key}", f"unknown key.{suggest_nearest(key, known)} Known keys: {names}"
                )

    def _make_error(self, key: str, why: str) -> UserError:
        return UserError(f"The settings {str(self._path)!r} have {key!r:.100}: {why}.", code=2)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(item) for item in cast(list[object], value))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _is_url(value: object) -> bool:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or unbalanced brackets
        return False


def _make_choice_form(*words: str) -> _Form:
    return (lambda value: value in words), f"one of {', '.join(map(repr, words))}"


_NAMES: _Form = (_is_text_list, "a list of quoted names")
_RULES: _Form = (_is_text_list, "a list of rules, such as ['bash(git status:*)']")
_NUMBER: _Form = (_is_amount, "a number above 0")

_FORMS: dict[str, _Form] = {
    "model": (_is_text, "a quoted 'provider:model-id'"),
    "thinking": _make_choice_form(*THINKING),
    "system_prompt": (lambda value: isinstance(value, str), "a quoted text"),
    "tools": _NAMES,
    "allowed_tools": _RULES,
    "max_turns": (_is_count, "a whole number of at least 1"),
    "max_budget_usd": _NUMBER,
    "max_duration": _NUMBER,
    "fallbacks": (_is_text_list, "a list of models, such as ['openai:gpt-5.5']"),
    "mcp_variables": _NAMES,
    "checkpoints": (lambda value: isinstance(value, bool), "true or false"),
}
_APPROVAL: dict[str, _Form] = {
    "mode": _make_choice_form("ask", "accept-edits", "plan", "bypass"),
    "allow": _RULES,
    "ask": _RULES,
    "deny": _RULES,
}
_PROVIDER: dict[str, _Form] = {
    "base_url": (_is_url, "a URL such as 'https://host/v1'"),
    "api_key_env": (
        lambda value: isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value)),
        "the name of an environment variable",
    ),
    "protocol": _make_choice_form("anthropic", "bedrock", "google", "openai", "openai-chat"),
}


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
