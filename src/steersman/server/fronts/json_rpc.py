"""JSON-RPC 2.0 between two programs that both ask: requests, answers and notifications, one message at a time.

Each request gets exactly one answer. Messages are begun in the order in which they came, so a notification finds what
the request before it has begun; none waits for another to end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from steersman.types.content import replace_surrogates_in_json
from steersman.types.errors import describe_exception
from steersman.types.guards import is_instance

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_FOUND: Final = -32002

RequestId: TypeAlias = "str | int | float | None"
Params: TypeAlias = dict[str, Any]
ParamsT = TypeVar("ParamsT")

_log = logging.getLogger("steersman.server")
_encoder = msgspec.json.Encoder()


class RpcError(Exception):
    """An error as the other side gets it, or as it gave it."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class NoAnswer(Exception):
    """Raised by a request that was cancelled, where the protocol says that it gets no answer."""


class Outlet(Protocol):
    """Where messages go."""

    def write(self, data: bytes, /) -> None:
        """Queue some bytes; never waits."""
        ...

    async def wait_for_space(self) -> None:
        """Wait while too much is queued."""
        ...


class Peer:
    """One end of a connection. `respond` answers a request; `observe` takes a notification and answers nothing.

    `send` gets each message as an object; `is_closed` says that no more can be sent.
    """

    def __init__(
        self,
        send: Callable[[Params], None],
        respond: Callable[[str, Params, RequestId], Awaitable[Any]],
        observe: Callable[[str, Params], Awaitable[None]],
    ) -> None:
        self.is_closed = False
        self._send = send
        self._respond = respond
        self._observe = observe
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    # Incoming

    def receive(self, data: bytes) -> None:
        """Take one message; what is malformed is answered with an error."""
        try:
            message = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.refuse(PARSE_ERROR, f"The message is no valid JSON: {error}.")
            return
        self.take(message)

    def take(self, message: Any) -> asyncio.Task[None] | None:
        """Take one decoded message; returns the task that works on it, if there is one."""
        if not isinstance(message, dict):
            self.refuse(INVALID_REQUEST, "A message must be one JSON object; batches are not supported.")
            return None
        fields = cast(Params, message)
        id, method = fields.get("id"), fields.get("method")
        params = cast("Params | None", fields.get("params"))
        if not is_message(fields):
            self.refuse(INVALID_REQUEST, "A message needs a 'method', and an 'id' that is a string or a number.")
        elif not isinstance(method, str):
            self._settle(id, fields)
        elif not is_instance(params, dict | None):
            if "id" in fields:
                self.refuse(INVALID_PARAMS, f"The params of {method!r:.100} must be an object.", id)
        elif "id" in fields:
            return self._begin(self._answer(id, method, params or {}))
        else:
            return self._begin(self._notice(method, params or {}))
        return None

    def refuse(self, code: int, text: str, id: RequestId = None) -> None:
        """Answer a message that cannot be understood."""
        self._write({"id": id, "error": {"code": code, "message": text}})

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answer(self, id: RequestId, method: str, params: Params) -> None:
        try:
            result = await self._respond(method, params, id)
        except NoAnswer:
            return
        except RpcError as error:
            fields: Params = {"code": error.code, "message": error.message}
            self._write({"id": id, "error": fields if error.data is None else {**fields, "data": error.data}})
        except Exception as error:  # noqa: BLE001  # whatever a method raises, the request gets its answer
            _log.error("%s failed: %s", method, describe_exception(error), exc_info=error)
            self.refuse(INTERNAL_ERROR, f"{method} failed: {describe_exception(error)}", id)
        else:
            self._write({"id": id, "result": result})

    async def _notice(self, method: str, params: Params) -> None:
        try:
            await self._observe(method, params)
        except Exception as error:  # noqa: BLE001  # a notification has no answer
            _log.warning("The notification %r was ignored: %s", method, describe_exception(error))

    def _settle(self, id: object, fields: Params) -> None:
        future = self._asked.pop(id, None) if isinstance(id, str) else None
        if future is None or future.done():
            return  # a second answer, or one that is no longer awaited
        error: Any = fields.get("error")
        if isinstance(error, dict):
            found = cast(Params, error)
            code: Any = found.get("code")
            number = code if isinstance(code, int) else INTERNAL_ERROR
            future.set_exception(RpcError(number, str(found.get("message", "")), found.get("data")))
        else:
            future.set_result(fields.get("result"))

    # Outgoing

    async def request(self, method: str, params: Params) -> Any:
        """Ask the other side; raises `RpcError` for its error, `ConnectionError` if it is gone."""
        if self.is_closed:
            raise ConnectionError("The connection is closed.")
        self._count += 1
        id = f"steersman-{self._count}"
        future = self._asked[id] = asyncio.get_running_loop().create_future()
        self._write({"id": id, "method": method, "params": params})
        try:
            return await future
        finally:
            self._asked.pop(id, None)

    def notify(self, method: str, params: Params) -> None:
        """Tell the other side."""
        self._write({"method": method, "params": params})

    def _write(self, message: Params) -> None:
        if not self.is_closed:
            self._send({"jsonrpc": "2.0", **message})

    # The end

    async def close(self) -> None:
        """Fail what was asked, and end what goes on here."""
        self.is_closed = True
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectionError("The connection is closed."))
                future.exception()  # it may have no reader left
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def finish(self) -> None:
        """Wait for what goes on here."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            await asyncio.wait(tasks)


def is_message(fields: Params) -> bool:
    """Whether it is a request, a notification or an answer, with an id that can be answered."""
    id, method = fields.get("id"), fields.get("method")
    if not isinstance(id, str | int | float | None) or isinstance(id, bool):
        return False
    return isinstance(method, str) or (method is None and ("result" in fields or "error" in fields))


def encode_line(message: Params) -> bytes:
    """A message as a line; lone surrogates are replaced."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(replace_surrogates_in_json(message)) + b"\n"


def read_params(params: Params, kind: type[ParamsT]) -> ParamsT:
    """The parameters of a request; raises `RpcError` if they are not as expected. Unknown ones are ignored."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"The parameters are not as expected: {error}.") from error
