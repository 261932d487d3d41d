"""Servers at an address: the official SDK's own server in another process, and raw sockets for what it never does."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.tools.builtin.shells import until
from tests.tools.mcp.kit import (
    HERE,
    call,
    entered,
    is_at_once,
    lines,
    names,
    new_mark,
    own_port,
    quiet,
    text,
    tool_of,
    use,
)

from steersman.tools.mcp import HttpServer, McpError, McpServers

pytestmark = pytest.mark.real_time


class SdkServer:
    """The official SDK's server over HTTP, in a process that can be killed and started again at the same address."""

    def __init__(self, log: Path, port: int = 0) -> None:
        self.log = log
        self.port = port
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, str(HERE / "sdk_server.py"), "http", str(self.port)]
        env = {**os.environ, "LOG": str(self.log)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8", env=env
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    server = SdkServer(tmp_path_factory.mktemp("sdk") / "log")
    server.start()
    yield server
    server.kill()


async def test_tools_are_listed_and_called(sdk: SdkServer) -> None:
    async with entered(sdk=HttpServer(url=sdk.url)) as servers:
        assert [name for name in names(servers) if name != "mcp:sdk:extra"] == [
            "mcp:sdk:add",
            "mcp:sdk:ask",
            "mcp:sdk:fail",
            "mcp:sdk:grow",
            "mcp:sdk:headers",
            "mcp:sdk:wait",
        ]
        output = await call(servers, "mcp:sdk:add", a=20, b=22)
        assert (text(output), output.is_error) == ("42", False)
        assert output.details == {"mcp_server": "sdk", "structured_content": {"result": 42}}
        asking = await call(servers, "mcp:sdk:ask")
        assert asking.is_error
        assert "it asks for input during the call, which is not supported here" in text(asking)
        failed = await call(servers, "mcp:sdk:fail")
        assert (text(failed), failed.is_error) == ("Error executing tool fail", True)


async def test_headers_go_to_the_server_and_into_no_text_of_ours(sdk: SdkServer) -> None:
    """failures.md L13: a key in a header is sent, and shown by no repr and no error."""
    key = new_mark()
    spec = HttpServer(url=sdk.url, headers={"authorization": f"Bearer {key}"})
    async with entered(sdk=spec) as servers:
        assert key in text(await call(servers, "mcp:sdk:headers"))
    assert key not in repr(spec)


async def test_progress_is_shown_and_a_cancelled_call_is_cancelled_at_the_server(sdk: SdkServer) -> None:
    updates: list[Any] = []
    async with entered(sdk=HttpServer(url=sdk.url)) as servers:
        before = len(lines(sdk.log))
        waiting = asyncio.create_task(use(tool_of(servers, "mcp:sdk:wait"), updates.append))
        await until(lambda: updates and lines(sdk.log)[before:] == ["waiting"])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: lines(sdk.log)[before:] == ["waiting", "cancelled"])
        assert text(await call(servers, "mcp:sdk:add", a=1, b=1)) == "2"
    assert updates == [{"type": "progress", "text": "half", "progress": 1.0, "total": 2.0}]


async def test_a_change_of_the_list_is_seen(sdk: SdkServer) -> None:
    async with entered(sdk=HttpServer(url=sdk.url)) as servers:
        await call(servers, "mcp:sdk:grow")
        await until(lambda: "mcp:sdk:extra" in names(servers))
        assert text(await call(servers, "mcp:sdk:extra")) == "extra"


async def test_a_server_killed_in_mid_call_fails_it_at_once_and_serves_the_next_when_it_is_back(tmp_path: Path) -> None:
    """failures.md F14, over HTTP."""
    with own_port() as port:
        sdk = SdkServer(tmp_path / "log", port)
        sdk.start()
        try:
            async with entered(sdk=HttpServer(url=sdk.url)) as servers:
                waiting = asyncio.create_task(call(servers, "mcp:sdk:wait"))
                await until(lambda: lines(sdk.log) == ["waiting"])
                began = time.monotonic()
                sdk.kill()
                output = await waiting
                assert await is_at_once(time.monotonic() - began)
                assert output.is_error
                assert "The MCP server 'sdk' was lost during the call" in text(output)
                down = await call(servers, "mcp:sdk:add", a=1, b=2)
                assert down.is_error
                assert "could not do it: ConnectError" in text(down)
                sdk.start()
                assert text(await call(servers, "mcp:sdk:add", a=1, b=2)) == "3"
        finally:
            sdk.kill()
    assert lines(sdk.log) == ["waiting"]


Answer = Callable[["_Raw", dict[str, Any]], None]


