"""How a server is reached: a program to start, or an address. Values alone; nothing here starts anything."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from steersman.tools.mcp.errors import McpError
from steersman.types.frozen import FrozenDict
from steersman.types.guards import is_instance

CALL_SECONDS = 120.0
START_SECONDS = 30.0

# Without a colon: in `mcp:server:tool` the first one after `mcp:` ends the server's name.
_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words and versions; what is longer, or has digits among its letters, may be a key.
_PLAIN_STEP = re.compile(r"[A-Za-z_.-]{0,20}|[A-Za-z0-9_.-]{1,6}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A program that speaks MCP over its input and output.

    It gets a clean environment and what `env` says: no key of yours unless it stands there. `timeout` is for one call,
    `start_timeout` for the start, in seconds.
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
        """What is started, for people to read."""
        return shlex.join([self.command, *self.args])

    @property
    def identity(self) -> str:
        """What makes it this server and no other: its program and arguments."""
        return _hash_parts(["stdio", self.command, *self.args])

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        return tuple(self.env.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """An address that speaks MCP over streamable HTTP; `headers` go with every request to it and nowhere else."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=FrozenDict, repr=False)
    timeout: float = CALL_SECONDS
    start_timeout: float = START_SECONDS

    def __post_init__(self) -> None:
        # The value is not shown: an address may hold a key.
        if not is_instance(self.url, str) or not self.url.lower().startswith(("http://", "https://")):
            raise McpError("'url' is an http or https address, such as 'https://example.com/mcp'.")
        if _split_url(self.url) is None or not self.url.isprintable() or " " in self.url:
            raise McpError("'url' has no host, or a port or characters that an address cannot have.")
        object.__setattr__(self, "headers", FrozenDict(_check_texts("headers", self.headers, _HEADER_NAME)))
        _check_seconds(self)

    @property
    def target(self) -> str:
        """Where it is, without what may be secret in an address."""
        return redact_url(self.url)

    @property
    def identity(self) -> str:
        """What makes it this server and no other: its address."""
        return _hash_parts(["http", self.url])

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        parts = urlsplit(self.url)
        words = [word for value in self.headers.values() for word in (value, *value.split())]
        words += [step for step in parts.path.split("/") if not _PLAIN_STEP.fullmatch(step)]
        words += [parts.query, *[value for _, value in parse_qsl(parts.query)]]
        return tuple(word for word in (*words, parts.username, parts.password) if word)


ServerSpec: TypeAlias = StdioServer | HttpServer


def redact_url(url: str) -> str:
    """An address for people to read: no user, no query, and no step of its path that may be a key."""
    parts = _split_url(url)
    if parts is None:
        return "an address that cannot be read"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    steps = [step if _PLAIN_STEP.fullmatch(step) else "..." for step in parts.path.split("/")]
    return f"{parts.scheme}://{host}{port}{'/'.join(steps)}"


def _split_url(url: str) -> SplitResult | None:
    """The parts of an address that has a host and no impossible port."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def check_name(name: Any) -> str:
    """A server's name as it may stand in `mcp:server:tool`."""
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
            raise McpError(f"{name!r:.100} in {what!r} is not a name that can stand there.")
        # The value is not shown: it is likely a key.
        if not isinstance(value, str) or "\0" in value or (what == "headers" and not value.isprintable()):
            raise McpError(f"{name!r} in {what!r} is not a text that can stand there.")
    return dict(found)


def _check_seconds(spec: StdioServer | HttpServer) -> None:
    for name in ("timeout", "start_timeout"):
        value: Any = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise McpError(f"{name!r} is a number of seconds above 0, got {value!r}.")


def _hash_parts(parts: list[str]) -> str:
    return sha256(msgspec.json.encode(parts)).hexdigest()
