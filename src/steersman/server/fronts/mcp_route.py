"""`/mcp`: the Model Context Protocol over streamable HTTP.

A POST with a request is answered with JSON, or for a tool call with a stream of server-sent events. A client that loses
such a stream reads on with a GET and its last event id. A connection that is lost cancels nothing.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, cast

import msgspec
from aiohttp import web

from steersman.server.fronts.json_rpc import Params, is_message
from steersman.server.fronts.mcp.front import VERSIONS
from steersman.server.fronts.mcp.streams import HttpSession, HttpSessions, Stream, current_stream
from steersman.server.http.access import current_user
from steersman.server.http.bodies import check_value_count, read_bytes
from steersman.server.http.problems import Problem
from steersman.server.sessions import Sessions

SESSION_HEADER = "Mcp-Session-Id"
_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_SIGN_OF_LIFE = b": still here\n\n"
_STREAMED = ("tools/call",)


def add_routes(router: web.UrlDispatcher, sessions: Sessions) -> HttpSessions:
    """Add the route of the protocol; returns its clients, to be closed at the end."""
    clients = HttpSessions(sessions)
    route = _Route(clients)
    router.add_post("/mcp", route.post)
    router.add_get("/mcp", route.get, allow_head=False)
    router.add_delete("/mcp", route.delete)
    return clients


def is_local(request: web.Request) -> bool:
    """Whether a request for this route came over the loopback interface, where a URL with the token stays local."""
    resource = request.match_info.route.resource
    if resource is None or not resource.canonical.endswith("/mcp") or request.transport is None:
        return False
    name: Any = request.transport.get_extra_info("sockname")
    try:
        return ip_address(name[0]).is_loopback
    except (TypeError, ValueError, IndexError):
        return False


class _Route:
    def __init__(self, clients: HttpSessions) -> None:
        self._clients = clients

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Take one message."""
        _check_accepts(request, "application/json", "text/event-stream")
        message = await _read_message(request)
        method, id = message.get("method"), message.get("id")
        if method == "initialize" and "id" in message:
            client = await self._clients.create(current_user.get())
            response = await _answer_json(client, message)
            if b'"error"' in cast(bytes, response.body)[:40]:
                await self._clients.delete(client)
            else:
                response.headers[SESSION_HEADER] = client.id
            return response
        client = self._find(request)
        if not isinstance(method, str) or "id" not in message:
            current_stream.set(Stream(0, None))
            client.front.peer.take(message)
            return web.Response(status=202)
        if method not in _STREAMED:
            return await _answer_json(client, message)
        stream = client.open_stream(id)
        current_stream.set(stream)
        if (task := client.front.peer.take(message)) is not None:
            task.add_done_callback(lambda _: stream.end())  # a cancelled call has no response
        return await _send_stream(request, stream, primed=client.front.version >= VERSIONS[0])

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Read a stream on after an event, or wait for messages that belong to no request; there are none."""
        _check_accepts(request, "text/event-stream")
        client = self._find(request)
        last = request.headers.get("Last-Event-ID")
        if last is not None:
            found = client.find_stream(last)
            if found is None:
                raise Problem(404, "There is no such event in this session.")
            return await _send_stream(request, found[0], found[1])
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        await client.closed.wait()
        return response

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """End a session."""
        await self._clients.delete(self._find(request), abort=True)
        return web.Response(status=204)

    def _find(self, request: web.Request) -> HttpSession:
        version = request.headers.get("MCP-Protocol-Version")
        if version is not None and version not in VERSIONS:
            raise Problem(400, f"The protocol version {version!r:.50} is not supported.")
        id = request.headers.get(SESSION_HEADER)
        if id is None:
            raise Problem(400, f"Send initialize first, and then its {SESSION_HEADER} with every request.")
        client = self._clients.find(current_user.get(), id)
        if client is None:
            raise Problem(404, "This session has ended. Send initialize again.")
        return client


async def _read_message(request: web.Request) -> Params:
    if request.content_type != "application/json":
        raise Problem(415, "The body must be application/json.")
    data = await read_bytes(request)
    check_value_count(data)
    try:
        message: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"The body is no valid JSON: {error}.") from error
    if not isinstance(message, dict):
        raise Problem(400, "A body is one message; batches are not supported.")
    fields = cast(Params, message)
    if not is_message(fields):
        # A request without a usable id would wait for its answer for ever.
        raise Problem(400, "A message needs a 'method', or a 'result' or 'error', and an id is a string or a number.")
    return fields


def _check_accepts(request: web.Request, *kinds: str) -> None:
    accepted = request.headers.get("Accept", "")
    for kind in kinds:
        if kind not in accepted and f"{kind.partition('/')[0]}/*" not in accepted and "*/*" not in accepted:
            raise Problem(406, f"The client must accept {' and '.join(kinds)}.")


async def _answer_json(client: HttpSession, message: Params) -> web.Response:
    stream = Stream(0, message.get("id"))
    current_stream.set(stream)
    client.front.peer.take(message)
    data = b""
    async for _, found in stream.read():
        data = found
    return web.Response(body=data, content_type="application/json")


async def _send_stream(request: web.Request, stream: Stream, after: int = 0, *, primed: bool = False) -> Any:
    response = web.StreamResponse(headers=_SSE)
    await response.prepare(request)
    if primed:
        # An id at once, so that a client can come back even if it has seen no message.
        await response.write(f"id: {stream.number}-0\nretry: 1000\ndata: \n\n".encode())
    async for id, data in stream.read(after):
        frame = b"id: %b\nevent: message\ndata: %b\n\n" % (id.encode(), data) if id else _SIGN_OF_LIFE
        await response.write(frame)
    await response.write_eof()
    return response
