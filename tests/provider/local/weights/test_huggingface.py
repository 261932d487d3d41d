"""Models of the hub by name, on a server on loopback that answers as the hub does: a redirect with size and sha256."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest
from aiohttp import web
from tests.cli.command import Place, make_place, run_command
from tests.provider.local.weights.hubs import MEGA, some_bytes

from steersman.provider.local.weights.disk import WeightsError
from steersman.provider.local.weights.find import fetch_weights
from steersman.provider.local.weights.hub import is_same_origin
from steersman.provider.local.weights.huggingface import (
    HubReference,
    find_downloaded,
    find_hub_model,
    list_hub_models,
    parse_reference,
)

pytestmark = pytest.mark.real_time

DATA = some_bytes(2 * MEGA)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "hf:maker/Tiny-GGUF/tiny-q4.gguf"
TOKEN = "hf_canary0123456789"


@dataclass(slots=True)
class Hub:
    """The hub and the server that holds its files, on two ports: two origins, as the real ones are."""

    data: bytes = DATA
    digest: str | None = sha256(DATA).hexdigest()
    size: str | None = None
    private: bool = False
    moved: bool = False
    cut: int | None = None
    url: str = ""
    files: str = ""
    asked: list[tuple[str, str, str | None]] = field(default_factory=list[tuple[str, str, str | None]])
    """Method and path of each request, and its authorization."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A request to the hub itself."""
        self.asked.append((request.method, request.path, request.headers.get("Authorization")))
        if self.private and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401, headers={"X-Error-Code": "GatedRepo"})
        if self.moved and "/old/" in request.path:
            return web.Response(status=307, headers={"Location": request.path.replace("/old/", "/maker/")})
        revision, _, file = request.match_info["rest"].partition("/")
        if revision not in ("main", "v2", COMMIT):
            return web.Response(status=404, headers={"X-Error-Code": "RevisionNotFound"})
        if file != "tiny-q4.gguf":
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
        size = str(len(self.data)) if self.size is None else self.size
        headers = {"X-Repo-Commit": COMMIT, "Location": f"{self.files}/blob", "X-Linked-Size": size}
        if self.digest is not None:
            headers["X-Linked-Etag"] = f'"{self.digest}"'
        return web.Response(status=302, headers=headers)

    async def send(self, request: web.Request) -> web.StreamResponse:
        """A request to the server of the files."""
        self.asked.append((request.method, request.path, request.headers.get("Authorization")))
        start = int(request.headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        size = len(self.data)
        headers = {"ETag": '"one"', "Content-Length": str(size - start)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        if self.cut is not None:
            await response.write(self.data[start : self.cut])
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(self.data[start:])
        return response


@asynccontextmanager
async def serving(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Hub, None]:
    """The hub, as `HF_ENDPOINT` names it."""
    front, store = web.Application(), web.Application()
    front.router.add_get("/{owner}/{repo}/resolve/{rest:.*}", hub.answer)
    store.router.add_get("/blob", hub.send)
    runners = [web.AppRunner(front), web.AppRunner(store)]
    ports: list[int] = []
    try:
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            ports.append(runner.addresses[0][1])
        hub.url, hub.files = (f"http://127.0.0.1:{port}" for port in ports)
        monkeypatch.setenv("HF_ENDPOINT", f"{hub.url}/")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub
    finally:
        for runner in runners:
            await runner.cleanup()


async def get(name: str, cache: Path) -> Path:
    return (await fetch_weights(await find_hub_model(parse_reference(name)), cache=cache)).path


async def test_a_model_of_the_hub_is_found_by_name_from_then_on_without_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Hub(), monkeypatch) as hub:
        path = await get(NAME, tmp_path)
    assert (path, path.read_bytes()) == (tmp_path / "maker--Tiny-GGUF--tiny-q4.gguf", DATA)
    assert hub.asked == [
        ("HEAD", "/maker/Tiny-GGUF/resolve/main/tiny-q4.gguf", None),
        ("GET", f"/maker/Tiny-GGUF/resolve/{COMMIT}/tiny-q4.gguf", None),
        ("GET", "/blob", None),
    ]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    for name in ("tiny-q4", NAME):
        found = await fetch_weights(name, cache=tmp_path)
        assert (found.path, found.model.reference, found.model.sha256) == (path, NAME, hub.digest)
    with pytest.raises(WeightsError, match=r"No local model named 'tiny-q5'. There are .*, tiny-q4"):
        await fetch_weights("tiny-q5", cache=tmp_path)


async def test_bytes_that_are_not_what_the_hub_names_are_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Hub(data=some_bytes(len(DATA), seed=1)), monkeypatch):
        with pytest.raises(WeightsError, match="its bytes have the sha256"):
            await get(NAME, tmp_path)
    assert (list_hub_models(tmp_path), [name for name in os.listdir(tmp_path) if name.endswith(".gguf")]) == ([], [])


async def test_the_token_is_for_the_hub_and_not_for_where_it_redirects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """failures.md L13: a key goes to the server that it is for."""
    async with serving(Hub(private=True), monkeypatch) as hub:
        with pytest.raises(WeightsError, match=r"needs a sign-in \(set HF_TOKEN if it is private or gated\)"):
            await get(NAME, tmp_path)
        hub.asked.clear()
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        path = await get(NAME, tmp_path)
        assert path.read_bytes() == DATA
        assert [(place, key) for _, place, key in hub.asked] == [
            ("/maker/Tiny-GGUF/resolve/main/tiny-q4.gguf", f"Bearer {TOKEN}"),
            (f"/maker/Tiny-GGUF/resolve/{COMMIT}/tiny-q4.gguf", f"Bearer {TOKEN}"),
            ("/blob", None),
        ]
    kept = b"".join((tmp_path / name).read_bytes() for name in os.listdir(tmp_path))
    assert TOKEN.encode() not in kept


