"""Asking a person whether a tool call may run: the exact effect is shown whole, and only a clear yes is a yes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from steersman.cli.terminal.columns import Paper, Style, cells, pieces, wrapped
from steersman.cli.terminal.descriptors import STDERR, STDIN, columns_of, is_terminal
from steersman.cli.terminal.sanitize import exact, one_line
from steersman.policy.approval import Approved
from steersman.types.content import ToolCall

CHOICES = "y yes, once · a always this very call · n no · or say what to do instead"
SETTLING = 0.3
"""Seconds for which a question takes no answer: what was typed before it could be read is no answer to it."""

_BAR, _FOLD = "  │ ", "  ┆ "


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said: whether it may run, whether for good, and words for the model where there were any."""

    yes: bool
    remember: bool = False
    words: str = ""

    @property
    def verdict(self) -> bool | Approved:
        """The answer as `approve` gives it."""
        return Approved(remember=self.remember) if self.yes else False


def answer_of(line: str) -> Answer:
    """What a typed line means; an empty one is a no."""
    word = line.strip()
    match word.lower():
        case "y" | "yes":
            return Answer(yes=True)
        case "a" | "always":
            return Answer(yes=True, remember=True)
        case "" | "n" | "no":
            return Answer(yes=False)
        case _:
            return Answer(yes=False, words=word)


def describe(call: ToolCall, why: str, workspace: Path, width: int, *, color: bool) -> str:
    """What a call would do, in lines of at most this width, whole: nothing is cut and nothing stays invisible.

    What comes from the model stands behind a bar, so that no line of it can pass for one of ours.
    """
    paper = Paper(width, color)
    lines = [paper.styled(line, "bold") for line in wrapped(f"May it {_verb(call, workspace)}", width)]
    for text, style in _effect(call.name, call.arguments):
        for line in _barred(text, width):
            lines.append(paper.styled(line, style) if style else line)
    where = f"In {one_line(exact(str(workspace)))}." if call.name == "bash" else ""
    because = f"Asked because {one_line(exact(why))}." if why else ""
    for told in (where, because):
        lines += [paper.styled(line, "dim") for line in wrapped(told, width) if told]
    return "\n".join(lines)


def _verb(call: ToolCall, workspace: Path) -> str:
    match call.name:
        case "bash":
            return "run this command?"
        case "edit":
            return "change this file?"
        case "write":
            there = _is_there(workspace, call.arguments.get("path"))
            return "write over this file?" if there else "write this new file?"
        case "fetch":
            return "fetch this address?"
        case _:
            return f"call the tool {one_line(exact(call.name))}?"


def _is_there(workspace: Path, path: object) -> bool:
    try:
        return isinstance(path, str) and os.path.lexists(workspace / path)
    except ValueError:  # a path that no file can have
        return False


def _effect(name: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Style | None]]:
    """The arguments as people read them, and every one that has no such form as JSON."""
    rest = dict(arguments)
    match name:
        case "bash" if isinstance(rest.get("command"), str):
            yield rest.pop("command"), None
        case "fetch" if isinstance(rest.get("url"), str):
            yield rest.pop("url"), None
        case "write" if isinstance(rest.get("content"), str) and isinstance(rest.get("path"), str):
            yield rest.pop("path"), "bold"
            yield from _marked("+", rest.pop("content"), "good")
        case "edit" if isinstance(rest.get("path"), str) and _are_edits(rest.get("edits")):
            yield rest.pop("path"), "bold"
            for number, edit in enumerate(cast(list[dict[str, Any]], rest.pop("edits"))):
                yield from [("", None)] if number else []
                yield from [("everywhere in the file:", None)] if edit.get("all") else []
                yield from _marked("-", edit["old"], "bad")
                yield from _marked("+", edit["new"], "good")
        case _:
            pass
    if rest:
        yield json.dumps(rest, ensure_ascii=False, indent=2, default=str), None


def _are_edits(edits: object) -> bool:
    """Whether these are edits that the diff shows whole."""
    return isinstance(edits, list) and all(
        isinstance(edit, Mapping) and _is_edit(cast(Mapping[str, Any], edit)) for edit in cast(list[object], edits)
    )


def _is_edit(edit: Mapping[str, Any]) -> bool:
    texts = isinstance(edit.get("old"), str) and isinstance(edit.get("new"), str)
    return texts and set(edit) <= {"old", "new", "all"} and isinstance(edit.get("all", False), bool)


def _marked(mark: str, text: str, style: Style) -> Iterator[tuple[str, Style | None]]:
    if text:
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        yield "\n".join(f"{mark} {line}" for line in lines), style
    else:
        yield f"{mark} (nothing)", "dim"


def _barred(text: str, width: int) -> Iterator[str]:
    for line in exact(text).split("\n"):
        first, *others = pieces(line.expandtabs(4), max(1, width - cells(_BAR)))
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
    """Ask on the terminal of the command, line by line; `instead` hears what the person wants in its place.

    The question is shown on standard error and answered where the keyboard is, also when standard input is a pipe.
    """
    width = columns_of(STDERR) or 80
    text = "\n".join([describe(call, why, workspace, width, color=color), *wrapped(CHOICES, width)])
    line = await _asked_on_terminal(text)
    answer = Answer(yes=False) if line is None else answer_of(line)
    if answer.words and instead is not None:
        instead(answer.words)
    return answer.verdict


async def trust_on_terminal(question: str, content: str) -> bool:
    """Ask whether a file of the project may count, with all of it shown; only a clear yes is one."""
    lines = [*wrapped(one_line(exact(question)), columns_of(STDERR) or 80), *_barred(content, columns_of(STDERR) or 80)]
    line = await _asked_on_terminal("\n".join([*lines, "y yes · n no"]))
    return line is not None and answer_of(line) == Answer(yes=True)


async def _asked_on_terminal(text: str) -> str | None:
    """The line that was typed after a text was shown; `None` where nobody is there."""
    from steersman.cli.terminal.input_lines import Lines

    try:
        piped = not is_terminal(STDIN)
        source = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY) if piped else STDIN
    except OSError:
        return None
    try:
        with Lines(source) as lines:
            sys.stderr.write(f"\n{text}\n")
            sys.stderr.flush()
            await asyncio.sleep(SETTLING)
            lines.forget()
            sys.stderr.write("? ")
            sys.stderr.flush()
            return await lines.next()
    finally:
        if piped:
            os.close(source)