class _Raw(BaseHTTPRequestHandler):
    """Speaks enough of the older protocol to be taken for a server, then does as the test says."""

    protocol_version = "HTTP/1.1"
    answer: Answer

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        match message["method"]:
            case "initialize":
                self.result(
                    message,
                    {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "raw", "version": "1"},
                    },
                )
            case "tools/list":
                self.result(message, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                type(self).answer(self, message)
            case _ if "id" in message:
                self.send(404, b"")
            case _:
                self.send(202, b"")

    def do_GET(self) -> None:
        self.send(405, b"")

    do_DELETE = do_GET

    def result(self, message: dict[str, Any], result: Any) -> None:
        self.send(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content_type": "application/json", "content_length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def raw(answer: Answer) -> Generator[str, None, None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Raw", (_Raw,), {"answer": staticmethod(answer)}))
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def too_large(server: _Raw, message: dict[str, Any]) -> None:
    server.result(message, {"content": [{"type": "text", "text": "x" * 200_000}]})


def packed(server: _Raw, message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}).encode()
    server.send(200, gzip.compress(body), content_encoding="gzip")


def endless_event(server: _Raw, message: dict[str, Any]) -> None:
    server.send(200, b"data: " + b"x" * 200_000, content_type="text/event-stream")


def many_lists(server: _Raw, message: dict[str, Any]) -> None:
    result: dict[str, Any] = {"content": [], "structuredContent": {"lists": [[]] * 200_000}}
    server.result(message, result)


def many_lists_in_an_event(server: _Raw, message: dict[str, Any]) -> None:
    result: dict[str, Any] = {"content": [], "structuredContent": {"lists": [[]] * 200_000}}
    answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
    body = f'id: "\ndata: {answer}\n\n'.encode()
    server.send(200, body, content_type="text/event-stream")


def not_mcp(server: _Raw, message: dict[str, Any]) -> None:
    server.result(message, {"content": "no list"})


def forbidden(server: _Raw, message: dict[str, Any]) -> None:
    server.send(403, b"go away", content_type="text/plain")


def web_page(server: _Raw, message: dict[str, Any]) -> None:
    server.send(200, b"<html>", content_type="text/html")


def elsewhere(server: _Raw, message: dict[str, Any]) -> None:
    server.send(307, b"", location="http://127.0.0.2:9/steal")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (too_large, "the answer has more than 100,000 bytes"),
        (packed, "it sent an answer with a content-encoding, though the request asked for none"),
        (endless_event, "Server-sent event exceeded the 100000 byte limit"),
        (not_mcp, "its answer is not valid MCP"),
        (forbidden, "it refused: Server returned an error response"),
        (web_page, "Unexpected content type: text/html"),
        (elsewhere, "Redirect to http://127.0.0.2:9/steal not followed"),
    ],
)
async def test_an_answer_that_is_none_fails_the_call_and_says_why(answer: Answer, words: str) -> None:
    """failures.md F15, L20, L26: bounded, nothing unpacked, no header follows a redirect to another server."""
    with raw(answer) as url:
        servers = McpServers(
            {"raw": HttpServer(url=url, headers={"x-key": "secret-key"})}, max_message_bytes=100_000, on_problem=quiet
        )
        async with servers:
            output = await call(servers, "mcp:raw:go")
            assert output.is_error
            assert words in text(output)
            # It costs the call alone: the next one gets as far.
            assert words in text(await call(servers, "mcp:raw:go"))


LONG_KEY = "ghp_0123456789AbCdEfGhIjKlMnOpQrStUvWxYz"
COMPLAINT = f"Error: the service refuses the token that it was given, {LONG_KEY}"


def text_for_a_list(server: _Raw, message: dict[str, Any]) -> None:
    server.result(message, {"content": COMPLAINT})


def cut_off(server: _Raw, message: dict[str, Any]) -> None:
    server.send(200, f'{{"error": "{COMPLAINT}'.encode(), content_type="application/json")


def cut_off_event(server: _Raw, message: dict[str, Any]) -> None:
    server.send(200, f'data: {{"error": "{COMPLAINT}\n\n'.encode(), content_type="text/event-stream")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (text_for_a_list, "its answer is not valid MCP (content: Input should be a valid list)"),
        (cut_off, "Invalid JSON: EOF while parsing a string at line 1 column 107 [type=json_invalid]"),
        (cut_off_event, "Invalid JSON: EOF while parsing a string at line 1 column 107 [type=json_invalid]"),
    ],
)
async def test_of_an_answer_that_is_none_the_end_of_a_key_is_not_shown(answer: Answer, words: str) -> None:
    """failures.md L13: what is wrong was quoted without its middle, and the end of a key is not known for one."""
    with raw(answer) as url:
        async with entered(raw=HttpServer(url=url, headers={"x-key": LONG_KEY})) as servers:
            output = await call(servers, "mcp:raw:go")
    assert words in text(output)
    assert "WxYz" not in text(output)


@pytest.mark.parametrize("answer", [many_lists, many_lists_in_an_event])
async def test_an_answer_of_very_many_lists_is_not_parsed(answer: Answer) -> None:
    """failures.md F15: the SDK would parse it in the event loop."""
    with raw(answer) as url:
        async with entered(raw=HttpServer(url=url)) as servers:
            output = await call(servers, "mcp:raw:go")
    assert output.is_error
    assert "the answer has more than 150,000 lists and objects, or 1,000,000 strings" in text(output)


async def test_no_answer_at_all_fails_the_call_in_time() -> None:
    over = threading.Event()

    def wait(_: _Raw, __: dict[str, Any]) -> None:
        over.wait(10)

    with raw(wait) as url:
        async with entered(raw=HttpServer(url=url, timeout=0.3)) as servers:
            output = await call(servers, "mcp:raw:go")
            over.set()
    assert (
        text(output)
        == "The MCP server 'raw' could not do it: it did not answer within 0.3s, and the call was cancelled."
    )


async def test_an_address_without_a_server_cannot_be_entered() -> None:
    with pytest.raises(McpError) as raised:
        async with entered(nobody=HttpServer(url="http://127.0.0.1:9/mcp?key=secret-key")):
            pass
    assert str(raised.value) == (
        "The MCP server 'nobody' (http://127.0.0.1:9/mcp) cannot be used: ConnectError: All connection attempts failed."
    )


async def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    sdk: SdkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """failures.md L26."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with entered(sdk=HttpServer(url=sdk.url)) as servers:
        assert text(await call(servers, "mcp:sdk:add", a=2, b=2)) == "4"
