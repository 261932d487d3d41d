"""`steersman sessions`: lists, shows, exports, reruns, branches and removes saved sessions."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cli.arguments import Options, add_common_options, add_model_options
from steersman.cli.exits import UserError
from steersman.cli.sessions.artifacts import add_arguments, show_artifacts
from steersman.cli.sessions.entry_names import find_entry, list_entry_ids, shorten_ids
from steersman.cli.sessions.printing import export_markdown, render_conversation, render_head, render_list, summarize
from steersman.cli.sessions.saved import (
    SavedSession,
    Tally,
    describe_problems,
    find_checkpoint_files,
    find_session,
    find_session_files,
    list_sessions,
    tally_open_session,
    tally_saved_session,
)
from steersman.cli.setup.settings import get_current_folder
from steersman.cli.terminal.columns import make_canvas
from steersman.cli.terminal.sanitize import escape_json, sanitize, sanitize_line
from steersman.cli.terminal.stdout import print_json
from steersman.session.html_page import export_html
from steersman.session.session import Session
from steersman.session.stores.jsonl import export_jsonl
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionBusy, SessionError
from steersman.session.tree import Branch
from steersman.tools.checkpoints.store import StoreError

if TYPE_CHECKING:
    from steersman.agent.agent import Agent
    from steersman.events.stream import EventStream

_USUAL_NUMBER = 20
_WRONG, _USAGE = 1, 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the actions and flags of this command."""
    parser.set_defaults(action="list", every=False, json=False, number=_USUAL_NUMBER)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=False)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=f"{text}.".capitalize())
        add_common_options(made)
        return made

    listing = action("list", "list the sessions of this folder, the last used first")
    listing.add_argument("--all", action="store_true", dest="every", help="list the sessions of every folder")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("-n", "--number", type=int, default=_USUAL_NUMBER, help="list at most this many (0: all)")
    showing = action("show", "show a session")
    _add_session_argument(showing)
    showing.add_argument("--at", metavar="ENTRY", help="show the branch that leads to this entry, by id or label")
    showing.add_argument("--full", action="store_true", help="do not truncate long tool results")
    showing.add_argument("--json", action="store_true", help="print JSON")
    exporting = action("export", "write a session to a file or to standard output")
    _add_session_argument(exporting)
    exporting.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="the file to write; standard output if missing or -"
    )
    exporting.add_argument(
        "--format", choices=("jsonl", "markdown", "html"), default="jsonl", help="format of the file"
    )
    exporting.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
    keeping = action("artifacts", "list the files that a session keeps, or write one of them")
    _add_session_argument(keeping)
    add_arguments(keeping)
    rerunning = action("rerun", "ask the model for an answer again")
    _add_session_argument(rerunning)
    rerunning.add_argument(
        "--at", metavar="ENTRY", help="the answer: its id, label or #number; the last one if missing"
    )
    branching = action("branch", "continue from an earlier entry in a new branch")
    _add_session_argument(branching)
    branching.add_argument("--at", metavar="ENTRY", required=True, help="the entry: an id, a label or #number")
    branching.add_argument("prompt", nargs="+", help="the prompt to continue with")
    for made in (rerunning, branching):
        add_model_options(made)
        made.add_argument(
            "--output-format", choices=("text", "json", "stream-json"), default="text", help="format of standard output"
        )
        made.add_argument("--tag", metavar="TEXT", help="a label for the new branch")
    removing = action("rm", "remove sessions permanently")
    removing.add_argument("ids", nargs="+", metavar="ID", help="the beginning of an id is enough")
    removing.add_argument("--all", action="store_true", dest="every", help="look in the sessions of every folder")
    removing.add_argument("-f", "-y", "--yes", action="store_true", dest="yes", help="do not ask for confirmation")


