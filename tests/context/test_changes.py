from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.context.transcripts import (
    ANY_MESSAGE,
    answer,
    call,
    memo,
    result,
    turn,
    user,
    valid,
)

from steersman.context.entries import CompactionEntry, Entry, Pruned, PrunEntry, UndoEntry
from steersman.context.log import Log
from steersman.context.tokens import estimate_tokens, estimate_total_tokens
from steersman.types.messages import AgentMessage, ExtensionMessage, user_message


def seen(log: Log) -> list[tuple[str, AgentMessage]]:
    return [(log.visible_id(index), message) for index, message in enumerate(log.visible)]


def test_a_compaction_is_an_entry_and_rewrites_nothing() -> None:
    """loop.md C1"""
    messages = [user(), *turn("a"), user("next")]
    log = Log(messages)
    ids = [log.entry_id_of(index) for index in range(4)]
    before = log.visible
    summary = user_message("summary", synthetic=True)
    entry = log.compact([log.visible[0], summary, log.visible[3]])
    assert entry == CompactionEntry(
        entry.id,
        [ids[0], summary, ids[3]],
        estimate_total_tokens(messages),
        estimate_total_tokens([user(), summary, user("next")]),
    )
    assert seen(log) == [(ids[0], user()), (f"{entry.id}.1", summary), (ids[3], user("next"))]
    assert log.messages == messages
    assert before == messages
    assert log.visible.base is not before.base


def test_a_message_given_more_often_than_it_was_visible_is_new() -> None:
    log = Log([user()])
    entry = log.compact([log.visible[0], log.visible[0]])
    assert entry.items == [log.entry_id_of(0), user()]
    assert Log.from_entries(log.entries).visible == [user(), user()]


def test_a_failed_compaction_changes_nothing() -> None:
    """failures.md I6"""
    log = Log([user(), *turn("a")])
    before = (log.visible, log.visible.base, log.tokens, list(log.entries))

    def breaking() -> Any:
        yield log.visible[0]
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        log.compact(breaking())
    with pytest.raises(TypeError, match="takes messages, got 'text'"):
        log.compact(cast(Any, [log.visible[0], "text"]))
    with pytest.raises(ValueError, match="leave the model nothing"):
        log.compact([])
    assert (log.visible, log.visible.base, log.tokens, list(log.entries)) == before
    assert log.visible.base is before[1]


@pytest.mark.parametrize("kept", range(5))
def test_a_log_cut_anywhere_around_a_compaction_shows_the_old_view_or_the_new(kept: int) -> None:
    """failures.md I6: the compaction is one entry, so a crash leaves it whole or not at all."""
    log = Log([user(), *turn("a")])
    log.compact([log.visible[0]])
    log.append(user("next"))
    cut = Log.from_entries(log.entries[:kept])
    views = [[user(), *turn("a")][:length] for length in range(4)]
    views.append([user()])
    assert cut.visible == views[kept]


def test_only_a_compaction_or_a_prun_can_be_undone_and_only_once() -> None:
    log = Log([user(), *turn("a")])
    entry = log.prun(1)
    assert entry is not None
    with pytest.raises(ValueError, match="No entry 'nope' in this log"):
        log.undo("nope")
    with pytest.raises(ValueError, match=r"is of type 'message'\. To go back .* log\.fork"):
        log.undo(log.entry_id_of(0))
    log.undo(entry.id)
    assert log.entries[-1] == UndoEntry(log.entries[-1].id, entry.id)
    with pytest.raises(ValueError, match="already undone"):
        log.undo(entry.id)
    with pytest.raises(ValueError, match="is of type 'undo'"):
        log.undo(log.entries[-1].id)


def test_undoing_an_older_compaction_shows_when_the_newer_one_is_undone_too() -> None:
    log = Log([user(), *turn("a")])
    first = log.compact([log.visible[0], user("s1")])
    second = log.compact([log.visible[1], user("s2")])
    log.undo(first.id)
    assert log.visible == [user("s1"), user("s2")]
    log.undo(second.id)
    assert log.visible == log.messages


def test_a_prun_of_shortened_work_still_hides_it_when_the_shortening_is_undone() -> None:
    log = Log([user(), *turn("a", "x" * 99), user("next")])
    visible = log.visible
    shortening = log.compact([visible[0], visible[1], result("a", "x..."), visible[3]])
    log.prun(1, memo="m", spare=None)
    log.undo(shortening.id)
    assert log.visible == [user(), memo("m"), user("next")]
    assert [type(item) for item in log.inrun_context] == [Pruned, Pruned]


OPERATIONS = st.lists(
    st.one_of(
        ANY_MESSAGE,
        st.tuples(st.just("prun"), st.integers(1, 60)),
        st.tuples(st.just("compact"), st.integers(0, 2**10)),
        st.tuples(st.just("undo"), st.integers(0, 5)),
    ),
    max_size=14,
)