async def test_a_broken_download_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Hub(cut=MEGA), monkeypatch) as hub:
        with pytest.raises(WeightsError, match="the connection"):
            await get(NAME, tmp_path)
        (had,) = [os.stat(tmp_path / name).st_size for name in os.listdir(tmp_path) if name.endswith(".part")]
        hub.cut = None
        assert (await get(NAME, tmp_path)).read_bytes() == DATA
    assert had > 0


async def test_a_repository_that_was_renamed_is_followed_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Hub(moved=True), monkeypatch):
        assert (await get("hf:old/Tiny-GGUF/tiny-q4.gguf@v2", tmp_path)).read_bytes() == DATA
    assert [model.reference for model in list_hub_models(tmp_path)] == ["hf:old/Tiny-GGUF/tiny-q4.gguf@v2"]


@pytest.mark.parametrize(
    ("name", "hub", "why"),
    [
        ("hf:maker/Tiny-GGUF/other.gguf", Hub(), "There is no file 'other.gguf' in maker/Tiny-GGUF on the hub"),
        (f"{NAME}@v9", Hub(), "There is no revision 'v9' of maker/Tiny-GGUF on the hub"),
        (NAME, Hub(digest=None), "The hub names no sha256 for hf:maker/Tiny-GGUF/tiny-q4.gguf"),
        (NAME, Hub(digest="abc"), "The hub names no sha256 for hf:maker/Tiny-GGUF/tiny-q4.gguf"),
        (NAME, Hub(size="9" * 5_000), "The hub names no size for hf:maker/Tiny-GGUF/tiny-q4.gguf"),
    ],
)
async def test_what_the_hub_does_not_have_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, hub: Hub, why: str
) -> None:
    async with serving(hub, monkeypatch):
        with pytest.raises(WeightsError, match=why):
            await get(name, tmp_path)


async def test_a_hub_that_is_not_there_or_not_safe_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(WeightsError, match="cannot be reached"):
        await find_hub_model(parse_reference(NAME))
    for unsafe in ("http://hub.example", f"https://me:{TOKEN}@hub.example"):
        monkeypatch.setenv("HF_ENDPOINT", unsafe)
        with pytest.raises(WeightsError, match="it has to be an HTTPS URL without a password") as told:
            await find_hub_model(parse_reference(NAME))
        assert TOKEN not in str(told.value)


def test_a_reference_has_one_form() -> None:
    assert parse_reference(NAME) == HubReference("maker/Tiny-GGUF", "tiny-q4.gguf")
    deep = parse_reference("hf:maker/Tiny-GGUF/q4/tiny.gguf@refs/pr/1")
    assert deep == HubReference("maker/Tiny-GGUF", "q4/tiny.gguf", "refs/pr/1")
    assert (deep.name, deep.text) == ("tiny", "hf:maker/Tiny-GGUF/q4/tiny.gguf@refs/pr/1")
    for wrong in ("hf:tiny.gguf", "hf:maker/tiny.gguf", "hf:maker/repo/../x.gguf", "hf:a/b/c.bin", "hf:a/b/c.gguf?x"):
        with pytest.raises(WeightsError, match="is not a model of the hub"):
            parse_reference(wrong)
    with pytest.raises(WeightsError, match="one piece of a model"):
        parse_reference("hf:a/b/c-00001-of-00002.gguf")


def test_an_origin_is_scheme_host_and_port() -> None:
    assert is_same_origin("https://hub.example/a", "https://hub.example:443/b")
    for other in ("http://hub.example/a", "https://hub.example:444/a", "https://cdn.hub.example/a"):
        assert not is_same_origin("https://hub.example/a", other)


def test_two_models_of_one_name_are_told_apart_by_their_references(tmp_path: Path) -> None:
    for maker in ("one", "two"):
        record = tmp_path / f"{maker}--r--tiny.gguf.hub"
        told = {"reference": f"hf:{maker}/r/tiny.gguf", "url": "https://hub.example", "size": 4, "sha256": "0" * 64}
        record.write_text(json.dumps(told))
    (tmp_path / "three--r--tiny.gguf.hub").write_text("{")
    with pytest.raises(WeightsError, match=r"several models named 'tiny': hf:one/r/tiny.gguf, hf:two/r/tiny.gguf"):
        find_downloaded("tiny", tmp_path)
    found = find_downloaded("hf:two/r/tiny.gguf", tmp_path)
    assert found is not None
    assert found.file == "two--r--tiny.gguf"


async def test_the_command_gets_a_model_and_lists_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place: Place = make_place(tmp_path)
    async with serving(Hub(private=True), monkeypatch) as hub:
        env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
        done = await asyncio.to_thread(run_command, ["models", "get", NAME], place=place, env=env)
        wrong = await asyncio.to_thread(run_command, ["models", "get"], place=place, env=env)
    folder = place.home / "cache" / "steersman" / "models"
    assert (done.code, done.text) == (
        0,
        f"{folder / 'maker--Tiny-GGUF--tiny-q4.gguf'}\nUse it: steersman --model local:tiny-q4\n",
    )
    assert TOKEN not in done.errors
    assert (wrong.code, wrong.errors.startswith("steersman: Name the model: steersman models get hf:")) == (2, True)
    listed = await asyncio.to_thread(run_command, ["models", "tiny-q4"], place=place, env={})
    assert "local:tiny-q4" in listed.text
    assert os.stat(folder / "maker--Tiny-GGUF--tiny-q4.gguf").st_mode & 0o077 == 0
