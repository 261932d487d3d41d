"""Runs the commands of hooks as `bash` runs commands: in its sandbox, and what they start ends with them.

Tools may have written what such a command runs; it can do no more than a command of `bash` could. One of the user's
own settings also finds the user's scripts, and no program of the workspace by its mere name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from steersman.cli.setup.hook_process import MAX_OUTPUT, HookFailed, build_own_variables
from steersman.cli.setup.settings import HookSettings, find_config_folder
from steersman.tools.builtin.command import run_command
from steersman.tools.builtin.shell import PreparedCommand, Shell
from steersman.tools.confine.sandbox import Confinement, confinement
from steersman.tools.threads import call_in_thread
from steersman.types.errors import ToolError

_OWN = "`sandbox = false` beside it in your settings runs it as you, without a sandbox"
_OF_PROJECT = "only in your own settings, with `sandbox = false`, it would run as you, without a sandbox"
_NO_SANDBOX = "no sandbox works on this machine, and hooks run in one; `steersman doctor` says what is missing"
_MAYBE = "it ran in the sandbox of `bash`, which may be why: "
# What programs say where something is read-only, hidden or out of reach.
_BLOCKED = re.compile(
    r"read-only file system|permission denied|operation not permitted|no such file or directory|: not found|"
    r"command not found|network is unreachable|could not resolve|name resolution|connection refused",
    re.IGNORECASE,
)
_NOT_RUN = (126, 127)


def is_confined(hook: HookSettings) -> bool:
    """Whether a hook runs in the sandbox: only one of the user's own settings may run outside."""
    return hook.sandbox or hook.of_project


def explain_sandbox(hook: HookSettings, code: int, errors: str) -> str:
    """Says how to run a hook without the sandbox, if that may be why it failed; empty if nothing points to it.

    Hooks that only tell often want what is outside, such as the desktop: there, any failure may be due to it.
    """
    if not code or not is_confined(hook):
        return ""
    if code in _NOT_RUN or hook.at in ("end", "waiting") or _BLOCKED.search(errors):
        return _MAYBE + _choose_advice(hook)
    return ""


def _choose_advice(hook: HookSettings) -> str:
    return _OF_PROJECT if hook.of_project else _OWN


class HookSandbox:
    """The sandbox of hooks; `find` finds the one that works on this machine."""

    def __init__(self, workspace: Path, find: Callable[[], Confinement] = confinement) -> None:
        self._workspace = workspace
        self._find = find

    async def run(self, hook: HookSettings, told: bytes) -> tuple[int, str, str]:
        """Runs a command with this input; returns its exit code, stdout and stderr."""
        said, errors, notes = _Output(), _Output(), list[str]()
        try:
            shell = self._shell
            prepared = await call_in_thread(self._prepare, shell, hook)
            ended = await run_command(
                {**prepared.plan, "input": told},
                said,
                errors=errors,
                timeout=hook.timeout,
                on_end=lambda: notes.extend(shell.clear_up(prepared)),
            )
        except (ToolError, ValueError) as error:  # `ValueError`: the workspace is the whole file system
            raise HookFailed(f"it could not be run in the sandbox: {error}", _choose_advice(hook)) from error
        if ended.timed_out:
            raise HookFailed(f"it gave no answer within {hook.timeout:g} s")
        if notes := [*ended.refused, *notes]:
            raise HookFailed(f"it may have changed what is protected: {notes[0]}")
        return os.waitstatus_to_exitcode(ended.status), said.read(), errors.read()

    @cached_property
    def _shell(self) -> Shell:
        # What one hook leaves in a temporary folder must not be there for the next one.
        return Shell(self._workspace, keep_temporary=False)

    def _prepare(self, shell: Shell, hook: HookSettings) -> PreparedCommand:
        if self._find().kind == "none":
            raise HookFailed(_NO_SANDBOX, _choose_advice(hook))
        if hook.of_project:
            return shell.prepare(hook.command, shells=("sh",))
        home = os.path.expanduser("~")
        return shell.prepare(
            hook.command,
            readable=[os.path.join(home, "bin"), os.fspath(find_config_folder())],
            # With the real name of the home folder, `~/bin/check` is found, and `>> ~/log` fails instead of vanishing.
            env={"HOME": home, **build_own_variables(hook, self._workspace)},
            shells=("sh",),
        )


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
