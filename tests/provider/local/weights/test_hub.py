"""The publisher's hub: fetched once, gone on with where it broke off, and left for the next source when it is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.provider.local.weights.hubs import MEGA, Hub, listening, model_of, serving, some_bytes

from steersman.provider.local.weights.disk import Part, SourceError, WeightsError
from steersman.provider.local.weights.find import Progress, Weights, fetch_weights
from steersman.provider.local.weights.hub import HubTimeouts, fetch, resolve_redirect

pytestmark = pytest.mark.real_time

DATA = some_bytes(3 * MEGA)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ignore(done: int) -> None:
    del done


async def test_the_file_is_fetched_once_and_found_afterwards(tmp_path: Path) -> None:
    told: list[Progress] = []
    async with serving(Hub(DATA)) as hub:
        model = model_of(DATA, hub=hub.url)
        found = await fetch_weights(model, report=told.append, cache=tmp_path)
        assert found == Weights(tmp_path / "tiny.gguf", model)
        assert found.path.read_bytes() == DATA
        assert hub.asked == [("GET /tiny.gguf", None)]
        assert told[-1] == Progress("Checking tiny", len(DATA), len(DATA))
        assert Progress("Downloading tiny from 127.0.0.1", len(DATA), len(DATA)) in told
        told.clear()
        assert await fetch_weights(model, report=told.append, cache=tmp_path) == found
    assert (len(hub.asked), told) == (1, [])
    assert names(tmp_path) == ["tiny.gguf", "tiny.gguf.lock", "tiny.gguf.stamp"]
    assert [name for name in names(tmp_path) if (tmp_path / name).stat().st_mode & 0o077] == []


async def test_a_broken_connection_is_gone_on_with_where_it_broke(tmp_path: Path) -> None:
    async with serving(Hub(DATA, cuts=[MEGA, MEGA])) as hub:
        found = await fetch_weights(model_of(DATA, hub=hub.url), cache=tmp_path)
    assert found.path.read_bytes() == DATA
    assert hub.ranges_asked() == [None, f"{MEGA}-", f"{2 * MEGA}-"]


async def test_a_server_without_ranges_is_asked_for_all_of_it_again(tmp_path: Path) -> None:
    async with serving(Hub(DATA, cuts=[MEGA], ranges=False)) as hub:
        found = await fetch_weights(model_of(DATA, hub=hub.url), cache=tmp_path)
    assert found.path.read_bytes() == DATA


async def test_a_part_of_another_version_is_not_gone_on_with(tmp_path: Path) -> None:
    """The bytes would be mixed of two files."""
    part = Part(tmp_path / "part")
    part.append(b"GGUF of yesterday")
    part.save_state('"yesterday"')
    async with serving(Hub(DATA, etag='"today"')) as hub:
        await fetch(hub.url, part, len(DATA), report=ignore)
    assert part.path.read_bytes() == DATA
    assert (hub.ranges_asked(), part.load_state()) == (["17-", None], '"today"')


async def test_a_cut_that_never_gets_further_is_given_up(tmp_path: Path) -> None:
    part = Part(tmp_path / "part")
    async with serving(Hub(DATA, cuts=[MEGA, 0, 0, 0, 0, 0])) as hub:
        with pytest.raises(SourceError, match="the connection"):
            await fetch(hub.url, part, len(DATA), report=ignore)
    assert (part.get_length(), len(hub.asked)) == (MEGA, 2)


async def test_wrong_bytes_are_thrown_away(tmp_path: Path) -> None:
    async with serving(Hub(some_bytes(len(DATA), seed=1))) as hub:
        with pytest.raises(
            WeightsError, match=r"could not be downloaded: the publisher's hub: its bytes have the sha256"
        ):
            await fetch_weights(model_of(DATA, hub=hub.url), cache=tmp_path)
    assert names(tmp_path) == ["tiny.gguf.lock"]


@pytest.mark.parametrize(
    ("hub", "why"),
    [
        (Hub(DATA[:-1]), "has a file of 3145727 bytes, which is not this model"),
        (Hub(DATA + b"more", length=False), "sends more bytes than the file has"),
        (Hub(b"<html>Please log in to this network</html>", length=False), "does not send a GGUF model"),
        (Hub(DATA, status=404), "answered 404"),
        (Hub(DATA, status=503), "answered 503"),
        (Hub(DATA, location="http://example.invalid/tiny.gguf"), "redirects to http://example.invalid/tiny.gguf"),
        (Hub(DATA, location="/tiny.gguf"), "redirects too often"),
    ],
)
async def test_a_hub_that_has_not_the_file_says_why(tmp_path: Path, hub: Hub, why: str) -> None:
    async with serving(hub):
        with pytest.raises(SourceError, match=why):
            await fetch(hub.url, Part(tmp_path / "part"), len(DATA), report=ignore)


async def test_a_hub_that_is_out_of_order_does_not_cost_the_part(tmp_path: Path) -> None:
    part = Part(tmp_path / "part")
    part.append(DATA[:MEGA])
    part.save_state('"one"')
    async with serving(Hub(DATA, status=503)) as hub:
        with pytest.raises(SourceError):
            await fetch(hub.url, part, len(DATA), report=ignore)
    assert (part.get_length(), part.load_state()) == (MEGA, '"one"')


async def test_a_redirect_is_followed(tmp_path: Path) -> None:
    part = Part(tmp_path / "part")
    async with serving(Hub(DATA)) as there, serving(Hub(b"", location=there.url)) as hub:
        await fetch(hub.url, part, len(DATA), report=ignore)
    assert (part.path.read_bytes(), len(hub.asked), len(there.asked)) == (DATA, 1, 1)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("https://hub.example/a", "http://hub.example/a"),
        ("https://hub.example/a", "http://127.0.0.1/a"),
        ("https://hub.example/a", "file:///etc/passwd"),
        ("https://hub.example/a", "https://user:word@hub.example/a"),
        ("http://127.0.0.1/a", "http://hub.example/a"),
    ],
)
def test_a_redirect_to_less_than_https_is_not_followed(url: str, location: str) -> None:
    with pytest.raises(SourceError, match="which is not followed"):
        resolve_redirect(url, location)


def test_a_redirect_to_another_host_is_followed_over_https() -> None:
    assert resolve_redirect("https://hub.example/a", "https://files.example/b?c") == "https://files.example/b?c"
    assert resolve_redirect("https://hub.example/a/b", "../c") == "https://hub.example/c"


async def test_a_plain_address_elsewhere_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is not an HTTPS URL"):
        await fetch("http://hub.invalid/a", Part(tmp_path / "part"), 4, report=ignore)


async def test_a_hub_that_refuses_the_connection_is_given_up_at_once(tmp_path: Path) -> None:
    async with listening(lambda reader, writer: writer.close()) as port:
        pass
    with pytest.raises(SourceError, match=r"cannot be reached: Connect(ion refused| call failed)"):
        await fetch(f"http://127.0.0.1:{port}/a", Part(tmp_path / "part"), 4, report=ignore)


async def test_a_hub_that_takes_the_connection_and_says_nothing_costs_little(tmp_path: Path) -> None:
    """As behind a firewall that swallows what it does not like: the handshake never comes to its end."""
    async with listening(lambda reader, writer: asyncio.Event().wait()) as port:
        with pytest.raises(SourceError, match="cannot be reached: timeout"):
            await fetch(
                f"https://127.0.0.1:{port}/a",
                Part(tmp_path / "part"),
                4,
                report=ignore,
                timeouts=HubTimeouts(connect=0.1),
            )


async def test_a_hub_that_falls_silent_is_given_up_and_what_it_sent_is_kept(tmp_path: Path) -> None:
    part = Part(tmp_path / "part")
    async with serving(Hub(DATA, hang=MEGA)) as hub:
        hub.cuts = [len(DATA), 0]
        with pytest.raises(SourceError, match="timeout"):
            await fetch(hub.url, part, len(DATA), report=ignore, timeouts=HubTimeouts(stall=0.2))
    assert part.get_length() >= MEGA


async def test_a_cancel_leaves_a_part_that_the_next_call_goes_on_with(tmp_path: Path) -> None:
    async with serving(Hub(DATA, hang=2 * MEGA)) as hub:
        model = model_of(DATA, hub=hub.url)
        twice = asyncio.Event()

        def report(progress: Progress) -> None:
            if progress.done >= MEGA:
                twice.set()

        task = asyncio.ensure_future(fetch_weights(model, report=report, cache=tmp_path))
        await twice.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        kept = [name for name in names(tmp_path) if not name.endswith(".lock")]
        assert kept == [f"tiny.gguf.{model.sha256[:8]}.hub.part", f"tiny.gguf.{model.sha256[:8]}.hub.part.state"]
        had = (tmp_path / kept[0]).stat().st_size
        hub.hang = None
        assert (await fetch_weights(model, cache=tmp_path)).path.read_bytes() == DATA
    assert hub.ranges_asked() == [None, f"{had}-"]


async def test_the_proxy_of_the_environment_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with listening(proxy) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hunter2@127.0.0.1:{port}")
        monkeypatch.delenv("https_proxy", raising=False)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(SourceError) as told:
            await fetch("https://hub.invalid/a", Part(tmp_path / "part"), 4, report=ignore)
    assert heard == [b"CONNECT hub.invalid:443 HTTP/1.1\r\n"]
    assert "hunter2" not in str(told.value)


async def test_a_proxy_of_another_kind_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "socks5://me:hunter2@127.0.0.1:1")
    with pytest.raises(SourceError, match=r"the proxy 'socks5://127.0.0.1:1' is not an HTTP proxy"):
        await fetch("https://hub.invalid/a", Part(tmp_path / "part"), 4, report=ignore)
