"""The Starlette and FastAPI applications of docs/web-service.md, on a real Uvicorn (server.md 3)."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from aiohttp import ClientSession
from docs.blocks import ROOT, read_blocks
from tests.server.kit import Client

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call

pytestmark = pytest.mark.real_time
PAGE = ROOT / "docs" / "web-service.md"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the blocks of the document define; what they start by themselves is left out."""
    found: dict[str, Any] = {"__name__": "__main__"}
    for block in read_blocks(PAGE):
        code = "\n".join(line for line in block.code.splitlines() if not line.startswith("asyncio.run("))
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, str(PAGE), "exec"), found)
    return found


@asynccontextmanager
async def run_uvicorn(app: Any) -> AsyncGenerator[str]:
    """The URL of an application on a real socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="warning", lifespan="on", http="h11", ws="none")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            # The socket listens already: a request waits until Uvicorn has started.
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def read_events(http: ClientSession, url: str, text: str) -> AsyncGenerator[dict[str, Any]]:
    """The events of a prompt."""
    async with http.post(url, json={"prompt": text}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
async def test_a_run_is_streamed_and_steered_and_ends_when_its_client_leaves(
    framework: str, names: dict[str, Any]
) -> None:
    """Events in order, 409 during a run, steering; a client that leaves while a tool runs cancels the run."""
    reached = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        reached.set()
        await asyncio.Event().wait()
        return ""

    script = ScriptedModel("Hi.", answer("Let me see.", call("wait")), "Here I am.")
    agent = names["agents"][framework] = Agent(script.model, tools=[wait])
    async with run_uvicorn(names[f"{framework}_app"]) as url, ClientSession() as http:
        path = f"{url}/conversations/{framework}"
        types = [event["type"] async for event in read_events(http, f"{path}/prompt", "Hello")]
        assert (types[0], types[-1]) == ("agent_start", "agent_end")
        async with contextlib.aclosing(read_events(http, f"{path}/prompt", "Wait")) as events:
            async for event in events:
                if event["type"] == "tool_execution_start":
                    break
            await reached.wait()
            async with http.post(f"{path}/prompt", json={"prompt": "Now"}) as response:
                assert response.status == 409
            async with http.post(f"{path}/steer", json={"text": "Be quick."}) as response:
                assert await response.json() == {"status": "accepted"}
            assert agent.is_running
        await agent.wait_for_idle()  # the client has gone while the tool waits
        assert agent.messages[-1].role == "tool_result"
        result = await agent.continue_()
        assert result.text == "Here I am."


async def test_the_page_runs_beside_an_asgi_application(names: dict[str, Any]) -> None:
    """`Server(...).app` in the lifespan of another application: both answer, and both end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        names["page_port"] = free.getsockname()[1]
    async with run_uvicorn(names["app_with_page"]) as url, ClientSession(cookies={"user": "ada"}) as http:
        async with http.get(f"{url}/openapi.json") as response:
            assert response.status == 200  # and so the page has started as well
        client = Client(http, f"http://127.0.0.1:{names['page_port']}", "")
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hello"})
        events = await client.collect(id)
        async with http.get(client.url) as response:
            page = await response.text()
    assert events[-1][1]["end_reason"] == "done"
    assert "<title>Steersman</title>" in page
