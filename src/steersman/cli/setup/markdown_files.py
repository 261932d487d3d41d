"""Markdown files with front matter that add something to the command: sub-agents, and commands of the chat.

The user's own files count as they are. Those of a project count once the user has seen and trusted them, all of a
folder together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steersman.cli.setup.settings import find_config_folder
from steersman.cli.setup.trust import AskTrust, Notify, find_nearest, notify_of_problems, trust_content
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.tools.confine.workspace import MissingPath, Workspace, WorkspaceError
from steersman.tools.front_matter import BadFrontMatter, parse_front_matter
from steersman.tools.read_budget import ReadBudget

MAX_FILES, MAX_FILE_BYTES = 100, 100_000
"""The most files of a folder, and the most bytes of one."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LISTS = ("tools", "allowed-tools")


@dataclass(frozen=True, slots=True)
class MarkdownFile:
    """A file: its name without `.md`, after that of its folder if it is in one; its front matter and its text."""

    name: str
    path: str
    head: Mapping[str, str]
    body: str


def read_own_files(kind: str, notify: Notify) -> list[MarkdownFile]:
    """Reads the user's own files of a kind, such as `agents`, in the folder of the settings."""
    folder = find_config_folder() / kind
    try:
        files = Workspace(folder)
    except OSError:
        return []
    return list(_parse(_read_folder(files, ".", ReadBudget(), notify), folder, notify))


async def load_project_files(
    workspace: Path,
    places: Sequence[str],
    *,
    ask: AskTrust | None,
    notify: Notify,
    budget: ReadBudget | None = None,
) -> list[MarkdownFile]:
    """Loads the files of a project in these folders, if the user trusts them; others are reported and left out."""
    budget = ReadBudget() if budget is None else budget
    found: list[MarkdownFile] = []
    for place in places:
        folder = find_nearest(workspace, place)
        if folder is None:
            continue
        project = Workspace(Path(str(folder).removesuffix(place)))
        texts = _read_folder(project, place, budget, notify)
        if texts and await trust_content(folder, _join(texts), ask=ask, notify=notify):
            found += _parse(texts, folder, notify)
    return found


def _join(texts: Mapping[str, bytes]) -> bytes:
    """All files as one text, each below its name: what is shown, and what trust is bound to."""
    return b"\n".join(b"--- %s (%d bytes)\n%s" % (name.encode(), len(data), data) for name, data in texts.items())


def _read_folder(files: Workspace, place: str, budget: ReadBudget, notify: Notify) -> dict[str, bytes]:
    """Reads the Markdown files of a folder and of the folders in it; links that lead out are not followed."""
    texts: dict[str, bytes] = {}
    problems: list[str] = []
    for path in _list_files(files, place, budget, problems.append):
        name = path if place == "." else path.removeprefix(f"{place}/")
        if len(texts) == MAX_FILES:
            problems.append(f"Only the first {MAX_FILES} files of {sanitize_line(str(files.root / place))} are used.")
            break
        try:
            texts[name] = budget.read(files, path, limit=MAX_FILE_BYTES)
        except WorkspaceError as error:
            problems.append(f"{sanitize_line(name)} is left out: {sanitize_line(str(error))}")
    notify_of_problems(problems, notify, str(files.root / place))
    return texts


def _list_files(
    files: Workspace, place: str, budget: ReadBudget, notify: Notify, *, deeper: bool = True
) -> Iterator[str]:
    try:
        entries = budget.scan(files, place)
    except MissingPath:
        return
    except WorkspaceError as error:
        notify(f"{sanitize_line(place)} is left out: {sanitize_line(str(error))}")
        return
    for name, kind in entries:
        path = name if place == "." else f"{place}/{name}"
        if kind in ("file", "link") and name.endswith(".md") and _is_name(name, notify):
            yield path
        elif kind == "folder" and deeper and _NAME.fullmatch(name):
            yield from _list_files(files, path, budget, notify, deeper=False)


def _is_name(name: str, notify: Notify) -> bool:
    if _NAME.fullmatch(name.removesuffix(".md")):
        return True
    notify(f"{sanitize_line(name)} is left out: its name may have letters, digits, '.', '_' and '-'.")
    return False


def _parse(texts: Mapping[str, bytes], folder: Path, notify: Notify) -> Iterator[MarkdownFile]:
    for name, data in texts.items():
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        try:
            head, body = parse_front_matter(text, lists=_LISTS) if text.startswith("---") else ({}, text)
        except BadFrontMatter as error:
            notify(f"{sanitize_line(name)} is left out: {sanitize_line(str(error))}.")
            continue
        yield MarkdownFile(name.removesuffix(".md").replace("/", ":"), os.fspath(folder / name), head, body.strip())
