"""The session of a run: a new one, the last one of this folder, one by its id, or a copy of one of these."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from steersman.cli.arguments import Options
from steersman.cli.sessions.saved import Kept, find, kept_in, problems_of
from steersman.cli.setup.folders import made, session_file
from steersman.cli.terminal.sanitize import one_line
from steersman.cli.troubles import UserError
from steersman.context.log import Log
from steersman.session.session import Session
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionBusy, SessionError


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
        session.stand(Log.from_entries(entries))
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
