"""From the arguments of a call to the request they mean; nothing here touches the network."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, unquote

import msgspec

from steersman.tools.openapi.operations import Form, Operation, Payload
from steersman.tools.openapi.parameters import Parameter, in_cookie, in_header, in_path, in_query, quoted
from steersman.types.errors import ToolError

_LITERAL = "/%:@!$&'()*+,;=-._~"
_TEMPLATE = re.compile(r"\{([^{}/]+)\}")
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request without its host and without the user's own headers; `target` begins with a slash."""

    method: str
    target: str
    headers: Mapping[str, str]
    cookies: tuple[str, ...]
    data: bytes | None


def prepare(
    operation: Operation, form: Form, arguments: Mapping[str, Any], extra_query: Sequence[str] = ()
) -> Prepared:
    """The request that an operation with these arguments is."""
    given = [(each, arguments[each.argument]) for each in form.parameters if each.argument in arguments]
    query = [text for each, value in given if each.location == "query" for text in in_query(each, value)]
    cookies = [text for each, value in given if each.location == "cookie" for text in in_cookie(each, value)]
    headers = {each.name: in_header(each, value) for each, value in given if each.location == "header"}
    data = None
    if form.payload is not None and form.payload.argument in arguments:
        data, headers["Content-Type"] = _body(form.payload, arguments[form.payload.argument])
    target = _path(operation, form.parameters, arguments)
    # Where the user and the model both name one, it is the user's: a server may take the first or the last.
    if query := [*not_among(query, extra_query), *extra_query]:
        target = f"{target}?{'&'.join(query)}"
    return Prepared(operation.method, target, headers, tuple(cookies), data)


def not_among(parts: Sequence[str], others: Iterable[str]) -> list[str]:
    """The parts such as `name=value` whose name is not the name of another, as servers read names."""
    taken = {_known_as(part) for part in others}
    return [part for part in parts if _known_as(part) not in taken]


def _known_as(part: str) -> str:
    # Some take `key[]` and ` key` for `key`, `a.b` for `a_b`, or are blind to case.
    name = unquote(unquote(part.partition("=")[0])).lower()
    return re.sub(r"[\s.+_-]", "_", name.strip(" +\0").partition("[")[0])


def _path(operation: Operation, parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> str:
    by_name = {each.name: each for each in parameters if each.location == "path"}
    pieces = _TEMPLATE.split(operation.path)
    texts = [quote(piece, safe=_LITERAL) for piece in pieces]
    for number in range(1, len(pieces), 2):
        parameter = by_name[pieces[number]]
        texts[number] = in_path(parameter, arguments.get(parameter.argument))
    path = "".join(texts)
    if {".", ".."} & set(path.split("/")):
        raise ToolError(f"With these arguments the path would be {path!r}, and '.' and '..' mean another path.")
    return path


def _body(payload: Payload, value: Any) -> tuple[bytes, str]:
    kind = payload.media_type
    if kind == "application/json" or kind.endswith("+json"):
        return msgspec.json.encode(value), kind
    if kind == _FORM:
        pairs = [f"{quoted(name)}={quoted(_text(item))}" for name, item in _fields(payload, value)]
        return "&".join(pairs).encode("ascii"), kind
    if kind == _MULTIPART:
        return _multipart(_fields(payload, value))
    return _text(value).encode(), kind


def _fields(payload: Payload, value: Any) -> list[tuple[str, Any]]:
    """The fields of a form; a list is a field for each of its items."""
    if not isinstance(value, Mapping):
        raise ToolError(f"The argument {payload.argument!r} is sent as a form and has to be an object.")
    return [
        (name, each)
        for name, item in cast(Mapping[str, Any], value).items()
        for each in (cast(Sequence[Any], item) if isinstance(item, list | tuple) else [item])
        if each is not None
    ]


def _multipart(fields: Sequence[tuple[str, Any]]) -> tuple[bytes, str]:
    # Long enough that no text holds it by chance, and made anew so that none holds it on purpose.
    boundary = secrets.token_hex(24)
    parts: list[bytes] = []
    for name, item in fields:
        kind = "application/json" if isinstance(item, Mapping | list | tuple) else "text/plain; charset=utf-8"
        escaped = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{escaped}"\r\nContent-Type: {kind}\r\n\r\n'
        parts.append(head.encode() + _text(item).encode() + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"{_MULTIPART}; boundary={boundary}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
