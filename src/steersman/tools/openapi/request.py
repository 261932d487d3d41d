"""Builds the HTTP request of a call from its arguments and the user's keys, and redacts those keys. No network here."""

from __future__ import annotations

import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from urllib.parse import quote, unquote

import msgspec

from steersman.tools.openapi.operations import Form, Operation, Payload
from steersman.tools.openapi.parameters import (
    Parameter,
    encode_cookie_value,
    encode_header_value,
    encode_path_value,
    encode_query_value,
    percent_encode,
    to_text,
)
from steersman.types.errors import ToolError
from steersman.types.guards import is_instance
from steersman.types.secrets import list_secret_parts, redact

KeySource: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]] | None

_LITERAL = "/%:@!$&'()*+,;=-._~"
_TEMPLATE = re.compile(r"\{([^{}/]+)\}")
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
# Headers whose values are no keys. The values of all other headers are redacted: a name does not tell what is a key.
_HARMLESS = re.compile("accept(-.*)?|content-.*|prefer|user-agent|.*version")
_COOKIES = ("header", "cookie")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_INVALID_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request without its host and without the user's headers; `target` begins with a slash."""

    method: str
    target: str
    headers: Mapping[str, str]
    cookies: tuple[str, ...]
    data: bytes | None


def prepare_request(
    operation: Operation, form: Form, arguments: Mapping[str, Any], extra_query: Sequence[str] = ()
) -> PreparedRequest:
    """Build the request of an operation with these arguments."""
    given = [(each, arguments[each.argument]) for each in form.parameters if each.argument in arguments]
    query = [text for each, value in given if each.location == "query" for text in encode_query_value(each, value)]
    cookies = [text for each, value in given if each.location == "cookie" for text in encode_cookie_value(each, value)]
    headers = {each.name: encode_header_value(each, value) for each, value in given if each.location == "header"}
    data = None
    if form.payload is not None and form.payload.argument in arguments:
        data, headers["Content-Type"] = _encode_body(form.payload, arguments[form.payload.argument])
    target = _encode_path(operation, form.parameters, arguments)
    # Where the user and the model both set a parameter, only the user's is sent: servers differ in which one they use.
    if query := [*exclude_names(query, extra_query), *extra_query]:
        target = f"{target}?{'&'.join(query)}"
    return PreparedRequest(operation.method, target, headers, tuple(cookies), data)


def exclude_names(parts: Sequence[str], others: Iterable[str]) -> list[str]:
    """Return the parts such as `name=value` whose name is not among the others, compared as servers compare names."""
    taken = {_normalize_name(part) for part in others}
    return [part for part in parts if _normalize_name(part) not in taken]


def _normalize_name(part: str) -> str:
    # Some servers treat `key[]` and ` key` as `key`, or `a.b` as `a_b`, or ignore case.
    name = unquote(unquote(part.partition("=")[0])).lower()
    return re.sub(r"[\s.+_-]", "_", name.strip(" +\0").partition("[")[0])


