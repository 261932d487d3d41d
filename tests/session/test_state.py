"""The state of a conversation: kept by sessions, and on every branch that of the entries which lead there."""

from __future__ import annotations

import threading
from functools import reduce
from itertools import product
from time import process_time
from typing import Any

import pytest
from tests.rows import each_row
from tests.session.kit import done, planted, records, reopened, revived, session_of

from steersman import Agent, Session, ToolContext, tool
from steersman.context.log import Log
from steersman.policy.hooks import PolicyView
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import Store
from steersman.testing import ScriptedModel, answer, call, replay
from steersman.types.messages import UserMessage
from steersman.types.state import MAX_STATE_BYTES, State, StateChange


@tool(idempotent=True)
async def keep(name: str, value: int, ctx: ToolContext) -> str:
    """Keep a value."""
    ctx.state[name] = value
    return f"{len(ctx.state)} kept"


def _keep(name: str, value: int) -> Any:
    return answer(call("keep", name=name, value=value))


def _agent(store: Store, *turns: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*turns).model, tools=[keep], session=Session.create(store), **options)


async def test_a_session_keeps_the_state(stores: Store) -> None:
    agent = _agent(stores, _keep("a", 1), "Done.")
    agent.state["before"] = {"list": [1, None, "x"]}
    await agent.run("Go.")
    agent.state.update(b=2, c=3)
    del agent.state["c"]
    expected = {"before": {"list": [1, None, "x"]}, "a": 1, "b": 2}
    assert agent.state == expected
    id = session_of(agent).id
    done(agent)
    again, _ = reopened(stores, id)
    assert again.state == expected
    done(again)


@pytest.mark.parametrize("in_session", [True, False])
async def test_a_branch_and_a_rerun_begin_with_the_state_of_their_entry(in_session: bool) -> None:
    turns = (_keep("a", 1), "A.", _keep("a", 2), _keep("b", 2), "B.", "C.", _keep("c", 5), "D.")
    options: dict[str, Any] = {"session": Session.create(MemoryStore())} if in_session else {}
    agent = Agent(ScriptedModel(*turns).model, tools=[keep], **options)
    await agent.run("One.")
    agent.state["between"] = True
    await agent.run("Two.")
    log = agent.context.log
    assert agent.state == {"a": 2, "between": True, "b": 2}
    await agent.rerun()
    assert agent.messages[-1].text == "C."
    assert agent.state == {"a": 1, "between": True}
    agent.context.log = log
    await agent.branch(log.entry_id_of(3), prompt="Three.")
    assert agent.state == {"a": 1, "between": True, "c": 5}
    assert log.state == {"a": 2, "between": True, "b": 2}
    agent.close()


async def test_a_change_on_one_branch_is_not_seen_on_the_others(stores: Store) -> None:
    agent = _agent(stores, "A.", "B.", "C.", "D.", "E.")
    await agent.run("One.")
    answered = agent.context.log.entry_id_of(1)
    await agent.run("Two.")
    session = session_of(agent)
    ways: dict[str, dict[str, int]] = {session.tree()[0].leaf: {}}
    for number in (1, 2):
        session.branch(answered)
        agent.state["way"] = number
        await agent.run("Another way.")
        ways[agent.context.log.entries[-1].id] = {"way": number}
    # From the first way, which knew nothing of the others when it went on.
    session.branch(next(iter(ways)))
    session.branch(answered)
    await agent.run("A fourth way.")
    ways[agent.context.log.entries[-1].id] = {}
    for leaf, expected in ways.items():
        session.branch(leaf)
        assert agent.state == expected
    id = session.id
    done(agent)
    for leaf, expected in ways.items():
        with Session.open(stores, id) as session:
            assert session.branch(leaf).state == expected
        with Session.open(stores, id, write=False) as session:
            assert session.log.state == expected


async def test_tools_in_parallel_and_in_threads_lose_nothing() -> None:
    together = threading.Barrier(4)

    @tool
    def count(name: str, ctx: ToolContext) -> str:
        """Count."""
        together.wait()
        for number in range(50):
            ctx.state[name] = number
            ctx.state["last"] = name
        return ""

    store = MemoryStore()
    script = ScriptedModel(answer(*(call("count", name=name) for name in "abcd")), "Done.")
    agent = Agent(script.model, tools=[count], session=Session.create(store))
    await agent.run("Go.")
    assert {name: agent.state[name] for name in "abcd"} == dict.fromkeys("abcd", 49)
    expected, id = dict(agent.state), session_of(agent).id
    done(agent)
    with Session.open(store, id, write=False) as session:
        assert session.log.state == expected


async def test_a_killed_run_goes_on_with_the_state_it_had() -> None:
    store = MemoryStore()
    turns = [_keep("a", 1), _keep("b", 2), "Done."]
    agent = _agent(store, *turns)
    await agent.run("Go.")
    id = session_of(agent).id
    done(agent)
    for left, again, unfinished in revived(store, id, turns, tools=[keep]):
        expected: dict[str, Any] = {}
        for record in left:
            expected.update(record.payload["set"] if record.type == "state" else {})
        assert again.state == expected
        if unfinished:
            await again.continue_()
            assert again.state == {"a": 1, "b": 2}


async def test_another_session_gets_the_state_with_the_log() -> None:
    store = MemoryStore()
    agent = _agent(store, _keep("a", 1), "Done.", _keep("b", 2), "Done.")
    await agent.run("Go.")
    await agent.run("Go on.")
    log = agent.context.log
    copy = Log.from_entries(log.entries)
    copy.state.restore(log.state.changes)
    done(agent)
    with Session.create(store, "copy") as session:
        session.move_to(copy)
    with Session.open(store, "copy") as session:
        assert session.log.state == {"a": 1, "b": 2}
        assert session.branch(log.entry_id_of(3)).state == {"a": 1}


