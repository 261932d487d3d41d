"""Servers that others wrote: from PyPI over stdio, from npm over stdio and HTTP, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.tools.builtin.shells import until, zombies
from tests.tools.mcp.kit import (
    BIN,
    call,
    entered,
    is_at_once,
    marked,
    names,
    new_mark,
    own_port,
    seen_by,
    text,
    tool_of,
    use,
)

from steersman import Agent, Tool, ToolOutput
from steersman.testing import ScriptedModel, answer
from steersman.testing import call as asks
from steersman.tools.mcp import HttpServer, StdioServer
from steersman.types.content import ImageContent
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time


def time_server(**env: str) -> StdioServer:
    return StdioServer(command=str(BIN / "mcp-server-time"), args=["--local-timezone", "UTC"], env=env)


def node_server(npm: Path, name: str, *args: str, **env: str) -> StdioServer:
    return StdioServer(command="node", args=[str(npm / name / "dist" / "index.js"), *args], env=env)


def new_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=30)
    (folder / "new.txt").write_text("hello")


async def begin_long_call(work: Tool) -> asyncio.Task[ToolOutput]:
    """A call of the everything server that would take a minute, and has reported progress."""
    updates: list[object] = []
    working = asyncio.create_task(use(work, updates.append, duration=60, steps=600))
    await until(lambda: updates)
    return working


async def test_the_time_and_git_servers_of_pypi_serve_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call and error; failures.md L14: no key reaches them; failures.md F14: killed in mid-call, back for the next."""
    canary, mark = new_mark(), new_mark()
    monkeypatch.setenv("OPENAI_API_KEY", canary)
    new_repository(tmp_path)
    git = StdioServer(command=str(BIN / "mcp-server-git"), args=["--repository", str(tmp_path)], env={"MARK": mark})
    script = ScriptedModel(
        answer(
            asks("mcp:time:convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
            asks("mcp:time:get_current_time", timezone="Nowhere/Land"),
            asks("mcp:git:git_status", repo_path=str(tmp_path)),
            asks("mcp:git:git_status", repo_path="/"),
        ),
        "Done.",
    )
    async with entered(time=time_server(MARK=mark), git=git) as servers:
        agent = Agent(script.model, tools=[servers])
        result = await agent.run("What time is it in Tokyo, and what is new?")
        for pid in marked(mark):
            assert canary.encode() not in seen_by(pid)
        # Stopped first, so that the call is surely under way when the server is killed.
        (pid,) = [pid for pid in marked(mark) if b"mcp-server-time" in seen_by(pid)]
        os.kill(pid, signal.SIGSTOP)
        asking = asyncio.create_task(call(servers, "mcp:time:get_current_time", timezone="UTC"))
        await asyncio.sleep(0)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert "was lost during the call: it was ended by signal 9" in text(await asking)
        assert await is_at_once(time.monotonic() - began)
        again = await call(servers, "mcp:time:get_current_time", timezone="UTC")
        assert json.loads(text(again))["timezone"] == "UTC"
    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert [(each.tool_name, each.is_error) for each in results] == [
        ("mcp:time:convert_time", False),
        ("mcp:time:get_current_time", True),
        ("mcp:git:git_status", False),
        ("mcp:git:git_status", True),
    ]
    assert json.loads(results[0].text)["time_difference"] == "+9.0h"
    assert "No time zone found with key Nowhere/Land" in results[1].text
    assert "new.txt" in results[2].text
    assert result.end_reason == "done"
    assert (marked(mark), zombies()) == ([], [])


async def test_the_everything_server_of_npm_over_stdio(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call, picture, structure, error, progress, cancel, kill -9 in mid-call, and its changes of the list."""
    canary, mark = new_mark(), new_mark()
    monkeypatch.setenv("ANTHROPIC_API_KEY", canary)
    updates: list[object] = []
    async with entered(every=node_server(npm, "server-everything", "stdio", MARK=mark)) as servers:
        # Registered when the client has introduced itself, and announced by a notification that the list has changed.
        assert "mcp:every:simulate-research-query" in names(servers)
        assert text(await call(servers, "mcp:every:echo", message="hi")) == "Echo: hi"
        picture = await call(servers, "mcp:every:get-tiny-image")
        assert [type(block).__name__ for block in picture.content] == ["TextContent", "ImageContent", "TextContent"]
        assert isinstance(picture.content[1], ImageContent)
        assert picture.content[1].mime_type == "image/png"
        weather = await call(servers, "mcp:every:get-structured-content", location="Chicago")
        assert json.loads(text(weather)) == weather.details["structured_content"]
        links = text(await call(servers, "mcp:every:get-resource-links", count=2))
        assert links.count("[resource: ") == 2
        wrong = await call(servers, "mcp:every:get-structured-content", location="Chicago", unknown=1)
        assert canary not in text(wrong)
        environment = json.loads(text(await call(servers, "mcp:every:get-env")))
        assert (environment["MARK"], canary in json.dumps(environment)) == (mark, False)

        work = tool_of(servers, "mcp:every:trigger-long-running-operation")
        done = await use(work, updates.append, duration=0.2, steps=2)
        assert "completed" in text(done)
        assert updates == [
            {"type": "progress", "text": "1/2", "progress": 1.0, "total": 2.0},
            {"type": "progress", "text": "2/2", "progress": 2.0, "total": 2.0},
        ]
        working = await begin_long_call(work)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert text(await call(servers, "mcp:every:echo", message="alive")) == "Echo: alive"

        working = await begin_long_call(work)
        began = time.monotonic()
        os.kill(marked(mark)[0], signal.SIGKILL)
        assert "was lost during the call: it was ended by signal 9" in text(await working)
        assert await is_at_once(time.monotonic() - began)
        assert text(await call(servers, "mcp:every:echo", message="back")) == "Echo: back"
    assert (marked(mark), zombies()) == ([], [])


async def test_the_everything_server_says_that_its_list_changed_and_is_asked_again(npm: Path, tmp_path: Path) -> None:
    """It registers some tools when the client has introduced itself; what passes is written down on both sides."""
    heard, said = tmp_path / "heard", tmp_path / "said"
    program = str(npm / "server-everything" / "dist" / "index.js")
    script = 'tee "$HEARD" | node "$0" stdio | tee "$SAID"'
    spec = StdioServer(command="sh", args=["-c", script, program], env={"HEARD": str(heard), "SAID": str(said)})
    async with entered(every=spec) as servers:
        await until(lambda: heard.read_text().count('"method":"tools/list"') >= 2)
        assert said.read_text().count('"method":"notifications/tools/list_changed"') >= 1
        assert "mcp:every:simulate-research-query" in names(servers)


async def test_the_filesystem_server_of_npm_over_stdio(npm: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a note")
    async with entered(files=node_server(npm, "server-filesystem", str(tmp_path))) as servers:
        read = await call(servers, "mcp:files:read_text_file", path=str(tmp_path / "note.txt"))
        assert (text(read), read.is_error) == ("a note", False)
        outside = await call(servers, "mcp:files:read_text_file", path="/etc/hostname")
        assert outside.is_error
        assert "Access denied" in text(outside)
        # It says of itself that it only reads; that is its word and not the user's.
        assert {tool.access for tool in servers.tools} == {"full"}


@contextmanager
def everything_over_http(npm: Path, port: int) -> Generator[subprocess.Popen[str], None, None]:
    program = str(npm / "server-everything" / "dist" / "index.js")
    process = subprocess.Popen(
        ["node", program, "streamableHttp"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PORT": str(port)},
    )
    assert process.stderr is not None
    assert f"listening on port {port}" in process.stderr.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_the_everything_server_of_npm_over_http(npm: Path) -> None:
    """Call, progress, cancel, kill -9 in mid-call, and a server that came back and knows nothing of the old session."""
    updates: list[object] = []
    with own_port() as port, everything_over_http(npm, port) as process:
        async with entered(every=HttpServer(url=f"http://127.0.0.1:{port}/mcp")) as servers:
            assert text(await call(servers, "mcp:every:echo", message="hi")) == "Echo: hi"
            work = tool_of(servers, "mcp:every:trigger-long-running-operation")
            assert "completed" in text(await use(work, updates.append, duration=0.2, steps=2))
            assert [update["text"] for update in updates if isinstance(update, dict)] == ["1/2", "2/2"]
            working = await begin_long_call(work)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert text(await call(servers, "mcp:every:echo", message="alive")) == "Echo: alive"

            working = await begin_long_call(work)
            began = time.monotonic()
            process.kill()
            lost = await working
            # This server lets a broken stream be taken up again, so that is tried twice, a second apart.
            assert await is_at_once(time.monotonic() - began)
            assert "was lost during the call" in text(lost)
            with everything_over_http(npm, port):
                assert text(await call(servers, "mcp:every:echo", message="back")) == "Echo: back"
