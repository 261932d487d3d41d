"""`steersman sessions`: what was said before, listed, shown, exported, asked again, taken another way and removed."""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cli.arguments import Options, add_common, add_model_options
from steersman.cli.exits import UserError
from steersman.cli.sessions.printing import conversation, head_of, listed, markdown_of, summed
from steersman.cli.sessions.saved import (
    Kept,
    Tally,
    entry_of,
    find,
    kept_in,
    problems_of,
    session_files,
    tally_of,
    tally_up,
)
from steersman.cli.setup.settings import current_folder
from steersman.cli.terminal.columns import paper_of
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.cli.terminal.stdout import print_json
from steersman.session.session import Session
from steersman.session.stores.store import SessionBusy, SessionError
from steersman.session.tree import Branch

if TYPE_CHECKING:
    from steersman.agent.agent import Agent
    from steersman.events.stream import EventStream

_USUAL_NUMBER = 20
_WRONG, _USAGE = 1, 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the words and flags of this command."""
    parser.set_defaults(action="list", every=False, json=False, number=_USUAL_NUMBER)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=False)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=f"{text}.".capitalize())
        add_common(made)
        return made

    listing = action("list", "the sessions of this folder, the last used first")
    listing.add_argument("--all", action="store_true", dest="every", help="those of every folder")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.add_argument("-n", "--number", type=int, default=_USUAL_NUMBER, help="how many at most (0: all)")
    showing = action("show", "a conversation")
    _session_argument(showing)
    showing.add_argument("--at", metavar="ENTRY", help="the branch that leads to this entry, given by id or label")
    showing.add_argument("--full", action="store_true", help="long tool results, too")
    showing.add_argument("--json", action="store_true", help="as JSON")
    exporting = action("export", "write a session to a file or to standard output")
    _session_argument(exporting)
    exporting.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="where to; standard output without it, or with -"
    )
    exporting.add_argument("--format", choices=("jsonl", "markdown"), default="jsonl", help="of the file")
    exporting.add_argument("-f", "--force", action="store_true", help="write over a file that is there")
    rerunning = action("rerun", "ask for an answer again")
    _session_argument(rerunning)
    rerunning.add_argument("--at", metavar="ENTRY", help="this answer: its number, id or label; else the last one")
    branching = action("branch", "go another way from an entry")
    _session_argument(branching)
    branching.add_argument("--at", metavar="ENTRY", required=True, help="from where: a number, an id or a label")
    branching.add_argument("prompt", nargs="+", help="what to say there")
    for made in (rerunning, branching):
        add_model_options(made)
        made.add_argument("--output-format", choices=("text", "json", "stream-json"), default="text", help="of stdout")
        made.add_argument("--tag", metavar="TEXT", help="a label for the new branch")
    removing = action("rm", "remove sessions for good")
    removing.add_argument("ids", nargs="+", metavar="ID", help="the beginning of an id is enough")
    removing.add_argument("--all", action="store_true", dest="every", help="look in every folder's sessions")
    removing.add_argument("-f", "-y", "--yes", action="store_true", dest="yes", help="ask nothing")


async def run(options: Options) -> int:
    """Do what was asked; the exit code."""
    arguments = _arguments(options)
    match arguments.action:
        case "show":
            return _show(options, arguments)
        case "export":
            return _export(options, arguments)
        case "rerun":
            at, tag = arguments.at, arguments.tag
            return await _again(options, arguments, lambda agent, entry: agent.rerun(tag, at=entry), at)
        case "branch":
            words = " ".join(arguments.prompt)
            tag = arguments.tag
            return await _again(
                options, arguments, lambda agent, entry: agent.branch(entry or 0, tag, prompt=words), arguments.at
            )
        case "rm":
            return _remove(options, arguments)
        case _:
            return _list(options, arguments)


# The list


def _list(options: Options, arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    found = kept_in(session_files(options.session_dir, current_folder(), every=arguments.every), problems)
    shown = found[: arguments.number] if arguments.number > 0 else found
    tallies = [(kept, tally_of(kept)) for kept in shown]
    if arguments.json:
        print_json([summed(kept, tally) for kept, tally in tallies])
    elif found or not problems:
        for line in listed(tallies, paper_of(), every=arguments.every):
            print(line)
        if len(shown) < len(found):
            print(f"... and {len(found) - len(shown)} more; -n 0 lists all.")
    for kept, tally in tallies:
        problems += [f"{kept.short}: {problem}" for problem in tally.problems]
    _complain(problems)
    return _WRONG if problems and not found else 0


# One of them


def _show(options: Options, arguments: argparse.Namespace) -> int:
    kept = _found(options, arguments.id, every=True)
    tally = Tally()
    with Session.open(kept.path, kept.id, write=False) as session:
        tally_up(session, tally)
        leaf = None if arguments.at is None else entry_of(session, arguments.at)
        leaf = session.log.entry_id_of(leaf) if isinstance(leaf, int) else leaf
        entries = session.entries(leaf)
        branches = session.tree()
        waiting = session.waiting
    if arguments.json:
        told = {"branches": msgspec.to_builtins(branches), "entries": [_plain(entry) for entry in entries]}
        print_json({**summed(kept, tally), **told, "waiting": [_plain(item.message) for item in waiting]})
        return 0
    paper = paper_of()
    for line in head_of(kept, tally, paper):
        print(line)
    ids = {entry.id for entry in entries}
    ways: defaultdict[str, list[Branch]] = defaultdict(list)
    for branch in branches:
        if branch.leaf not in ids and branch.fork is not None:
            ways[branch.fork].append(branch)
    for line in conversation(entries, ways, paper, numbered=leaf is None, whole=arguments.full):
        print(line)
    for item in waiting:
        print(paper.styled(f"waiting ({item.kind}): {one_line(item.message.text)}", "warn"))
    if apart := [branch for branch in branches if branch.fork is None and branch.leaf not in ids]:
        print(paper.styled(f"Apart from this: {', '.join(branch.leaf for branch in apart)}", "warn"))
    _complain(tally.problems)
    return 0


def _export(options: Options, arguments: argparse.Namespace) -> int:
    kept = _found(options, arguments.id, every=True)
    file: Path | None = None if arguments.file == Path("-") else arguments.file
    if file is not None and file.exists() and not arguments.force:
        raise UserError(f"{one_line(str(file))!r} is there already; --force writes over it.", code=_USAGE)
    with Session.open(kept.path, kept.id, write=False) as session:
        if arguments.format == "markdown":
            _write(markdown_of(kept.summary.title, session.entries()), file)
        elif file is not None:
            session.export(file)
        else:
            _write(_lines_of(kept), None)
        problems = problems_of(session)
    _complain(problems)
    return 0


def _lines_of(kept: Kept) -> str:
    from io import BytesIO

    from steersman.session.stores.jsonl import export_jsonl
    from steersman.session.stores.sqlite.store import SqliteStore

    handle = SqliteStore(kept.path).open(kept.id, write=False)
    try:
        buffer = BytesIO()
        export_jsonl(handle, buffer)
        return buffer.getvalue().decode()
    finally:
        handle.close()


def _write(text: str, file: Path | None) -> None:
    """A file gets it as it is, its owner alone; a terminal gets nothing that could steer it."""
    if file is None:
        sys.stdout.write(safe(text) if sys.stdout.isatty() else text)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as target:
        target.write(text)


async def _again(
    options: Options,
    arguments: argparse.Namespace,
    start: Callable[[Agent, str | int | None], EventStream],
    at: str | None,
) -> int:
    """A run in a kept session that begins somewhere else than at its end."""
    from steersman.cli.run.once import once

    kept = _found(options, arguments.id)
    entry: str | int | None = None
    if at is not None:
        with Session.open(kept.path, kept.id, write=False) as session:
            entry = entry_of(session, at)
            # A number is one of the branch that was shown, whatever the agent stands at.
            entry = session.log.entry_id_of(entry) if isinstance(entry, int) else entry

    def begin(agent: Agent) -> EventStream:
        try:
            return start(agent, entry)
        except ValueError as error:  # of the words that were typed: an entry where there is nothing to ask again
            raise UserError(str(error)) from error

    return await once(replace(options, command="run", resume=kept.id), start=begin)


# Removing


def _remove(options: Options, arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    sessions = kept_in(session_files(options.session_dir, current_folder(), every=arguments.every), problems)
    chosen = list(dict.fromkeys(find(name, sessions) for name in arguments.ids))
    if not arguments.yes:
        _ask(chosen)
    from steersman.session.stores.sqlite.store import SqliteStore

    for kept in chosen:
        try:
            SqliteStore(kept.path).delete(kept.id)
            print(f"Removed {kept.short}  {one_line(kept.summary.title)}".rstrip())
        except SessionBusy:
            problems.append(f"{kept.short} is in use by another program and stays; end that first.")
        except SessionError as error:
            problems.append(f"{kept.short} could not be removed: {one_line(str(error))}")
    _complain(problems)
    return _WRONG if problems else 0


def _ask(chosen: Sequence[Kept]) -> None:
    """Go on if the user says so; without a terminal nobody can be asked, and nothing is removed."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError("Nobody can be asked here whether to remove them; say so with --yes.", code=_USAGE)
    for kept in chosen:
        print(f"  {kept.short}  {one_line(kept.summary.title)}".rstrip(), file=sys.stderr)
    print(
        f"Remove {'this session' if len(chosen) == 1 else 'these sessions'} for good? [y/N] ", end="", file=sys.stderr
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("Nothing was removed.")


# Shared


def _session_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="which one: the beginning of its id, or a label in it")


def _arguments(options: Options) -> argparse.Namespace:
    assert options.arguments is not None
    return options.arguments


def _found(options: Options, name: str, *, every: bool = False) -> Kept:
    """A session of this folder; where `every` folder counts, this one's comes first."""
    problems: list[str] = []
    own = kept_in(session_files(options.session_dir, current_folder()), problems)
    try:
        return find(name, own)
    except UserError as error:
        rest = kept_in(session_files(options.session_dir, current_folder(), every=True), problems) if every else []
        _complain(problems)
        if len(rest) <= len(own) or "could mean" in str(error):
            raise
        return find(name, rest)


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=repr)


def _complain(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"steersman: {problem}", file=sys.stderr)
