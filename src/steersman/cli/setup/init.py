"""`steersman init`: writes a first AGENTS.md and project settings, from what the project itself says. Asks no model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Literal

from steersman.cli.arguments import Options
from steersman.cli.exits import DONE, ERROR, UserError
from steersman.cli.setup.settings import PROJECT_FILE, get_current_folder
from steersman.cli.setup.survey import Survey, survey_project
from steersman.cli.terminal.approval import ask_trust_on_terminal
from steersman.cli.terminal.columns import wrap
from steersman.cli.terminal.descriptors import STDIN, STDOUT, count_columns, is_terminal
from steersman.cli.terminal.sanitize import sanitize, sanitize_line
from steersman.tools.confine.workspace import MissingPath, Workspace, WorkspaceError
from steersman.types.visible import escape_invisible

INSTRUCTIONS = "AGENTS.md"
MAX_OLD_BYTES = 1_000_000
"""The most bytes of a file that is there already, for the difference."""

_PURPOSES: Mapping[str, str] = {
    "build": "Build", "test": "Test", "lint": "Lint", "types": "Types", "format": "Format", "check": "Check",
}  # fmt: skip
_SETTINGS = """\
# Settings of this project for steersman. They count once a user has seen and trusted them, and can only restrict.

[approval]
# Everything beyond reading asks. These ask even for users who allow more:
ask = ["edit(.github/**)", "write(.github/**)"]
deny = ["read(.env)", "read(.env.*)"]
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("--force", action="store_true", help="replace files that are there already")


async def run(options: Options) -> int:
    """Writes the files; one that is there is kept, unless the user says otherwise after seeing the difference."""
    folder = get_current_folder()
    force = bool(options.arguments is not None and options.arguments.force)
    wanted = {INSTRUCTIONS: write_instructions(survey_project(folder)), PROJECT_FILE: _SETTINGS}
    outcomes = {name: await _put(folder, name, text, force=force) for name, text in wanted.items()}
    kept = [name for name, outcome in outcomes.items() if outcome == "kept"]
    if kept:
        _tell(f"Kept as {'it was' if len(kept) == 1 else 'they were'}: {', '.join(kept)}. --force replaces.")
    if "written" in outcomes.values():
        _tell("Read what was written, and correct it: the agent believes it.")
    return ERROR if kept else DONE


def write_instructions(found: Survey) -> str:
    """The text of AGENTS.md for a project."""
    lines = [f"# {found.name}", "", found.about or "What this project is for: say it here in a sentence or two.", ""]
    if found.languages:
        lines += [f"Written in {', '.join(found.languages)}.", ""]
    if found.runners:
        lines += [f"Tools: {', '.join(dict.fromkeys(found.runners))}.", ""]
    known = {purpose: found.commands[purpose] for purpose in _PURPOSES if purpose in found.commands}
    if known:
        lines += ["## Commands", ""]
        lines += [f"- {_PURPOSES[purpose]}: {_quote(commands)}" for purpose, commands in known.items()]
        lines.append("")
    if found.commands.get("CI"):
        lines += ["## What CI runs", "", *[f"- `{command}`" for command in found.commands["CI"]], ""]
    if found.folders:
        lines += ["## Folders", ""]
        lines += [
            f"- `{_make_plain(name)}/`: {count:,} file{'' if count == 1 else 's'}" for name, count in found.folders
        ]
        lines.append("")
    rules = ["Run the tests above before you say that something is done."] if "test" in known else []
    lines += ["## Rules", "", *[f"- {rule}" for rule in (*rules, "Change only what was asked for.")], ""]
    return "\n".join(lines)


async def _put(folder: Path, name: str, text: str, *, force: bool) -> Literal["written", "same", "kept"]:
    """Writes a file; returns whether it was written, had this text already, or has another one."""
    # A link of the project may lead to what git runs.
    files = Workspace(folder, protected=(".git",))
    try:
        old = _read_or_write(files, name, text)
        if old is None:
            _tell(f"Wrote {name}.")
            return "written"
        if old == text:
            _tell(f"{name} is there already, with the same text.")
            return "same"
        diff = "".join(unified_diff(old.splitlines(True), text.splitlines(True), name, f"{name} (new)"))
        if not force and not await _ask(name, diff):
            return "kept"
        files.replace(name, text.encode())
        _tell(f"Replaced {name}.")
        return "written"
    except WorkspaceError as error:  # such as a link on the way that leads out of the project
        raise UserError(f"Cannot write {name}: {error}") from error


def _read_or_write(files: Workspace, name: str, text: str) -> str | None:
    """Writes a file that is not there yet; returns the text of one that is."""
    try:
        return files.read_bytes(name, limit=MAX_OLD_BYTES).decode("utf-8", "replace")
    except MissingPath:
        files.replace(name, text.encode())
        return None


async def _ask(name: str, diff: str) -> bool:
    """Shows what would change, and asks on a terminal; elsewhere the answer is no."""
    if is_terminal(STDIN) and is_terminal(STDOUT):
        return await ask_trust_on_terminal(f"{name} is there already. Replace it?", diff)
    print(f"{name} is there already. It would change so:")
    print(sanitize(escape_invisible(diff)).rstrip("\n"))
    return False


def _tell(text: str) -> None:
    print(*wrap(text, count_columns(STDOUT)), sep="\n")


def _quote(commands: list[str]) -> str:
    return ", ".join(f"`{command}`" for command in commands)


def _make_plain(name: str) -> str:
    return sanitize_line(escape_invisible(name)).replace("`", "'")
