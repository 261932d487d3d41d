"""Parses `config.toml`. A malformed file is rejected with its path, the key, and what is allowed there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from itertools import dropwhile
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args
from urllib.parse import urlsplit

from steersman.cli.arguments import THINKING
from steersman.cli.exits import UserError, suggest_nearest
from steersman.cli.setup.bounded_toml import load_toml
from steersman.cli.setup.settings import (
    MAX_SETTINGS_BYTES,
    HookSettings,
    Notify,
    ProviderSettings,
    Seam,
    Settings,
    read_file_bytes,
)
from steersman.cli.terminal.theme import ROLES, THEMES, Theme, build_theme
from steersman.provider.local.weights.cache import LOCAL_MODELS

_Form: TypeAlias = tuple[Callable[[Any], bool], str]


def read_settings(path: Path) -> Settings:
    """Reads the user's settings; empty if there is no file."""
    content = read_settings_bytes(path)
    return Settings() if content is None else parse_settings(content, path)


def read_settings_bytes(path: Path, *, project: bool = False) -> bytes | None:
    """Reads a settings file; `None` if it does not exist."""
    try:
        return read_file_bytes(path, most=MAX_SETTINGS_BYTES, of_project=project)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"Cannot read the settings {str(path)!r}: {error.strerror}.", code=2) from error
    except ValueError as error:
        raise UserError(f"Cannot use the settings {str(path)!r}: {error}.", code=2) from error


def parse_settings(content: bytes, path: Path, *, project: bool = False) -> Settings:
    """Parses settings. A project's must not contain what only the user may decide."""
    try:
        found = load_toml(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"The settings {str(path)!r} are not UTF-8.", code=2) from error
    except ValueError as error:  # malformed TOML, or a number that is too long
        raise UserError(f"The settings {str(path)!r} are not valid TOML: {error}.", code=2) from error
    return _SettingsParser(path, project=project).parse(found)


_LEADING = re.compile(  # words before a program, with their options and times
    r"|!|command|do|doas|elif|else|env|exec|if|ionice|nice|nohup|setsid|stdbuf|sudo|then|time|timeout|until|while|xargs|"
    r"-.*|[0-9.]+[smhd]?"
)
_ONLY_OWN = "only your own settings may set this, not a project's"
_TOOL_NAME = re.compile(r"[\w:./-]+")
_INTERPRETER = re.compile(r"(?:ba|da|z|k|fi)?sh|python[0-9.]*|pypy3?|node|ruby|perl|php|lua|source|\.")


