"""What all protocols share on the wire, over real sockets, with the smallest protocol there is."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import warnings
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.pace import hurry
from tests.provider.wires.kit import ASKED, PlainServer, PlainWire, collect_events, stream
from tests.rows import each_row
from tests.timing import ample

from steersman.provider.http.client import aclose_http, http_stream
from steersman.provider.streaming.normalize import stream_events
from steersman.provider.streaming.retry import with_retry
from steersman.provider.streaming.retry_strategy import Retry
from steersman.testing import answer, cut, error, raises, run_virtual, stall
from steersman.testing.servers.base import Delivery, Received, Reply
from steersman.testing.servers.exchange import Answer
from steersman.types.content import TextContent
from steersman.types.errors import ErrorInfo, ErrorKind, OverloadedError, ProviderError
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import (
    Done,
    Failed,
    Reset,
    RetryNotice,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
)

pytestmark = pytest.mark.real_time

CANARY = "sk-canary-5f1e9c0a7b"
HELLO = b'data: {"t":"hel"}\n\ndata: {"t":"lo"}\n\ndata: [DONE]\n\n'
HELD: Mapping[str, Any] = {"connect_timeout": 5, "first_byte_timeout": 5, "idle_timeout": 5}


async def asked(
    server: PlainServer, settings: Mapping[str, Any] | None = None, request: Request = ASKED, **fields: Any
) -> list[StreamEvent]:
    """All events of one answer, in the normal form."""
    model = server.model(settings={**HELD, **(settings or {})}, **fields)
    return await collect_events(stream, model, request)


async def answered(*script: Answer, settings: Mapping[str, Any] | None = None, **fields: Any) -> list[StreamEvent]:
    async with PlainServer(*script, **fields) as server:
        return await asked(server, settings)


def said(events: list[StreamEvent]) -> str:
    last = events[-1]
    assert isinstance(last, Done), last
    return last.message.text


def failed(events: list[StreamEvent]) -> ErrorInfo:
    last = events[-1]
    assert isinstance(last, Failed), last
    assert last.error is not None
    return last.error


async def test_an_answer_is_its_events_and_then_the_whole_message() -> None:
    message = AssistantMessage([TextContent("hello")], model="test-model", provider="plain")
    assert await answered(answer("hello", deltas=2)) == [
        StreamStart(),
        TextStart(),
        TextDelta("he"),
        TextDelta("llo"),
        TextEnd(),
        Done(message),
    ]


async def test_a_request_says_who_asks_and_for_what() -> None:
    async with PlainServer("hi", key=CANARY) as server:
        await asked(server, headers={"X-Own": "yes", "Accept": "text/event-stream;q=1"})

    received = server.raw[0]
    assert (received.method, received.path, received.json) == ("POST", "/v1/ask", {"text": ["Hello?"]})
    assert {name: received.headers[name] for name in ("authorization", "x-own", "accept", "accept-encoding")} == {
        "authorization": f"Bearer {CANARY}",
        "x-own": "yes",
        "accept": "text/event-stream;q=1",
        "accept-encoding": "identity",
    }
    assert received.headers["user-agent"].startswith("steersman")


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
async def test_the_size_of_chunks_does_not_matter(chunk: int) -> None:
    """failures.md B1."""
    text = "日本語 🦉 é — hello"
    assert said(await answered(Delivery(answer(text, deltas=5), chunk=chunk))) == text


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_line_ends_do_not_matter(end: bytes) -> None:
    """failures.md B2."""
    assert said(await answered(Delivery(HELLO.replace(b"\n", end), chunk=5))) == "hello"


@pytest.mark.parametrize(
    "body",
    [
        b": OPENROUTER PROCESSING\n\n" + HELLO,
        HELLO.replace(b"\n\n", b"\n\n: ping\n\n"),
        HELLO.replace(b"data: [DONE]", b"event: ping\ndata: {}\n\ndata: [DONE]"),
        b"\xef\xbb\xbf" + HELLO,
        b"\n\n" + HELLO,
        HELLO.replace(b"data: ", b"data:"),
        b"retry: 10\nid: 3\n\n" + HELLO,
    ],
    ids=["processing", "comments", "pings", "mark", "blank", "no space", "fields"],
)
async def test_what_is_no_content_is_passed_over(body: bytes) -> None:
    """failures.md B3, B6."""
    assert said(await answered(body)) == "hello"


async def test_a_byte_that_is_no_utf_8_is_replaced() -> None:
    """failures.md B22."""
    assert said(await answered(HELLO.replace(b"lo", b"l\xffo"))) == "hell\ufffdo"


async def test_an_answer_is_over_with_its_terminal_event_though_the_connection_stays_open() -> None:
    """failures.md B8: at once, not after idle_timeout; and that connection is not used again."""
    async with PlainServer(Delivery(HELLO, ending="stall"), "again") as server:
        async with asyncio.timeout(4):
            assert said(await asked(server, {"idle_timeout": 60})) == "hello"
        assert await server.raw[0].wait_for_outcome() == "left"
        assert said(await asked(server)) == "again"

    assert [received.connection for received in server.raw] == [1, 2]


@pytest.mark.parametrize("left", [1, 2])
async def test_a_last_event_without_its_blank_line_counts(left: int) -> None:
    """failures.md B9."""
    assert said(await answered(HELLO[:-left])) == "hello"


async def test_what_follows_the_terminal_event_does_not_matter() -> None:
    assert said(await answered(HELLO + b"data: garbage\n\n")) == "hello"


@each_row(
    ("reply", "kind"),
    [
        (Reply(200, {"error": "slow down"}), "overloaded"),
        (Reply(200, b'{"error": "slow down"}', {"content-type": "text/event-stream"}), "overloaded"),
        (Reply(200, b'\n {"error": "slow down"}', {"content-type": "text/plain"}), "overloaded"),
        (Reply(200, "<html>Sign in</html>", {"content-type": "text/html"}), "protocol"),
        (Reply(200, "<html>Sign in</html>", {"content-type": "text/event-stream"}), "protocol"),
        (Reply(200, "Sign in", {"content-type": "text/html"}), "protocol"),
        (Reply(200, "hello", {"content-type": "text/plain"}), "protocol"),
        (Reply(200, b"", {"content-type": "application/json"}), "protocol"),
        (Reply(200, b"", {"content-type": "text/event-stream"}), "incomplete"),
        (Reply(204), "protocol"),
        (Reply(502, "<html>Bad gateway</html>", {"content-type": "text/html"}), "overloaded"),
    ],
    ids=["json", "json as stream", "json as text", "html", "html as stream", "words as html", "words", "empty json",
         "empty stream", "no content", "gateway"],
)  # fmt: skip
async def test_what_is_not_a_stream_is_an_error_not_an_empty_success(reply: Reply, kind: ErrorKind) -> None:
    """failures.md B10."""
    events = await answered(reply)

    info = failed(events)
    assert (info.kind, info.provider, info.request_id) == (kind, "plain", "req-7")
    assert len(events) == 1


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/octet-stream", "text/html"])
async def test_a_stream_under_a_wrong_name_is_read(kind: str) -> None:
    assert said(await answered(Delivery(HELLO, headers={"content-type": kind}))) == "hello"
    assert said(await answered(Delivery(HELLO, headers={"content-type": kind}, chunk=1))) == "hello"


async def test_an_error_in_the_midst_of_a_stream_keeps_what_had_come() -> None:
    """failures.md B11."""
    events = await answered(error(OverloadedError("too busy"), "hello", after=2, deltas=5))

    info = failed(events)
    assert (info.kind, info.message, info.provider, info.request_id) == (
        "overloaded",
        "plain: too busy",
        "plain",
        "req-7",
    )
    assert cast(Failed, events[-1]).message.text == "he"


async def test_garbage_in_the_midst_of_a_stream_is_a_typed_error() -> None:
    """failures.md B13."""
    info = failed(await answered(b'data: {"t":"a"}\n\ndata: {"t":\n\ndata: [DONE]\n\n'))

    assert (info.kind, info.provider) == ("protocol", "plain")
    assert "Not a plain event" in info.message


@pytest.mark.parametrize(
    ("delivery", "bound", "words"),
    [
        (Delivery(b"", ending="stall", head=False), "first_byte_timeout", "begin to answer within {:g} s"),
        (Delivery(b"", ending="stall"), "first_byte_timeout", "begin to answer within {:g} s"),
        (Delivery(HELLO, at=20, ending="stall"), "idle_timeout", "sent nothing for {:g} s (idle_timeout"),
        (Delivery(HELLO, at=20, ending="stall"), "total_timeout", "did not finish its answer within {:g} s"),
        (Delivery(b"", ending="stall", head=False), "total_timeout", "did not finish its answer within {:g} s"),
    ],
    ids=["before the head", "before the body", "within the body", "total", "total before the head"],
)
async def test_a_silent_server_is_cut_at_the_configured_time(delivery: Delivery, bound: str, words: str) -> None:
    """failures.md B14: the connection is closed, and the error names the bound."""
    seconds = await ample(lambda: answered("hello"), 0.05)
    async with PlainServer(delivery) as server:
        events = await asked(server, {bound: seconds})
        assert await server.raw[0].wait_for_outcome() == "left"

    info = failed(events)
    assert (info.kind, info.provider) == ("stalled", "plain")
    assert words.format(seconds) in info.message
    assert info.should_retry


async def test_each_bound_is_for_its_own_wait() -> None:
    """failures.md B14: a slow healthy stream is not cut by the time it takes in all."""
    slow = Delivery(answer("hello", deltas=5), pace=0.03)
    assert said(await answered(slow, settings={"idle_timeout": 0.6, "first_byte_timeout": 0.6})) == "hello"


async def test_a_consumer_may_take_its_time() -> None:
    """Only waiting for the server counts."""
    async with PlainServer(answer("hello", deltas=5)) as server:
        events: list[StreamEvent] = []
        async for event in stream_events(stream, server.model(settings=HELD), ASKED, StreamOptions()):
            events.append(event)
            if len(events) == 2:
                hurry()
                await asyncio.sleep(4 * HELD["idle_timeout"])
                hurry(1)

    assert said(events) == "hello"


async def test_pings_keep_a_stream_alive_unless_content_is_asked_for() -> None:
    """failures.md B16."""
    body = b'data: {"t":"a"}\n\n' + b": ping\n\n" * 40 + b"data: [DONE]\n\n"
    pings = Delivery(body, chunk=8, pace=0.01)
    assert said(await answered(pings, settings={"idle_timeout": 0.3})) == "a"

    endless = Delivery(body[:-14] + b"event: ping\ndata: x\n\n" * 300, chunk=20, pace=0.01)
    info = failed(await answered(endless, settings={"idle_timeout": 5, "content_idle_timeout": 0.1}))
    assert info.kind == "stalled"
    assert "nothing but pings for 0.1 s (content_idle_timeout" in info.message


@each_row("name", ["idle_timeout", "first_byte_timeout", "max_response_bytes"])
@each_row("value", [0, -1, "5", True, float("nan")])
async def test_a_bound_that_is_none_is_refused(name: str, value: Any) -> None:
    info = failed(await answered("hi", settings={name: value}))
    assert f"The setting {name} must be a number above 0, or None for no limit; got {value!r}." in info.message


async def test_no_bound_means_no_bound() -> None:
    bounds = ("connect_timeout", "first_byte_timeout", "idle_timeout", "content_idle_timeout", "total_timeout")
    assert said(await answered("hi", settings=dict.fromkeys(bounds))) == "hi"


@pytest.mark.parametrize("ending", ["end", "close", "reset"])
async def test_a_stream_cut_at_any_byte_is_never_a_success(ending: Any) -> None:
    """failures.md B17: a clean end, an end inside a chunk and a reset, after every byte before the terminal event's."""
    whole = len(HELLO) - len(b"\n\n")
    async with PlainServer(*(Delivery(HELLO, at=at, ending=ending) for at in range(whole))) as server:
        for at in range(whole):
            events = await asked(server)
            info = failed(events)
            # A reset may overtake what was sent before it, the head of the response too.
            kinds = ("incomplete", "network") if ending == "reset" else ("incomplete",)
            assert info.kind in kinds, (at, info)
            assert info.should_retry
            assert "hello".startswith(cast(Failed, events[-1]).message.text)


