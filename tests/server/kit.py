"""What the tests of the server share: a server on a real socket, a client with its token, a reader of its events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse, ClientSession

from steersman import Agent, tool
from steersman.server import Server
from steersman.server.http.connections import listen
from steersman.testing import ScriptedModel, answer, call

Event = dict[str, Any]


@tool(needs_approval=True)
def deploy(target: str) -> str:
    """Deploy."""
    return f"deployed to {target}"


def make_agent(*script: Any, tools: Any = (deploy,), **options: Any) -> Callable[[], Agent]:
    """A factory of agents that play this script."""
    return lambda: Agent(ScriptedModel(*script).model, tools=tools, **options)


def make_deployer() -> Agent:
    """An agent that asks once before it deploys."""
    return make_agent(answer("Let me see. ", call("deploy", target="live")), "Done.", "And again.")()


@dataclass
class Client:
    """A client of one server."""

    http: ClientSession
    url: str
    token: str

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request; returns the status and the decoded body."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Authorization": f"Bearer {self.token}", **names}
        async with self.http.request(method, self.url + path, json=body, headers=sent) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def create(self) -> str:
        """The id of a new session."""
        status, body = await self.send("POST", "/sessions")
        assert status == 201
        return body["id"]

    async def act(self, id: str, action: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """Act on a session; returns the receipt."""
        status, receipt = await self.send("POST", f"/sessions/{id}/{action}", body or {}, **headers)
        assert status == 202, receipt
        return receipt

    @asynccontextmanager
    async def watch(self, id: str, after: str | None = None) -> AsyncGenerator[AsyncIterator[tuple[str, Event]]]:
        """The events of a session with their positions."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if after is not None:
            headers["Last-Event-ID"] = after
        async with self.http.get(f"{self.url}/sessions/{id}/events", headers=headers) as response:
            assert response.status == 200, await response.text()
            yield read_sse(response)

    async def collect(self, id: str, until: str = "agent_end", after: str | None = None) -> list[tuple[str, Event]]:
        """The events up to one of this type."""
        found: list[tuple[str, Event]] = []
        async with self.watch(id, after) as events:
            async for position, event in events:
                found.append((position, event))
                if event["type"] == until:
                    return found
        raise AssertionError(f"the stream ended without {until}: {[event['type'] for _, event in found]}")

    async def find(self, id: str, kind: str, after: str | None = None) -> Event:
        """The next event of this type."""
        return (await self.collect(id, kind, after))[-1][1]


async def read_sse(response: ClientResponse) -> AsyncIterator[tuple[str, Event]]:
    """The server-sent events of a response."""
    position = ""
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "id":
            position = value
        elif name == "data":
            yield position, json.loads(value)


@asynccontextmanager
async def run_server(agents: Any = make_deployer, **options: Any) -> AsyncGenerator[Client]:
    """A client of a server on a free port."""
    async with run_listening(Server(agents, **options)) as client:
        yield client


@asynccontextmanager
async def run_listening(server: Server) -> AsyncGenerator[Client]:
    """A client of this server, on a free port."""
    async with (
        listen(server.app, server.connections, "127.0.0.1", 0, shutdown_seconds=0.1) as (host, port),
        ClientSession() as http,
    ):
        yield Client(http, f"http://{host}:{port}", server.token)


@dataclass
class Gate:
    """A tool that waits until it is opened, for tests that look at a run in the middle."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def make_tool(self) -> Any:
        """The tool."""

        @tool
        async def wait() -> str:
            """Wait."""
            self.reached.set()
            await self.opened.wait()
            return "waited"

        return wait


def sort_key(position: str) -> tuple[int, int]:
    """The order of positions."""
    record, _, number = position.partition(".")
    return int(record), int(number) if number else -1


def check_order(events: Sequence[tuple[str, Event]]) -> None:
    """Positions increase strictly, and no record is left out."""
    keys = [sort_key(position) for position, _ in events]
    assert keys == sorted(set(keys))
    records = [record for record, number in keys if number == -1]
    assert records == list(range(records[0], records[-1] + 1))
