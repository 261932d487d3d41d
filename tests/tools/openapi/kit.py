"""An API on a real socket, in a thread of its own, that remembers what it was sent, and small descriptions of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import HTTP
from typing import Any, Self, TypeAlias, cast

from aiohttp import web

from steersman.tools.openapi.build import openapi_tools
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.cancel import CancelToken
from steersman.types.tools import ToolOutput


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came: `path` and `query_text` as they were sent, the others as the server decoded them."""

    method: str
    path: str
    query_text: str
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    cookies: Mapping[str, str]
    body: bytes
    fields: list[tuple[str, str]]


Reply: TypeAlias = Callable[[Seen], web.StreamResponse]


def done(_: Seen) -> web.StreamResponse:
    return web.json_response({"done": True})


class Api:
    """A server that answers everything with `reply`, or nothing if it is `silent`; `left` says that a client went."""

    def __init__(self, reply: Reply = done) -> None:
        self.reply = reply
        self.seen: list[Seen] = []
        self.silent = False
        self.left = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        # Without a router, which would not know every path. That the client went is told to the function that answers.
        runner = web.ServerRunner(web.Server(self._answer, handler_cancellation=True), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = int(runner.addresses[0][1])
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        url = request.rel_url
        seen = Seen(
            request.method,
            url.raw_path,
            url.raw_query_string,
            list(url.query.items()),
            {name.lower(): value for name, value in request.headers.items()},
            request.cookies,
            body,
            _fields(request.headers.get("Content-Type", ""), body),
        )
        self.seen.append(seen)
        if self.silent:
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        return self.reply(seen)


def _fields(kind: str, body: bytes) -> list[tuple[str, str]]:
    """The fields of a multipart form, as a reader of mail sees them."""
    if not kind.startswith("multipart/"):
        return []
    whole = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body, policy=HTTP)
    return [
        (str(part.get_param("name", header="Content-Disposition")), cast(bytes, part.get_payload(decode=True)).decode())
        for part in whole.iter_parts()
    ]


def described(path: str, method: str = "get", version: str = "3.1.0", **details: Any) -> dict[str, Any]:
    """A description of one operation, `it`."""
    return {"openapi": version, "paths": {path: {method: {"operationId": "it", **details}}}}


def parameter(name: str, location: str = "query", **details: Any) -> dict[str, Any]:
    """A parameter of any type."""
    return {"name": name, "in": location, "schema": {}, **details}


def one(spec: Any, base_url: str, **settings: Any) -> Tool:
    """The only tool of a description."""
    (tool,) = openapi_tools(spec, base_url, **settings)
    return tool


async def called(tool: Tool, **arguments: Any) -> ToolOutput:
    """What a call with checked arguments gives."""
    return await tool.call(tool.check(arguments), ToolContext("call_1", tool.name, CancelToken()))
