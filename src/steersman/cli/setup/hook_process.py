"""Runs the command of a hook of the user whose settings say so: as the user, without a sandbox, in the agent's folder.

Nothing that it runs is looked up in that folder, and its environment is the one that tools get.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from steersman.cli.setup.settings import HookSettings
from steersman.tools.confine.changed_folders import list_command_folders
from steersman.tools.confine.launch import DEFAULT_PATH, build_child_environment, clean_search_path
from steersman.tools.confine.links import leads_through

MAX_OUTPUT = 1_000_000
"""The most bytes that a command may write."""

# A file by its absolute path, or one below the home folder.
_PATH = re.compile(r"""(?<![\w.~}/])(~|\$HOME|\$\{HOME\})?(/[^\s;&|<>()'"`]+)""")


class HookFailed(Exception):
    """A command that failed; the text says how, and `advice` what the user may do about it."""

    def __init__(self, why: str, advice: str = "") -> None:
        super().__init__(why)
        self.advice = advice


async def run_hook(hook: HookSettings, told: bytes, folder: Path) -> tuple[int, str, str]:
    """Runs a command with this input; returns its exit code, stdout and stderr. What it started ends with it."""
    with TemporaryFile() as given, _Output() as said, _Output() as errors:
        given.write(told)
        given.seek(0)
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            hook.command,
            stdin=given,
            stdout=said.writing,
            stderr=errors.writing,
            cwd=folder,
            env=build_child_environment(build_own_variables(hook, folder)),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(hook.timeout):
                await _wait_for(process, said, errors)
        except TimeoutError:
            raise HookFailed(f"it gave no answer within {hook.timeout:g} s") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            code = await process.wait()
        return code, said.read(), errors.read()


def build_own_variables(hook: HookSettings, folder: Path) -> dict[str, str]:
    """The variables with which a hook of the user finds no program and no module of Python in a folder."""
    # What the user means is not in the folder the user happens to work in, nor where a tool may have put it.
    roots = [os.path.realpath(folder), *list_command_folders()]
    places = clean_search_path(os.environ.get("PATH", "")).split(os.pathsep)
    outside = os.pathsep.join([place for place in places if not leads_through(place, roots)])
    # Also for the Python in a script of the user, which would find a module in the folder where it has a name only.
    found = {"PATH": outside or DEFAULT_PATH, "PYTHONSAFEPATH": "1"}
    beside = [place for place in _find_script_folders(hook.command) if not leads_through(place, roots)]
    return found | {"PYTHONPATH": os.pathsep.join(beside)} if beside else found


def _find_script_folders(command: str) -> list[str]:
    """The folders of the Python scripts that a command names, which import the modules beside them."""
    home = os.path.expanduser("~")
    paths = [(home if start else "") + path for start, path in _PATH.findall(command)]
    return list(dict.fromkeys(os.path.dirname(os.path.realpath(path)) for path in paths if _is_python_script(path)))


def _is_python_script(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return path.endswith(".py") or (first.startswith(b"#!") and b"python" in first)


async def _wait_for(process: asyncio.subprocess.Process, *outputs: _Output) -> None:
    """Waits for the end of a command, or until it has written too much."""
    waits = [asyncio.ensure_future(wait) for wait in (process.wait(), *(output.is_full.wait() for output in outputs))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


class _Output:
    """What a command writes to a pipe, up to a limit. The end of the pipe is not waited for.

    A program that was left in the background may keep it open.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._data = bytearray()
        self.is_full = asyncio.Event()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._reading, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        os.close(self._reading)
        os.close(self.writing)

    def read(self) -> str:
        """All that was written until now; raises `HookFailed` if it was too much."""
        while self._take():
            pass
        if len(self._data) > MAX_OUTPUT:
            raise HookFailed(f"it wrote more than {MAX_OUTPUT:,} bytes")
        return self._data.decode(errors="replace")

    def _take(self) -> bool:
        if len(self._data) > MAX_OUTPUT:
            self._stop()
            self.is_full.set()
            return False
        try:
            self._data += (piece := os.read(self._reading, 65_536))
        except BlockingIOError:
            return False
        return bool(piece)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
