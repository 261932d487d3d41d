"""What `fetch` gives: text, pages, pictures, errors, and never more than it may, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import datetime
import gzip
import ipaddress
import socket
import ssl
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row
from tests.timing import ample
from tests.tools.builtin.shells import until
from tests.tools.builtin.sites import Site, page, reply

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin.fetch_tool import fetch_tool
from steersman.tools.output import ToolContext
from steersman.tools.threads import count_running_threads
from steersman.tools.tool import Tool
from steersman.tools.web import Body, parse_content_type
from steersman.types.cancel import CancelToken
from steersman.types.content import ImageContent, TextContent
from steersman.types.errors import ToolError
from steersman.types.messages import ToolResultMessage
from steersman.types.tools import ToolOutput

pytestmark = pytest.mark.real_time

XML = "<?xml version='1.0' encoding='iso-8859-15'?>€"
PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\nIDATx\x9cc\x00\x01\x00\x00\x05\x00\x01\r\n-\xb4\x00\x00\x00\x00IEND\xaeB`\x82"
)
GIF = b"GIF89a\x01\x00\x02\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x02\x00\x00\x02\x02D\x01\x00;"


async def fetched(tool: Tool, url: str) -> ToolOutput:
    return await tool.call(tool.check({"url": url}), ToolContext("call_1", "fetch", CancelToken()))


async def text_of(raw: bytes, **settings: Any) -> str:
    """What the model reads of an answer, without the line that says where it is from."""
    async with Site({"/": raw}) as site:
        output = await fetched(fetch_tool(allow=[site.opening], **settings), f"{site.url}/")
        assert isinstance(output.content, str)
        head, _, rest = output.content.partition("\n")
        assert head == f"{site.url}/"
        return rest.removeprefix("\n")


async def test_text_comes_as_it_is_with_where_it_is_from() -> None:
    async with Site({"/a?b=c": page("  hello\n", "text/plain")}) as site:
        output = await fetched(fetch_tool(allow=[site.opening]), f"{site.url}/a?b=c#d")
        url = f"{site.url}/a?b=c"
        assert output == ToolOutput(f"{url}\n\n  hello\n", {"url": url, "http_status": 200, "media_type": "text/plain"})
        assert [(asked.method, asked.target) for asked in site.asked] == [("GET", "/a?b=c")]


@pytest.mark.parametrize(
    "kind", ["application/json", "application/problem+json; x=y", "image/svg+xml", "application/x-yaml", "TEXT/CSV", ""]
)
async def test_what_is_text_by_another_name_comes_as_it_is(kind: str) -> None:
    assert await text_of(page('{"a": [1, "ü"]}', kind)) == '{"a": [1, "ü"]}'


async def test_html_comes_as_text_with_links_and_title() -> None:
    html = "<title>News</title><body><h1>Today</h1><p>Read <a href='/more'>all of it</a>.</p><script>x()</script>"
    async with Site({"/": page(html, "text/html")}) as site:
        output = await fetched(fetch_tool(allow=[site.opening]), f"{site.url}/")
        assert output.content == f"{site.url}/\n\nTitle: News\n\n# Today\n\nRead [all of it]({site.url}/more)."


async def test_html_without_a_content_type_is_known_by_its_look() -> None:
    assert await text_of(reply("\n <!DOCTYPE html><p>hello<p>you")) == "hello\n\nyou"


@each_row(
    ("body", "kind", "text"),
    [
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        ("grün".encode("latin-1"), "text/plain", "grün"),
        ("“quoted”".encode("cp1252"), "text/plain; charset=latin1", "“quoted”"),
        ("grün".encode("utf-16"), "text/plain", "grün"),
        ("grün".encode("utf-16-le"), 'text/plain; charset="UTF-16LE"', "grün"),
        (b"\xef\xbb\xbfgr\xc3\xbcn", "text/plain; charset=latin1", "grün"),
        ("日本".encode("shift_jis"), "text/plain; charset=Shift_JIS", "日本"),
        ("<meta charset=euc-jp><p>日本".encode("euc_jp"), "text/html", "日本"),
        (
            "<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>Привет".encode("cp1251"),
            "text/html",
            "Привет",
        ),
        (XML.encode("iso8859-15"), "text/xml", XML),
        (b"<meta charset=utf-16>gr\xc3\xbcn", "text/html", "grün"),
        (b"caf\xc3\xa9", "text/plain; charset=nonsense", "café"),
        (b"caf\xc3\xa9", "text/plain; charset=zlib", "café"),
        (b"caf\xc3\xa9", "text/plain; charset=unicode_escape", "café"),
        (b"a\xffb", "text/plain; charset=utf-8", "a\ufffdb"),
    ],
)
async def test_the_charset_is_found(body: bytes, kind: str, text: str) -> None:
    """failures.md K2: what cannot be decoded is replaced; a charset that is none is not believed."""
    assert await text_of(page(body, kind)) == text


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b"%PDF-1.7", "application/pdf", "application/pdf, 8 bytes"),
        (b"PK\x03\x04", "application/octet-stream", "application/octet-stream, 4 bytes"),
        (b"\x00\x01text", "text/plain", "text/plain, 6 bytes"),
        (b"\x00\x01text", "", "binary data, 6 bytes"),
    ],
)
async def test_what_cannot_be_read_is_described(body: bytes, kind: str, words: str) -> None:
    assert await text_of(page(body, kind)) == f"Not shown: {words}. Only text, HTML and pictures can be shown."


async def test_a_type_with_bytes_that_are_no_text_can_be_stored() -> None:
    """failures.md K2: the answer was lost to an error of the encoder, and with it what a request of an API did."""
    answer = page("hello", "text/XX").replace(b"XX", b"\xff\xfe")
    async with Site({"/": answer}) as site:
        output = await fetched(fetch_tool(allow=[site.opening]), f"{site.url}/")
        url = f"{site.url}/"
        details = {"url": url, "http_status": 200, "media_type": "text/\ufffd\ufffd"}
        assert output == ToolOutput(f"{url}\n\nhello", details)


async def test_what_cannot_be_read_is_not_downloaded() -> None:
    raw = reply(Content_Type="video/mp4", Transfer_Encoding="chunked")
    async with Site({"/": _sending(raw, b"400\r\n" + bytes(1024) + b"\r\n")}) as site:
        output = await fetched(fetch_tool(allow=[site.opening], timeout=10), f"{site.url}/")
        assert output.content == (
            f"{site.url}/\nNot shown: video/mp4, of unknown size. Only text, HTML and pictures can be shown."
        )
        await asyncio.wait_for(site.left.wait(), 10)


@pytest.mark.parametrize(("data", "kind", "size"), [(PNG, "image/png", "1 x 1"), (GIF, "image/gif", "1 x 2")])
async def test_a_picture_comes_as_a_picture_of_the_kind_it_is(data: bytes, kind: str, size: str) -> None:
    async with Site({"/": page(data, "image/jpeg")}) as site:
        output = await fetched(fetch_tool(allow=[site.opening]), f"{site.url}/")
        picture = ImageContent(base64.b64encode(data).decode(), kind)
        assert output.content == [TextContent(f"{site.url}/\n{kind}, {size} pixels, {len(data)} bytes"), picture]


UNSEEN = "Only text, HTML and pictures can be shown."


@pytest.mark.parametrize(
    ("data", "settings", "text"),
    [
        (PNG, {"images": False}, f"Not shown: image/png, {len(PNG)} bytes. {UNSEEN}"),
        (
            PNG,
            {"max_bytes": 50},
            f"Not shown: image/png, of unknown size. {UNSEEN} This picture cannot: it has more than 50 bytes.",
        ),
        (PNG[:-8], {}, f"Not shown: image/png, 59 bytes. {UNSEEN} This picture cannot: it is malformed or truncated."),
        (
            b"not one",
            {},
            f"Not shown: image/png, 7 bytes. {UNSEEN} This picture cannot: it is not a PNG, JPEG, GIF or WebP picture.",
        ),
    ],
)
async def test_a_picture_no_model_would_take_is_described(data: bytes, settings: dict[str, Any], text: str) -> None:
    """Sent, it would be refused by every model, from then on."""
    assert await text_of(page(data, "image/png"), **settings) == text


async def test_an_empty_answer_says_so() -> None:
    assert await text_of(reply(status="204 No Content")) == "(The answer is empty.)"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (reply("no", "404 Not Found", Content_Type="text/plain"), "HTTP 404 Not Found from {url}\n\nno"),
        (reply("<h1>Down</h1>", "503 Busy", Content_Type="text/html"), "HTTP 503 Busy from {url}\n\n# Down"),
        (reply(PNG, "500 Oops", Content_Type="image/png"), "HTTP 500 Oops from {url}"),
        (reply(status="304 Not Modified"), "HTTP 304 Not Modified from {url}"),
        (reply(status="302 Found"), "HTTP 302 Found from {url}"),
        (reply("x" * 9_000, "400 Bad", Content_Type="text/plain"), "HTTP 400 Bad from {url}\n\n" + "x" * 2_000),
    ],
)
async def test_an_error_is_an_error_result_with_the_beginning_of_its_page(raw: bytes, text: str) -> None:
    async with Site({"/": raw}) as site:
        output = await fetched(fetch_tool(allow=[site.opening]), f"{site.url}/")
        assert (output.content, output.is_error) == (text.format(url=f"{site.url}/"), True)


CUT = "\n\n[There is more, or it was cut off; only this much was read.]"


@each_row(
    ("raw", "text"),
    [
        (page("a" * 100, "text/plain"), "a" * 100),
        (page("a" * 101, "text/plain"), "a" * 100 + CUT),
        (page(gzip.compress(b"a" * 100), "text/plain", Content_Encoding="gzip"), "a" * 100),
        (page(gzip.compress(b"a" * 101), "text/plain", Content_Encoding="gzip"), "a" * 100 + CUT),
        (page(gzip.compress(b"ab") + gzip.compress(b"cd"), "text/plain", Content_Encoding="x-gzip"), "abcd"),
        (page(zlib.compress(b"hello"), "text/plain", Content_Encoding="deflate"), "hello"),
        (page(zlib.compress(b"hello") + b"\3\0" * 9, "text/plain", Content_Encoding="deflate"), "hello"),
        (page(zlib.compress(b"hello") + b"rest", "text/plain", Content_Encoding="deflate"), "hello"),
        (page(zlib.compress(b"hello")[2:-4], "text/plain", Content_Encoding="Deflate"), "hello"),
        (page(gzip.compress(b"hello")[:-4], "text/plain", Content_Encoding="gzip"), "hello" + CUT),
        (page("ü" * 51, "text/plain; charset=utf-8"), "ü" * 50 + CUT),
        (page("aü" * 34, "text/plain"), "aü" * 33 + "a" + CUT),
        (page("<p>" + "a" * 200, "text/html"), "a" * 97 + CUT),
    ],
)
async def test_no_more_than_the_limit_is_read_however_it_is_packed(raw: bytes, text: str) -> None:
    assert await text_of(raw, max_bytes=100) == text


@each_row(
    ("raw", "words"),
    [
        (page("x", Content_Encoding="br"), "content-encoding 'br', which cannot be decoded here"),
        (page("x", Content_Encoding="gzip, gzip"), "content-encoding 'gzip, gzip', which cannot be decoded here"),
        (page("not packed at all", Content_Encoding="gzip"), "could not be decoded"),
        (b"nonsense\r\n\r\n", "could not be read"),
        (b"", "could not be read"),
        (reply("half", Content_Type="text/plain").replace(b": 4", b": 40"), "could not be read"),
        (reply(Transfer_Encoding="chunked") + b"zz\r\n", "could not be read"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", "could not be read"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_the_model_can_read(raw: bytes, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        await text_of(raw)


async def test_a_small_answer_that_unpacks_to_a_huge_one_takes_little_memory() -> None:
    """failures.md L20: a bomb."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join([packer.compress(b"a" * 1_000_000) for _ in range(100)]) + packer.flush()
    raw = page(bomb, "text/plain", Content_Encoding="gzip")
    assert len(raw) < 125_000
    async with Site({"/": raw}) as site:
        tool = fetch_tool(allow=[site.opening], max_bytes=1_000_000)
        tracemalloc.start()
        try:
            output = await fetched(tool, f"{site.url}/")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert output.content == f"{site.url}/\n\n" + "a" * 1_000_000 + CUT
        assert peak < 16_000_000


