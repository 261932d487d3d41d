"""How a server is reached: a program to start, or a URL. Only values; nothing is started here."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from steersman.tools.mcp.errors import McpError
from steersman.types.frozen import FrozenDict
from steersman.types.guards import is_instance
from steersman.types.secrets import list_secret_parts, list_secret_words

CALL_SECONDS = 120.0
START_SECONDS = 30.0

# Without a colon: in `mcp:server:tool` the first one after `mcp:` ends the server's name.
_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What is between the paths in a command for a shell, in a list of folders, or in options such as NODE_OPTIONS.
_BETWEEN_PATHS = re.compile(r"[\s'\"=:;,&|()<>`]+")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}?|([A-Za-z_][A-Za-z0-9_]*))")
# A file could otherwise name a long variable thousands of times.
_MOST_EXPANDED, _LONGEST_PATH, _LONGEST_COMMAND = 400_000, 4_096, 8_192
_ESCAPED_WORD = re.compile(r"(?:[^\s\\]|\\.)++")
# Words and versions; a longer path step, or one with digits among its letters, may be a key.
_PLAIN_STEP = re.compile(r"[A-Za-z_.-]{0,20}|[A-Za-z0-9_.-]{1,6}")
_AUTHORIZATION = re.compile(r"\b(?:basic|bearer|digest|token)\s+\S{12,}", re.IGNORECASE)
_KEY_NAME = re.compile(r"auth(?!or)|credential|cookie|key|pass|pwd|secret|token", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A program that serves MCP over stdin and stdout.

    It gets a clean environment and the variables in `env`: none of your keys unless you put them there. `timeout` is
    for one call, `start_timeout` for the start, both in seconds.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=FrozenDict, repr=False)
    cwd: str | Path | None = None
    timeout: float = CALL_SECONDS
    start_timeout: float = START_SECONDS

    def __post_init__(self) -> None:
        if not is_instance(self.command, str) or not self.command.strip() or "\0" in self.command:
            raise McpError(f"'command' is the program to start, such as 'npx', got {self.command!r}.")
        if is_instance(self.args, str) or not all(is_instance(item, str) and "\0" not in item for item in self.args):
            raise McpError(f"'args' is a list of strings, got {self.args!r}.")
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "env", FrozenDict(_check_texts("env", self.env, _VARIABLE_NAME)))
        _check_seconds(self)

    @property
    def target(self) -> str:
        """The command line, for people to read."""
        return shlex.join([self.command, *self.args])

    @property
    def identity(self) -> str:
        """The hash that identifies this server: of its program and arguments."""
        return _hash_parts(["stdio", self.command, *self.args])

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown; a folder or file is no secret, and errors name what is in it."""
        values = [value for value in self.env.values() if not (os.path.isabs(value) and os.path.exists(value))]
        return tuple(part for value in values for part in (value, *_list_keys(value)))

    def list_places(self) -> list[str]:
        """List what it may run code from: its folder, those of PATH, and what its command and `env` name."""
        # Only where a server is started.
        from steersman.tools.confine.launch import build_child_environment, clean_search_path

        programs = clean_search_path(os.environ.get("PATH", "")).split(os.pathsep)
        folder = os.path.abspath("." if self.cwd is None else self.cwd)
        environment = build_child_environment(self.env)
        texts = [self.command, *self.args, *self.env.values()]
        named = [os.path.join(folder, path) for text in texts for path in _list_paths(text, environment)]
        return [folder, *programs, *(path for path in dict.fromkeys(named) if os.path.exists(path))]


def _list_keys(value: str) -> list[str]:
    """List the keys in a value of `env`: a server quotes the token behind `Bearer`, or a private key in JSON, alone."""
    if value.lstrip().startswith(("{", "[")):
        with suppress(msgspec.MsgspecError, ValueError, RecursionError):
            return _list_keys_in_json(msgspec.json.decode(value), is_key=False)
    words = [word for header in _AUTHORIZATION.findall(value) for word in list_secret_words(header)]
    # It may quote one line of a private key, or write its lines in another way.
    lines = [line.strip() for line in value.splitlines() if "\n" in value]
    return [*words, *lines, *_list_keys_in_url(value)]


def _list_keys_in_url(url: str) -> list[str]:
    """List the password, the keys in the query, and for the web the user, which may be a token."""
    parts = _split_url(url)
    if parts is None:
        return []
    user = parts.username if parts.scheme in ("http", "https") else None
    named = [value for name, value in parse_qsl(parts.query) if _KEY_NAME.search(name)]
    return [word for given in (user, parts.password, *named) if given for word in (given, unquote(given))]


def _list_keys_in_json(value: Any, *, is_key: bool) -> list[str]:
    """List the keys in a value of JSON: all below a name such as `token`, and elsewhere those that a text shows."""
    if isinstance(value, str):
        return [value, *_list_keys(value)] if is_key and "://" not in value else _list_keys(value)
    if isinstance(value, dict):
        named = cast(dict[str, Any], value).items()
        found = [_list_keys_in_json(item, is_key=is_key or bool(_KEY_NAME.search(name))) for name, item in named]
    else:
        items = cast(list[Any], value) if isinstance(value, list) else []
        found = [_list_keys_in_json(item, is_key=is_key) for item in items]
    return [key for keys in found for key in keys]