async def run(options: Options) -> int:
    """Runs the action; returns the exit code."""
    arguments = _require_arguments(options)
    match arguments.action:
        case "show":
            return _show(options, arguments)
        case "export":
            return _export(options, arguments)
        case "artifacts":
            _print_problems(show_artifacts(_find_session(options, arguments.id, every=True), arguments))
            return 0
        case "rerun":
            at, tag = arguments.at, arguments.tag
            return await _run_again(options, arguments, lambda agent, entry: agent.rerun(tag, at=entry), at)
        case "branch":
            words = " ".join(arguments.prompt)
            tag = arguments.tag
            return await _run_again(
                options, arguments, lambda agent, entry: agent.branch(entry or 0, tag, prompt=words), arguments.at
            )
        case "rm":
            return _remove(options, arguments)
        case _:
            return _list(options, arguments)


# The list


def _list(options: Options, arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    found = list_sessions(
        find_session_files(options.session_dir, get_current_folder(), every=arguments.every), problems
    )
    shown = found[: arguments.number] if arguments.number > 0 else found
    tallies = [(saved, tally_saved_session(saved)) for saved in shown]
    if arguments.json:
        print_json([summarize(saved, tally) for saved, tally in tallies])
    elif found or not problems:
        for line in render_list(tallies, make_canvas(), every=arguments.every):
            print(line)
        if len(shown) < len(found):
            print(f"... and {len(found) - len(shown)} more; -n 0 lists all.")
    for saved, tally in tallies:
        problems += [f"{saved.short}: {problem}" for problem in tally.problems]
    _print_problems(problems)
    return _WRONG if problems and not found else 0


# One session


def _show(options: Options, arguments: argparse.Namespace) -> int:
    saved = _find_session(options, arguments.id, every=True)
    tally = Tally()
    with Session.open(saved.path, saved.id, write=False) as session:
        tally_open_session(session, tally)
        leaf = None if arguments.at is None else find_entry(session, arguments.at)
        entries = session.entries(leaf)
        branches = session.tree()
        waiting = session.waiting
        short = shorten_ids(list_entry_ids(session))
    if arguments.json:
        told = {"branches": msgspec.to_builtins(branches), "entries": [_to_builtins(entry) for entry in entries]}
        print_json({**summarize(saved, tally), **told, "waiting": [_to_builtins(item.message) for item in waiting]})
        return 0
    canvas = make_canvas()
    for line in render_head(saved, tally, canvas):
        print(line)
    ids = {entry.id for entry in entries}
    ways: defaultdict[str, list[Branch]] = defaultdict(list)
    for branch in branches:
        if branch.leaf not in ids and branch.fork is not None:
            ways[branch.fork].append(branch)
    for line in render_conversation(entries, ways, short, canvas, numbered=leaf is None, whole=arguments.full):
        print(line)
    for item in waiting:
        print(canvas.style(f"waiting ({item.kind}): {sanitize_line(item.message.text)}", "warn"))
    if apart := [branch for branch in branches if branch.fork is None and branch.leaf not in ids]:
        print(
            canvas.style(
                f"Separate branches: {', '.join(short.get(branch.leaf, branch.leaf) for branch in apart)}", "warn"
            )
        )
    _print_problems(tally.problems)
    return 0


def _export(options: Options, arguments: argparse.Namespace) -> int:
    saved = _find_session(options, arguments.id, every=True)
    file: Path | None = None if arguments.file == Path("-") else arguments.file
    if file is not None and os.path.lexists(file) and not arguments.force:
        raise UserError(f"{sanitize_line(str(file))!r} exists already; --force overwrites it.", code=_USAGE)
    with Session.open(saved.path, saved.id, write=False) as session:
        if arguments.format != "jsonl":
            make = export_html if arguments.format == "html" else export_markdown
            _write(make(saved.summary.title, session.entries()), file, force=arguments.force)
        elif file is not None:
            session.export(file)
        else:
            _write(_export_lines(saved), None, make_safe=escape_json)
        problems = describe_problems(session)
    _print_problems(problems)
    return 0


def _export_lines(saved: SavedSession) -> str:
    handle = SqliteStore(saved.path).open(saved.id, write=False)
    try:
        buffer = BytesIO()
        export_jsonl(handle, buffer)
        return buffer.getvalue().decode()
    finally:
        handle.close()


def _write(text: str, file: Path | None, *, make_safe: Callable[[str], str] = sanitize, force: bool = False) -> None:
    """Writes to a file as it is, readable only by the owner; sanitizes what goes to a terminal."""
    if file is None:
        sys.stdout.write(make_safe(text) if sys.stdout.isatty() else text)
        return
    # A project may bring a link to a file that is not there yet.
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if force else os.O_EXCL)
    with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as target:
        target.write(text)