def _sending(*parts: bytes, forever: bytes = b"") -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """An answer that never ends: it begins with some parts and then waits, or goes on with one for ever."""

    async def send(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
        await writer.drain()
        while forever:
            writer.write(forever)
            await writer.drain()
        await asyncio.Event().wait()

    return send


HEAD = reply(Content_Type="text/plain", Transfer_Encoding="chunked")


@pytest.mark.parametrize(
    "parts",
    [(), (b"HTTP/1.1 200 OK\r\n",), (HEAD,), (HEAD, b"1\r\na\r\n")],
    ids=["silent", "no end of head", "no body", "no end"],
)
async def test_a_server_that_does_not_finish_is_left(parts: tuple[bytes, ...]) -> None:
    async with Site({"/whole": page("a")}, other=_sending(*parts)) as site:
        # Where the time is over before the server was asked, it is not left.
        seconds = await ample(lambda: fetched(fetch_tool(allow=[site.opening]), f"{site.url}/whole"), 0.2)
        with pytest.raises(ToolError) as raised:
            await fetched(fetch_tool(allow=[site.opening], timeout=seconds), f"{site.url}/")
        assert str(raised.value) == f"'{site.url}/' did not answer in full within {seconds:g}s."
        await asyncio.wait_for(site.left.wait(), 10)


async def test_a_server_that_never_ends_is_left_at_the_limit() -> None:
    async with Site(other=_sending(HEAD, forever=b"400\r\n" + b"a" * 1024 + b"\r\n")) as site:
        output = await fetched(fetch_tool(allow=[site.opening], max_bytes=10_000), f"{site.url}/")
        assert output.content == f"{site.url}/\n\n" + "a" * 10_000 + CUT
        await asyncio.wait_for(site.left.wait(), 10)


async def test_packed_nothing_for_ever_is_left_at_the_limit_too() -> None:
    nothing = gzip.compress(b"")
    part = b"%x\r\n" % len(nothing) + nothing + b"\r\n"
    head = reply(Content_Type="text/plain", Transfer_Encoding="chunked", Content_Encoding="gzip")
    async with Site(other=_sending(head, forever=part)) as site:
        output = await fetched(fetch_tool(allow=[site.opening], max_bytes=10_000, timeout=20), f"{site.url}/")
        assert output.content == f"{site.url}/\n\n{CUT}"


async def test_a_page_that_takes_too_long_to_read_keeps_no_thread_busy() -> None:
    """failures.md F16: an abandoned page would be read for seconds."""
    before = count_running_threads()
    async with Site({"/": page("<a href=x>" * 500_000, "text/html")}) as site:
        with pytest.raises(ToolError, match=r"did not answer in full within 1s\.$"):
            await fetched(fetch_tool(allow=[site.opening], timeout=1), f"{site.url}/")
    await until(lambda: count_running_threads() <= before, 1.0)


async def test_a_cancelled_fetch_closes_its_connection() -> None:
    """failures.md F1."""
    async with Site(other=_sending(HEAD, b"1\r\na\r\n")) as site:
        task = asyncio.ensure_future(fetched(fetch_tool(allow=[site.opening]), f"{site.url}/"))
        await asyncio.wait_for(site.answering.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(site.left.wait(), 10)


async def test_a_server_that_is_not_there_is_an_error_result() -> None:
    async with Site() as site:
        port = site.port
    with pytest.raises(ToolError, match=rf"^No connection to 'http://127\.0\.0\.1:{port}/' \("):
        await fetched(fetch_tool(allow=[f"127.0.0.1:{port}"]), f"http://127.0.0.1:{port}/")


async def test_a_host_that_takes_no_connection_is_left() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        # The queue of a server that accepts no connection is soon full, and the system stays silent to the next.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        tool = fetch_tool(allow=[f"127.0.0.1:{port}"], connect_timeout=0.1)
        try:
            with pytest.raises(ToolError, match=rf"^No connection to 'http://127\.0\.0\.1:{port}/' within 0\.1s\.$"):
                await fetched(tool, f"http://127.0.0.1:{port}/")
        finally:
            for each in waiting:
                each.close()


async def test_a_name_that_takes_too_long_to_be_found_is_an_error_result() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(ToolError, match=r"^The host 'example\.org' could not be found within 0\.05s\.$"):
        await fetched(fetch_tool(resolve=never, connect_timeout=0.05), "https://example.org/")


async def test_the_tool_works_in_a_run() -> None:
    async with Site({"/": page("the news", "text/plain")}) as site:
        script = ScriptedModel(
            answer(call("fetch", url=f"{site.url}/"), call("fetch", url="http://169.254.169.254/")), "Read."
        )
        result = await Agent(script.model, tools=[fetch_tool(allow=[site.opening])]).run("What is new?")
        assert [(m.text, m.is_error) for m in result.messages if isinstance(m, ToolResultMessage)] == [
            (f"{site.url}/\n\nthe news", False),
            (
                "The host '169.254.169.254' leads to a cloud metadata address, and only public addresses may be "
                "fetched. Only the user can open others, with fetch_tool(allow=[...]).",
                True,
            ),
        ]


@pytest.mark.parametrize(
    "settings",
    [{"max_bytes": 0}, {"timeout": 0}, {"timeout": float("nan")}, {"connect_timeout": -1}, {"max_redirects": -1}],
)
def test_a_wrong_setting_is_a_mistake(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        fetch_tool(**settings)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for site.example without an authority, and its key."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site.example")])
    names = [x509.DNSName("site.example"), x509.IPAddress(ipaddress.ip_address("127.0.0.9"))]
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "site.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "site.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return folder / "site.pem", folder / "site.key"