def _list_paths(text: str, environment: Mapping[str, str]) -> list[str]:
    """List what may be a path in a word of a command, or in the value of a variable, as a shell would read it."""
    room = _MOST_EXPANDED

    def expand(name: re.Match[str]) -> str:
        nonlocal room
        value = environment.get(name[1] or name[2], "")[: min(_LONGEST_PATH, room)]
        room -= len(value)
        return value

    whole = _VARIABLE.sub(expand, text)
    quoted = _split_quoted(whole)  # a path with blanks
    words = [text, whole, *quoted, *whole.split(os.pathsep), *_BETWEEN_PATHS.split(whole)]
    words += [word.partition("=")[2] for word in (whole, *quoted)]
    words += [word[word.index("/") :] for word in words if "/" in word]  # such as `-I/folder`
    home = environment.get("HOME", "")
    return [home + word[1:] if word == "~" or word.startswith("~/") else word for word in words if word]


def _split_quoted(text: str) -> list[str]:
    """Split a command into words as a shell does; none if its quotes do not close."""
    if len(text) > _LONGEST_COMMAND:
        # To read it as a shell takes the square of the longest word. So these are more words than it has.
        escaped = [word.replace("\\", "") for word in _ESCAPED_WORD.findall(text) if "\\" in word]
        return [*text.split("'"), *text.split('"'), *escaped]
    reader = shlex.shlex(text, posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    try:
        return list(reader)
    except ValueError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """A URL that serves MCP over streamable HTTP; `headers` are sent with every request to it and nowhere else."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=FrozenDict, repr=False)
    timeout: float = CALL_SECONDS
    start_timeout: float = START_SECONDS

    def __post_init__(self) -> None:
        # The value is not shown: a URL may hold a key.
        if not is_instance(self.url, str) or not self.url.lower().startswith(("http://", "https://")):
            raise McpError("'url' is an http or https URL, such as 'https://example.com/mcp'.")
        if _split_url(self.url) is None or not self.url.isprintable() or " " in self.url:
            raise McpError("'url' has no host, or an invalid port or character.")
        object.__setattr__(self, "headers", FrozenDict(_check_texts("headers", self.headers, _HEADER_NAME)))
        _check_seconds(self)

    @property
    def target(self) -> str:
        """The URL, without what may be secret in it."""
        return redact_server_url(self.url)

    @property
    def identity(self) -> str:
        """The hash that identifies this server: of its URL."""
        return _hash_parts(["http", self.url])

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        parts = urlsplit(self.url)
        words = [word for value in self.headers.values() for word in list_secret_parts(value)]
        words += [step for step in parts.path.split("/") if not _PLAIN_STEP.fullmatch(step)]
        words += [parts.query, *[value for _, value in parse_qsl(parts.query)]]
        return tuple(word for word in (*words, parts.username, parts.password) if word)


ServerSpec: TypeAlias = StdioServer | HttpServer


def redact_server_url(url: str) -> str:
    """Redact a URL for people to read: no user, no query, and no path step that may be a key."""
    parts = _split_url(url)
    if parts is None:
        return "a malformed URL"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    steps = [step if _PLAIN_STEP.fullmatch(step) else "..." for step in parts.path.split("/")]
    return f"{parts.scheme}://{host}{port}{'/'.join(steps)}"


def _split_url(url: str) -> SplitResult | None:
    """Split a URL; `None` for one without a host or with an invalid port."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def check_name(name: Any) -> str:
    """Check a server's name, which becomes a part of `mcp:server:tool`."""
    if not isinstance(name, str) or _SERVER_NAME.fullmatch(name) is None:
        raise McpError(
            f"A server's name has letters, digits, '_', '-' and '.', starts with a letter or digit and is at most 64 "
            f"long, got {name!r:.100}."
        )
    return name


def _check_texts(what: str, values: Any, names: re.Pattern[str]) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise McpError(f"{what!r} maps names to texts, got a {type(values).__name__}.")
    found = cast(Mapping[Any, Any], values)
    for name, value in found.items():
        if not isinstance(name, str) or names.fullmatch(name) is None:
            raise McpError(f"{name!r:.100} in {what!r} is not a valid name.")
        # The value is not shown: it is likely a key.
        if not isinstance(value, str) or "\0" in value or (what == "headers" and not value.isprintable()):
            raise McpError(f"{name!r} in {what!r} does not have a valid text as its value.")
    return dict(found)


def _check_seconds(spec: StdioServer | HttpServer) -> None:
    for name in ("timeout", "start_timeout"):
        value: Any = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise McpError(f"{name!r} is a number of seconds above 0, got {value!r}.")


def _hash_parts(parts: list[str]) -> str:
    return sha256(msgspec.json.encode(parts)).hexdigest()
