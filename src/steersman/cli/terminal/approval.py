"""Asks a person whether a tool call may run: shows its whole effect, and only a clear yes approves it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from steersman.cli.terminal.columns import Canvas, Style, measure_cells, split_cells, wrap
from steersman.cli.terminal.descriptors import STDERR, STDIN, count_columns, is_terminal
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.cli.terminal.stdin import TerminalLines
from steersman.policy.approval import Approved
from steersman.policy.preview import Kind, describe_arguments
from steersman.types.content import ToolCall
from steersman.types.visible import escape_invisible

CHOICES = "y yes, once · a always this exact call · n no · or type what to do instead"
SETTLING = 0.3
"""Seconds during which a new question accepts no answer, so that keys typed before it was shown do not answer it."""

_BAR, _FOLD = "  │ ", "  ┆ "
_STYLES: dict[Kind, Style] = {"path": "bold", "added": "good", "removed": "bad", "note": "dim"}


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A person's answer: yes or no, whether to remember it, and text for the model instead."""

    yes: bool
    remember: bool = False
    words: str = ""

    @property
    def verdict(self) -> bool | Approved:
        """The answer in the form that `approve` returns."""
        return Approved(remember=self.remember) if self.yes else False


def parse_answer(line: str) -> ApprovalAnswer:
    """Parses a typed line; an empty one means no."""
    word = line.strip()
    match word.lower():
        case "y" | "yes":
            return ApprovalAnswer(yes=True)
        case "a" | "always":
            return ApprovalAnswer(yes=True, remember=True)
        case "" | "n" | "no":
            return ApprovalAnswer(yes=False)
        case _:
            return ApprovalAnswer(yes=False, words=word)


def describe_effect(call: ToolCall, why: str, workspace: Path, width: int, *, color: bool) -> str:
    """Describes what a call would do, in lines of at most `width` columns; nothing is truncated or invisible.

    Text from the model stands behind a bar, so that it cannot imitate our own lines.
    """
    canvas = Canvas(width, color)
    lines = [canvas.style(line, "bold") for line in wrap(f"May the agent {_describe_action(call, workspace)}", width)]
    for part in describe_arguments(call.name, call.arguments):
        style = _STYLES.get(part.kind)
        for line in _bar_lines(part.text, width):
            lines.append(canvas.style(line, style) if style else line)
    where = f"In {sanitize_line(escape_invisible(str(workspace)))}." if call.name == "bash" else ""
    because = f"Needs approval: {sanitize_line(escape_invisible(why))}." if why else ""
    for told in (where, because):
        lines += [canvas.style(line, "dim") for line in wrap(told, width) if told]
    return "\n".join(lines)


def _describe_action(call: ToolCall, workspace: Path) -> str:
    match call.name:
        case "bash":
            return "run this command?"
        case "edit":
            return "change this file?"
        case "write":
            there = _exists(workspace, call.arguments.get("path"))
            return "overwrite this file?" if there else "create this file?"
        case "fetch":
            return "fetch this URL?"
        case _:
            return f"call the tool {sanitize_line(escape_invisible(call.name))}?"


def _exists(workspace: Path, path: object) -> bool:
    try:
        return isinstance(path, str) and os.path.lexists(workspace / path)
    except ValueError:  # not a valid path
        return False


def _bar_lines(text: str, width: int) -> Iterator[str]:
    for line in escape_invisible(text).split("\n"):
        first, *others = split_cells(line.expandtabs(4), max(1, width - measure_cells(_BAR)))
        yield _BAR + first
        for piece in others:
            yield _FOLD + piece


async def ask_on_terminal(
    call: ToolCall,
    why: str,
    *,
    workspace: Path,
    color: bool,
    instead: Callable[[str], object] | None = None,
) -> bool | Approved:
    """Asks on the terminal, line by line; calls `instead` with what the person typed instead of an answer.

    The question goes to standard error. The answer is read from the keyboard, even if standard input is a pipe.
    """
    width = count_columns(STDERR) or 80
    text = "\n".join([describe_effect(call, why, workspace, width, color=color), *wrap(CHOICES, width)])
    line = await _ask_for_line(text)
    answer = ApprovalAnswer(yes=False) if line is None else parse_answer(line)
    if answer.words and instead is not None:
        instead(answer.words)
    return answer.verdict


async def ask_trust_on_terminal(question: str, content: str) -> bool:
    """Asks whether to trust a file of the project, and shows all of it; only a clear yes counts."""
    lines = [
        *wrap(sanitize_line(escape_invisible(question)), count_columns(STDERR) or 80),
        *_bar_lines(content, count_columns(STDERR) or 80),
    ]
    line = await _ask_for_line("\n".join([*lines, "y yes · n no"]))
    return line is not None and parse_answer(line) == ApprovalAnswer(yes=True)


async def _ask_for_line(text: str) -> str | None:
    """Shows a text and returns the line typed after it; `None` if there is no terminal."""
    try:
        piped = not is_terminal(STDIN)
        source = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY) if piped else STDIN
    except OSError:
        return None
    try:
        with TerminalLines(source) as lines:
            sys.stderr.write(f"\n{text}\n")
            sys.stderr.flush()
            await asyncio.sleep(SETTLING)
            lines.discard_typed()
            sys.stderr.write("? ")
            sys.stderr.flush()
            return await lines.next()
    finally:
        if piped:
            os.close(source)