async def test_policies_and_previews_read_the_state() -> None:
    seen: list[dict[str, Any]] = []

    def look(view: PolicyView) -> None:
        seen.append(dict(view.state))
        with pytest.raises(TypeError):
            view.state["a"] = 2  # pyright: ignore[reportIndexIssue]

    agent = Agent(ScriptedModel(_keep("a", 1), "Done.").model, tools=[keep], post_turn_policies=[look])
    await agent.run("Go.")
    assert seen == [{"a": 1}, {"a": 1}]
    copy = agent.state.copy_read_only("Not here.")
    assert copy == {"a": 1}
    with pytest.raises(RuntimeError, match="Not here"):
        copy["a"] = 2


async def test_a_damaged_change_is_left_out_and_reported() -> None:
    store = MemoryStore()
    agent = _agent(store, _keep("a", 1), _keep("b", 2), "Done.")
    await agent.run("Go.")
    id = session_of(agent).id
    done(agent)
    found = records(store, id)
    at = next(place for place, record in enumerate(found) if record.type == "state")
    found[at].payload["set"] = [1]
    with Session.open(store, planted(store, found)) as session:
        assert session.log.state == {"b": 2}
        assert "change of the state" in session.problems[0].text


def test_thousands_of_changes_are_restored_in_one_go() -> None:
    """A file that somebody else wrote may have any number of them after one entry."""
    names = [f"name{number}" for number in range(20_000)]
    changes = [StateChange({name: number}) for number, name in enumerate(names)]
    changes += [StateChange({}, (names[0],)), StateChange({names[1]: "new"})]
    state = State()
    began = process_time()
    state.restore([(0, change) for change in changes])
    assert process_time() - began < 2  # a tenth of a second on an idle machine
    expected = {**{name: number for number, name in enumerate(names)}, names[1]: "new"}
    del expected[names[0]]
    assert dict(state) == state.compute(0) == expected
    assert state.changes == [(0, StateChange(expected, (names[0],)))]


def test_changes_are_merged_as_if_they_were_made_one_after_the_other() -> None:
    kinds = [
        StateChange({"a": 1, "b": 2}),
        StateChange({"b": 3}, ("a",)),
        StateChange({}, ("b", "c")),
        StateChange({"c": 4}, reset=True),
    ]
    for group in product(kinds, repeat=4):
        for before in ({}, {"a": 0, "c": 0, "d": 0}):
            expected, merged = dict(before), dict(before)
            for change in group:
                change.apply_to(expected)
            reduce(StateChange.merge, group).apply_to(merged)
            assert merged == expected, group


async def test_edited_messages_keep_the_state_and_a_reset_empties_it() -> None:
    agent = _agent(MemoryStore(), _keep("a", 1), "Done.")
    await agent.run("Go.")
    agent.messages.pop()
    assert agent.state == {"a": 1}
    agent.reset()
    assert agent.state == {}
    done(agent)


def test_keys_are_not_written_with_the_state() -> None:
    store = MemoryStore()
    with Session.create(store, "s") as session:
        session.recorder.add_keys({"sk-secret-1234567890"})
        session.log.state["header"] = "Bearer sk-secret-1234567890"
        session.log.append(UserMessage("x"))
    with Session.open(store, "s", write=False) as session:
        assert "sk-secret" not in session.log.state["header"]


@each_row(
    ("value", "error"),
    [
        (object(), "takes JSON values"),
        ({1}, "takes JSON values"),
        (b"x", "takes JSON values"),
        ({1: 2}, "keys of a JSON object"),
        ({None: 2}, "keys of a JSON object"),
        (float("nan"), "JSON does not have"),
        (2**64, "64 bits"),
        ("\ud800", "UTF-8"),
        ("x" * MAX_STATE_BYTES, "is the most"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_changes_nothing(value: object, error: str) -> None:
    state = State()
    state["a"] = 1
    with pytest.raises((TypeError, ValueError), match=error):
        state.update(a=2, b=value)
    with pytest.raises((TypeError, ValueError), match=error):
        state["b"] = {"deep": [value]}
    assert state == {"a": 1}
    assert len(state.changes) == 1


def test_values_are_copies_that_cannot_be_changed() -> None:
    state = State()
    given: dict[str, Any] = {"list": [1, {"x": 2}]}
    state["a"] = given
    given["list"].append(3)
    assert state == {"a": {"list": [1, {"x": 2}]}}
    with pytest.raises(TypeError):
        state["a"]["list"].append(3)
    with pytest.raises(TypeError):
        state["a"]["list"][1]["x"] = 3
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        state["b"] = loop
    with pytest.raises(TypeError, match="is a string"):
        state[1] = 2  # pyright: ignore[reportArgumentType]
    with pytest.raises(KeyError):
        del state["missing"]
    assert (state.setdefault("c", 1), state.setdefault("c", 2), state.pop("c"), state.pop("c", 3)) == (1, 1, 1, 3)
    state["big"] = "x" * (MAX_STATE_BYTES - 1000)
    state["big"] = "y" * (MAX_STATE_BYTES - 1000)
    with pytest.raises(ValueError, match="is the most"):
        state["big2"] = "x" * 2000
    state.clear()
    state["big2"] = "x" * (MAX_STATE_BYTES - 1000)
    assert list(state) == ["big2"]


async def test_a_session_with_state_is_replayed() -> None:
    agent = _agent(MemoryStore(), _keep("a", 1), "Done.")
    await agent.run("Go.")
    replayed = await replay(session_of(agent))
    assert [run.end_reason for run in replayed.runs] == ["done"]
    assert [message.role for message in replayed.log.messages] == [message.role for message in agent.messages]
    done(agent)