async def secure(certificate: tuple[Path, Path], host: str, *, trusted: bool) -> str:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    client = ssl.create_default_context(cafile=str(certificate[0])) if trusted else None

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with Site(other=page("over TLS", "text/plain"), tls=server) as site:
        tool = fetch_tool(allow=[site.opening], resolve=here, ssl_context=client)
        return str((await fetched(tool, f"https://{host}:{site.port}/")).content)


async def test_a_certificate_is_held_against_the_name_and_not_the_address(certificate: tuple[Path, Path]) -> None:
    assert (await secure(certificate, "site.example", trusted=True)).endswith("\n\nover TLS")
    with pytest.raises(ToolError, match=r"^The certificate of 'https://other\.example:\d+/' is not trusted \("):
        await secure(certificate, "other.example", trusted=True)


async def test_a_certificate_without_an_authority_is_not_trusted(certificate: tuple[Path, Path]) -> None:
    """failures.md L26."""
    with pytest.raises(ToolError, match=r"^The certificate of 'https://site\.example:\d+/' is not trusted \("):
        await secure(certificate, "site.example", trusted=False)


def test_a_header_full_of_blanks_does_not_stop_the_event_loop() -> None:
    """docs/fetch.md: a server decides what is in its headers, and they are parsed in the event loop."""
    began = time.process_time()
    assert parse_content_type(f"text/html; charset={' ' * 40_000}\x01") == ("text/html", None)
    assert time.process_time() - began < 2  # a minute and more where each blank is tried with all others


@each_row(
    ("data", "charset"),
    [
        (b"\xd2" * 100_000, "cp1253"),
        (b"a" + "日本".encode("euc_jp") * 30_000 + b"\xff", "euc_jp"),
        (b"a\xd8" * 50_000 + b"b", "utf-16-le"),
        (b"\x1b$B\x1b" * 30_000, "iso2022_jp"),
    ],
)
async def test_other_tasks_run_while_an_answer_is_decoded(data: bytes, charset: str) -> None:
    """Five megabytes of malformed bytes take seconds, and no part of a decoding lets another thread run."""
    decoding = asyncio.create_task(Body(data, "text/plain", charset).decode())
    for _ in range(2):  # after its first piece and after its second
        await asyncio.sleep(0)
        assert not decoding.done()
    assert await decoding == data.decode(charset, "replace")
