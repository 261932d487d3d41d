"""The `fetch` tool reads a page of the public web by GET. The SSRF guard checks every connection, also redirects."""

from __future__ import annotations

import asyncio
import math
import threading
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.tools.builtin.html import extract_text
from steersman.tools.builtin.images import MAX_IMAGE_BYTES, detect_image_type, inspect_image
from steersman.tools.confine.addresses import AddressRules, Resolve, matches_host
from steersman.tools.confine.held_hosts import is_held
from steersman.tools.confine.urls import ParsedUrl, parse_url
from steersman.tools.text import format_value
from steersman.tools.threads import call_in_thread
from steersman.tools.tool import Tool
from steersman.tools.web import (
    REDIRECTS,
    Body,
    classify_media_type,
    open_session,
    parse_content_type,
    read_body,
    to_tool_error,
)
from steersman.types.content import ImageContent, TextContent
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse

_DESCRIPTION = (
    "Fetch a web page or file by its http or https URL, with GET. HTML comes as text with its links, JSON and other "
    "text as it is, pictures as pictures. Only public addresses can be reached. A redirect to another host is "
    "reported, not followed."
)
_PARAMETERS = {
    "type": "object",
    "properties": {"url": {"type": "string", "description": "The whole URL, with http:// or https://."}},
    "required": ["url"],
    "additionalProperties": False,
}
_ACCEPT = "text/html, text/markdown, text/plain, application/json, image/*;q=0.8, */*;q=0.5"
# How many bytes of an error page are read, and how many characters of its text are shown.
_LARGEST_FAILURE = 256 * 1024
_LONGEST_FAILURE = 2_000


def fetch_tool(
    *,
    allow: Iterable[str] = (),
    hosts: Iterable[str] | None = None,
    deny_hosts: Iterable[str] = (),
    max_bytes: int = 5 * 1024 * 1024,
    max_redirects: int = 5,
    timeout: float = 30.0,
    connect_timeout: float = 10.0,
    images: bool = True,
    resolve: Resolve | None = None,
    ssl_context: SSLContext | None = None,
) -> Tool:
    """Make the tool `fetch`.

    `allow` is an allow-list of addresses that are not public, such as `"127.0.0.1:8000"`; `hosts` limits it to some
    names, and `deny_hosts` excludes others (`example.org`, `*.example.org`). A redirect is followed on the same host
    and to names in `hosts`. `max_bytes` counts bytes after content-encoding is undone. `resolve(host, port)` looks up
    addresses.
    """
    rules = AddressRules(allow=allow, hosts=hosts, deny_hosts=deny_hosts, resolve=resolve)
    for name, value in (("max_bytes", max_bytes), ("timeout", timeout), ("connect_timeout", connect_timeout)):
        if math.isnan(value) or value <= 0:
            raise ValueError(f"{name!r} must be more than 0, got {value!r}.")
    if max_redirects < 0:
        raise ValueError(f"'max_redirects' must be 0 or more, got {max_redirects!r}.")
    fetcher = _Fetcher(rules, max_bytes, max_redirects, timeout, connect_timeout, images, ssl_context)

    async def fetch(url: str) -> ToolOutput:
        return await fetcher.fetch(url)

    return Tool("fetch", _DESCRIPTION, _PARAMETERS, fetch, idempotent=True, access="full")


