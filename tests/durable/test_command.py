"""`steersman worker` and `steersman serve --temporal` as real processes: the server starts no run, the worker does."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from tests.durable.kit import Program, new_queue, running
from tests.session.database import Database
from tests.session.kit import records

from steersman.cli.exits import UserError
from steersman.cli.serving.worker import load_agents
from steersman.context.repair import UNKNOWN
from steersman.durable import Client
from steersman.session import Session

pytestmark = pytest.mark.real_time
CLERK = """
from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call

@tool(needs_approval=True)
def deploy() -> str:
    return "deployed"

def clerk():
    def play(request):
        text = request.messages[-1].text
        if text == "How hard?":
            return answer(f"{model.requests[-1][1].thinking_level}")
        return answer(call("deploy")) if text == "Deploy." else answer(text)

    model = ScriptedModel(play, repeat_last=True)
    return Agent(model.model, tools=[deploy])
"""

STEPPER = """
import asyncio
from pathlib import Path
from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call

@tool
async def step(number: int) -> str:
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{number}\\n")
    if number == 2:
        print("holding", flush=True)
        await asyncio.Event().wait()
    return f"did {number}"

def play(request):
    number = sum(message.role == "assistant" for message in request.messages)
    return answer(call("step", number=number)) if number < 5 else answer("All done.")

def stepper():
    return Agent(ScriptedModel(play, repeat_last=True).model, tools=[step])
