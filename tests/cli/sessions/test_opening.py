"""A session is taken up where it was left: the last one, one by its id, or a copy, and never while it is in use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from steersman import Agent
from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.sessions.saved import SessionModel, close_session, open_session, read_session_model
from steersman.cli.setup.settings import find_session_file
from steersman.session.session import Session
from steersman.types.messages import user_message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path


def _options(folder: Path, *, resume: str | None = None, last: bool = False, fork: bool = False) -> Options:
    return Options(session_dir=folder / "kept", resume=resume, continue_=last, fork_session=fork)


def _opened(folder: Path, **wanted: object) -> Session:
    session = open_session(_options(folder, **wanted), folder / "project", print)  # pyright: ignore[reportArgumentType]  # names of flags
    assert session is not None
    return session


def _said(folder: Path, *words: str) -> str:
    """The id of a new session in which this was said."""
    with _opened(folder) as session:
        for word in words:
            session.log.append(user_message(word))
    return session.id


def _words(session: Session) -> Sequence[str]:
    with session:
        return [message.text for message in session.messages]


def test_the_last_one_is_taken_up(folder: Path) -> None:
    _said(folder, "first")
    _said(folder, "second")
    assert _words(_opened(folder, last=True)) == ["second"]


def test_one_is_found_by_its_id_or_the_beginning_of_it(folder: Path) -> None:
    wanted = _said(folder, "first")
    _said(folder, "second")
    assert _words(_opened(folder, resume=wanted)) == ["first"]
    assert _words(_opened(folder, resume=wanted.removeprefix("session_"))) == ["first"]


@pytest.mark.parametrize("fork", [False, True])
def test_where_there_is_none_it_is_told_and_none_is_made(folder: Path, fork: bool) -> None:
    with pytest.raises(UserError, match="This folder has no saved session to continue"):
        _opened(folder, last=True, fork=fork)
    with pytest.raises(UserError, match="No session 'abc' here"):
        _opened(folder, resume="abc", fork=fork)
    assert not find_session_file(folder / "kept", folder).exists()


def test_one_that_is_in_use_is_refused_and_can_be_copied(folder: Path) -> None:
    _said(folder, "first")
    with _opened(folder, last=True) as used:
        with pytest.raises(UserError, match="is in use by another program"):
            _opened(folder, last=True)
        copy = _opened(folder, last=True, fork=True)
        assert copy.id != used.id
        copy.log.append(user_message("in the copy"))
        assert _words(copy) == ["first", "in the copy"]
        assert [message.text for message in used.messages] == ["first"]
    assert _words(Session.open(find_session_file(folder / "kept", folder), copy.id)) == ["first", "in the copy"]
    assert _words(Session.open(find_session_file(folder / "kept", folder), used.id)) == ["first"]


def test_one_in_which_nothing_was_said_is_not_kept(folder: Path) -> None:
    kept = _said(folder, "first")
    options = _options(folder)
    session = _opened(folder)
    close_session(session, options, folder / "project", print)
    close_session(session, options, folder / "project", print)
    assert [found.id for found in Session.list(find_session_file(options.session_dir, folder))] == [kept]
    taken_up = _opened(folder, last=True)
    close_session(taken_up, options, folder / "project", print)
    assert [found.id for found in Session.list(find_session_file(options.session_dir, folder))] == [kept]


@pytest.mark.parametrize("fork", [False, True])
def test_what_damage_took_from_a_session_is_told(folder: Path, fork: bool) -> None:
    """The model would forget what was said, without a reason that the user can see."""
    _said(folder, *(f"word {number}" * 200 for number in range(20)))
    file = find_session_file(folder / "kept", folder / "project")
    whole = file.read_bytes()
    page = 4096
    damaged = len(whole) // page // 2 * page
    file.write_bytes(whole[:damaged] + b"\xff" * page + whole[damaged + page :])
    told: list[str] = []
    session = open_session(_options(folder, last=True, fork=fork), folder / "project", told.append)
    assert session is not None
    assert len(_words(session)) < 20
    assert any("damaged" in line for line in told)


async def test_an_imported_session_chooses_no_model(folder: Path) -> None:
    used = _opened(folder)
    await Agent("scripted:echo", session=used).run("Hello.")
    options = _options(folder, resume=used.id)
    with used:
        used.export(folder / "kept.jsonl")
    assert read_session_model(options, folder / "project") == SessionModel(used="scripted:echo")
    with Session.import_(folder / "kept.jsonl", find_session_file(options.session_dir, folder), "copy"):
        pass
    assert read_session_model(_options(folder, resume="copy"), folder / "project") == SessionModel()
