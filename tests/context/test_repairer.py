from __future__ import annotations

import gc
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from tests.context.transcripts import CHAOS, MODEL, PROVIDER, answer, call, result, user

from steersman.context.log import Log, MessageView
from steersman.context.repair import Repairer, repair
from steersman.types.frozen import MemoList
from steersman.types.messages import AgentMessage, Message


def whole(messages: MessageView) -> list[Message]:
    return repair(list(messages), provider=PROVIDER, model=MODEL)


@given(CHAOS, st.data())
def test_repairing_as_messages_come_is_repairing_all_of_them(messages: list[AgentMessage], data: st.DataObject) -> None:
    repairer = Repairer(PROVIDER, MODEL)
    log = Log()
    given_out: list[tuple[object, list[Message]]] = []
    for message in messages:
        log.append(message)
        if data.draw(st.booleans()):
            applied = repairer.apply(log.visible)
            assert applied == whole(log.visible)
            given_out.append((applied, list(applied)))
    assert [applied for applied, _ in given_out] == [copy for _, copy in given_out]


@given(CHAOS, CHAOS, st.data())
def test_repairing_goes_on_after_compaction_prun_and_undo(
    before: list[AgentMessage], after: list[AgentMessage], data: st.DataObject
) -> None:
    repairer = Repairer(PROVIDER, MODEL)
    log = Log(before)
    assert repairer.apply(log.visible) == whole(log.visible)
    if data.draw(st.booleans()):
        entry = log.prun(data.draw(st.integers(1, 40)), memo="m", spare=None)
    else:
        kept = data.draw(st.lists(st.booleans(), min_size=len(before), max_size=len(before)))
        rest = [message for message, keep in zip(before, kept, strict=True) if keep]
        entry = log.compact([user("summary"), *rest])
    assert repairer.apply(log.visible) == whole(log.visible)
    for message in after:
        log.append(message)
        assert repairer.apply(log.visible) == whole(log.visible)
    if entry is not None:
        log.undo(entry.id)
    assert repairer.apply(log.visible) == whole(log.visible)
    assert log.visible == [*before, *after]


def test_a_growing_transcript_is_given_out_as_a_view_of_one_list() -> None:
    repairer = Repairer(PROVIDER, MODEL)
    log = Log([user(), answer(call("a")), result("a")])
    first = repairer.apply(log.visible)
    log.append(answer(call("b")))
    log.append(result("b"))
    second = repairer.apply(log.visible)
    assert isinstance(first, MessageView)
    assert isinstance(second, MessageView)
    assert second.base is first.base
    assert (len(first), len(second)) == (3, 5)


def test_a_late_result_leaves_what_was_given_out_as_it_was() -> None:
    repairer = Repairer(PROVIDER, MODEL)
    log = Log([user(), answer(call("a")), user("next")])
    first = repairer.apply(log.visible)
    copy = list(first)
    log.append(result("a", "late"))
    assert repairer.apply(log.visible)[2] == result("a", "late")
    assert first == copy


def test_any_other_sequence_is_repaired_whole() -> None:
    repairer = Repairer(PROVIDER, MODEL)
    log = Log([user(), answer(call("a")), result("a")])
    repairer.apply(log.visible)
    assert repairer.apply([user("other")]) == [user("other")]
    assert repairer.apply(MessageView(log.visible.base, 1)) == [user()]
    assert repairer.apply(log.visible) == [user(), answer(call("a")), result("a")]


def test_a_turn_late_in_a_long_run_allocates_no_more_than_an_early_one() -> None:
    repairer = Repairer(PROVIDER, MODEL)
    log = Log([user()])

    def turn(number: int) -> None:
        log.append(answer("ok", call(f"c{number}")))
        log.append(result(f"c{number}"))
        repairer.apply(log.visible)
        assert log.tokens > 0

    for number in range(5_000):
        turn(number)
    gc.collect()
    tracemalloc.start()
    try:
        turn(5_000)
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        turn(5_001)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log.visible) == 10_005
    assert peak - before < 20_000


def test_what_was_worked_out_from_repaired_messages_is_kept_beside_them() -> None:
    """Encoded messages stay with the list they came from, and go when a late result changes it."""
    log = Log([user("go"), answer(call("a")), user("hello?")])
    repairer = Repairer(PROVIDER, MODEL)

    def base() -> MemoList[AgentMessage]:
        view = repairer.apply(log.visible)
        assert isinstance(view, MessageView)
        assert isinstance(view.base, MemoList)
        return view.base

    first = base()
    first.memo["encoded"] = 1
    log.append(user("more"))
    assert (base() is first, base().memo) == (True, {"encoded": 1})

    log.append(result("a"))
    assert (base() is first, base().memo) == (False, {})
