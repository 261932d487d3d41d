"""What the user adds to every request, keys above all: the server gets it, and no result or error repeats it."""

from __future__ import annotations

import inspect
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from steersman.tools.openapi.parameters import quoted
from steersman.tools.openapi.request import Prepared, not_among
from steersman.types.errors import ToolError
from steersman.types.secrets import HIDDEN, hidden

Given: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]] | None

# Values that are no keys; those of all other headers are hidden, since nobody can tell by a name.
_HARMLESS = re.compile("accept(-.*)?|content-.*|prefer|user-agent|.*version")
# As for all keys: what is shorter is a word, and hiding it would spoil the text.
_SHORTEST = 6
_COOKIES = ("header", "cookie")
_SCHEMES = frozenset(("basic", "bearer", "digest", "token"))
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True, repr=False)
class Held:
    """The user's headers and query for one call."""

    headers: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def query_parts(self) -> list[str]:
        """The query as parts such as `name=value`."""
        return [f"{quoted(name)}={quoted(value)}" for name, value in self.query.items()]

    def headers_with(self, prepared: Prepared, accept: str) -> dict[str, str]:
        """The headers of a request: where the user and the model both name one, it is the user's."""
        merged = {"accept": ("Accept", accept)}
        for name, value in [*prepared.headers.items(), *self.headers.items()]:
            if not (name.lower() == "content-type" and "content-type" in merged):
                merged[name.lower()] = (name, value)
        own = _cookies(merged.get("cookie", ("", ""))[1])
        if cookies := not_among(prepared.cookies, own):
            merged["cookie"] = ("Cookie", "; ".join([*own, *cookies]))
        return dict(merged.values())

    def hidden(self, text: str) -> str:
        """The text without any key."""
        secrets = self._secrets()
        # Whole ones first, and also those that are too short to be anything but a word elsewhere.
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return hidden(text, *secrets)

    def _secrets(self) -> list[str]:
        values = [value for name, value in self.headers.items() if not _HARMLESS.fullmatch(name.lower())]
        found: set[str] = set()
        for value in [*values, *self.query.values()]:
            # A server quotes a key without the word before it, as it stood in the URL, or as some write it in JSON.
            found.update(form for part in _parts(value) for form in (part, quoted(part), part.replace("/", "\\/")))
        return sorted((form for form in found if len(form) >= _SHORTEST), key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Held({sorted(self.headers)!r}, {sorted(self.query)!r})"


class Keys:
    """Where the user's headers and query come from; `withheld` are the parameters that the model is not asked for."""

    __slots__ = ("_headers", "_query", "withheld")

    def __init__(self, headers: Given, query: Given) -> None:
        self._headers = _checked(headers, "headers")
        self._query = _checked(query, "query")
        self.withheld = frozenset([*_names("header", self._headers), *_names("query", self._query)])

    async def fetched(self) -> Held:
        """What holds for the call that is about to be made."""
        return Held(await _fetched(self._headers, "headers"), await _fetched(self._query, "query"))


def _parts(value: str) -> list[str]:
    """What of a value is to be hidden: all of it, its words, and the password that one of them packs."""
    words = [word for word in value.split() if word.lower() not in _SCHEMES]
    if value.lower().startswith("basic ") and words:
        with suppress(ValueError):
            plain = b64decode(words[-1], validate=True).decode()
            words += [plain, plain.partition(":")[2]]
    return [value, *words]


def _names(location: str, given: Given) -> list[tuple[str, str]]:
    if given is None or callable(given):
        return []
    cookies = [
        cookie for name, value in given.items() if (location, name.lower()) == _COOKIES for cookie in _cookies(value)
    ]
    return [
        *[(location, name.lower()) for name in given],
        *[("cookie", cookie.partition("=")[0].lower()) for cookie in cookies],
    ]


def _cookies(header: str) -> list[str]:
    return [cookie.strip() for cookie in header.split(";") if cookie.strip()]


def _checked(given: Given, setting: str) -> Given:
    if given is None or callable(given):
        return given
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
        raise TypeError(f"{setting!r} is a mapping of names to texts, or a function that gives one.")
    if (fault := _fault(given, setting)) is not None:
        raise ValueError(fault)
    return dict(given)


async def _fetched(given: Given, setting: str) -> Mapping[str, str]:
    if given is None or not callable(given):
        return given or {}
    try:
        value = cast(Any, given())
        if inspect.isawaitable(value):
            value = await value
    except Exception as error:  # noqa: BLE001  # the user's function; its text may hold the key, so only its kind is told
        raise ToolError(f"The {setting} for the request could not be made ({type(error).__name__}).") from None
    if not isinstance(value, Mapping):
        raise ToolError(f"The {setting} for the request could not be made: the function gave no mapping.")
    if (fault := _fault(cast(Mapping[Any, Any], value), setting)) is not None:
        raise ToolError(fault)
    return cast(Mapping[str, str], value)


def _fault(given: Mapping[Any, Any], setting: str) -> str | None:
    """What is wrong, told without the value, which may be a key."""
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return f"{setting!r} maps names to texts; {name!r} is not so."
        if setting == "headers" and (not _NAME.fullmatch(name) or _UNFIT.search(value)):
            return f"The header {name!r} has a name or a value that no header can have."
    return None
