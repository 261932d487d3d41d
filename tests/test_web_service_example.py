"""The example of a web service, in a process of its own: prompts, events and approval over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession

EXAMPLE = Path(__file__).parent.parent / "examples" / "24_web_service.py"
pytestmark = pytest.mark.real_time


@asynccontextmanager
async def serve() -> AsyncGenerator[str]:
    """The URL of the service, which ends quietly when it is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-W", "error", str(EXAMPLE), str(port)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert f"127.0.0.1:{port}" in line.decode()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert errors == b""


def client_of(url: str, user: str) -> ClientSession:
    return ClientSession(url, headers={"X-User": user})


async def next_event(response: ClientResponse, kind: str) -> dict[str, Any]:
    """The next event of this type."""
    async for line in response.content:
        if line.startswith(b"data: "):
            event: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            if event["type"] == kind:
                return event
    raise AssertionError(f"the stream ended without {kind}")


async def decide(client: ClientSession, event: dict[str, Any], **body: Any) -> tuple[int, str]:
    async with client.post("/decide", json={"id": event["approval_id"], **body}) as response:
        return response.status, await response.text()


async def test_a_user_answers_over_http_and_only_their_own_questions() -> None:
    """server.md S7, S6: an editor, a page or a script needs no channel besides events, approve and deny."""
    async with (
        serve() as url,
        client_of(url, "ada") as ada,
        client_of(url, "bob") as bob,
        ada.post("/prompt", data="Deploy it.") as stream,
    ):
        first = await next_event(stream, "approval_requested")
        second = await next_event(stream, "approval_requested")
        assert [event["args"]["target"] for event in (first, second)] == ["staging", "live"]
        assert (await decide(bob, first, yes=True))[0] == 404
        async with ada.post("/prompt", data="Hurry up.") as busy:
            assert busy.status == 409
        assert await decide(ada, second, yes=False, reason="Not on a Friday") == (200, '{"counts": true}')
        assert await decide(ada, first, yes=True) == (200, '{"counts": true}')
        assert await decide(ada, first, yes=True) == (200, '{"counts": false}')
        end = await next_event(stream, "agent_end")
    assert end["end_reason"] == "done"
    texts = [message["content"][0]["text"] for message in end["messages"] if message["role"] == "tool_result"]
    assert texts[0] == "deployed to staging"
    assert texts[1].startswith("Denied: Not on a Friday. ")


async def test_a_client_that_leaves_ends_its_run_and_another_user_is_not_touched() -> None:
    """loop.md T12: the question of the run is resolved, so the same user can go on."""
    async with (
        serve() as url,
        client_of(url, "ada") as ada,
        client_of(url, "bob") as bob,
        bob.post("/prompt", data="Deploy it.") as bobs,
    ):
        waiting = await next_event(bobs, "approval_requested")
        async with ada.post("/prompt", data="Deploy it.") as stream:
            asked = await next_event(stream, "approval_requested")
            stream.close()
        while True:
            async with ada.post("/prompt", data="Again.") as again:
                if again.status == 200:
                    assert (await next_event(again, "agent_end"))["end_reason"] == "done"
                    break
        assert await decide(ada, asked, yes=True) == (200, '{"counts": false}')
        assert await decide(bob, waiting, yes=True) == (200, '{"counts": true}')
