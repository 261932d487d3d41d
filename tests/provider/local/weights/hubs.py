"""A hub on loopback that serves one file and can be told to misbehave, and models whose sources are such hubs."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from steersman.provider.local.weights.cache import LocalModel, Sources, Wheel

MEGA = 1024 * 1024


def some_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes that look like the beginning of a model and cannot be packed."""
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


def model_of(data: bytes, *, hub: str | None = None, wheels: tuple[Wheel, ...] = (), name: str = "tiny") -> LocalModel:
    """A model that is these bytes."""
    return LocalModel(name, f"{name}.gguf", "MIT", len(data), sha256(data).hexdigest(), Sources(hub, wheels))


@dataclass(slots=True)
class Hub:
    """A server for one file. It closes after `cut` bytes of a body, or stops after `hang` until let go."""

    data: bytes
    etag: str = '"one"'
    ranges: bool = True
    status: int = 200
    location: str | None = None
    length: bool = True
    cuts: list[int] = field(default_factory=list[int])
    hang: int | None = None
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    """The method and address of each request, and the range of bytes it asked for."""
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    def ranges_asked(self) -> list[str | None]:
        """The ranges that were asked for, in order."""
        return [wanted for _, wanted in self.asked]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on one connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            wanted = re.search(r"^range: bytes=(\d+)-\r$", head, re.IGNORECASE | re.MULTILINE)
            self.asked.append((head.partition(" HTTP")[0], f"{wanted[1]}-" if wanted else None))
            start = int(wanted[1]) if wanted and self.ranges else 0
            writer.write(self._head(start).encode())
            await self._send(writer, self.data[start:] if self.location is None else b"")
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _head(self, start: int) -> str:
        if self.location is not None:
            return f"HTTP/1.1 302 Found\r\nLocation: {self.location}\r\nContent-Length: 0\r\n\r\n"
        if start and self.status == 200:
            lines = ["HTTP/1.1 206 Partial Content"]
            lines.append(f"Content-Range: bytes {start}-{len(self.data) - 1}/{len(self.data)}")
        else:
            lines = [f"HTTP/1.1 {self.status} Whatever"]
        lines += [f"ETag: {self.etag}"] if self.etag else []
        lines += [f"Content-Length: {len(self.data) - start}"] if self.length else []
        return "\r\n".join([*lines, "Connection: close", "\r\n"])

    async def _send(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        if self.cuts:
            body = body[: self.cuts.pop(0)]
        if self.hang is not None:
            writer.write(body[: self.hang])
            await writer.drain()
            self.hanging.set()
            await self.let_go.wait()
            body = body[self.hang :]
        writer.write(body)
        await writer.drain()


@asynccontextmanager
async def serving(hub: Hub) -> AsyncGenerator[Hub, None]:
    """The hub, at its address."""
    async with listening(hub.answer) as port:
        hub.url = f"http://127.0.0.1:{port}/tiny.gguf"
        yield hub


@asynccontextmanager
async def listening(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object],
) -> AsyncGenerator[int, None]:
    """A port on loopback where each connection is given to `answer`; all of them are over afterwards."""
    tasks: set[asyncio.Task[object]] = set()
    writers: list[asyncio.StreamWriter] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def attend() -> object:
            found = answer(reader, writer)
            return await found if asyncio.iscoroutine(found) else found

        writers.append(writer)
        tasks.add(asyncio.ensure_future(attend()))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()
