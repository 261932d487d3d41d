"""The base of the strict servers: a socket in a thread of its own, a script, faults, and a record of the requests.

A protocol is a subclass: `routes` are its paths, `validate` refuses what the real API refuses, and `render`,
`render_end`, `render_error` and `build_error_body` write a scripted turn in the protocol. The server runs its own event
loop in its own thread, so it does not disturb the loop under test; enter it with `async with` or `with`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, ClassVar, Self, cast
from weakref import WeakKeyDictionary

import msgspec
from aiohttp import web

from steersman.provider.scripted.script import Turn, to_turn
from steersman.testing.servers.exchange import (
    STATUS,
    Answer,
    Break,
    Delivery,
    DeltaBytes,
    Outcome,
    Received,
    Reply,
    ScriptEntry,
    encode_arguments,
    split_text,
    sse,
)
from steersman.types.content import ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.model import Model
from steersman.types.usage import Usage

__all__ = ["Delivery", "Received", "Reply", "DeltaBytes", "StrictServer", "split_text", "sse", "encode_arguments"]

_MAX_BODY_BYTES = 64 * 1024 * 1024


class StrictServer(ABC):
    """A server that plays one script entry per valid request, and refuses an invalid one as the real API does.

    `requests` holds the parsed bodies of all requests, `raw` the whole requests. `key` is the only accepted key
    (`None`: any), `usage` is the default usage of turns, `repeat_last` repeats the last entry forever, `strict=False`
    accepts any request. `chunk` and `pace` apply to every turn that is not a `Delivery`.
    """

    provider: ClassVar[str]
    """The provider that `model()` names."""
    routes: ClassVar[tuple[str, ...]]
    """The paths that take a POST, as aiohttp writes them: `/v1/messages`, `/models/{model}:generate`."""
    prefix: ClassVar[str] = ""
    """The end of the base URL, such as `/v1`."""
    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    noise: ClassVar[bytes] = sse("This is not of the protocol.")
    """An event that no client can decode."""

    def __init__(
        self,
        *script: Answer,
        key: str | None = "test-key",
        repeat_last: bool = False,
        strict: bool = True,
        usage: Usage | None = None,
        chunk: int | None = None,
        pace: float | None = None,
    ) -> None:
        self.key = key
        self.requests: list[Any] = []
        self.raw: list[Received] = []
        self.connections = 0
        self._script = list(script)
        self._played = 0
        self._calls = 0
        self._repeat_last = repeat_last
        self._strict = strict
        self._usage = usage
        self._chunk = chunk
        self._pace = pace
        self._port = 0
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    def validate(self, received: Received) -> Reply | None:
        """Return the real API's answer to an invalid request, or `None`; `self.refusal` builds one."""

    @abstractmethod
    def render(self, turn: Turn, received: Received) -> Iterable[bytes]:
        """Render the stream up to the end of the last block, one piece per event, deltas as `DeltaBytes`."""

    @abstractmethod
    def render_end(self, turn: Turn, received: Received) -> Iterable[bytes]:
        """Render what follows the last block: stop reason, usage, the terminal event."""

    @abstractmethod
    def build_error_body(self, status: int, message: str, code: str | None = None) -> Any:
        """Build the JSON of an error."""

    @abstractmethod
    def render_error(self, info: ErrorInfo) -> bytes:
        """Render an error inside a stream, as one event."""

    def build_headers(self, received: Received) -> Mapping[str, str]:
        """Build the headers of every response, such as the request id."""
        del received
        return {}

    def make_call_id(self, number: int) -> str:
        """Make the id of the `number`-th call without an id; ids that occur in the request are skipped."""
        return f"call_{number}"

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://127.0.0.1:{self._port}{self.prefix}"

    def model(self, id: str = "test-model", **fields: Any) -> Model:
        """Return a model that this server serves."""
        given: dict[str, Any] = {"base_url": self.url, "api_key": self.key, **fields}
        return Model(self.provider, id, **given)

    def refusal(
        self, status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Build an error reply in the form of this protocol."""
        return Reply(status, self.build_error_body(status, message, code), headers or {})

    def say(self, *script: Answer) -> None:
        """Append entries to the script."""
        self._script.extend(script)

    @property
    def left(self) -> int:
        """The number of script entries that were not played yet."""
        return max(0, len(self._script) - self._played)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __enter__(self) -> Self:
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name=type(self).__name__, daemon=True)
        self._thread.start()
        self._port = ready.result(timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        loop, thread, stop = self._loop, self._thread, self._stop
        if loop is not None and thread is not None and stop is not None:
            loop.call_soon_threadsafe(stop.set)
            thread.join(timeout=30)
        self._loop = self._thread = None

    def _serve(self, ready: Future[int]) -> None:
        try:
            asyncio.run(self._listen(ready))
        except BaseException as failure:
            if ready.done():
                raise
            ready.set_exception(failure)

    async def _listen(self, ready: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        stop = self._stop = asyncio.Event()
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        for route in self.routes:
            app.router.add_post(route, self._answer)
        app.router.add_route("*", "/{path:.*}", self._answer_unknown)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.001)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
            await site.start()
            ready.set_result(cast(int, runner.addresses[0][1]))
            await stop.wait()
        finally:
            await runner.cleanup()

    async def _answer_unknown(self, request: web.Request) -> web.StreamResponse:
        received = await self._receive(request)
        received.outcome.set_result("answered")
        return self._build_response(self.answer_unknown_path(received), received)

    def answer_unknown_path(self, received: Received) -> Reply:
        """Answer a request to an unknown path."""
        return self.refusal(404, f"Not found: {received.method} {received.path}")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        received = await self._receive(request)
        outcome: Outcome = "left"
        try:
            said = (self.validate(received) if self._strict else None) or await self._take_entry(received)
            delivery = self._prepare_delivery(said, received)
            if isinstance(delivery, Reply):
                response = self._build_response(delivery, received)
                outcome = "answered"
                return response
            response = await self._send(delivery, request, received)
            outcome = "broken" if delivery.ending != "end" else "answered"
            return response
        finally:
            if not received.outcome.done():
                received.outcome.set_result(outcome)

    async def _receive(self, request: web.Request) -> Received:
        body = await request.read()
        try:
            parsed: Any = msgspec.json.decode(body) if body else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            parsed = None
        received = Received(
            request.method,
            request.path,
            dict(request.match_info),
            dict(request.query),
            {name.lower(): value for name, value in request.headers.items()},
            body,
            parsed,
            self._number_connection(request.transport),
        )
        self.raw.append(received)
        self.requests.append(parsed)
        return received

    def _number_connection(self, transport: object) -> int:
        if transport not in self._numbers:
            self.connections += 1
            self._numbers[transport] = self.connections
        return self._numbers[transport]

    async def _take_entry(self, received: Received) -> ScriptEntry:
        index = self._played
        self._played += 1
        if index >= len(self._script) and not (self._repeat_last and self._script):
            length = len(self._script)
            return self.refusal(500, f"The script has {length} entries, but this is request number {index + 1}.")
        entry = self._script[min(index, len(self._script) - 1)]
        if not callable(entry):
            return entry
        said = entry(received)
        return await said if isinstance(said, Awaitable) else said

    def _prepare_delivery(self, said: ScriptEntry, received: Received) -> Delivery | Reply:
        """Turn a script entry into a reply, or a delivery whose turn is a `Turn` or bytes."""
        if isinstance(said, Reply):
            return said
        delivery = said if isinstance(said, Delivery) else Delivery(said, chunk=self._chunk, pace=self._pace)
        if isinstance(delivery.turn, bytes):
            return delivery
        turn = _replace_client_errors(self._complete_turn(to_turn(delivery.turn), received))
        if isinstance(turn.ending, ErrorInfo) and not turn.blocks and turn.after is None and not _is_noise(turn.ending):
            return self.build_scripted_error(turn.ending)
        if isinstance(turn.ending, BaseException) and not turn.blocks and turn.after is None:
            return replace(delivery, turn=b"", ending="reset", head=False)
        ending = delivery.ending
        if ending == "end":
            ending = "stall" if turn.ending == "stall" else "reset" if isinstance(turn.ending, BaseException) else "end"
        pace = delivery.pace if turn.pace is None else turn.pace
        return replace(delivery, turn=turn, ending=ending, pace=pace)

    def build_scripted_error(self, info: ErrorInfo) -> Reply:
        """Build the HTTP response for a scripted error that comes before any delta."""
        headers = {} if info.retry_after is None else {"retry-after": f"{info.retry_after:g}"}
        if info.retryable is not None:
            headers["x-should-retry"] = "true" if info.retryable else "false"
        return self.refusal(info.status or STATUS[info.kind], info.message, None, headers)

    def _complete_turn(self, turn: Turn, received: Received) -> Turn:
        if turn.usage is None and self._usage is not None:
            turn = replace(turn, usage=self._usage)
        if all(not isinstance(block, ToolCall) or block.id for block in turn.blocks):
            return turn
        return replace(turn, blocks=tuple(self._number_call(block, received) for block in turn.blocks))

    def _number_call(self, block: Any, received: Received) -> Any:
        if not isinstance(block, ToolCall) or block.id:
            return block
        while True:
            self._calls += 1
            id = self.make_call_id(self._calls)
            # Real ids never collide, so ids that occur in the request are skipped; unless a subclass always makes the
            # same id.
            if f'"{id}"'.encode() not in received.body or id == self.make_call_id(self._calls + 1):
                return msgspec.structs.replace(block, id=id)

    def render_stream(self, turn: Turn, received: Received) -> list[bytes]:
        """Render the pieces of a whole stream, up to its scripted error or cut."""
        given: list[bytes] = []
        shown = 0
        for piece in self.render(turn, received):
            if isinstance(piece, DeltaBytes):
                if shown == turn.after:
                    break
                shown += 1
            given.append(piece)
        if turn.ending == "done":
            given.extend(self.render_end(turn, received))
        elif isinstance(turn.ending, ErrorInfo):
            given.append(self.noise if _is_noise(turn.ending) else self.render_error(turn.ending))
        return given

    def _build_response(self, reply: Reply, received: Received) -> web.Response:
        headers = {**self.build_headers(received), **reply.headers}
        body = reply.body
        kind = "text/plain" if isinstance(body, str | bytes) else "application/json"
        if isinstance(body, str):
            body = body.encode()
        elif not isinstance(body, bytes):
            body = msgspec.json.encode(body)
        if "content-type" not in {name.lower() for name in headers}:
            headers["content-type"] = kind
        return web.Response(status=reply.status, body=body, headers=headers)

    async def _send(self, delivery: Delivery, request: web.Request, received: Received) -> web.StreamResponse:
        headers = {
            "content-type": self.content_type,
            **self.build_headers(received),
            **delivery.headers,
        }
        response = web.StreamResponse(status=delivery.status, headers=headers)
        if not delivery.head:
            await _break_connection(request, delivery.ending)
            return response
        response.enable_chunked_encoding()
        await response.prepare(request)
        turn = delivery.turn
        given = [turn] if isinstance(turn, bytes) else self.render_stream(cast(Turn, turn), received)
        for piece in _split_writes(given, delivery.at, delivery.chunk):
            if delivery.pace is not None:
                await asyncio.sleep(delivery.pace)
            await response.write(piece)
        if delivery.ending != "end":
            await _break_connection(request, delivery.ending)
        return response


def _replace_client_errors(turn: Turn) -> Turn:
    """Replace an error that no server reports, such as a broken connection, with what the client sees."""
    error = turn.ending
    if not isinstance(error, ErrorInfo) or error.status is not None:
        return turn
    match error.kind:
        case "network" if not turn.blocks and turn.after is None:
            return replace(turn, ending=ConnectionResetError(error.message))
        case "network" | "incomplete":
            return replace(turn, ending="cut")
        case _:
            return turn


def _is_noise(error: ErrorInfo) -> bool:
    return error.kind == "protocol" and error.status is None


def _split_writes(given: Sequence[bytes], at: int | None, chunk: int | None) -> list[bytes]:
    """Return the pieces up to a byte, or the same bytes in writes of one size."""
    if at is None and chunk is None:
        return [piece for piece in given if piece]
    whole = b"".join(given)[:at]
    if chunk is not None:
        return [whole[start : start + chunk] for start in range(0, len(whole), chunk)]
    kept: list[bytes] = []
    for piece in given:
        kept.append(whole[: len(piece)])
        whole = whole[len(piece) :]
    return [piece for piece in kept if piece]


async def _break_connection(request: web.Request, ending: Break) -> None:
    transport = request.transport
    if ending == "stall":
        # Until the client disconnects, which cancels this task.
        await asyncio.get_running_loop().create_future()
    if transport is None:
        return
    if ending == "reset":
        sock = transport.get_extra_info("socket")
        # A linger of zero makes the close a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