def _encode_path(operation: Operation, parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> str:
    by_name = {each.name: each for each in parameters if each.location == "path"}
    pieces = _TEMPLATE.split(operation.path)
    texts = [quote(piece, safe=_LITERAL) for piece in pieces]
    for number in range(1, len(pieces), 2):
        parameter = by_name[pieces[number]]
        texts[number] = encode_path_value(parameter, arguments.get(parameter.argument))
    path = "".join(texts)
    if {".", ".."} & set(path.split("/")):
        raise ToolError(f"With these arguments the path would be {path!r}, where '.' and '..' mean another path.")
    return path


def _encode_body(payload: Payload, value: Any) -> tuple[bytes, str]:
    kind = payload.media_type
    if kind == "application/json" or kind.endswith("+json"):
        return msgspec.json.encode(value), kind
    if kind == _FORM:
        fields = _list_fields(payload, value)
        pairs = [f"{percent_encode(name)}={percent_encode(to_text(item))}" for name, item in fields]
        return "&".join(pairs).encode("ascii"), kind
    if kind == _MULTIPART:
        return _encode_multipart(_list_fields(payload, value))
    return to_text(value).encode(), kind


def _list_fields(payload: Payload, value: Any) -> list[tuple[str, Any]]:
    """List the fields of a form; a list becomes one field per item."""
    if not isinstance(value, Mapping):
        raise ToolError(f"The argument {payload.argument!r} is sent as a form and has to be an object.")
    return [
        (name, each)
        for name, item in cast(Mapping[str, Any], value).items()
        for each in (cast(Sequence[Any], item) if isinstance(item, list | tuple) else [item])
        if each is not None
    ]


def _encode_multipart(fields: Sequence[tuple[str, Any]]) -> tuple[bytes, str]:
    # Random for each request, so that no text contains it, by chance or on purpose.
    boundary = secrets.token_hex(24)
    parts: list[bytes] = []
    for name, item in fields:
        kind = "application/json" if isinstance(item, Mapping | list | tuple) else "text/plain; charset=utf-8"
        escaped = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{escaped}"\r\nContent-Type: {kind}\r\n\r\n'
        parts.append(head.encode() + to_text(item).encode() + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"{_MULTIPART}; boundary={boundary}"


@dataclass(frozen=True, slots=True, repr=False)
class CallKeys:
    """The user's headers and query for one call."""

    headers: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def query_parts(self) -> list[str]:
        """The query as parts such as `name=value`."""
        return [f"{percent_encode(name)}={percent_encode(value)}" for name, value in self.query.items()]

    def merge_headers(self, prepared: PreparedRequest, accept: str) -> dict[str, str]:
        """Merge the headers of a request; the user's override the model's."""
        merged = {"accept": ("Accept", accept)}
        for name, value in [*prepared.headers.items(), *self.headers.items()]:
            known = name.lower().replace("_", "-")  # many servers take both for one name
            if not (known == "content-type" and known in merged):
                merged[known] = (name, value)
        own = _split_cookies(merged.get("cookie", ("", ""))[1])
        if cookies := exclude_names(prepared.cookies, own):
            merged["cookie"] = ("Cookie", "; ".join([*own, *cookies]))
        return dict(merged.values())

    def redact(self, text: str) -> str:
        """Redact the keys in a text."""
        values = [value for name, value in self.headers.items() if not _HARMLESS.fullmatch(name.lower())]
        return redact(text, *{part for value in (*values, *self.query.values()) for part in list_secret_parts(value)})

    def __repr__(self) -> str:
        return f"Held({sorted(self.headers)!r}, {sorted(self.query)!r})"


class Keys:
    """The source of the user's headers and query; `withheld` are the parameters that the model does not see."""

    __slots__ = ("_headers", "_query", "withheld")

    def __init__(self, headers: KeySource, query: KeySource) -> None:
        self._headers = _check_source(headers, "headers")
        self._query = _check_source(query, "query")
        self.withheld = frozenset([*_list_withheld("header", self._headers), *_list_withheld("query", self._query)])

    async def fetch(self) -> CallKeys:
        """Fetch the headers and the query for one call."""
        return CallKeys(await _fetch_values(self._headers, "headers"), await _fetch_values(self._query, "query"))


def _list_withheld(location: str, given: KeySource) -> list[tuple[str, str]]:
    if given is None or callable(given):
        return []
    cookies = [
        cookie
        for name, value in given.items()
        if (location, name.lower()) == _COOKIES
        for cookie in _split_cookies(value)
    ]
    return [
        *[(location, name.lower()) for name in given],
        *[("cookie", cookie.partition("=")[0].lower()) for cookie in cookies],
    ]


def _split_cookies(header: str) -> list[str]:
    return [cookie.strip() for cookie in header.split(";") if cookie.strip()]


def _check_source(given: KeySource, setting: str) -> KeySource:
    if given is None or callable(given):
        return given
    if not is_instance(given, Mapping):
        raise TypeError(f"{setting!r} is a mapping of names to texts, or a function that gives one.")
    if (fault := _find_fault(given, setting)) is not None:
        raise ValueError(fault)
    return dict(given)


async def _fetch_values(given: KeySource, setting: str) -> Mapping[str, str]:
    if given is None or not callable(given):
        return given or {}
    try:
        value = cast(Any, given())
        if inspect.isawaitable(value):
            value = await value
    except Exception as error:  # noqa: BLE001  # the user's function; its error may quote the key, so only the type is shown
        raise ToolError(f"The {setting} for the request could not be made ({type(error).__name__}).") from None
    if not isinstance(value, Mapping):
        raise ToolError(f"The {setting} for the request could not be made: the function returned no mapping.")
    if (fault := _find_fault(cast(Mapping[Any, Any], value), setting)) is not None:
        raise ToolError(fault)
    return cast(Mapping[str, str], value)


def _find_fault(given: Mapping[Any, Any], setting: str) -> str | None:
    """Describe what is wrong, without the value, which may be a key."""
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return f"{setting!r} maps names to texts; {name!r} does not."
        if setting == "headers" and (not _HEADER_NAME.fullmatch(name) or _INVALID_IN_VALUE.search(value)):
            return f"The header {name!r} has an invalid name or value."
    return None
