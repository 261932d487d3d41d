"""Saved sessions: finds, tallies, opens and closes them.

Reading changes nothing: sessions are opened read-only, and damage is reported and skipped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.setup.settings import find_session_file, find_state_folder, make_private_folder
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.context.log import Log
from steersman.session.records import CONFIGURED
from steersman.session.session import Session
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionBusy, SessionError, Summary
from steersman.types.messages import EndReason
from steersman.types.usage import Usage

ASIDE = "aside"
"""The type of the record of what a request beside the runs used, such as for a summary."""

_PREFIX = "session_"
_SHORTEST = 8
_MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A saved session, its file, and the shortest unique name for it."""

    path: Path
    summary: Summary
    short: str = ""

    @property
    def id(self) -> str:
        """Its full id."""
        return self.summary.id

    @property
    def folder(self) -> str:
        """The name of the folder it belongs to."""
        return self.path.stem.rpartition("-")[0] or self.path.stem


@dataclass(slots=True)
class Tally:
    """What happened in a session: messages of all branches, answers, and the cost of all runs."""

    messages: int = 0
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    ended: bool = True
    problems: list[str] = field(default_factory=list[str])


def find_session_files(session_dir: Path | None, folder: Path, *, every: bool = False) -> list[Path]:
    """Returns the session file of a folder; with `every`, those of all folders, this one first."""
    own = find_session_file(session_dir, folder)
    if not every:
        return [own]
    root = find_state_folder() / "sessions" if session_dir is None else session_dir
    return [own, *sorted(path for path in root.glob("*.db") if path != own)]


def find_checkpoint_files(sessions: Path) -> list[Path]:
    """Returns the files that may have checkpoints of the sessions in a file, beside it or beside its folder."""
    if sessions.name == "sessions.db":
        return sorted((sessions.parent / "checkpoints").glob("*.db"))
    return [sessions.parent.parent / "checkpoints" / sessions.name]


def list_sessions(files: Iterable[Path], problems: list[str]) -> list[SavedSession]:
    """Lists the sessions in these files, the last used first; adds damaged files to `problems`."""
    found: list[SavedSession] = []
    for path in files:
        try:
            found += [SavedSession(path, summary) for summary in Session.list(path)]
        except SessionError as error:
            problems.append(sanitize_line(str(error)))
    found.sort(key=lambda saved: saved.summary.updated, reverse=True)
    names = sorted({_strip_prefix(saved.id) for saved in found})
    return [SavedSession(saved.path, saved.summary, _shorten(_strip_prefix(saved.id), names)) for saved in found]


def find_session(name: str, sessions: Sequence[SavedSession]) -> SavedSession:
    """Finds a session by its id, the beginning of it, or a label; raises `UserError` unless there is exactly one."""
    wanted = _strip_prefix(name)
    same = [saved for saved in sessions if name == saved.id]
    found = same or [saved for saved in sessions if wanted and _strip_prefix(saved.id).startswith(wanted)]
    found = found or [saved for saved in sessions if name in read_labels(saved)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"{sanitize_line(name)!r} could mean {len(found)} sessions: {_list_names(found)}. Give more of the id."
        )
    raise UserError(f"No session {sanitize_line(name)!r} here.{_suggest(wanted, sessions)}")


def read_labels(saved: SavedSession) -> list[str]:
    """Reads the labels in a session; empty if it cannot be read."""
    try:
        with Session.open(saved.path, saved.id, write=False) as session:
            told = [
                _read_label(record.payload) for record in session.records() if record.type in ("label", "run_start")
            ]
            return [label for label in told if label]
    except SessionError:
        return []


def tally_saved_session(saved: SavedSession) -> Tally:
    """Tallies a saved session, as far as it can be read."""
    tally = Tally()
    try:
        with Session.open(saved.path, saved.id, write=False) as session:
            tally_open_session(session, tally)
    except SessionError as error:
        tally.problems.append(sanitize_line(str(error)))
    return tally


