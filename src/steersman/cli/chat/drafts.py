"""What is typed, on its way to the model: long pastes as placeholders, and the content of files named with `@`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from steersman.agent.images import read_image
from steersman.cli.terminal.numbers import format_count
from steersman.policy.approval import Approval
from steersman.tools.builtin.read_tool import read_tool
from steersman.tools.confine.path_errors import WorkspaceError
from steersman.tools.confine.workspace import Workspace
from steersman.types.content import Content, TextContent
from steersman.types.messages import AgentMessage, UserMessage

MAX_PASTE_LINES, MAX_PASTE_LENGTH = 20, 4_000
"""A paste that is longer becomes a placeholder until it is sent."""

MAX_FILE_BYTES = 100_000
"""The most of a file that is attached."""

_MAX_IMAGE_BYTES = 5_000_000
_MAX_FILES = 20
_MAX_NAMES = 1_000  # that are looked for: a pasted program may have an `@` in each line
_MAX_NAME_LENGTH = 300  # a longer one is seldom typed, and each folder in it is opened
_NAMED = re.compile(r"(?<!\S)@([^\s@]+)")


def count_lines(text: str) -> int:
    """Counts the lines of a text; a line break at its end begins no other one."""
    return text.count("\n") + (not text.endswith("\n"))


class Pastes:
    """The long pastes of a chat, by their placeholders."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shorten(self, text: str) -> str:
        """Returns what to show for a paste: itself, or a placeholder for a long one."""
        lines = count_lines(text)
        if lines <= MAX_PASTE_LINES and len(text) <= MAX_PASTE_LENGTH:
            return text
        size = format_count(lines, "line") if lines > 1 else format_count(len(text), "character")
        mark = f"[pasted #{len(self._texts) + 1}: {size}]"
        self._texts[mark] = text
        return mark

    def expand(self, text: str) -> str:
        """Returns a text with its placeholders replaced by what was pasted."""
        if not self._texts:
            return text
        marks = "|".join(re.escape(mark) for mark in self._texts)
        return re.sub(marks, lambda match: self._texts[match[0]], text)

    def collapse(self, text: str) -> str:
        """Returns a text with what was pasted replaced by its placeholders again."""
        marks = {pasted: mark for mark, pasted in self._texts.items()}
        if not marks:
            return text
        # A paste may be part of a longer one.
        longest_first = "|".join(re.escape(pasted) for pasted in sorted(marks, key=len, reverse=True))
        return re.sub(longest_first, lambda match: marks[match[0]], text)


class Attachment(NamedTuple):
    """The content of a file for the model, and a line about it for the user."""

    content: Content
    about: str


def attach_files(text: str, workspace: Path, approval: Approval | None = None) -> list[Attachment]:
    """Reads the files of the workspace that a text names with `@`; what is no file there stays a word of the text.

    A file that a rule of `approval` denies to the tool `read` is not read: to name it may have been a slip.
    """
    if not _NAMED.search(text):
        return []
    # Opened as the tools open files: a command that runs meanwhile may exchange a file for a link.
    files, found = Workspace(workspace), dict[str, Attachment]()
    named = dict.fromkeys(match[1] for match in _NAMED.finditer(text) if len(match[1]) <= _MAX_NAME_LENGTH)
    for word in islice(named, _MAX_NAMES):
        # A full stop or a bracket after a name seldom belongs to it.
        for name in dict.fromkeys((word, word.rstrip(".,;:!?)\"'"))):
            # Asked first, because the error for a missing file takes long: it looks for similar names.
            if not os.path.lexists(os.path.join(files.root, os.path.expanduser(name))):
                continue
            try:
                path = files.relative(name) if name else "."
                if (denied := _find_denial(path, files, approval)) is not None:
                    found[path] = denied
                    break
                data = b"" if path in found else _read_at_most(files, path, _MAX_IMAGE_BYTES + 1)
            except (WorkspaceError, OSError):  # not a file, outside, or too long
                continue
            if path not in found:
                found[path] = _attach(path, data)
            break
        if len(found) == _MAX_FILES:
            break
    return list(found.values())


def _find_denial(path: str, files: Workspace, approval: Approval | None) -> Attachment | None:
    if approval is None or path == "." or not os.path.lexists(files.root / path):
        return None
    judged = approval.judge(read_tool(files), {"path": path})
    if judged.says != "deny":
        return None
    content = TextContent(f"The file {path!r} is not attached: the user's rules deny reading it.")
    return Attachment(content, f"{path} is not attached: the rule {judged.rule} denies reading it.")


def build_message(text: str, attached: Sequence[Attachment]) -> str | UserMessage:
    """A prompt: what was typed first, so that it can be told apart from what is attached."""
    return UserMessage([TextContent(text), *[item.content for item in attached]]) if attached else text


def get_typed_text(message: AgentMessage) -> str:
    """What the user typed of a message, without what is attached to it."""
    first = message.content[0] if message.content else None
    attached = isinstance(message, UserMessage) and len(message.content) > 1
    return first.text if attached and isinstance(first, TextContent) else message.text


def _attach(name: str, data: bytes) -> Attachment:
    try:
        if len(data) <= _MAX_IMAGE_BYTES:
            return Attachment(read_image(data), f"Attached the image {name}.")
    except ValueError:  # not an image
        pass
    kept = data[:MAX_FILE_BYTES]
    try:
        content = kept.decode()
    except UnicodeDecodeError as error:
        if len(data) <= MAX_FILE_BYTES or error.start < len(kept) - 4:
            reason = "is not attached: it is neither text nor an image that fits."
            return Attachment(TextContent(f"The file {name!r} {reason}"), f"{name} {reason}")
        content = kept[: error.start].decode()
    cut = len(data) > MAX_FILE_BYTES
    note = f"\n[only the first {MAX_FILE_BYTES:,} bytes; read has the rest]" if cut else ""
    lines = format_count(content.count("\n") + (not content.endswith("\n")), "line") if content else "empty"
    shown = f"Attached {name} ({'the beginning, ' if cut else ''}{lines})."
    return Attachment(TextContent(f"The file {name!r}, attached by the user:\n{content}{note}"), shown)


def _read_at_most(files: Workspace, path: str, most: int) -> bytes:
    with os.fdopen(files.open(path), "rb") as source:
        return source.read(most)
