"""What the tests of ACP share: folders with scripted agents, and an editor that keeps every message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.server.fronts.reacting import make_agent

from steersman import Agent
from steersman.server.fronts.acp.editor_sessions import Workplace
from steersman.server.fronts.acp.front import AcpFront
from steersman.server.fronts.acp.prompts import ServerOfClient
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import Store

Message = dict[str, Any]
YES = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
NO = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}


class ScriptedFolders:
    """Folders whose agents are scripted; all sessions are kept in one store."""

    def __init__(self, make: Callable[[Path], Agent] = make_agent, store: Store | None = None) -> None:
        self.home = Path("/")
        self.store = MemoryStore() if store is None else store
        self.stopped: list[Path] = []
        self._make = make

    def find_store(self, cwd: Path) -> Store:
        """The one store."""
        return self.store

    @asynccontextmanager
    async def start(self, cwd: Path, servers: Sequence[ServerOfClient]) -> AsyncGenerator[Workplace]:
        """A new agent."""
        yield Workplace(self._make(cwd), self.store, ["scripted:script", "scripted:echo"])
        self.stopped.append(cwd)


class Editor:
    """The other end of a front: sends what the test says, and keeps what comes."""

    def __init__(self, folders: ScriptedFolders, **options: Any) -> None:
        self.messages: list[Message] = []
        self.front = AcpFront(folders, self, **options)
        self.answer: Callable[[Message], Any] | None = lambda _: YES
        self._count = 0
        self._news = asyncio.Event()

    def write(self, data: bytes) -> None:
        """Take what the front writes: whole lines."""
        assert data.endswith(b"\n")
        assert data.count(b"\n") == 1
        message = json.loads(data)
        assert message["jsonrpc"] == "2.0"
        self.messages.append(message)
        if message.get("method") == "session/request_permission" and self.answer is not None:
            asyncio.get_running_loop().call_soon(self.send, {"id": message["id"], **self._decide(message)})
        self._news.set()

    def _decide(self, message: Message) -> Message:
        assert self.answer is not None
        found = self.answer(message["params"])
        return {"error": found} if "code" in found else {"result": found}

    async def wait_for_space(self) -> None:
        """There is always space; the event loop gets a turn."""
        await asyncio.sleep(0)

    def send(self, message: Message) -> None:
        """Send a message."""
        self.front.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; returns its id."""
        self._count += 1
        self.send({"id": self._count, "method": method, "params": params})
        return self._count

    async def wait_for(self, fits: Callable[[Message], bool], after: int = 0) -> Message:
        """The first message that fits."""
        while True:
            for message in self.messages[after:]:
                if fits(message):
                    return message
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 20)

    async def wait_for_answer(self, id: int) -> Message:
        """The answer to a request."""
        return await self.wait_for(lambda message: message.get("id") == id and "method" not in message)

    async def wait_for_update(self, kind: str, after: int = 0) -> Message:
        """The first update of this kind."""
        found = await self.wait_for(
            lambda one: one.get("method") == "session/update" and one["params"]["update"]["sessionUpdate"] == kind,
            after,
        )
        return found["params"]["update"]

    async def call(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        message = await self.wait_for_answer(self.ask(method, **params))
        assert "result" in message, message
        return message["result"]

    async def start(self, folder: Path) -> str:
        """The id of a new session."""
        await self.call("initialize", protocolVersion=1)
        return (await self.call("session/new", cwd=str(folder), mcpServers=[]))["sessionId"]

    async def say(self, session: str, text: str) -> str:
        """Send a prompt; returns why it stopped."""
        result = await self.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
        return result["stopReason"]

    @property
    def updates(self) -> list[Message]:
        """All updates so far."""
        return [one["params"]["update"] for one in self.messages if one.get("method") == "session/update"]

    def join(self, kind: str) -> str:
        """The text of all chunks of a kind."""
        return "".join(one["content"]["text"] for one in self.updates if one["sessionUpdate"] == kind)

    @property
    def questions(self) -> list[Message]:
        """All requests for permission so far."""
        return [one["params"] for one in self.messages if one.get("method") == "session/request_permission"]

    @property
    def last_statuses(self) -> dict[str, str]:
        """The last status of each tool call."""
        return {one["toolCallId"]: one["status"] for one in self.updates if "status" in one}


@asynccontextmanager
async def open_editor(folders: ScriptedFolders | None = None, **options: Any) -> AsyncGenerator[Editor]:
    """An editor with a front that is closed at the end."""
    editor = Editor(folders or ScriptedFolders(), **options)
    try:
        yield editor
    finally:
        await editor.front.close()