@dataclass(frozen=True, slots=True)
class _Fetcher:
    rules: AddressRules
    max_bytes: int
    max_redirects: int
    timeout: float
    connect_timeout: float
    images: bool
    ssl_context: SSLContext | None

    async def fetch(self, url: str) -> ToolOutput:
        first = parse_url(url)
        try:
            async with asyncio.timeout(self.timeout):
                return await self._follow_redirects(first)
        except TimeoutError:
            raise ToolError(f"{first.url!r} did not answer in full within {self.timeout:g}s.") from None

    async def _follow_redirects(self, first: ParsedUrl) -> ToolOutput:
        self.rules.check(first)
        place = first
        for _ in range(self.max_redirects + 1):
            outcome = await self._request(place, first)
            if isinstance(outcome, ToolOutput):
                return outcome
            self.rules.check(outcome)
            if not self._may_follow(first, outcome):
                return _report_redirect(place, outcome)
            place = outcome
        raise ToolError(f"{first.url!r} was redirected more than {self.max_redirects} times, last to {place.url!r}.")

    def _may_follow(self, first: ParsedUrl, target: ParsedUrl) -> bool:
        """Whether to follow a redirect: the user approved this host, and another one needs a new approval."""
        if first.host != target.host and is_held(target.url):
            return False
        if first.host.removeprefix("www.") == target.host.removeprefix("www."):
            return True
        return self.rules.hosts is not None and matches_host(target.host, self.rules.hosts)

    async def _request(self, place: ParsedUrl, first: ParsedUrl) -> ToolOutput | ParsedUrl:
        """Make one request; return its output, or the URL it was redirected to."""
        import aiohttp
        from yarl import URL

        addresses = await self._find_addresses(place)
        target = URL(place.url, encoded=True)
        if target.raw_host != place.host or target.port != place.port:
            # Two parsers that read one URL differently would let a request pass the SSRF guard.
            raise ToolError(f"The URL {format_value(place.url, 200)} can be read in two ways.")
        try:
            async with (
                open_session(
                    addresses=addresses, connect_timeout=self.connect_timeout, ssl_context=self.ssl_context
                ) as session,
                session.get(target, allow_redirects=False, headers={"Accept": _ACCEPT}) as response,
            ):
                if (location := response.headers.get("Location")) and response.status in REDIRECTS:
                    return place.join(location)
                if response.status >= 300:
                    return await self._describe_failure(response, place)
                return await self._read_response(response, place, first)
        except aiohttp.ConnectionTimeoutError:
            raise ToolError(f"No connection to {place.url!r} within {self.connect_timeout:g}s.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise to_tool_error(place.url, error) from error

    async def _find_addresses(self, place: ParsedUrl) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(self.connect_timeout):
                return await self.rules.find_addresses(place)
        except TimeoutError:
            raise ToolError(f"The host {place.host!r} could not be found within {self.connect_timeout:g}s.") from None

    async def _describe_failure(self, response: ClientResponse, place: ParsedUrl) -> ToolOutput:
        words = f"HTTP {response.status} {response.reason or ''}".rstrip()
        body = await read_body(response, min(self.max_bytes, _LARGEST_FAILURE))
        text = (await _extract_text(body, place.url, _LARGEST_FAILURE))[:_LONGEST_FAILURE]
        return ToolOutput(
            f"{words} from {place.url}\n\n{text}".rstrip(), _build_details(response, place), is_error=True
        )

    async def _read_response(self, response: ClientResponse, place: ParsedUrl, first: ParsedUrl) -> ToolOutput:
        head = place.url if place.url == first.url else f"{place.url} (redirected from {first.url})"
        details = _build_details(response, place)
        if classify_media_type(details["media_type"] or "text/plain") == "other":
            # It will not be shown, so its body is not read.
            return ToolOutput(f"{head}\n{_describe_unshown(details['media_type'], response.content_length)}", details)
        body = await read_body(response, self.max_bytes)
        if body.kind == "image" and self.images:
            return _build_image_output(head, body, details)
        if body.kind in ("other", "image"):
            return ToolOutput(
                f"{head}\n{_describe_unshown(body.media_type, len(body.data) if body.whole else None)}", details
            )
        text = await _extract_text(body, place.url, self.max_bytes)
        return ToolOutput(f"{head}\n\n{text or '(The answer is empty.)'}", details)


def _build_details(response: ClientResponse, place: ParsedUrl) -> dict[str, Any]:
    media_type, _ = parse_content_type(response.headers.get("Content-Type", ""))
    return {"url": place.url, "http_status": response.status, "media_type": media_type}


def _build_image_output(head: str, body: Body, details: dict[str, Any]) -> ToolOutput:
    size = len(body.data) if body.whole else None
    try:
        if not body.whole or len(body.data) > MAX_IMAGE_BYTES:
            raise ValueError(f"it has more than {min(MAX_IMAGE_BYTES, len(body.data)):,} bytes")
        if (kind := detect_image_type(body.data)) is None:
            raise ValueError("it is not a PNG, JPEG, GIF or WebP picture")
        found = inspect_image(body.data, kind)
    except ValueError as error:
        return ToolOutput(f"{head}\n{_describe_unshown(body.media_type, size)} This picture cannot: {error}.", details)
    words = f"{head}\n{kind}, {found.width} x {found.height} pixels, {len(body.data):,} bytes"
    return ToolOutput([TextContent(words), ImageContent(b64encode(body.data).decode("ascii"), kind)], details)


def _describe_unshown(media_type: str, size: int | None) -> str:
    length = "of unknown size" if size is None else f"{size:,} bytes"
    return f"Not shown: {media_type or 'binary data'}, {length}. Only text, HTML and pictures can be shown."


async def _extract_text(body: Body, url: str, limit: int) -> str:
    """Extract the text of a response body; empty where it is not text."""
    if body.kind in ("other", "image"):
        return ""
    text, whole = await body.decode(), body.whole
    if body.kind == "html":
        # In a thread, because the work grows with the page; the thread stops when this call is cancelled.
        over = threading.Event()
        try:
            page = await call_in_thread(extract_text, text, url, limit=limit, stopped=over.is_set)
        finally:
            over.set()
        text, whole = f"Title: {page.title}\n\n{page.text}" if page.title else page.text, whole and page.whole
    return text if whole else f"{text}\n\n[There is more, or it was cut off; only this much was read.]"


def _report_redirect(place: ParsedUrl, target: ParsedUrl) -> ToolOutput:
    text = (
        f"{place.url} redirects to another host, {target.host!r}, and nothing was fetched from there. "
        f"If that is wanted, call fetch with this URL: {target.url}"
    )
    return ToolOutput(text, {"url": place.url, "redirect": target.url})
