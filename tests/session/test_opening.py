"""Opening a session, or creating it if there is none, also by several programs at once."""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from pathlib import Path

import pytest
from tests.session.opener import ROUNDS, open_again_and_again

from steersman import Session
from steersman.session.stores.store import SessionBusy, SessionNotFound, Store

PROGRAMS = 3


def test_open_creates_the_session_with_this_id_if_there_is_none(stores: Store) -> None:
    """api.md: `Session.open(path, id=..., create=True)`"""
    with pytest.raises(SessionNotFound):
        Session.open(stores, id="mine")
    with Session.open(stores, id="mine", create=True) as session:
        session.set_title("kept")
    with Session.open(stores, id="other", create=True) as session:
        assert session.id == "other"
    with Session.open(stores, id="mine", create=True) as session:
        assert session.id == "mine"
    assert {summary.id: summary.title for summary in Session.list(stores)} == {"mine": "kept", "other": ""}


def test_open_creates_one_without_an_id_as_at_does(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    with Session.open(path, create=True) as session:
        made = session.id
    with Session.open(path, create=True) as session:
        assert session.id == made
        with pytest.raises(SessionBusy):
            Session.open(path, id=made, create=True)
    with Session.at(path) as session:
        assert session.id == made
    assert [summary.id for summary in Session.list(path)] == [made]


def test_what_is_only_read_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be created"):
        Session.open(tmp_path / "talk.db", create=True, write=False)
    assert not (tmp_path / "talk.db").exists()


@pytest.mark.parametrize("id", [None, "mine"])
def test_of_several_programs_on_a_new_path_one_makes_the_session(tmp_path: Path, id: str | None) -> None:
    """api.md: one wins, the other opens it or hears `SessionBusy`."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(PROGRAMS), context.Queue()
    given = (str(tmp_path), id, barrier, results)
    programs = [context.Process(target=open_again_and_again, args=given) for _ in range(PROGRAMS)]
    for program in programs:
        program.start()
    outcomes: dict[int, list[str]] = defaultdict(list)
    for _ in range(ROUNDS * PROGRAMS):
        number, outcome = results.get(timeout=60)
        outcomes[number].append(outcome)
    for program in programs:
        program.join()
    for number in range(ROUNDS):
        (only,) = Session.list(tmp_path / f"{number}.db")
        assert sorted(outcomes[number]) == sorted([only.id, *["busy"] * (PROGRAMS - 1)])
