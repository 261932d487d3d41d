"""The sessions that are kept on this machine: where they are, which one a word means, and what each came to.

Looking changes nothing: sessions are opened to be read, and what is damaged is told and passed over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.setup.settings import made, session_file, state_folder
from steersman.cli.terminal.sanitize import one_line
from steersman.context.log import Log
from steersman.session.session import Session
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionBusy, SessionError, Summary
from steersman.types.usage import Usage

_PREFIX = "session_"
_SHORTEST = 8
_MOST_NAMED = 6
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class Kept:
    """A session, the file it is in, and the shortest name that means it and no other."""

    path: Path
    summary: Summary
    short: str = ""

    @property
    def id(self) -> str:
        """Its whole id."""
        return self.summary.id

    @property
    def folder(self) -> str:
        """The name of the folder its file is for."""
        return self.path.stem.rpartition("-")[0] or self.path.stem


@dataclass(slots=True)
class Tally:
    """What happened in a session: messages of all branches, answers, and what all runs cost."""

    messages: int = 0
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    ended: bool = True
    problems: list[str] = field(default_factory=list[str])


def session_files(session_dir: Path | None, folder: Path, *, every: bool = False) -> list[Path]:
    """The file of a folder, or with `every` the files of all folders, this one's first."""
    own = session_file(session_dir, folder)
    if not every:
        return [own]
    root = state_folder() / "sessions" if session_dir is None else session_dir
    return [own, *sorted(path for path in root.glob("*.db") if path != own)]


def kept_in(files: Iterable[Path], problems: list[str]) -> list[Kept]:
    """The sessions of these files, the last used first; what is wrong with a file is added to `problems`."""
    found: list[Kept] = []
    for path in files:
        try:
            found += [Kept(path, summary) for summary in Session.list(path)]
        except SessionError as error:
            problems.append(one_line(str(error)))
    found.sort(key=lambda kept: kept.summary.updated, reverse=True)
    names = sorted({_bare(kept.id) for kept in found})
    return [Kept(kept.path, kept.summary, _short(_bare(kept.id), names)) for kept in found]


