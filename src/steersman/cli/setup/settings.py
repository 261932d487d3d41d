"""Settings from `config.toml`: the user's own, and a project's, which can only be read after trust and only tightens.

A file that is wrong is refused with its path, the key, and what is allowed there; nothing in it is guessed.
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
from steersman.cli.exits import UserError, near
from steersman.provider.local.weights.cache import LOCAL_MODELS


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


PIPE_SECONDS = 3.0
"""How long a pipe in place of a file, as of `<(...)`, may take to go on."""


def bytes_of(path: Path, *, most: int) -> bytes:
    """The bytes of a file; `ValueError` where there are more than so many, `OSError` where it cannot be read."""
    pieces: list[bytes] = []
    # Not blocking: a FIFO that nobody writes to would hold us up for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        left = most + 1
        while left > 0 and (piece := _piece(handle, min(left, 65_536))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(handle)
    if left <= 0:
        raise ValueError(f"it has more than {most:,} bytes")
    return b"".join(pieces)


def _piece(handle: int, size: int) -> bytes:
    try:
        return os.read(handle, size)
    except BlockingIOError:  # a pipe whose writer has not come to it yet
        if not select.select([handle], [], [], PIPE_SECONDS)[0]:
            raise
        return os.read(handle, size)


Mode: TypeAlias = Literal["ask", "accept-edits", "plan", "bypass"]

LARGEST = 256 * 1024
PROJECT_FILE = ".steersman/config.toml"
_STRICTNESS: tuple[Mode, ...] = ("bypass", "accept-edits", "ask", "plan")
_T = TypeVar("_T", int, float)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Where a provider is and which variable has its key; `protocol` for one that is not known by name."""

    base_url: str | None = None
    api_key_env: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What is settled beforehand; `None` where nothing is. `model_from` is the file that names the model."""

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
    max_budget_usd: float | None = None
    max_duration: float | None = None
    fallbacks: tuple[str, ...] = ()
    mcp_variables: tuple[str, ...] = ()
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])

    def tightened(self, project: Settings) -> Settings:
        """These settings with a project's: its model and words count first, its rules and limits only if stricter."""
        return replace(
            self,
            model=project.model or self.model,
            model_from=project.model_from if project.model else self.model_from,
            thinking=project.thinking or self.thinking,
            system_prompt=self.system_prompt if project.system_prompt is None else project.system_prompt,
            tools=_both(self.tools, project.tools),
            mode=_stricter(self.mode, project.mode),
            ask=(*self.ask, *project.ask),
            deny=(*self.deny, *project.deny),
            max_turns=_lower(self.max_turns, project.max_turns),
            max_budget_usd=_lower(self.max_budget_usd, project.max_budget_usd),
            max_duration=_lower(self.max_duration, project.max_duration),
            fallbacks=project.fallbacks or self.fallbacks,
        )


def read_settings(path: Path) -> Settings:
    """The user's own settings; empty where there is no file."""
    content = content_of(path)
    return Settings() if content is None else parse_settings(content, path)


def content_of(path: Path) -> bytes | None:
    """What is in a file of settings; `None` where there is none."""
    try:
        return bytes_of(path, most=LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"The settings {str(path)!r} cannot be read: {error.strerror}.", code=2) from error
    except ValueError as error:
        raise UserError(f"The settings {str(path)!r} cannot be used: {error}.", code=2) from error


def parse_settings(content: bytes, path: Path, *, project: bool = False) -> Settings:
    """The settings in a content. A project's may not hold what only its user can say."""
    try:
        found = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"The settings {str(path)!r} are not UTF-8 text.", code=2) from error
    except (ValueError, RecursionError) as error:  # of TOML, or of a number that is too long
        raise UserError(f"The settings {str(path)!r} are not TOML: {error}.", code=2) from error
    return _Reader(path, project=project).settings(found)


