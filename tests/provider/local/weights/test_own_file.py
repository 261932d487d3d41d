"""A model's file that the user names: used as it is, or refused in words that say what is wrong with it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL, LocalModel
from steersman.provider.local.weights.find import Weights, WeightsError, fetch_weights

pytestmark = pytest.mark.real_time


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def tiny_gguf(architecture: str = "tiny") -> bytes:
    """A model with one of each kind of fact and one tensor of 64 numbers of four bytes."""
    facts = [
        text("general.name") + struct.pack("<I", 8) + text("tiny"),
        text("general.architecture") + struct.pack("<I", 8) + text(architecture),
        text("general.alignment") + struct.pack("<II", 4, 64),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("one") + text("two"),
        text("scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<2f", 0.5, 1.5),
        text("flag") + struct.pack("<IB", 7, 1),
    ]
    tensor = text("weight") + struct.pack("<IQQIQ", 2, 8, 8, 0, 0)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, len(facts)) + b"".join(facts) + tensor
    return head + bytes(-len(head) % 64) + bytes(256)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("STEERSMAN_LOCAL_MODEL", raising=False)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    return path


def put(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def used(path: Path) -> Weights:
    return Weights(path, LocalModel("tiny", "tiny.gguf", "unknown", len(tiny_gguf()), ""))


async def test_a_path_is_used_as_it_is(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tiny.parent))
    monkeypatch.chdir(tiny.parent)
    for name in (str(tiny), "~/tiny.gguf", "tiny.gguf", "./tiny.gguf"):
        assert await fetch_weights(name) == used(tiny)


async def test_the_variable_names_the_file_where_no_other_model_is_asked_for(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEERSMAN_LOCAL_MODEL", str(tiny))
    assert await fetch_weights() == used(tiny)
    assert await fetch_weights("") == used(tiny)
    assert await fetch_weights(DEFAULT_LOCAL_MODEL) == used(tiny)
    with pytest.raises(WeightsError, match="No local model named 'nope'"):
        await fetch_weights("nope")


async def test_an_unknown_name_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as told:
        await fetch_weights("qwen", cache=tmp_path)
    assert str(told.value) == (
        "No local model named 'qwen'. There are qwen2.5-coder-0.5b, qwen2.5-coder-1.5b, smollm2-135m. "
        "Or name a GGUF file of your own: --model local:/path/model.gguf, or STEERSMAN_LOCAL_MODEL=/path/model.gguf."
    )


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"There is no file '.*/gone\.gguf'; check the path of the model\."):
        await fetch_weights(str(tmp_path / "gone.gguf"))


async def test_what_can_be_no_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="cannot be the path of a file"):
        await fetch_weights(f"{tmp_path}/a\0b.gguf")
    with pytest.raises(WeightsError, match="There is no file"):
        await fetch_weights("~nobody-of-this-name/model.gguf")


async def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="is a folder; name the GGUF file in it"):
        await fetch_weights(str(tmp_path))


async def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(WeightsError, match="is not a regular file, so it cannot be a model"):
        await fetch_weights(str(tmp_path / "pipe.gguf"))


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 some zip file", b"<html>" * 100])
async def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(WeightsError, match="is not a GGUF model: it does not begin with 'GGUF'"):
        await fetch_weights(put(tmp_path / "other.gguf", content))


async def test_a_file_of_an_unknown_version_is_refused(tiny: Path) -> None:
    with pytest.raises(WeightsError, match="is a GGUF file of version 9; 2 and 3 can be read"):
        await fetch_weights(put(tiny, b"GGUF" + struct.pack("<I", 9) + tiny_gguf()[8:]))


# The header, six facts of at least 13 bytes and one tensor of at least 24.
SHORTEST = 24 + 6 * 13 + 24


@pytest.mark.parametrize("length", [*range(4, SHORTEST, 7), SHORTEST - 1])
async def test_a_file_that_is_shorter_than_its_header_says_is_refused(tiny: Path, length: int) -> None:
    with pytest.raises(WeightsError, match="is truncated or damaged: it is shorter than its header says"):
        await fetch_weights(put(tiny, tiny_gguf()[:length]))


@pytest.mark.parametrize("at", [8, 16], ids=["tensors", "facts"])
@pytest.mark.parametrize("number", [2**20, 2**60, 2**64 - 1])
async def test_a_header_with_a_damaged_count_is_refused(tiny: Path, at: int, number: int) -> None:
    whole = tiny_gguf()
    with pytest.raises(WeightsError, match="is truncated or damaged"):
        await fetch_weights(put(tiny, whole[:at] + struct.pack("<Q", number) + whole[at + 8 :]))
