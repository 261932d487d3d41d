"""Tools from an OpenAPI description: one for each operation. Requests go only to the `base_url` that the user gave.

The servers in the description are ignored, and the user's headers are sent to that one server only.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.tools.confine.urls import InvalidUrl, ParsedUrl, parse_url
from steersman.tools.openapi.document import Spec, load_document
from steersman.tools.openapi.operations import Choice, Form, Operation, build_form, choose_operations, list_operations
from steersman.tools.openapi.request import CallKeys, Keys, KeySource, PreparedRequest, prepare_request
from steersman.tools.schema.checks import ForeignSchema
from steersman.tools.tool import Access, Tool
from steersman.tools.web import REDIRECTS, open_session, read_body, to_tool_error
from steersman.types.errors import ToolError
from steersman.types.secrets import REDACTED
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse

__all__ = ["Operation", "openapi_tools"]

_MAX_REDIRECTS = 5
_SAFE_METHODS = frozenset(("GET", "HEAD"))
_ACCEPT = "application/json, */*;q=0.5"
_MAX_DESCRIPTION_LENGTH = 1_000


def openapi_tools(
    spec: Spec,
    base_url: str,
    operations: Choice | None = None,
    *,
    headers: KeySource = None,
    query: KeySource = None,
    reads: Choice = (),
    prefix: str = "",
    timeout: float = 60.0,
    connect_timeout: float = 10.0,
    max_bytes: int = 1024 * 1024,
    ssl_context: SSLContext | None = None,
) -> list[Tool]:
    """Make a tool for each operation of an OpenAPI 3 description, or for those in `operations`.

    `spec` is a mapping, JSON or YAML text, or a path. `operations` and `reads` are lists of ids, or functions of an
    `Operation`. `headers` and `query` hold the user's keys, as mappings or as functions (async or not) that return a
    mapping for each call; the model never sees them. A tool has the access "full", and those in `reads` have "read".
    """
    for name, value in (("timeout", timeout), ("connect_timeout", connect_timeout), ("max_bytes", max_bytes)):
        if math.isnan(value) or value <= 0:
            raise ValueError(f"{name!r} has to be more than 0, got {value!r}.")
    document, keys = load_document(spec), Keys(headers, query)
    api = _Api(_parse_base_url(base_url), keys, timeout, connect_timeout, max_bytes, ssl_context)
    known = list_operations(document, prefix)
    readers = set(choose_operations(list(known), reads, "reads"))
    chosen = choose_operations(list(known), operations, "operations")
    # Before any tool is made, which takes longer: together they may be too large.
    forms = [(operation, build_form(document, operation, *known[operation], keys.withheld)) for operation in chosen]
    return [_make_tool(api, operation, form, "read" if operation in readers else "full") for operation, form in forms]


def _make_tool(api: _Api, operation: Operation, form: Form, access: Access) -> Tool:
    async def execute(arguments: dict[str, Any]) -> ToolOutput:
        return await api.call(operation, form, arguments)

    text = "\n\n".join(dict.fromkeys(filter(None, (operation.summary, operation.description))))
    description = f"{text[:_MAX_DESCRIPTION_LENGTH]}\n\n{operation.method} {operation.path}".lstrip()
    safe = operation.method in _SAFE_METHODS
    tool = Tool(operation.tool, description, form.schema, execute, idempotent=safe, access=access)
    calling = tool._calling  # pyright: ignore[reportPrivateUsage]  # the second half of making one
    # Others wrote the description: its regular expressions are left for the server to check.
    tool._set_calling(msgspec.structs.replace(calling, schema=ForeignSchema(calling.schema)))  # pyright: ignore[reportPrivateUsage]  # as above
    return tool


def _parse_base_url(base_url: str) -> ParsedUrl:
    try:
        base = parse_url(base_url)
    except InvalidUrl as error:
        raise ValueError(f"'base_url' is the URL of the API, such as 'https://api.example.org/v1': {error}") from None
    if "?" in base.url or "#" in base_url:
        raise ValueError(
            f"'base_url' has no query and no fragment, got {base_url!r}. Keys go into 'headers' or 'query'."
        )
    return base


@dataclass(frozen=True, slots=True)
class _Api:
    """The base URL of the API, the user's keys, and the limits for requests."""

    base: ParsedUrl
    keys: Keys
    timeout: float
    connect_timeout: float
    max_bytes: int
    ssl_context: SSLContext | None

    async def call(self, operation: Operation, form: Form, arguments: Mapping[str, Any]) -> ToolOutput:
        """Send the request for these arguments and return the response as output."""
        name = f"{operation.method} {operation.path}"
        try:
            async with asyncio.timeout(self.timeout):
                call_keys = await self.keys.fetch()
                try:
                    return await self._send(
                        prepare_request(operation, form, arguments, call_keys.query_parts), call_keys, name
                    )
                except ToolError as error:
                    raise ToolError(call_keys.redact(str(error))) from None
        except TimeoutError:
            raise ToolError(f"{name} was not answered in full within {self.timeout:g}s.") from None

    async def _send(self, prepared: PreparedRequest, call_keys: CallKeys, name: str) -> ToolOutput:
        import aiohttp

        target = replace(self.base, url=self.base.url.rstrip("/") + prepared.target)
        headers = call_keys.merge_headers(prepared, _ACCEPT)
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                outcome = await self._request_once(prepared, target, headers, call_keys)
                if isinstance(outcome, ToolOutput):
                    return outcome
                if prepared.method not in _SAFE_METHODS or not _is_same_server(target, outcome):
                    raise ToolError(f"{name} was redirected to {outcome.url!r}, which is not followed.")
                target = outcome
        except aiohttp.ConnectionTimeoutError:
            raise ToolError(f"{name}: no connection within {self.connect_timeout:g}s.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise to_tool_error(self.base.url, error) from None
        raise ToolError(f"{name} was redirected more than {_MAX_REDIRECTS} times.")

    async def _request_once(
        self, prepared: PreparedRequest, target: ParsedUrl, headers: dict[str, str], call_keys: CallKeys
    ) -> ToolOutput | ParsedUrl:
        from yarl import URL

        data = None if prepared.data is None else BytesIO(prepared.data)
        async with (
            open_session(connect_timeout=self.connect_timeout, ssl_context=self.ssl_context) as session,
            session.request(
                prepared.method,
                URL(target.url, encoded=True),
                headers=headers,
                data=data,
                allow_redirects=False,
                skip_auto_headers=("Content-Type",),
            ) as response,
        ):
            if (location := response.headers.get("Location")) and response.status in REDIRECTS:
                return target.join(location)
            return await self._read_output(response, call_keys)

    async def _read_output(self, response: ClientResponse, call_keys: CallKeys) -> ToolOutput:
        body = await read_body(response, self.max_bytes)
        status = f"HTTP {response.status} {response.reason or ''}".rstrip()
        # As it was sent: in lower case, a key in it would not be found.
        sent = response.headers.get("Content-Type", "")
        media_type = body.media_type if call_keys.redact(sent) == sent else REDACTED
        if body.kind in ("other", "image") and body.data:
            size = f"{len(body.data):,} bytes" if body.whole else f"more than {len(body.data):,} bytes"
            text = f"{status}. The answer is {media_type or 'binary data'}, {size}, and is not shown."
        elif not body.data:
            text = f"{status}. The answer is empty."
        else:
            text = await body.decode()
            text = text if response.status < 300 else f"{status}\n\n{text}"
        if not body.whole:
            text = f"{text}\n\n[There is more, or it was cut off; only this much was read.]"
        details = {"http_status": response.status, "media_type": media_type}
        return ToolOutput(call_keys.redact(text), details, is_error=response.status >= 300)


def _is_same_server(one: ParsedUrl, other: ParsedUrl) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
