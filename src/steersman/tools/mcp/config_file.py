"""`.mcp.json` files: a file is read once, its content is checked for trust, and its servers are returned as specs."""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from steersman.tools.mcp.errors import McpError, UntrustedFile
from steersman.tools.mcp.spec import HttpServer, ServerSpec, StdioServer, check_name, redact_server_url
from steersman.tools.mcp.trust import Trust, hash_content

T = TypeVar("T")

_MAX_FILE_BYTES = 1024 * 1024
_MAX_SERVERS = 100
_LOADER_VARIABLE = re.compile(
    r"PATH|(LD|DYLD)_.*|GCONV_PATH|BASH_ENV|BASH_FUNC_.*|ENV|SHELLOPTS|BASHOPTS|IFS", re.IGNORECASE
)
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_REFERRED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_STDIO_KEYS = ("command", "args", "env", "cwd")
_HTTP_KEYS = ("url", "headers")
_HTTP_TYPES = ("http", "streamable-http", "streamableHttp")
# Limits for the summary of an entry.
_MAX_TEXT_LENGTH = 300
_MAX_ITEMS = 50
# The values of environment variables are shown, because many decide which programs run or what they load. Only what is
# called like a secret and does not look like a command or a path is hidden, and what has the form of a key.
_SECRET_NAME = re.compile(
    r"([A-Z0-9]+_)*(API_?KEY|ACCESS_?KEY(_ID)?|SECRET|SECRET_(ACCESS_)?KEY|PRIVATE_?KEY|PAT|TOKEN|PASSWD|"
    r"PASSPHRASE|CREDENTIALS?|[A-Z0-9]*PASSWORD|MYSQL_PWD)",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"[\s;|&<>`]|\$[({]|^[-.~]|^/[^/]+/|^[A-Za-z]:[\\/]|\.[a-z]{1,5}$")
_KEY_FORM = re.compile(
    r"(sk|pk|rk|gh[opsu]|github_pat|glpat|xox[a-z]|AKIA|ASIA|AIza|ya29|hf|npm|pypi|SG|eyJ)[-_.A-Za-z0-9]{12,}|"
    r"[0-9a-f]{32,}|(?=.*[0-9])(?=.*[A-Z])(?=.*[a-z])[-+_=A-Za-z0-9]{24,}"
)
# Always shown, also in the form of a key: a name of a file can have it.
_PROGRAM_NAME = re.compile(
    r"PATH|ENV|HOME|SHELL|IFS|BROWSER|"
    r"(LD|DYLD|BASH|PYTHON|NODE|NPM|DENO|BUN|PERL|PERL5|RUBY|GEM|BUNDLE|JAVA|_JAVA|JDK|GIT|SSH|OPENSSL|SSL|KUBE|LESS|MAN|"
    r"PIP|UV|GO|CARGO|RUST|XDG|DOCKER|CURL|PG|MYSQL|AWS)(_?[A-Z0-9_]+)?|"
    r".*(PATH|ASKPASS|PAGER|EDITOR|VISUAL|OPEN|CMD|COMMAND|OPTIONS|OPTS?|FLAGS|ARGS|PROXY|HOME|ROOT|DIR|URL|CONFIG|CONF|"
    r"RC|FILE|MODULE|LOADER|PLUGINS?|HOOKS?|WRAPPER|EXE|BIN|PROGRAM|SCRIPT)",
    re.IGNORECASE,
)
# Only what a user and a password in a URL are written with: a shell's or a language's own characters stay visible.
_USER = re.compile(r"(?<=://)[-A-Za-z0-9._~%!*+,=:]*(?=@)")


def read_config_file(
    path: str | Path, *, trust: Trust | None, expand: Collection[str], source: Mapping[str, str]
) -> dict[str, ServerSpec]:
    """Read the servers of a file. With `trust=None` the user chose the file; otherwise its content must be trusted."""
    path = Path(os.path.abspath(Path(path).expanduser()))
    content = _read_content(path, found=trust is not None)
    entries = _parse_entries(path, content)
    if trust is not None:
        for name, entry in entries.items():
            _refuse_loaders(path, name, entry)
        if not trust.allows(path, content):
            raise UntrustedFile(
                path, hash_content(content), tuple(summarize_entry(name, entry) for name, entry in entries.items())
            )
    return {name: _Entry(path, name, entry, expand, source).build_spec() for name, entry in entries.items()}


def _read_content(path: Path, *, found: bool) -> bytes:
    try:
        if found and not stat.S_ISREG(os.stat(path).st_mode):
            # A link may lead to a device, or to our standard input, which is not ours to read for a project.
            raise OSError(errno.EINVAL, "it is not a regular file")
        # Non-blocking, so that a FIFO in its place does not block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(handle, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1) or b""
    except OSError as error:
        raise McpError(f"The MCP settings {str(path)!r} cannot be read: {error.strerror}.") from error
    if len(content) > _MAX_FILE_BYTES:
        raise McpError(f"The MCP settings {str(path)!r} are larger than {_MAX_FILE_BYTES:,} bytes.")
    return content


