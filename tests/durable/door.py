"""A way to a Temporal server that can be shut, so that one process is cut off from it and others are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS, _SETTINGS_SEEN = b"\0\0\0\4\0\0\0\0\0", b"\0\0\0\4\1\0\0\0\0"
_HEADERS = 1


class Door:
    """Passes bytes on to a server. Shut, it takes connections and passes nothing on: a partition, not a refusal."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._server = host, int(port)
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.refusals: list[str] = []
        """What the next connections are told in place of an answer."""
        self.address = ""

    def shut(self) -> None:
        """Pass nothing on."""
        self._open.clear()

    def open(self) -> None:
        """Pass on again, also what came meanwhile."""
        self._open.set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        self._writers.add(writer)
        if self.refusals:
            await _refuse(reader, writer, self.refusals.pop(0))
            return
        there, out = await asyncio.open_connection(*self._server)
        self._writers.add(out)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass(reader, out))
            group.create_task(self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other side is gone
        writer.close()

    def close(self) -> None:
        """End all connections."""
        self.open()
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def door_to(address: str) -> AsyncGenerator[Door]:
    """A door to a server, with an address of its own."""
    door = Door(address)
    async with await asyncio.start_server(door.take, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        door.address = f"{host}:{port}"
        try:
            yield door
        finally:
            server.close()
            door.close()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reason: str) -> None:
    """Answer the first call with the gRPC status UNAVAILABLE."""
    await reader.readexactly(len(_PREFACE))
    writer.write(_SETTINGS + _SETTINGS_SEEN)
    while True:
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3]))
        if head[3] == _HEADERS:
            break
    fields = {"content-type": "application/grpc", "grpc-status": "14", "grpc-message": reason}
    # HPACK: ":status 200" is the 8th entry of the static table, the others are literals that are not indexed.
    block = b"\x88" + b"".join(b"\0" + _encode(name) + _encode(value) for name, value in fields.items())
    ends = b"\5"  # the stream and its headers
    writer.write(len(block).to_bytes(3) + bytes([_HEADERS]) + ends + head[5:] + block)
    await writer.drain()


def _encode(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()
