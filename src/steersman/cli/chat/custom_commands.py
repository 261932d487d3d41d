"""Commands of the chat that Markdown files add: their text is a prompt with the arguments of the command in it.

A file permits and runs nothing. What other programs obey in such files, and this one does not, is said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.chat.drafts import attach_files
from steersman.cli.setup.markdown_files import MarkdownFile, load_project_files, read_own_files
from steersman.cli.setup.trust import AskTrust, Notify
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.tools.read_budget import ReadBudget
from steersman.tools.text import to_one_line
from steersman.types.visible import escape_invisible

if TYPE_CHECKING:
    from steersman.cli.chat.commands import Chat

COMMAND_FOLDERS = (".steersman/commands", ".claude/commands")
_KEYS = ("description", "argument-hint")
_PLACE = re.compile(r"\$(ARGUMENTS\b|[1-9])")
_RUNS = re.compile(r"(?m)^[^\S\n]*!|!`")
_MAX_SUMMARY, _MAX_HINT = 80, 24


@dataclass(frozen=True, slots=True)
class CustomCommand:
    """A command of a file; `summary` and `arguments` are safe to print."""

    name: str
    summary: str
    arguments: str
    body: str
    path: str
    not_obeyed: str = ""

    def expand(self, rest: str) -> str:
        """The prompt: `$ARGUMENTS` is all that was typed after the name, `$1` its first word."""
        words = _split_words(rest)
        whole = _PLACE.sub(lambda found: rest if found[1] == "ARGUMENTS" else _pick(words, int(found[1])), self.body)
        return whole if _PLACE.search(self.body) or not rest else f"{whole}\n\n{rest}"


async def load_custom_commands(
    workspace: Path,
    reserved: Collection[str],
    *,
    ask: AskTrust | None,
    notify: Notify,
    budget: ReadBudget | None = None,
) -> dict[str, CustomCommand]:
    """Loads the user's commands, and those of the project that the user trusts; `reserved` names are not theirs."""
    project = await load_project_files(workspace, COMMAND_FOLDERS, ask=ask, notify=notify, budget=budget)
    found: dict[str, CustomCommand] = {}
    for file in (*read_own_files("commands", notify), *project):
        if file.name in reserved or file.name in found:
            other = "of the chat itself" if file.name in reserved else f"in {found[file.name].path}"
            notify(
                f"The command {sanitize_line(file.path)} is left out: there is a /{file.name} {sanitize_line(other)}."
            )
        elif not file.body:
            notify(f"The command {sanitize_line(file.path)} is left out: it has no text.")
        else:
            found[file.name] = _make_command(file)
    return found


def run_custom_command(command: CustomCommand, chat: Chat, rest: str) -> None:
    """Sends the text of a command as a prompt."""
    if command.not_obeyed:
        chat.say("notice", f"/{command.name}: {command.not_obeyed}")
    text = command.expand(rest)
    chat.conversation.send(text, attach_files(text, chat.workspace, chat.conversation.agent.config.approval))


def _make_command(file: MarkdownFile) -> CustomCommand:
    first = next((line.strip("# ") for line in file.body.split("\n") if line.strip("# ")), "")
    summary = _make_safe(file.head.get("description", "") or first, _MAX_SUMMARY)
    arguments = _make_safe(file.head.get("argument-hint", ""), _MAX_HINT)
    if not arguments and _PLACE.search(file.body):
        arguments = "[ARGUMENTS]"
    return CustomCommand(file.name, summary, arguments, file.body, file.path, _list_not_obeyed(file.head, file.body))


def _list_not_obeyed(head: Mapping[str, str], body: str) -> str:
    """What the file says and this program does not do, as a sentence; empty if there is nothing."""
    keys = [key for key in head if key not in _KEYS]
    said: list[str] = []
    if keys:
        said.append(f"{sanitize_line(', '.join(keys))} of its front matter has no effect here.")
    if _RUNS.search(body):
        said.append("Its lines with ! are not run: the model reads them as text.")
    return " ".join(said)


def _make_safe(text: str, most: int) -> str:
    return sanitize_line(escape_invisible(to_one_line(text, most)))


def _split_words(rest: str) -> Sequence[str]:
    try:
        return shlex.split(rest)
    except ValueError:  # an open quote is an ordinary character then
        return rest.split()


def _pick(words: Sequence[str], number: int) -> str:
    return words[number - 1] if number <= len(words) else ""