async def test_a_reset_before_the_answer_is_a_network_error() -> None:
    """failures.md B17."""
    info = failed(await answered(raises(OSError("reset"))))
    assert (info.kind, info.provider, info.should_retry) == ("network", "plain", True)
    assert "broke before a response came" in info.message


async def test_a_retry_after_shown_text_says_so_and_does_not_repeat_it() -> None:
    """failures.md B18."""
    async with PlainServer(cut("hello", after=2), "hello") as server:
        model = server.model(settings=HELD)
        retrying = with_retry(stream, Retry(base_delay=0, jitter=0))
        events = [event async for event in stream_events(retrying, model, ASKED, StreamOptions())]

    kinds = [type(event) for event in events]
    assert kinds.count(Reset) == kinds.count(RetryNotice) == 1
    after = events[kinds.index(Reset) + 1 :]
    assert "".join(event.delta for event in after if isinstance(event, TextDelta)) == said(events) == "hello"


async def test_headers_beside_an_error_are_read() -> None:
    """failures.md E1, E4."""
    headers = {"retry-after": "3", "x-should-retry": "false", "x-request-id": "req-9"}
    info = failed(await answered(Reply(429, {"error": "slow"}, headers)))
    assert (info.kind, info.status, info.retry_after, info.retryable, info.request_id) == (
        "rate_limit", 429, 3.0, False, "req-9"
    )  # fmt: skip
    assert failed(await answered(Reply(400, {"error": "x"}, {"x-should-retry": "true"}))).should_retry
    assert failed(await answered(Reply(500, {"error": "x"}, {"x-should-retry": "false"}))).should_retry is False


