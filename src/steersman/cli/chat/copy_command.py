"""`/copy`: puts the last answer, or a code block of it, into the clipboard.

The terminal is asked by an escape sequence (OSC 52), which also works over SSH; a program of the desktop is asked too.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.exits import UserError
from steersman.cli.terminal.numbers import format_count
from steersman.safe_start import clean_environment
from steersman.tools.confine.launch import build_child_environment, find_program
from steersman.types.code_blocks import list_code_blocks
from steersman.types.messages import AssistantMessage

if TYPE_CHECKING:
    from steersman.cli.chat.commands import Chat

MAX_OSC_BYTES = 74_000
"""The most bytes for which terminals take the escape sequence."""

_SECONDS = 2.0
_OF_THE_DESKTOP = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR")
# What a terminal would take as a key, such as Esc, does not belong into what is pasted.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


async def copy(chat: Chat, which: str) -> None:
    """Copies the last answer; with a number, that code block of it."""
    messages = chat.conversation.agent.messages
    answer = next((at.text for at in reversed(messages) if isinstance(at, AssistantMessage) and at.text.strip()), None)
    if answer is None:
        raise UserError("There is no answer to copy yet.")
    text = _CONTROLS.sub("", _choose_block(answer, which) if which else answer.strip("\n"))
    size = len(data := text.encode(errors="replace"))
    sent = size <= MAX_OSC_BYTES
    if sent:
        chat.send_control(make_copy_sequence(data))
    program = await _ask_program(data, chat.workspace)
    if not sent and program is None:
        raise UserError(f"The text has {size:,} bytes, too many for the terminal; /export writes it to a file.")
    what = f"code block {which}" if which else "the last answer"
    by = f" with {program}" if program else ", if your terminal allows it (OSC 52)"
    chat.say("notice", f"Copied {what} ({format_count(text.count(chr(10)) + 1, 'line')}){by}.")


def _choose_block(answer: str, which: str) -> str:
    blocks = list_code_blocks(answer)
    if not blocks:
        raise UserError("The last answer has no code block; /copy alone copies all of it.")
    if not which.isascii() or not which.isdigit() or not 1 <= int(which[:9]) <= len(blocks):
        raise UserError(f"The last answer has {format_count(len(blocks), 'code block')}: /copy N, from 1.")
    return blocks[int(which) - 1]


def make_copy_sequence(data: bytes) -> str:
    """Makes the sequence that asks a terminal to put data into its clipboard."""
    return f"\x1b]52;c;{b64encode(data).decode()}\x07"


def choose_program(environ: Mapping[str, str], workspace: Path) -> Sequence[str] | None:
    """Chooses the program for the clipboard of this desktop; never one of the workspace, where a model may write."""
    wanted: list[tuple[str, ...]] = []
    if sys.platform == "darwin":
        wanted.append(("pbcopy",))
    if environ.get("WAYLAND_DISPLAY"):
        wanted.append(("wl-copy",))
    if environ.get("DISPLAY"):
        wanted.append(("xclip", "-selection", "clipboard"))
    for name, *arguments in wanted:
        if (found := find_program(name, environ.get("PATH", ""), outside=[os.path.realpath(workspace)])) is not None:
            return found, *arguments
    return None


def build_program_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Builds the environment of the program, which may stay in the background: what finds the desktop, and no keys."""
    desktop = {name: environ[name] for name in _OF_THE_DESKTOP if name in environ}
    return clean_environment(build_child_environment(desktop, source=environ))


async def _ask_program(data: bytes, workspace: Path) -> str | None:
    """Gives data to the program of the desktop; returns its name, `None` if there is none or it failed."""
    command = choose_program(os.environ, workspace)
    if command is None:
        return None
    try:
        # Its output goes nowhere: xclip stays in the background and would hold it open.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env=build_program_environment(os.environ),
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_SECONDS):
            await process.communicate(data)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return Path(command[0]).name if process.returncode == 0 else None