def _parse_entries(path: Path, content: bytes) -> dict[str, dict[str, Any]]:
    example = '{"mcpServers": {"time": {"command": "mcp-server-time"}}}'
    try:
        found: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise McpError(f"The MCP settings {str(path)!r} are not JSON: {error}.") from error
    servers: Any = cast(Any, found).get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise McpError(f"The MCP settings {str(path)!r} have no 'mcpServers' object, as in {example}.")
    listed = cast(dict[str, Any], servers)
    if len(listed) > _MAX_SERVERS:
        raise McpError(f"The MCP settings {str(path)!r} name {len(listed)} servers, more than {_MAX_SERVERS}.")
    for name, entry in listed.items():
        check_name(name)
        if not isinstance(entry, dict):
            raise McpError(f"The server {name!r} in {str(path)!r} is not an object, as in {example}.")
    return {name: entry for name, entry in listed.items() if entry.get("disabled") is not True}


def _refuse_loaders(path: Path, name: str, entry: dict[str, Any]) -> None:
    """Refuse environment variables with which a project would change what programs run or load."""
    env: Any = entry.get("env")
    for variable in cast(dict[str, Any], env) if isinstance(env, dict) else ():
        if _LOADER_VARIABLE.fullmatch(variable):
            raise McpError(
                f"The server {name!r} in {str(path)!r} sets {variable!r:.100}, which decides what programs run or "
                "load; a file that was found may not set it. If you want it, name the file yourself: trusted=True."
            )


class _Entry:
    """Builds the spec of one server from its entry in a file."""

    __slots__ = ("_entry", "_expand", "_path", "_source", "_where")

    def __init__(
        self, path: Path, name: str, entry: dict[str, Any], expand: Collection[str], source: Mapping[str, str]
    ) -> None:
        self._path = path
        self._entry = entry
        self._expand = expand
        self._source = source
        self._where = f"The server {name!r} in {str(path)!r}"

    def build_spec(self) -> ServerSpec:
        kind = self._find_kind()
        self._check_keys(_STDIO_KEYS if kind == "stdio" else _HTTP_KEYS)
        try:
            return self._build_stdio() if kind == "stdio" else self._build_http()
        except McpError as error:
            raise McpError(f"{self._where} is wrong: {error}") from error

    def _find_kind(self) -> str:
        named: Any = self._entry.get("type")
        if "command" in self._entry and "url" in self._entry:
            raise McpError(f"{self._where} has a 'command' and a 'url'; it needs one of them.")
        if named == "sse":
            raise McpError(f"{self._where} is of type 'sse', which MCP replaced; use type 'http' and its URL.")
        if named in _HTTP_TYPES or (named is None and "url" in self._entry):
            kind, wanted = "http", "url"
        elif named in (None, "stdio"):
            kind, wanted = "stdio", "command"
        else:
            raise McpError(f"{self._where} has the unknown type {named!r:.50}; there are 'stdio' and 'http'.")
        if wanted not in self._entry:
            raise McpError(f"{self._where} has no {wanted!r}.")
        return kind

    def _check_keys(self, known: tuple[str, ...]) -> None:
        """Refuse keys that look like typing errors; unknown keys of other programs are ignored."""
        for key in self._entry:
            if key not in known and (near := get_close_matches(key, known, 1, 0.75)):
                raise McpError(f"{self._where} has {key!r:.50}. Did you mean {near[0]!r}?")

    def _build_stdio(self) -> StdioServer:
        entry = self._entry
        for key in ("command", "args", "cwd"):
            self._refuse_references(key, entry.get(key))
        cwd = entry.get("cwd", ".")
        if not isinstance(cwd, str):
            raise McpError(f"'cwd' is a folder, got {cwd!r:.100}.")
        return StdioServer(
            command=entry["command"],
            args=entry.get("args", ()),
            env=self._expand_values("env"),
            cwd=self._path.parent / Path(cwd).expanduser(),
        )

    def _build_http(self) -> HttpServer:
        url = self._entry["url"]
        return HttpServer(
            url=self._expand_text("url", url) if isinstance(url, str) else url, headers=self._expand_values("headers")
        )

    def _expand_values(self, key: str) -> Any:
        values: Any = self._entry.get(key, {})
        if not isinstance(values, dict):
            return values
        return {
            name: self._expand_text(f"{key}.{name}", value) if isinstance(value, str) else value
            for name, value in cast(dict[str, Any], values).items()
        }

    def _expand_text(self, where: str, text: str) -> str:
        """Replace `${NAME}` and `${NAME:-default}`, only for the names that the user allowed."""
        end = _find_last_end(text)
        return _REFERENCE.sub(lambda match: self._look_up(where, match[1]), text[:end]) + text[end:]

    def _look_up(self, where: str, reference: str) -> str:
        match = _REFERRED.fullmatch(reference)
        if match is None:
            raise McpError(f"{where!r} refers to '${{{reference:.50}}}', which is not the name of a variable.")
        name, default = match[1], match[2]
        if name not in self._expand:
            raise McpError(
                f"{where!r} refers to the variable {name!r}, which this file may not read. "
                f"To pass it on, allow it: expand=[{name!r}]."
            )
        value = self._source.get(name) or default
        if value is None:
            raise McpError(f"{where!r} refers to the variable {name!r}, which is not set.")
        return value

    def _refuse_references(self, key: str, value: Any) -> None:
        for item in cast(list[Any], value) if isinstance(value, list) else [value]:
            if _list_references(item):
                raise McpError(
                    f"{key!r} refers to a variable, and command lines can be read by every user of the machine. "
                    "Pass it in 'env'."
                )


