"""The measurements of a session compare like with like, and what they keep is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.session_child import floor, steersman
from bench.session_work import (
    CountedStore,
    appended,
    converse,
    crowd,
    long_session,
    plain,
    plain_commits,
    plain_crowd,
)

from steersman.session.session import Session
from steersman.session.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize(("tools", "syncs", "messages"), [(0, 1, 12), (1, 2, 12), (4, 2, 27)])
async def test_a_kept_conversation_is_the_same_conversation(
    tools: int, syncs: int, messages: int, tmp_path: Path
) -> None:
    store = CountedStore(tmp_path / "sessions.db")
    kept, bare = await converse(5, store, tools=tools, id="one"), await converse(5, None, tools=tools)
    assert kept.answer == bare.answer == "It is 42."
    assert len(kept.seconds) == len(bare.seconds) == 5
    assert (kept.commits, bare.commits) == ([syncs] * 5, [0] * 5)
    with Session.open(tmp_path / "sessions.db", "one", write=False) as session:
        assert len(session.log.messages) == messages


async def test_a_crowd_keeps_every_conversation(tmp_path: Path) -> None:
    _, store = await crowd(tmp_path / "sessions.db", 4, 3)
    assert sorted(summary.id for summary in store.list()) == [f"session-{number}" for number in range(4)]
    for summary in store.list():
        with Session.open(tmp_path / "sessions.db", summary.id, write=False) as session:
            assert len(session.log.messages) == 2 + 2 * 3


def test_both_sides_keep_as_many_rows(tmp_path: Path) -> None:
    appended(tmp_path / "ours.db", 3, 5)
    assert [summary.records for summary in SqliteStore(tmp_path / "ours.db").list()] == [15]
    plain_crowd(tmp_path / "plain.db", 2, 4)
    connection = plain(tmp_path / "plain.db")
    plain_commits(connection, 3, 5)
    assert connection.execute("SELECT count(*) FROM plain").fetchone() == (4 * 3 + 15,)
    connection.close()


@pytest.mark.parametrize(("branches", "messages"), [(1, 376), (5, 76)])
def test_a_long_session_is_as_long_as_it_says_and_both_sides_read_all_of_it(
    branches: int, messages: int, tmp_path: Path
) -> None:
    path = tmp_path / "sessions.db"
    assert long_session(path, 1_000_000, branches=branches) == 375
    ours, least = steersman(str(path)), floor(str(path))
    assert 1_000_000 <= least["bytes"] < 1_200_000
    assert ours["messages"] == messages