class _Reader:
    """Reads one file; every complaint names it and the key."""

    def __init__(self, path: Path, *, project: bool) -> None:
        self._path = path
        self._project = project

    def settings(self, found: Mapping[str, Any]) -> Settings:
        self._check_keys(found, (*_FORMS, "approval", "providers"), "")
        given = {key: self._value(key, value, _FORMS[key]) for key, value in found.items() if key in _FORMS}
        allow = given.pop("allowed_tools", ())
        given |= self._approval(found.get("approval", {}))
        given["allow"] = (*allow, *given.get("allow", ()))
        given["providers"] = self._providers(found.get("providers", {}))
        if "model" in given:
            given["model_from"] = self._path
        settings = Settings(**given)
        if self._project:
            self._check_project(settings)
        return settings

    def _approval(self, found: object) -> dict[str, Any]:
        table = self._table("approval", found)
        self._check_keys(table, _APPROVAL, "approval.")
        return {key: self._value(f"approval.{key}", value, _APPROVAL[key]) for key, value in table.items()}

    def _providers(self, found: object) -> dict[str, ProviderSettings]:
        providers: dict[str, ProviderSettings] = {}
        for name, entry in self._table("providers", found).items():
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
                raise self._wrong(f"providers.{name}", "a provider's name has small letters, digits and '-'")
            table = self._table(f"providers.{name}", entry)
            if "api_key" in table:
                raise self._wrong(
                    f"providers.{name}.api_key",
                    "a key does not belong into a file; put it into a variable of the environment and name that: "
                    'api_key_env = "NAME"',
                )
            self._check_keys(table, _PROVIDER, f"providers.{name}.")
            values = {
                key: self._value(f"providers.{name}.{key}", value, _PROVIDER[key]) for key, value in table.items()
            }
            providers[name] = ProviderSettings(**values)
        return providers

    def _check_project(self, settings: Settings) -> None:
        """What would let a project reach further than its user: fail rather than pass over it."""
        own = "only your own settings may say that, not a project's"
        if settings.allow:
            raise self._wrong("approval.allow or allowed_tools", own)
        if settings.providers:
            raise self._wrong("providers", own)
        if settings.mcp_variables:
            raise self._wrong("mcp_variables", own)
        if settings.mode in ("accept-edits", "bypass"):
            raise self._wrong("approval.mode", f"{own}; a project's is 'ask' or 'plan'")
        for name in (settings.model or "", *settings.fallbacks):
            provider, _, model_id = name.partition(":")
            # Any other word may be the name of a file that the project has brought along.
            if provider.strip() == "local" and model_id.strip() not in ("", *LOCAL_MODELS):
                raise self._wrong("model", f"{own}: which file is run as a model")

    def _value(self, key: str, value: object, form: _Form) -> Any:
        fits, what = form
        if not fits(value):
            # A key that was put where its variable's name belongs is not told to anybody.
            got = "" if key.endswith(".api_key_env") else f", got {value!r:.100}"
            raise self._wrong(key, f"it is {what}{got}")
        return tuple(cast(list[Any], value)) if isinstance(value, list) else value

    def _table(self, key: str, found: object) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self._wrong(key, f"it is a table, got {found!r:.100}")
        return cast(dict[str, Any], found)

    def _check_keys(self, found: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...], before: str) -> None:
        for key in found:
            if key not in known:
                names = ", ".join(sorted(known))
                raise self._wrong(f"{before}{key}", f"there is no such key.{near(key, known)} There are: {names}")

    def _wrong(self, key: str, why: str) -> UserError:
        return UserError(f"The settings {str(self._path)!r} have {key!r:.100}: {why}.", code=2)


_Form: TypeAlias = tuple[Callable[[Any], bool], str]


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(_text(item) for item in cast(list[object], value))


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _address(value: object) -> bool:
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not match
        return False


def _one_of(*words: str) -> _Form:
    return (lambda value: value in words), f"one of {', '.join(map(repr, words))}"


_NAMES: _Form = (_texts, "a list of names in quotes")
_RULES: _Form = (_texts, "a list of rules, such as ['bash(git status:*)']")
_NUMBER: _Form = (_amount, "a number above 0")

_FORMS: dict[str, _Form] = {
    "model": (_text, "'provider:model-id' in quotes"),
    "thinking": _one_of(*THINKING),
    "system_prompt": (lambda value: isinstance(value, str), "a text in quotes"),
    "tools": _NAMES,
    "allowed_tools": _RULES,
    "max_turns": (_count, "a whole number from 1 on"),
    "max_budget_usd": _NUMBER,
    "max_duration": _NUMBER,
    "fallbacks": (_texts, "a list of models, such as ['openai:gpt-5.5']"),
    "mcp_variables": _NAMES,
}
_APPROVAL: dict[str, _Form] = {
    "mode": _one_of("ask", "accept-edits", "plan", "bypass"),
    "allow": _RULES,
    "ask": _RULES,
    "deny": _RULES,
}
_PROVIDER: dict[str, _Form] = {
    "base_url": (_address, "an address such as 'https://host/v1'"),
    "api_key_env": (
        lambda value: isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value)),
        "the name of a variable of the environment",
    ),
    "protocol": _one_of("anthropic", "google", "openai", "openai-chat"),
}


def _both(left: tuple[str, ...] | None, right: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if left is None or right is None:
        return right if left is None else left
    return tuple(name for name in right if name in left)


def _lower(left: _T | None, right: _T | None) -> _T | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _stricter(left: Mode | None, right: Mode | None) -> Mode | None:
    if left is None or right is None:
        return right if left is None else left
    return left if _STRICTNESS.index(left) > _STRICTNESS.index(right) else right