def summarize_entry(name: str, entry: dict[str, Any]) -> str:
    """Summarize what an entry would start, as written: nothing is expanded for an untrusted file."""
    parts = _describe_program(entry) if "command" in entry else _describe_url(entry)
    target, *details = filter(None, parts)
    return f"{name}: {target} ({'; '.join(details)})" if details else f"{name}: {target}"


def _describe_program(entry: dict[str, Any]) -> tuple[str, ...]:
    args: Any = entry.get("args", [])
    given = cast(list[Any], args) if isinstance(args, list) else [args]
    cwd, env = entry.get("cwd"), _as_mapping(entry.get("env"))
    return (
        _join_limited([entry["command"], *given], _quote, " "),
        "" if cwd is None else f"in the folder {_quote(cwd)}",
        f"env: {_join_limited([*env.items()], _describe_variable, ', ')}" if env else "",
    )


def _describe_variable(item: tuple[str, Any]) -> str:
    variable, value = item
    if _is_secret(variable, str(value)):
        return f"{_sanitize(variable)} (hidden)"
    return f"{_sanitize(variable)}={_quote(value)}"


def _is_secret(variable: str, value: str) -> bool:
    """Whether the value of an environment variable is hidden from the question whether to trust a file."""
    if len(variable) > _MAX_TEXT_LENGTH:
        return False  # no name of a secret, and a project's text of any length is not worth a search
    if _SECRET_NAME.fullmatch(variable):
        return _COMMAND.search(value) is None
    return _PROGRAM_NAME.fullmatch(variable) is None and _KEY_FORM.fullmatch(value) is not None


def _describe_url(entry: dict[str, Any]) -> tuple[str, ...]:
    """Describe where a server is and what it gets; which variables of the user it gets is never hidden."""
    url, headers = str(entry.get("url")), _as_mapping(entry.get("headers"))
    return (
        _sanitize(_USER.sub("...", url) if _list_references(url) else redact_server_url(url)),
        f"headers: {_join_limited([*headers.items()], _describe_header, ', ')}" if headers else "",
    )


def _describe_header(item: tuple[str, Any]) -> str:
    header, value = item
    return _sanitize(f"{header} with {' '.join(found)}" if (found := _list_references(value)) else header)


def _list_references(value: Any) -> list[str]:
    if not isinstance(value, str):
        return []
    return [match[0] for match in _REFERENCE.finditer(value, 0, _find_last_end(value))]


def _find_last_end(text: str) -> int:
    """Where the last reference may end: beyond it, each `${` would be searched up to the end of the text."""
    return text.rfind("}") + 1


def _as_mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _quote(value: Any) -> str:
    return _sanitize(_USER.sub("...", shlex.quote(str(value))))


def _join_limited(items: list[T], describe: Callable[[T], str], between: str) -> str:
    """Join what is described of the first items; of a project's thousands, the rest is not looked at."""
    left_out = len(items) - _MAX_ITEMS
    return between.join(map(describe, items[:_MAX_ITEMS])) + (
        f" [AND {left_out:,} MORE, not shown]" if left_out > 0 else ""
    )


def _sanitize(text: str) -> str:
    """Replace characters that a terminal would interpret; say so where the text is truncated."""
    plain = "".join([letter if letter.isprintable() else "?" for letter in text[:_MAX_TEXT_LENGTH]])
    return (
        plain
        if len(text) <= _MAX_TEXT_LENGTH
        else f"{plain} [AND {len(text) - _MAX_TEXT_LENGTH:,} MORE CHARACTERS, not shown]"
    )