def tally_open_session(session: Session, tally: Tally) -> None:
    """Tallies an open session."""
    run = Usage()
    for record in session.records():
        match record.type:
            case "message":
                run += _count_message(tally, record.payload.get("message"))
            case "run_start":
                tally.usage, run, tally.ended = tally.usage + run, Usage(), False
            case "run_end":
                # The usage of the run also counts what no message has: summaries, retries, sub-agents.
                tally.usage, run, tally.ended = tally.usage + _decode_usage(record.payload.get("usage")), Usage(), True
            case "aside":
                tally.usage += _decode_usage(record.payload.get("usage"))
            case _:
                pass
    tally.usage += run
    tally.problems += describe_problems(session)


@dataclass(frozen=True, slots=True)
class SessionModel:
    """The models of a session: the one chosen with `/model`, and the one its last run was started with."""

    chosen: str | None = None
    used: str | None = None


def read_session_model(options: Options, workspace: Path) -> SessionModel:
    """Reads the models of the session that these options continue."""
    chosen: object = None
    used: object = None
    path = find_session_file(options.session_dir, workspace)
    try:
        saved = _choose_session(options, path, lambda _: None)
        with Session.open(saved.path, saved.id, write=False) as session:
            for record in session.records():
                if record.type == "imported":
                    chosen = used = None  # what another place used says nothing here, and may be a file
                elif record.type == CONFIGURED:
                    chosen = record.payload.get("model", chosen)
                elif record.type == "run_start" and record.payload.get("parent_tool_call_id") is None:
                    snapshot: object = record.payload.get("config_snapshot")
                    used = cast(dict[str, Any], snapshot).get("model", used) if isinstance(snapshot, dict) else used
    except (UserError, SessionError):  # reported when the session is opened
        return SessionModel()
    return SessionModel(*(name if isinstance(name, str) and name else None for name in (chosen, used)))


def shorten_session_id(options: Options, workspace: Path, id: str) -> str:
    """The short name of a session, as `sessions list` shows it."""
    sessions = list_sessions([find_session_file(options.session_dir, workspace)], [])
    return next((saved.short for saved in sessions if saved.id == id), id)


def find_last_end(session: Session) -> EndReason | Literal["cut off"] | None:
    """How the last run of a session ended; `cut off` if its program ended first, `None` if there was no run."""
    end: Any = None
    for record in session.records():
        if record.type == "run_start":
            end = "cut off"
        elif record.type == "run_end":
            end = record.payload.get("end_reason")
    return end


def describe_problems(session: Session) -> list[str]:
    """Describes the damage of an open session, one line each: what was lost, and where the damaged file is."""
    return [sanitize_line(f"{problem.where}: {problem.text}".lstrip(": ")) for problem in session.problems]


def _count_message(tally: Tally, message: object) -> Usage:
    """Counts a message; returns the usage of its request."""
    if not isinstance(message, dict):
        return Usage()
    fields = cast(dict[str, Any], message)
    tally.messages += 1
    if fields.get("role") != "assistant":
        return Usage()
    tally.turns += 1
    if fields.get("model"):
        tally.model = ":".join(str(part) for part in (fields.get("provider"), fields["model"]) if part)
    return _decode_usage(fields.get("usage"))


def _decode_usage(fields: object) -> Usage:
    try:
        return Usage() if fields is None else msgspec.convert(fields, Usage)
    except msgspec.ValidationError:
        return Usage()


def _read_label(payload: dict[str, Any]) -> str:
    kind = payload.get("continuation_kind")
    text = cast(dict[str, Any], kind).get("tag") if isinstance(kind, dict) else payload.get("text")
    return text if isinstance(text, str) else ""


def _strip_prefix(id: str) -> str:
    """Returns an id without the common prefix."""
    return id.removeprefix(_PREFIX)