def find(name: str, sessions: Sequence[Kept]) -> Kept:
    """The session a word means: its id, the beginning of it, or a label in it; `UserError` where that is not one."""
    wanted = _bare(name)
    same = [kept for kept in sessions if name == kept.id]
    found = same or [kept for kept in sessions if wanted and _bare(kept.id).startswith(wanted)]
    found = found or [kept for kept in sessions if name in labels_of(kept)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{one_line(name)!r} could mean {len(found)} sessions: {_named(found)}. Give more of the id.")
    raise UserError(f"There is no session {one_line(name)!r} here.{_near(wanted, sessions)}")


def labels_of(kept: Kept) -> list[str]:
    """The labels in a session; none where it cannot be read."""
    try:
        with Session.open(kept.path, kept.id, write=False) as session:
            told = [_label(record.payload) for record in session.records() if record.type in ("label", "run_start")]
            return [label for label in told if label]
    except SessionError:
        return []


def tally_of(kept: Kept) -> Tally:
    """What happened in a session, as far as it can be read."""
    tally = Tally()
    try:
        with Session.open(kept.path, kept.id, write=False) as session:
            tally_up(session, tally)
    except SessionError as error:
        tally.problems.append(one_line(str(error)))
    return tally


def tally_up(session: Session, tally: Tally) -> None:
    """Count what happened in an open session."""
    run = Usage()
    for record in session.records():
        match record.type:
            case "message":
                run += _heard(tally, record.payload.get("message"))
            case "run_start":
                tally.usage, run, tally.ended = tally.usage + run, Usage(), False
            case "run_end":
                # It counts what no message has as well: summaries, retries, sub-agents.
                tally.usage, run, tally.ended = tally.usage + _usage(record.payload.get("usage")), Usage(), True
            case _:
                pass
    tally.usage += run
    tally.problems += problems_of(session)


def problems_of(session: Session) -> list[str]:
    """What is wrong with an open session, a line each: what was lost, and where the damaged file is."""
    return [one_line(f"{problem.where}: {problem.text}".lstrip(": ")) for problem in session.problems]


def entry_of(session: Session, at: str) -> str | int:
    """The entry a word means: a label, an id or the beginning of one, or the number of a message."""
    named = session.resolve_entry(at)
    known = {record.id for record in session.records() if record.type in ("message", "compaction", "prun", "undo")}
    if named in known:
        return named
    if at.isdecimal() and len(at) < _LONGEST_NUMBER:
        if int(at) < len(session.messages):
            return int(at)
        raise UserError(f"There is no message {at} in this session; its last one is {len(session.messages) - 1}.")
    found = sorted(id for id in known if id.startswith(at))
    if len(found) == 1:
        return found[0]
    what = "could mean several entries" if found else "is no entry"
    raise UserError(
        f"{one_line(at)!r} {what} of this session. `steersman sessions show {session.id}` has their numbers."
    )


def _heard(tally: Tally, message: object) -> Usage:
    """Count a message; what the request behind it took."""
    if not isinstance(message, dict):
        return Usage()
    fields = cast(dict[str, Any], message)
    tally.messages += 1
    if fields.get("role") != "assistant":
        return Usage()
    tally.turns += 1
    if fields.get("model"):
        tally.model = ":".join(str(part) for part in (fields.get("provider"), fields["model"]) if part)
    return _usage(fields.get("usage"))


def _usage(fields: object) -> Usage:
    try:
        return Usage() if fields is None else msgspec.convert(fields, Usage)
    except msgspec.ValidationError:
        return Usage()


def _label(payload: dict[str, Any]) -> str:
    kind = payload.get("continuation_kind")
    text = cast(dict[str, Any], kind).get("tag") if isinstance(kind, dict) else payload.get("text")
    return text if isinstance(text, str) else ""


def _bare(id: str) -> str:
    """An id without the part that all of them begin with."""
    return id.removeprefix(_PREFIX)


def _short(bare: str, names: Sequence[str]) -> str:
    """The shortest beginning that no other of these names has."""
    at = names.index(bare)
    shared = max((_shared(bare, names[other]) for other in (at - 1, at + 1) if 0 <= other < len(names)), default=0)
    return bare[: max(_SHORTEST, shared + 1)]


def _shared(left: str, right: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _named(sessions: Sequence[Kept]) -> str:
    told = [f"{kept.short} ({one_line(kept.summary.title)[:40] or 'no words yet'})" for kept in sessions[:_MOST_NAMED]]
    return ", ".join(told) + (" and more" if len(sessions) > _MOST_NAMED else "")


def _near(wanted: str, sessions: Sequence[Kept]) -> str:
    if not sessions:
        return " None is kept for this folder yet; `steersman sessions list --all` looks in the others."
    by_short = {kept.short: kept for kept in sessions}
    near = [by_short[short] for short in get_close_matches(wanted, by_short, _MOST_NAMED, 0.5)]
    said = [kept for kept in sessions if wanted and wanted.lower() in kept.summary.title.lower()]
    likely = list(dict.fromkeys([*near, *said])) or list(sessions[:3])
    return f" Near to it: {_named(likely)}." if near or said else f" The last ones are {_named(likely)}."


def open_session(options: Options, workspace: Path, tell: Callable[[str], None]) -> Session | None:
    """The session these options ask for; `None`, and a notice, where a new one cannot be kept."""
    path = session_file(options.session_dir, workspace)
    if options.continue_ or options.resume is not None:
        return _taken_up(_wanted(options, path, tell), path, tell, fork=options.fork_session)
    try:
        return _new(path)
    except (SessionError, OSError, sqlite3.Error) as error:
        tell(f"This session cannot be kept, and goes on without: {one_line(_reason(error))}")
        return None


def close_session(session: Session, options: Options, workspace: Path, tell: Callable[[str], None]) -> None:
    """Let go of a session; one in which nothing was said is not kept."""
    if session.closed:
        return
    session.flush()
    lost = session.degraded
    empty = not lost and not session.messages and not session.waiting and not session.tree()
    with session:
        pass
    if lost:
        tell(f"The session could not be kept whole: {one_line(lost)}")
    if empty:
        try:
            SqliteStore(session_file(options.session_dir, workspace)).delete(session.id)
        except (SessionError, OSError):  # an empty session more in a list does no harm
            return


def _new(path: Path) -> Session:
    made(path.parent)
    return Session.create(path)


def _wanted(options: Options, path: Path, tell: Callable[[str], None]) -> Kept:
    problems: list[str] = []
    sessions = kept_in([path], problems) if path.exists() else []
    for problem in problems:
        tell(problem)
    if options.resume is not None:
        return find(options.resume, sessions)
    if not sessions:
        raise UserError("There is no session of this folder to go on with. Leave -c out to begin one.")
    return sessions[0]


def _taken_up(wanted: Kept, path: Path, tell: Callable[[str], None], *, fork: bool) -> Session:
    try:
        if not fork:
            return _whole(Session.open(wanted.path, wanted.id), tell)
        with Session.open(wanted.path, wanted.id, write=False) as before:
            entries = _whole(before, tell).entries()
        session = _new(path)
        session.move_to(Log.from_entries(entries))
        return session
    except SessionBusy as error:
        raise UserError(
            f"The session {wanted.short} is in use by another program. Wait for it, or go on in a copy: --fork-session."
        ) from error


def _whole(session: Session, tell: Callable[[str], None]) -> Session:
    """The session; what damage took from it is told, or the model would forget without anybody knowing why."""
    for problem in problems_of(session):
        tell(problem)
    return session


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