async def _run_again(
    options: Options,
    arguments: argparse.Namespace,
    start: Callable[[Agent, str | None], EventStream],
    at: str | None,
) -> int:
    """Runs in a saved session, from another place than its end."""
    from steersman.cli.run.once import run_once

    saved = _find_session(options, arguments.id)
    entry: str | None = None
    if at is not None:
        with Session.open(saved.path, saved.id, write=False) as session:
            # A number means a message of the current branch, wherever the agent resumes.
            entry = find_entry(session, at)

    def begin(agent: Agent) -> EventStream:
        try:
            return start(agent, entry)
        except ValueError as error:  # an entry that has no answer to rerun
            raise UserError(str(error)) from error

    return await run_once(replace(options, command="run", resume=saved.id), start=begin)


# Removing


def _remove(options: Options, arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    sessions = list_sessions(
        find_session_files(options.session_dir, get_current_folder(), every=arguments.every), problems
    )
    chosen = list(dict.fromkeys(find_session(name, sessions) for name in arguments.ids))
    if not arguments.yes:
        _confirm(chosen)

    for saved in chosen:
        try:
            SqliteStore(saved.path).delete(saved.id)
            _remove_checkpoints(saved, problems)
            print(f"Removed {saved.short}  {sanitize_line(saved.summary.title)}".rstrip())
        except SessionBusy:
            problems.append(f"{saved.short} is in use by another program and was not removed; end that program first.")
        except SessionError as error:
            problems.append(f"{saved.short} could not be removed: {sanitize_line(str(error))}")
    _print_problems(problems)
    return _WRONG if problems else 0


def _remove_checkpoints(saved: SavedSession, problems: list[str]) -> None:
    """Removes what the runs of a session changed in files."""
    from steersman.tools.checkpoints.checkpoints import remove_session

    for path in find_checkpoint_files(saved.path):
        try:
            remove_session(path, saved.id)
        except (OSError, StoreError, sqlite3.Error) as error:
            problems.append(f"The checkpoints of {saved.short} could not be removed: {sanitize_line(str(error))}")


def _confirm(chosen: Sequence[SavedSession]) -> None:
    """Asks the user to confirm; raises `UserError` if they decline, or if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError("Removing needs confirmation, and there is no terminal to ask on; use --yes.", code=_USAGE)
    for saved in chosen:
        print(f"  {saved.short}  {sanitize_line(saved.summary.title)}".rstrip(), file=sys.stderr)
    print(
        f"Remove {'this session' if len(chosen) == 1 else 'these sessions'} permanently? [y/N] ",
        end="",
        file=sys.stderr,
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("Nothing was removed.")


# Shared


def _add_session_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the session: the beginning of its id, or a label in it")


def _require_arguments(options: Options) -> argparse.Namespace:
    assert options.arguments is not None
    return options.arguments


def _find_session(options: Options, name: str, *, every: bool = False) -> SavedSession:
    """Finds a session of this folder first, and then, with `every`, of the others."""
    problems: list[str] = []
    own = list_sessions(find_session_files(options.session_dir, get_current_folder()), problems)
    try:
        return find_session(name, own)
    except UserError as error:
        rest = (
            list_sessions(find_session_files(options.session_dir, get_current_folder(), every=True), problems)
            if every
            else []
        )
        _print_problems(problems)
        if len(rest) <= len(own) or "could mean" in str(error):
            raise
        return find_session(name, rest)


def _to_builtins(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=repr)


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"steersman: {problem}", file=sys.stderr)
