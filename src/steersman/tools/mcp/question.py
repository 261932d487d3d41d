"""What a file would start, told to whoever is to trust it: nothing that matters is left out, and no key is shown."""

from __future__ import annotations

import re
import shlex
from typing import Any, cast

from steersman.tools.mcp.spec import shown_address

_LONGEST = 300
_MOST = 50
# What decides which programs run, or what they load; it is shown as it stands, because a person has to judge it.
_TELLING = re.compile(
    r"PATH|ENV|HOME|SHELL|IFS|EDITOR|VISUAL|PAGER|BROWSER|"
    r"(LD|DYLD|BASH|PYTHON|NODE|NPM|DENO|BUN|PERL|PERL5|RUBY|GEM|BUNDLE|JAVA|_JAVA|JDK|GIT|PIP|UV|GO|CARGO|RUST|XDG|DOCKER)"
    r"(_?[A-Z0-9_]+)?|"
    r".*(PATH|_COMMAND|_OPTIONS|OPTS?|_PROXY|_HOME|_ROOT|_DIR|_URL|_CONFIG|_FILE|_MODULE|_LOADER)",
    re.IGNORECASE,
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/?#@]*(?=@)")


def summary(name: str, entry: dict[str, Any]) -> str:
    """What an entry would start, as written: nothing is expanded for a file that nobody trusts."""
    told = _program(entry) if "command" in entry else _address(entry)
    said, *beside = filter(None, told)
    return f"{name}: {said} ({'; '.join(beside)})" if beside else f"{name}: {said}"


def _program(entry: dict[str, Any]) -> tuple[str, ...]:
    args: Any = entry.get("args", [])
    given = cast(list[Any], args) if isinstance(args, list) else [args]
    cwd, env = entry.get("cwd"), _mapping(entry.get("env"))
    variables = [
        f"{variable}={_quoted(value)}"
        if _TELLING.fullmatch(variable) and not _SECRET.search(variable)
        else _shown(variable)
        for variable, value in env.items()
    ]
    return (
        _listed([_quoted(item) for item in (entry["command"], *given)], " "),
        "" if cwd is None else f"in the folder {_quoted(cwd)}",
        f"env: {_listed(variables, ', ')}" if variables else "",
    )


def _address(entry: dict[str, Any]) -> tuple[str, ...]:
    headers = [_shown(header) for header in _mapping(entry.get("headers"))]
    return _shown(shown_address(str(entry.get("url")))), f"headers: {_listed(headers, ', ')}" if headers else ""


def _mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _quoted(value: Any) -> str:
    return _shown(_USER.sub("...", shlex.quote(str(value))))


def _listed(items: list[str], between: str) -> str:
    left_out = len(items) - _MOST
    return between.join(items[:_MOST]) + (f" [AND {left_out:,} MORE, not shown]" if left_out > 0 else "")


def _shown(text: str) -> str:
    """The text without what a terminal would obey; where it is cut, that is said."""
    plain = "".join([letter if letter.isprintable() else "?" for letter in text[:_LONGEST]])
    return plain if len(text) <= _LONGEST else f"{plain} [AND {len(text) - _LONGEST:,} MORE CHARACTERS, not shown]"