@each_row("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_statuses_that_pass_are_retried(status: int) -> None:
    """failures.md E2."""
    assert failed(await answered(Reply(status, {"error": "x"}))).should_retry


@each_row("status", [400, 401, 402, 403, 404, 405, 413, 422])
async def test_statuses_that_stay_are_not_retried(status: int) -> None:
    """failures.md E2, E5: one request."""
    async with PlainServer(Reply(status, {"error": "x"}), repeat_last=True) as server:
        model = server.model(settings=HELD)
        retrying = with_retry(stream, Retry(base_delay=0))
        events = [event async for event in stream_events(retrying, model, ASKED, StreamOptions())]
    assert failed(events).status == status
    assert len(server.raw) == 1


async def test_an_error_page_is_read_only_so_far() -> None:
    info = failed(await answered(Reply(500, b"x" * 3_000_000)))
    assert len(info.body or "") == 1024 * 1024


async def test_an_answer_longer_than_allowed_is_cut() -> None:
    endless = b'data: {"t":"aaaaaaaaaa"}\n\n' * 20_000
    async with PlainServer(Delivery(endless, chunk=10_000)) as server:
        info = failed(await asked(server, {"max_response_bytes": 50_000}))
    assert (info.kind, info.provider) == ("protocol", "plain")
    assert "longer than 50,000 bytes (max_response_bytes" in info.message

    info = failed(await answered(b"data: " + b"x" * 60_000, settings={"max_event_bytes": 50_000}))
    assert (info.kind, info.provider) == ("protocol", "plain")
    assert "an event of more than 50,000 bytes" in info.message


async def test_a_packed_bomb_is_cut_where_an_open_one_is() -> None:
    """failures.md L20: fifty megabytes in fifty kilobytes."""
    bomb = gzip.compress(b": " + b"a" * 50_000_000)
    info = failed(
        await answered(
            Delivery(bomb, headers={"content-encoding": "gzip"}),
            settings={"max_response_bytes": 5_000_000, "max_event_bytes": 50_000_000},
        )
    )
    assert info.kind == "protocol"
    assert "longer than 5,000,000 bytes" in info.message


async def test_a_compressed_stream_is_read_although_it_was_not_asked_for() -> None:
    assert said(await answered(Delivery(gzip.compress(HELLO), headers={"content-encoding": "gzip"}))) == "hello"


async def test_a_stream_packed_wrongly_is_a_typed_error() -> None:
    info = failed(await answered(Delivery(b"\x1f\x8bnot gzip at all", headers={"content-encoding": "gzip"})))
    assert info.kind in ("protocol", "incomplete", "network")
    assert info.provider == "plain"


@pytest.mark.parametrize("packing", ["br", "zstd", "compress", "x-own"])
async def test_an_unknown_content_encoding_is_named(packing: str) -> None:
    """What the client cannot unpack it refuses or hands on as it came, by its version and what is installed."""
    async with PlainServer(Delivery(b"\x28\xb5\x2f\xfd\x8b\x02", headers={"Content-Encoding": packing})) as server:
        info = failed(await asked(server))
    assert (info.kind, info.provider, info.should_retry) == ("protocol", "plain", False)
    assert info.message.startswith(
        f"The answer of 'plain' at {server.url}/ask has a content-encoding that was not requested"
    )
    assert packing in info.message
    assert info.message.endswith("Turn it off at the server, or at the proxy on the way.")


async def test_a_stream_that_is_only_said_to_be_packed_is_read() -> None:
    for body in (HELLO, ": Grüße\n\n".encode() + HELLO):
        assert said(await answered(Delivery(body, headers={"content-encoding": "x-own"}))) == "hello"


async def test_one_connection_serves_answer_after_answer() -> None:
    async with PlainServer("a", "b", Reply(500, {"error": "x"}), "c") as server:
        for _ in range(4):
            await asked(server)
    assert [received.connection for received in server.raw] == [1, 1, 1, 1]


async def test_a_connection_that_was_left_is_not_used_again() -> None:
    """failures.md F6: leaving a stream closes its connection, at once."""
    async with PlainServer(stall("hello", after=2), "next") as server:
        events = stream_events(stream, server.model(settings=HELD), ASKED, StreamOptions())
        async with aclosing(events):
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        assert await server.raw[0].wait_for_outcome() == "left"
        assert said(await asked(server)) == "next"
    assert [received.connection for received in server.raw] == [1, 2]


@pytest.mark.parametrize(
    "silent",
    [Delivery(b"", ending="stall", head=False), Delivery(b"", ending="stall"), Delivery(HELLO, at=25, ending="stall")],
    ids=["before the head", "before the body", "within the body"],
)
async def test_a_cancel_reaches_a_stream_that_waits(silent: Delivery) -> None:
    """failures.md B14: and the server sees that the client is gone."""
    came = asyncio.Event()
    loop = asyncio.get_running_loop()

    def heard(_: Received) -> Delivery:
        loop.call_soon_threadsafe(came.set)
        return silent

    async with PlainServer(heard) as server:
        task = asyncio.create_task(asked(server))
        await came.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await server.raw[0].wait_for_outcome() == "left"


async def test_a_cancel_at_any_step_leaves_nothing_behind() -> None:
    async with PlainServer(answer("hello", deltas=3), repeat_last=True) as server:
        for steps in range(60):
            before = asyncio.all_tasks()
            task = asyncio.create_task(asked(server))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or said(task.result()) == "hello"
            assert asyncio.all_tasks() - before == set()
        assert said(await asked(server)) == "hello"


async def test_many_answers_at_once_do_not_mix() -> None:
    def echo(received: Received) -> Any:
        return answer(received.json["text"][0], deltas=7)

    async with PlainServer(echo, repeat_last=True) as server, asyncio.TaskGroup() as group:
        words = [f"this is number {number}" for number in range(100)]
        tasks = [group.create_task(asked(server, request=Request("", [user_message(word)]))) for word in words]
        await asyncio.wait(tasks)
        assert [said(task.result()) for task in tasks] == words


async def test_a_long_request_is_sent_without_a_warning() -> None:
    async with PlainServer("ok") as server:
        text = "x" * 3_000_000
        assert said(await asked(server, request=Request("", [user_message(text)]))) == "ok"
    assert server.requests == [{"text": [text]}]


async def test_a_host_that_cannot_be_reached_is_named_with_what_to_do() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        model = Model("plain", "m", base_url=f"http://127.0.0.1:{port}/v1", api_key=CANARY)
        events = [event async for event in stream_events(stream, model, ASKED, StreamOptions())]

    info = failed(events)
    assert (info.kind, info.provider, info.should_retry) == ("network", "plain", True)
    assert f"Could not reach 'plain' at http://127.0.0.1:{port}/v1/ask: Connection refused. Check that" in info.message
    assert "Check that the server runs, and check base_url." in info.message
    assert CANARY not in info.message


@pytest.mark.parametrize("key", [None, "a key"])
@pytest.mark.parametrize("user", [f"user:{CANARY}", f":{CANARY}", CANARY])
async def test_an_address_with_a_password_is_refused_and_the_password_not_shown(user: str, key: str | None) -> None:
    async with PlainServer("Never.") as server:
        url = server.url.replace("//", f"//{user}@")
        events = await asked(server, base_url=url, api_key=key)
    info = failed(events)
    assert (info.kind, info.provider, info.should_retry) == ("invalid_request", "plain", False)
    assert info.message == (
        f"The base_url of 'plain', {server.url}/ask, was given with a user name or a password. Give a key as "
        "api_key=..., or what else the server asks for as headers={'authorization': 'Basic ...'}."
    )
    assert CANARY not in repr(events)
    assert server.raw == []


async def test_an_at_sign_elsewhere_in_an_address_is_none_of_a_password() -> None:
    class Odd(PlainServer):
        routes = ("/v1/@team/ask",)

    async with Odd("ok") as server:
        assert said(await asked(server, base_url=f"{server.url}/@team")) == "ok"


@pytest.mark.parametrize("url", ["http://", "http:///v1", "ftp://127.0.0.1/v1", "127.0.0.1:1", "http://host:port/v1"])
async def test_an_address_that_is_none_is_named(url: str) -> None:
    model = Model("plain", "m", base_url=url, api_key="none")
    info = failed([event async for event in stream_events(stream, model, ASKED, StreamOptions())])
    assert (info.provider, info.should_retry) == ("plain", False), info


async def test_a_server_that_speaks_something_else_is_named() -> None:
    """An SSH server, say."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        model = Model("plain", "m", base_url=f"http://127.0.0.1:{port}", settings=HELD)
        info = failed([event async for event in stream_events(stream, model, ASKED, StreamOptions())])
    assert info.kind == "protocol"
    assert f"The server for 'plain' at http://127.0.0.1:{port}/ask does not answer in HTTP" in info.message


async def test_a_certificate_without_an_authority_is_refused(tmp_path: Path) -> None:
    """failures.md L26: TLS is verified."""
    ssl = pytest.importorskip("ssl")
    openssl = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem"),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await openssl.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.close()

    def ignore(_: object, __: object) -> None:
        """The server's side of a handshake that was broken off."""

    asyncio.get_running_loop().set_exception_handler(ignore)
    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        model = Model("plain", "m", base_url=f"https://127.0.0.1:{port}", api_key=CANARY, settings=HELD)
        info = failed([event async for event in stream_events(stream, model, ASKED, StreamOptions())])

    assert (info.kind, info.should_retry, heard) == ("network", False, [])
    assert "No secure connection to 'plain'" in info.message
    assert "SSL_CERT_FILE" in info.message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_does_not_get_the_key(status: int) -> None:
    """failures.md L26."""
    async with PlainServer("never", key=None) as other, PlainServer(key=CANARY) as server:
        server.say(Reply(status, b"", {"location": f"{other.url}/ask?token=secret"}))
        info = failed(await asked(server))

    assert other.raw == []
    assert (info.kind, info.status, info.should_retry) == ("invalid_request", status, False)
    assert f"redirects ({status}) to '{other.url}/ask', where the key is not sent." in info.message
    assert "set it as base_url" in info.message


async def test_a_redirect_within_the_server_is_followed_and_not_for_ever() -> None:
    async with PlainServer(Reply(307, b"", {"location": "/v1/ask"}), "hello") as server:
        assert said(await asked(server)) == "hello"
        assert [received.json for received in server.raw] == [{"text": ["Hello?"]}] * 2

    async with PlainServer(Reply(308, b"", {"location": "/v1/ask"}), repeat_last=True) as server:
        assert failed(await asked(server)).kind == "invalid_request"
        assert len(server.raw) == 3


async def test_a_proxy_of_the_environment_is_not_used_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L26."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert said(await answered("hello")) == "hello"


async def test_a_proxy_of_the_environment_is_used_for_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with PlainServer("via the proxy") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        model = Model("plain", "m", base_url="http://llm.example.invalid/v1", api_key="test-key", settings=HELD)
        events = [event async for event in stream_events(stream, model, ASKED, StreamOptions())]
        assert said(events) == "via the proxy"
        assert proxy.raw[0].headers["host"] == "llm.example.invalid"

        monkeypatch.setenv("no_proxy", "example.invalid")
        events = [event async for event in stream_events(stream, model, ASKED, StreamOptions())]
    assert failed(events).kind == "network"
    assert len(proxy.raw) == 1


async def test_a_proxy_that_is_no_http_proxy_is_named() -> None:
    model = Model("plain", "m", base_url="http://llm.example.invalid/v1", settings={"proxy": "socks5://u:p@host:1"})
    info = failed([event async for event in stream_events(stream, model, ASKED, StreamOptions())])
    assert (info.kind, info.should_retry) == ("network", False)
    assert "The proxy 'socks5://host:1' on the way to 'plain' is not an HTTP proxy" in info.message


@pytest.mark.parametrize(
    "script",
    [
        (Reply(401, {"error": f"Incorrect API key provided: {CANARY}"}),),
        (Reply(200, {"error": f"your key {CANARY} is wrong"}),),
        (b'data: {"error": "key ' + CANARY.encode() + b' was revoked"}\n\n',),
        (b"data: " + CANARY.encode() + b"\n\n",),
        (raises(OSError("x")),),
        (Reply(302, b"", {"location": f"http://host.invalid/{CANARY}"}),),
        (Reply(500, {"error": "x"}, {"x-request-id": CANARY}),),
    ],
    ids=["body", "body in a 200", "event", "garbage", "reset", "redirect", "request id"],
)
async def test_the_key_is_in_no_error(script: tuple[Answer, ...]) -> None:
    """failures.md L13: not in the text, the body, the exception or its causes."""
    async with PlainServer(*script, key=CANARY) as server:
        model = server.model(settings=HELD)
        with pytest.raises(ProviderError) as raised:
            async for _ in cast(Any, stream(model, ASKED, StreamOptions())):
                pass

    chain: list[BaseException | None] = [raised.value, raised.value.__cause__]
    if not raised.value.__suppress_context__:
        chain.append(raised.value.__context__)
    assert CANARY not in repr([(link, vars(link)) for link in chain if link is not None])
    assert CANARY not in str(raised.value)
    assert CANARY not in repr(raised.value.info)
    assert CANARY not in repr(model)


def test_a_loop_that_ends_closes_its_connections() -> None:
    """Nothing is warned about, whether a loop is run to its end or given up."""

    async def work() -> str:
        async with PlainServer("hello") as server:
            return said(await asked(server))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [asyncio.run(work()) for _ in range(3)] == ["hello"] * 3
        given_up = asyncio.new_event_loop()
        assert given_up.run_until_complete(work()) == "hello"
        given_up.close()
        assert asyncio.run(work()) == "hello"
        gc.collect()
    # The loop that was given up had an open socket, which it says itself; the session says nothing.
    assert [str(one.message) for one in caught if "client" in str(one.message).lower()] == []


async def test_connections_can_be_closed_by_hand_and_opened_again() -> None:
    async with PlainServer("a", "b") as server:
        await asked(server)
        await aclose_http()
        await aclose_http()
        assert said(await asked(server)) == "b"
    assert [received.connection for received in server.raw] == [1, 2]


async def test_a_wire_that_raises_is_told_and_leaves_no_connection() -> None:
    class Clumsy(PlainWire):
        def decoder(self, model: Model, request: Request) -> Any:
            raise RuntimeError("clumsy")

    async with PlainServer(stall("hello")) as server:
        model = server.model(settings=HELD)
        events = [event async for event in stream_events(http_stream(Clumsy()), model, ASKED, StreamOptions())]
        assert await server.raw[0].wait_for_outcome() == "left"
    assert failed(events).message == "RuntimeError: clumsy"


def test_virtual_time_does_not_stop_the_import() -> None:
    """The module can be used from a loop without sockets as long as nothing is asked."""
    assert run_virtual(aclose_http()) is None
