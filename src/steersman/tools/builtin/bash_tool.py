"""The `bash` tool runs a shell command in a sandbox, without our keys; when it returns, no process of it is left."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

# Imported here and not on first use: a command may be able to write to the folder of this code.
from steersman.tools.builtin.command import CommandOutcome, run_command
from steersman.tools.builtin.output_capture import OutputCapture
from steersman.tools.builtin.shell import PreparedCommand, Shell, check_unmoved
from steersman.tools.confine.protected_paths import GIT, Git
from steersman.tools.confine.sandbox import SANDBOXES, Sandbox
from steersman.tools.output import ToolContext
from steersman.tools.threads import call_in_thread
from steersman.tools.tool import Tool, tool
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    from steersman.tools.confine.workspace import Workspace

DEFAULT_TIMEOUT = 120.0
MAX_TIMEOUT = 600.0
# A little less than the loop allows, so that output is truncated here, where more of its end is kept.
MAX_BYTES = 30_000
MAX_LINES = 1_000
MAX_FILE_BYTES = 32_000_000
MAX_FILES = 16

_MOST_NOTES, _LONGEST_NOTE = 20, 500
_LONGEST_COMMAND = 128 * 1024 - 1  # what Linux takes as one argument
_Line = Annotated[str, "What to run, as for `bash -c`."]
_Seconds = Annotated[float | None, "Seconds after which it is ended."]
_GIT_NOTE = (
    "git repositories can be read here, but not written or made, so commits, clones and the like fail; only the user "
    "can change that, with bash_tool(git='read-write')"
)
_MADE_GIT = re.compile(r"/(\.git|HEAD)'")
_MET_GIT = re.compile(r"(?:\.git\b|\.lock').*Read-only file system")


def bash_tool(
    workspace: Workspace | str | os.PathLike[str] = ".",
    *,
    sandbox: Sandbox = "auto",
    allow_network: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    max_timeout: float = MAX_TIMEOUT,
    readable: Sequence[str | os.PathLike[str]] = (),
    writable: Sequence[str | os.PathLike[str]] = (),
    git: Git = "read-only",
    env: Mapping[str, str] | None = None,
    output_folder: str | os.PathLike[str] | None = None,
    sequential: bool = True,
) -> Tool:
    """Make the tool `bash` for a workspace. `sandbox="off"` lets a command do whatever its user can.

    `readable` and `writable` are more paths for the sandbox, `env` more environment variables. With `git="read-write"`
    commands can commit; write access to a repository comes close to choosing what git runs for you. A command may
    change any file, so it runs alone unless `sequential=False`.
    """
    if sandbox not in SANDBOXES:
        raise ValueError(f"sandbox is one of {', '.join(map(repr, SANDBOXES))}, got {sandbox!r}.")
    if git not in GIT:
        raise ValueError(f"git is one of {', '.join(map(repr, GIT))}, got {git!r}.")
    calls = _Calls(
        Shell(
            workspace,
            sandbox=sandbox,
            allow_network=allow_network,
            readable=readable,
            writable=writable,
            git=git,
            env=env,
        ),
        timeout=_check_seconds("timeout", timeout),
        max_timeout=_check_seconds("max_timeout", max_timeout),
        output_folder=None if output_folder is None else os.path.realpath(output_folder),
    )

    async def bash(command: _Line, ctx: ToolContext, timeout: _Seconds = None) -> ToolOutput:
        return await calls.run(command, timeout, ctx)

    return tool(name="bash", description=calls.describe(), sequential=sequential)(bash)


class _Calls:
    """The settings of one `bash` tool, and the state that its calls share."""

    def __init__(self, shell: Shell, *, timeout: float, max_timeout: float, output_folder: str | None) -> None:
        if timeout > max_timeout:
            raise ValueError(f"timeout is at most max_timeout ({max_timeout:g}), got {timeout!r}.")
        self.shell = shell
        self.timeout = timeout
        self.max_timeout = max_timeout
        self.output_folder = output_folder
        self.saved: deque[str] = deque()

    def describe(self) -> str:
        """Describe the tool for the model."""
        words = [
            f"Run a command with bash in {self.shell.root}. Standard output and standard error come back together.",
            f"It is ended after {self.timeout:g} seconds, or after `timeout` seconds (at most {self.max_timeout:g}).",
            "Standard input is empty. When the command returns, whatever it left running in the background is ended.",
            "Each call is a new shell: folder and variables are not kept.",
        ]
        if self.shell.sandbox != "off":
            reach = "" if self.shell.allow_network else " and there is no network"
            words.append(f"Only this folder and $TMPDIR can be written{reach}; $HOME is empty in each call.")
            if self.shell.git == "read-only":
                words.append("Git repositories can be read but not written, so there are no commits.")
        return " ".join(words)

    async def run(self, command: str, timeout: float | None, ctx: ToolContext) -> ToolOutput:
        """Run a command; return its output and how it ended."""
        seconds = self._choose_timeout(timeout)
        _check_command(command)
        prepared = await call_in_thread(self._prepare, command)
        captured = OutputCapture(
            self._make_output_folder, max_bytes=MAX_BYTES, max_lines=MAX_LINES, max_file_bytes=MAX_FILE_BYTES
        )

        def show(text: str) -> None:
            ctx.update({"type": "output", "text": text})

        refused: list[str] = []

        def finish() -> None:
            refused.extend(self.shell.clear_up(prepared))

        ended = await run_command(prepared.plan, captured, timeout=seconds, on_output=show, on_end=finish)
        text, truncated = await call_in_thread(self._finish_output, captured)
        details: dict[str, Any] = {
            "exit_code": None if ended.timed_out else _get_exit_code(ended),
            "duration": round(ended.duration, 3),
            "timed_out": ended.timed_out,
            "lines": captured.line_count,
            "truncated": truncated,
            "output_file": captured.path,
            "ended": list(ended.left),
            "sandbox": prepared.sandbox.kind,
        }
        refused[:0] = ended.refused
        notes = [*_describe_end(ended, seconds), *_limit_notes(refused)]
        failed = ended.timed_out or ended.status != 0 or bool(refused)
        met_git = any(map(_MADE_GIT.search, refused)) or (ended.status != 0 and _MET_GIT.search(text) is not None)
        if self.shell.git == "read-only" and met_git:
            notes.append(_GIT_NOTE)
        return ToolOutput(_append_notes(text, notes), details=details, is_error=failed)

    def _finish_output(self, captured: OutputCapture) -> tuple[str, bool]:
        """Get the text of an output, and delete old files with long outputs unless the user chose their folder."""
        text, truncated = captured.to_text()
        if captured.path is not None and self.output_folder is None:
            self.saved.append(captured.path)
            while len(self.saved) > MAX_FILES:
                with contextlib.suppress(OSError):
                    os.unlink(self.saved.popleft())
        return text, truncated

    def _choose_timeout(self, timeout: float | None) -> float:
        if timeout is None:
            return self.timeout
        if not 0 < timeout <= self.max_timeout:
            raise ToolError(f"The timeout is more than 0 and at most {self.max_timeout:g} seconds, got {timeout:g}.")
        return timeout

    def _prepare(self, command: str) -> PreparedCommand:
        check_unmoved([] if self.output_folder is None else [self.output_folder])
        # Made before the command begins: the folders of dead programs are removed with it, which may take long, and
        # the thread that reads the output must not do that.
        return self.shell.prepare(command, readable=self._list_outputs())

    def _list_outputs(self) -> list[str]:
        """List the folder with the files of earlier outputs, so that a command can read them."""
        try:
            return [self._make_output_folder()]
        except OSError:
            return []  # reported when an output has to be saved

    def _make_output_folder(self) -> str:
        if self.output_folder is None:
            return self.shell.scratch.make_folder("output")
        if (real := os.path.realpath(self.output_folder)) != self.output_folder:
            raise OSError(f"{self.output_folder!r} is now a link to {real!r}")
        os.makedirs(self.output_folder, mode=0o700, exist_ok=True)
        return self.output_folder


def _check_command(command: str) -> None:
    if not command.strip():
        raise ToolError("The command is empty. Give a shell command to run.")
    if "\0" in command:
        raise ToolError("The command has a NUL character, which a shell cannot accept.")
    size = len(command.encode("utf-8", "replace"))
    if size > _LONGEST_COMMAND:
        raise ToolError(
            f"The command has {size:,} bytes, more than the {_LONGEST_COMMAND:,} that can be passed to a shell. "
            "Write it to a file in the workspace and run that."
        )


def _get_exit_code(ended: CommandOutcome) -> int:
    """Get the exit code as shells report it: 128 plus the signal number for a command that was killed."""
    code = os.waitstatus_to_exitcode(ended.status)
    return code if code >= 0 else 128 - code


def _describe_end(ended: CommandOutcome, timeout: float) -> list[str]:
    notes: list[str] = []
    code = os.waitstatus_to_exitcode(ended.status)
    if ended.timed_out:
        notes.append(f"timed out after {timeout:g} s; the command and everything it started were ended")
    elif code < 0:
        notes.append(f"killed by signal {-code} ({_name_signal(-code)})")
    elif code:
        notes.append(f"exit code {code}")
    if ended.left and not ended.timed_out:
        notes.append(f"still running in the background when the command was over, and ended: {_join_names(ended.left)}")
    if ended.survivors:
        notes.append(f"could not be ended: {_join_names(ended.survivors)}")
    return notes


def _join_names(names: Sequence[str]) -> str:
    # A process may call itself anything, also with a line that looks like a note.
    shown = [name if name.isprintable() else repr(name) for name in names[:5]]
    return ", ".join(shown) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _limit_notes(notes: Sequence[str]) -> list[str]:
    """Limit what is told of protected names: a command may make thousands of them, with long paths."""
    shown = [
        note if len(note) <= _LONGEST_NOTE else f"{note[: _LONGEST_NOTE // 2]}...{note[-_LONGEST_NOTE // 2 :]}"
        for note in notes[:_MOST_NOTES]
    ]
    return [*shown, *([f"and {len(notes) - _MOST_NOTES:,} more notes like these"] if len(notes) > _MOST_NOTES else [])]


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _append_notes(text: str, notes: list[str]) -> str:
    if not text.strip() and not notes:
        return "(no output)"
    lines = "\n".join(f"[{note}]" for note in notes)
    return f"{text.rstrip()}\n\n{lines}".strip() if notes else text


def _check_seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is a number of seconds above 0, got {value!r}.")
    return float(value)
