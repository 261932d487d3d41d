"""Runs the commands of a project's hooks as `bash` runs commands: in its sandbox, and what they start ends with them.

Tools may have written what such a command runs; it can do no more than a command of `bash` could.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from steersman.cli.setup.hook_process import MAX_OUTPUT, HookFailed
from steersman.cli.setup.settings import HookSettings
from steersman.tools.builtin.command import run_command
from steersman.tools.builtin.shell import PreparedCommand, Shell
from steersman.tools.calling import call_in_thread
from steersman.tools.confine.sandbox import Confinement, confinement

_NO_SANDBOX = (
    "no sandbox works on this machine, and a hook of a project runs only in one. `steersman doctor` says what is "
    "missing; with the hook in your own settings, it runs as you, without a sandbox"
)


class HookSandbox:
    """The sandbox of the hooks of a project; `find` finds the one that works on this machine."""

    def __init__(self, workspace: Path, find: Callable[[], Confinement] = confinement) -> None:
        self._workspace = workspace
        self._find = find

    async def run(self, hook: HookSettings, told: bytes) -> tuple[int, str, str]:
        """Runs a command with this input; returns its exit code, stdout and stderr."""
        shell = self._shell
        prepared = await call_in_thread(self._prepare, shell, hook.command)
        said, errors, notes = _Output(), _Output(), list[str]()
        ended = await run_command(
            {**prepared.plan, "input": told},
            said,
            errors=errors,
            timeout=hook.timeout,
            on_end=lambda: notes.extend(shell.clear_up(prepared)),
        )
        if ended.timed_out:
            raise HookFailed(f"it gave no answer within {hook.timeout:g} s")
        if notes := [*ended.refused, *notes]:
            raise HookFailed(f"it may have changed what is protected: {notes[0]}")
        return os.waitstatus_to_exitcode(ended.status), said.read(), errors.read()

    @cached_property
    def _shell(self) -> Shell:
        # What one hook leaves in a temporary folder must not be there for the next one.
        return Shell(self._workspace, keep_temporary=False)

    def _prepare(self, shell: Shell, command: str) -> PreparedCommand:
        if self._find().kind == "none":
            raise HookFailed(_NO_SANDBOX)
        return shell.prepare(command, shells=("sh",))


class _Output:
    """What a command writes, up to a limit; more than that ends it."""

    has_recent = False

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, buffer: bytearray, size: int) -> None:
        """Takes the first `size` bytes of a buffer."""
        self._data += memoryview(buffer)[:size]
        if len(self._data) > MAX_OUTPUT:
            raise HookFailed(f"it wrote more than {MAX_OUTPUT:,} bytes")

    def take_recent(self) -> str:
        """Returns nothing: it is not shown while the command runs."""
        return ""

    def close(self) -> None:
        """Does nothing, as there is only memory."""

    def read(self) -> str:
        """All that was written."""
        return self._data.decode(errors="replace")