"""


def make_url(postgres: Database) -> str:
    """The database as a URL."""
    host, _ = (part.partition("=")[2] for part in postgres.server.split()[:2])
    return f"postgresql://postgres@/postgres?host={quote(host)}&options={quote(f'-csearch_path={postgres.name}')}"


class Page:
    """What a page does, without a browser."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self._client = client
        self._url, _, token = url.partition("/?token=")
        self._headers = {"Authorization": f"Bearer {token}"}

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the value of an answer."""
        sent = {**self._headers, **headers}
        async with self._client.post(f"{self._url}{path}", json=body or {}, headers=sent) as response:
            return response.status, await response.json(content_type=None)

    async def watch(self, id: str, until: str) -> list[Any]:
        """The events of a session, up to one of this type."""
        found: list[Any] = []
        async with (
            asyncio.timeout(60),
            self._client.get(f"{self._url}/sessions/{id}/events?after=0", headers=self._headers) as response,
        ):
            async for line in response.content:
                if line.startswith(b"data:"):
                    found.append(json.loads(line[5:]))
                    if found[-1]["type"] == until:
                        return found
        raise AssertionError(f"No {until!r}: {found}")

    async def run_thread(self, id: str, text: str) -> list[Any]:
        """What a client of AG-UI is told of a run."""
        body = {"threadId": id, "runId": "r", "messages": [{"id": "m", "role": "user", "content": text}]}
        async with (
            asyncio.timeout(60),
            self._client.post(f"{self._url}/agui", json=body, headers=self._headers) as response,
        ):
            assert response.status == 200, await response.text()
            return [json.loads(line[5:]) async for line in response.content if line.startswith(b"data:")]

    async def call_tool(self, prompt: str) -> str:
        """The result of the tool that is the agent, for a client of MCP that cannot ask its user."""
        headers = {**self._headers, "Accept": "application/json, text/event-stream"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        for method, params in (
            ("initialize", hello),
            ("tools/call", {"name": "run", "arguments": {"prompt": prompt}}),
        ):
            body = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            async with (
                asyncio.timeout(60),
                self._client.post(f"{self._url}/mcp", json=body, headers=headers) as response,
            ):
                headers.setdefault("Mcp-Session-Id", response.headers.get("Mcp-Session-Id", ""))
                data = await response.text()
        [message] = [json.loads(line[5:]) for line in data.splitlines() if line.startswith("data: {")]
        return message["result"]["content"][0]["text"]


async def test_a_server_has_its_sessions_run_by_a_worker(postgres: Database, temporal: str, tmp_path: Path) -> None:
    """durable.md U6: prompts and steering over the API, AG-UI and MCP; the page follows the worker."""
    queue, store = new_queue(), postgres.store()
    (tmp_path / "agents_of_mine.py").write_text(CLERK)
    where = ("--store", make_url(postgres), "--temporal", temporal, "--task-queue", queue)
    async with (
        running("steersman", "worker", *where, "--agent", "agents_of_mine:clerk", home=tmp_path) as worker,
        running("steersman", "serve", "--port", "0", *where, home=tmp_path) as server,
        aiohttp.ClientSession() as client,
    ):
        await worker.wait_for("Running sessions of the task queue")
        page = Page(client, await server.wait_for("http://"))
        assert (await page.post("/sessions", {"agent": "nope", "title": "Mine"}))[0] == 201  # a worker may have it
        _, made = await page.post("/sessions")
        id = made["id"]
        said = [await page.post(f"/sessions/{id}/prompt", {"content": "Hi."}, **{"Idempotency-Key": "k"}) for _ in "12"]
        assert said[0] == said[1]
        assert said[0][0] == 202, said
        events = await page.watch(id, "agent_end")
        texts = [event["message"]["content"][0]["text"] for event in events if event["type"] == "message_end"]
        assert texts == ["Hi.", "Hi."]
        assert (await page.post(f"/sessions/{id}/rerun"))[0] == 409
        assert (await page.post(f"/sessions/{id}/approve", {"id": "approval_none"}))[0] == 404
        async with Client(store, temporal, task_queue=queue) as durable:
            await durable.start("without", "Ho.")  # the first agent of the command is the default one
            assert (await durable.wait("without", timeout=60)).text == "Ho."
            assert (await page.post("/sessions/without/configure", {"thinking_level": "deep"}))[0] == 422
            assert (await page.post("/sessions/without/configure", {"thinking_level": "high"}))[0] == 202
            await durable.start("without", "How hard?")
            assert (await durable.wait("without", timeout=60)).text == "high"
        assert [frame["delta"] for frame in await page.run_thread("t", "Hello.") if "delta" in frame] == ["Hello."]
        assert await page.call_tool("Hello.") == "Hello."
        assert "The client cannot ask its user." in await page.call_tool("Deploy.")
        await _stop(worker)
        await _stop(server)
    types = [record.type for record in records(store, id)]
    assert (types.count("run_start"), types.count("accepted")) == (1, 1)


async def test_a_worker_that_gets_sigterm_hands_its_run_over(postgres: Database, temporal: str, tmp_path: Path) -> None:
    """durable.md U1: at once and not after a heartbeat; nothing is lost, and no step is taken twice."""
    queue, store = new_queue(), postgres.store()
    (tmp_path / "agents_of_mine.py").write_text(STEPPER)
    where = ("--store", make_url(postgres), "--temporal", temporal, "--task-queue", queue)
    command = ("steersman", "worker", *where, "--agent", "agents_of_mine:stepper")
    async with running(*command, home=tmp_path) as first, running(*command, home=tmp_path) as second:
        await first.wait_for("Running sessions of the task queue")
        await second.wait_for("Running sessions of the task queue")
        async with Client(store, temporal, task_queue=queue, heartbeat=600) as durable:
            await durable.start("stopped", "Begin.")
            holds = [asyncio.create_task(program.wait_for("holding")) for program in (first, second)]
            await asyncio.wait(holds, return_when=asyncio.FIRST_COMPLETED)
            await _stop(first if holds[0].done() else second)
            assert (await durable.wait("stopped", timeout=60)).text == "All done."
        for hold in holds:
            hold.cancel()
        await asyncio.wait(holds)
    assert (tmp_path / "ledger").read_text().split() == ["0", "1", "2", "3", "4"]
    with Session.open(store, "stopped", write=False) as session:
        told = [message.text for message in session.messages if message.role != "assistant"]
    assert told == ["Begin.", "did 0", "did 1", UNKNOWN, "did 3", "did 4"]
    types = [record.type for record in records(store, "stopped")]
    assert (types.count("run_end"), types.count("accepted")) == (1, 1)


async def _stop(program: Program) -> None:
    program.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(program.process.wait(), 30) == 0


WORKER = ["worker", "--store", "{db}", "--agent", "os:getcwd", "--temporal"]
REFUSED = "Temporal cannot be reached at '127.0.0.1:1': Connection refused. Is it host:port, and is it running?"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([*WORKER, "127.0.0.1:1"], REFUSED),
        ([*WORKER, "http://127.0.0.1:1"], "named by host:port, without a scheme, got 'http://127.0.0.1:1'"),
        (["serve", "--store", "{db}", "--temporal", "{temporal}", "--namespace", "nope"], "has no namespace 'nope'"),
        (["serve", "--temporal", "{temporal}"], "--temporal needs --store"),
    ],
)
async def test_what_cannot_work_is_told_at_once(
    postgres: Database, temporal: str, tmp_path: Path, command: list[str], said: str
) -> None:
    words = [word.format(db=make_url(postgres), temporal=temporal) for word in command]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "steersman", *words, cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, said in errors.decode()) == (1, True), errors


def test_an_agent_that_cannot_be_loaded_is_told() -> None:
    for place, said in (
        ("os", "--agent is MODULE:NAME, got 'os'"),
        ("nope_:a", "No module named 'nope_'"),
        ("os:nope", "has no attribute 'nope'"),
        ("os:sep", "is no Agent and no function that makes one"),
    ):
        with pytest.raises(UserError, match=re.escape(said)):
            load_agents([place])
    assert list(load_agents(["os:getcwd", "os:getpid"])) == ["default", "getcwd", "getpid"]