def perform(log: Log, operation: Any) -> None:
    if not isinstance(operation, tuple):
        log.append(operation)
        return
    kind, number = cast(tuple[str, int], operation)
    if kind == "prun":
        log.prun(number, memo="m" if number % 2 else None, spare=None)
    elif kind == "compact":
        log.compact([user("sum"), *(message for index, message in enumerate(log.visible) if number >> index & 1)])
    else:
        done = {entry.target for entry in log.entries if isinstance(entry, UndoEntry)}
        left = [
            entry for entry in log.entries if isinstance(entry, CompactionEntry | PrunEntry) and entry.id not in done
        ]
        if left:
            log.undo(left[number % len(left)].id)


@given(OPERATIONS)
def test_the_view_follows_from_the_entries_alone(operations: list[Any]) -> None:
    """loop.md C1; failures.md A3: a log read back from a file is the same log."""
    log = Log()
    said: list[AgentMessage] = []
    for operation in operations:
        said += [] if isinstance(operation, tuple) else [operation]
        perform(log, operation)
        data = msgspec.json.encode(list(log.entries))
        again = Log.from_entries(msgspec.json.decode(data, type=list[Entry]))
        assert seen(again) == seen(log)
        assert again.tokens == log.tokens
        assert (again.inrun_context, again.call_ids) == (log.inrun_context, log.call_ids)
        assert log.messages == said
        assert valid(log.visible)


@given(OPERATIONS, ANY_MESSAGE)
def test_undoing_the_last_change_restores_what_was_seen(operations: list[Any], message: AgentMessage) -> None:
    """loop.md C1"""
    log = Log()
    for operation in operations:
        before, count = seen(log), len(log.entries)
        perform(log, operation)
        last = log.entries[-1] if len(log.entries) > count else None
        if isinstance(last, CompactionEntry | PrunEntry):
            trial = Log.from_entries(log.entries)
            added = trial.append(message)
            trial.undo(last.id)
            assert seen(trial) == [*before, (added, message)]


@given(OPERATIONS)
def test_undoing_everything_shows_everything(operations: list[Any]) -> None:
    """loop.md C1"""
    log = Log()
    for operation in operations:
        perform(log, operation)
    while len(entries := log.entries):
        perform(log, ("undo", 0))
        if len(log.entries) == len(entries):
            break
    assert log.visible == log.messages


@given(OPERATIONS)
def test_a_fork_at_any_entry_can_be_sent_and_leaves_the_log_alone(operations: list[Any]) -> None:
    """failures.md H11"""
    log = Log()
    for operation in operations:
        perform(log, operation)
    before = (list(log.entries), seen(log))
    for place, entry in enumerate(log.entries):
        fork = log.fork(entry.id)
        assert fork.entries[: place + 1] == log.entries[: place + 1]
        assert fork.entries == log.entries[: len(fork.entries)]
        assert fork.parent == (log, fork.entries[-1].id)
        assert valid(fork.visible)
        fork.append(user("another way"))
        assert valid(fork.visible)
    assert (list(log.entries), seen(log)) == before


def test_a_fork_never_splits_a_call_from_its_results() -> None:
    group = [answer(call("a"), call("b")), result("a"), ExtensionMessage([], kind="note"), result("b")]
    log = Log([user(), *group, user("next")])
    for index in range(1, 5):
        assert log.fork(index).messages == [user(), *group]
    assert log.fork(0).messages == [user()]
    assert log.fork(-1).messages == log.messages
    assert log.fork(-6).messages == [user()]


def test_a_fork_at_a_message_that_a_compaction_brought_is_a_fork_at_the_compaction() -> None:
    log = Log([user(), *turn("a")])
    log.compact([log.visible[0], user("summary")])
    log.append(user("next"))
    assert log.fork(log.visible_id(1)).visible == [user(), user("summary")]


def test_a_fork_before_an_undo_still_has_what_was_undone() -> None:
    log = Log([user(), *turn("a")])
    entry = log.compact([log.visible[0]])
    log.undo(entry.id)
    assert log.fork(entry.id).visible == [user()]
    assert log.visible == [user(), *turn("a")]


@pytest.mark.parametrize("at", ["nope", 3, -4])
def test_a_fork_where_nothing_is_says_what_to_give(at: str | int) -> None:
    log = Log([user(), *turn("a")])
    with pytest.raises((ValueError, IndexError), match=r"No entry 'nope' to fork at|There is no message -?\d"):
        log.fork(at)


def test_entries_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="keeps 'gone', which is not in the log before it"):
        Log.from_entries([CompactionEntry("entry_1", ["gone"])])


def test_a_fork_measures_like_its_parent() -> None:
    log = Log([user(), user()], estimator=lambda _: 7)
    assert (log.fork(0).tokens, estimate_tokens(user())) == (7, 6)