def _shorten(bare: str, names: Sequence[str]) -> str:
    """Returns the shortest beginning that is unique among these names."""
    at = names.index(bare)
    shared = max(
        (_count_shared(bare, names[other]) for other in (at - 1, at + 1) if 0 <= other < len(names)), default=0
    )
    return bare[: max(_SHORTEST, shared + 1)]


def _count_shared(left: str, right: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _list_names(sessions: Sequence[SavedSession]) -> str:
    told = [
        f"{saved.short} ({sanitize_line(saved.summary.title)[:40] or 'no text yet'})"
        for saved in sessions[:_MOST_NAMED]
    ]
    return ", ".join(told) + (" and more" if len(sessions) > _MOST_NAMED else "")


def _suggest(wanted: str, sessions: Sequence[SavedSession]) -> str:
    if not sessions:
        return " This folder has no saved sessions yet; `steersman sessions list --all` lists those of all folders."
    by_short = {saved.short: saved for saved in sessions}
    near = [by_short[short] for short in get_close_matches(wanted, by_short, _MOST_NAMED, 0.5)]
    said = [saved for saved in sessions if wanted and wanted.lower() in saved.summary.title.lower()]
    likely = list(dict.fromkeys([*near, *said])) or list(sessions[:3])
    return f" Similar: {_list_names(likely)}." if near or said else f" The last ones: {_list_names(likely)}."


def open_session(options: Options, workspace: Path, notify: Callable[[str], None]) -> Session | None:
    """Opens the session these options ask for; if a new one cannot be saved, reports it and returns `None`."""
    path = find_session_file(options.session_dir, workspace)
    if options.continue_ or options.resume is not None:
        return _resume_session(_choose_session(options, path, notify), path, notify, fork=options.fork_session)
    try:
        return _create_session(path)
    except (SessionError, OSError, sqlite3.Error) as error:
        notify(f"This session is not saved: {sanitize_line(_describe_reason(error))}")
        return None


def close_session(session: Session, options: Options, workspace: Path, notify: Callable[[str], None]) -> None:
    """Closes a session; removes one without any message."""
    if session.closed:
        return
    session.flush()
    lost = session.degraded
    empty = not lost and not session.messages and not session.waiting and not session.tree()
    with session:
        pass
    if lost:
        notify(f"The session was not saved completely: {sanitize_line(lost)}")
    if empty:
        try:
            SqliteStore(find_session_file(options.session_dir, workspace)).delete(session.id)
        except (SessionError, OSError):  # an empty session in the list is harmless
            return


def _create_session(path: Path) -> Session:
    make_private_folder(path.parent)
    return Session.create(path)


def _choose_session(options: Options, path: Path, notify: Callable[[str], None]) -> SavedSession:
    problems: list[str] = []
    sessions = list_sessions([path], problems) if path.exists() else []
    for problem in problems:
        notify(problem)
    if options.resume is not None:
        return find_session(options.resume, sessions)
    if not sessions:
        raise UserError("This folder has no saved session to continue. Leave out -c to start one.")
    return sessions[0]


def _resume_session(wanted: SavedSession, path: Path, notify: Callable[[str], None], *, fork: bool) -> Session:
    try:
        if not fork:
            return _report_damage(Session.open(wanted.path, wanted.id), notify)
        with Session.open(wanted.path, wanted.id, write=False) as before:
            log = Log.from_entries(_report_damage(before, notify).entries())
            log.copy_state_and_artifacts(before.log)
            session = _create_session(path)
            session.move_to(log)  # while the other one is open, which has the contents of its artifacts
            return session
    except SessionBusy as error:
        raise UserError(
            f"The session {wanted.short} is in use by another program. "
            "Wait for it, or continue in a copy: --fork-session."
        ) from error


def _report_damage(session: Session, notify: Callable[[str], None]) -> Session:
    """Reports damage of a session; otherwise the model would forget something without an explanation."""
    for problem in describe_problems(session):
        notify(problem)
    return session


def _describe_reason(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{str(error.filename)!r}: {error.strerror}"