class _SettingsParser:
    """Parses one file; every error names the file and the key."""

    def __init__(self, path: Path, *, project: bool) -> None:
        self._path = path
        self._project = project

    def parse(self, found: Mapping[str, Any]) -> Settings:
        self._check_keys(found, (*_FORMS, "approval", "hooks", "providers", "themes"), "")
        given = {key: self._parse_value(key, value, _FORMS[key]) for key, value in found.items() if key in _FORMS}
        allow = given.pop("allowed_tools", ())
        given |= self._parse_approval(found.get("approval", {}))
        given["allow"] = (*allow, *given.get("allow", ()))
        given["providers"] = self._parse_providers(found.get("providers", {}))
        given["themes"] = self._parse_themes(found.get("themes", {}))
        given["hooks"] = self._parse_hooks(found.get("hooks", []))
        self._check_theme(given)
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

    def _parse_themes(self, found: object) -> dict[str, Theme]:
        themes: dict[str, Theme] = {}
        for name, entry in self._require_table("themes", found).items():
            if name in THEMES:
                raise self._make_error(f"themes.{name}", "this name is taken; choose another one")
            table = self._require_table(f"themes.{name}", entry)
            self._check_keys(table, ("base", *ROLES), f"themes.{name}.")
            colors = {key: self._parse_value(f"themes.{name}.{key}", value, _COLOR) for key, value in table.items()}
            try:
                themes[name] = build_theme(name, colors)
            except ValueError as error:
                raise self._make_error(f"themes.{name}", str(error)) from error
        return themes

    def _check_theme(self, given: Mapping[str, Any]) -> None:
        name, known = given.get("theme", "dark"), (*THEMES, *given["themes"])
        if name not in known:
            near = suggest_nearest(name, known)
            raise self._make_error("theme", f"unknown theme {name!r:.50}.{near} Known themes: {', '.join(known)}")

    def _parse_hooks(self, found: object) -> tuple[HookSettings, ...]:
        if not isinstance(found, list):
            raise self._make_error("hooks", f"expected tables [[hooks]], got {found!r:.100}")
        hooks: list[HookSettings] = []
        for number, entry in enumerate(cast(list[object], found), start=1):
            key = f"hooks {number}"
            table = self._require_table(key, entry)
            self._check_keys(table, _HOOK, f"{key}: ")
            values = {name: self._parse_value(f"{key}: {name}", value, _HOOK[name]) for name, value in table.items()}
            missing = [name for name in ("at", "command") if name not in values]
            if missing:
                raise self._make_error(key, f"{missing[0]!r} is missing: {_HOOK[missing[0]][1]}")
            hooks.append(HookSettings(**values, of_project=self._project))
            self._check_hook(key, hooks[-1])
        return tuple(hooks)

    def _check_hook(self, key: str, hook: HookSettings) -> None:
        pattern = next((name for name in hook.tools if not _TOOL_NAME.fullmatch(name)), None)
        if pattern is not None:
            raise self._make_error(f"{key}: tools", f"{pattern!r:.100} is not the name of a tool; no patterns here")
        if self._project:
            if not hook.sandbox:
                raise self._make_error(f"{key}: sandbox", f"{_ONLY_OWN}: its hooks run in the sandbox")
        elif (relative := _find_relative_program(hook.command)) is not None:
            raise self._make_error(
                f"{key}: command",
                f"{relative!r:.100} is a relative path, so any folder in which you work could bring its own "
                "program. Give an absolute path, or one that begins with ~/",
            )

    def _check_project(self, settings: Settings) -> None:
        """Rejects settings that would give a project more rights than its user has given."""
        if settings.allow:
            raise self._make_error("approval.allow or allowed_tools", _ONLY_OWN)
        if settings.providers:
            raise self._make_error("providers", _ONLY_OWN)
        if settings.mcp_variables:
            raise self._make_error("mcp_variables", _ONLY_OWN)
        if settings.checkpoints is not None:
            raise self._make_error("checkpoints", _ONLY_OWN)
        for key in ("theme", "themes", "notify", "notify_after", "vim"):
            if getattr(settings, key):
                raise self._make_error(key, _ONLY_OWN)
        if settings.mode in ("accept-edits", "bypass"):
            raise self._make_error("approval.mode", f"{_ONLY_OWN}; a project's may be 'ask' or 'plan'")
        for name in (settings.model or "", *settings.fallbacks):
            provider, _, model_id = name.partition(":")
            # Any other name may be a file that comes with the project.
            if provider.strip() == "local" and model_id.strip() not in ("", *LOCAL_MODELS):
                raise self._make_error("model", f"{_ONLY_OWN}: it names a file to run as a model")

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
    "theme": (_is_text, "the name of a theme"),
    "notify": _make_choice_form(*get_args(Notify)),
    "notify_after": (lambda value: value == 0 or _is_amount(value), "a number of seconds"),
    "vim": (lambda value: isinstance(value, bool), "true or false"),
}
_COLOR: _Form = (lambda value: isinstance(value, str), "a quoted colour")
_HOOK: dict[str, _Form] = {
    "at": _make_choice_form(*get_args(Seam)),
    "command": (_is_text, "a quoted command"),
    "tools": _NAMES,
    "timeout": _NUMBER,
    "sandbox": (lambda value: isinstance(value, bool), "true or false"),
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


def _find_relative_program(command: str) -> str | None:
    """The program or script that a command names by a relative path, so that each folder has another one."""
    for part in re.split(r"[;&|()\n`]+", re.sub(r">[>|&]?\s*[^\s;&|<>()]+", " ", command)):
        words = [word.strip("'\"{}") for word in part.split() if not re.match(r"\w+=", word)]
        words = [*dropwhile(_LEADING.fullmatch, words)]
        first = words[0] if words else ""
        if "/" in first and first[0] not in "/~$":
            return first
        if _INTERPRETER.fullmatch(first.rpartition("/")[2]):
            script = next((word for word in words[1:] if not word.startswith("-")), "")
            options = ("-c",) if first.endswith("sh") else ("-c", "-e", "-m", "-r")
            takes_code = any(word in options for word in words[1:])
            if script and not takes_code and script[0] not in "/~$":
                return script
    return None
