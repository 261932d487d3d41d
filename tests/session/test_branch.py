"""Any point of any session can be continued, rerun and branched; no way that was taken is lost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.session.kit import check_sendable, cut, done, records, reopened, said, types

from steersman import Agent, ContextConfig, Session, UserMessage, prun_with_memo, tool
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import SessionBusy, SessionError, Store
from steersman.session.tree import Difference
from steersman.testing import ScriptedModel, answer, call, check_transcript, error, stall
from steersman.types.errors import AgentBusy


@tool
async def work(n: int = 0) -> str:
    """Work."""
    return f"worked {n} " + "and worked " * 20


def _agent(store: Store, *turns: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*turns).model, tools=[work], session=Session.create(store), **options)


def _session(agent: Agent) -> Session:
    assert agent.session is not None
    return agent.session


async def test_a_branch_leaves_the_other_one_as_it_was(stores: Store) -> None:
    agent = _agent(stores, "A1.", "A2.", "B2.")
    await agent.run("Q1.")
    await agent.run("Q2.")
    first = agent.context.log.entry_id_of(1)
    old = _session(agent).tree()[0].leaf
    await agent.branch(first, "other", prompt="Q2, differently.")
    assert said(agent.messages) == ["user: Q1.", "assistant: A1.", "user: Q2, differently.", "assistant: B2."]
    session_id = _session(agent).id
    done(agent)
    with Session.open(stores, session_id, write=False) as session:
        assert said(session.messages) == said(agent.messages)
        one, other = session.tree()
        assert (one.leaf, one.length, one.fork, one.label, one.current) == (old, 4, first, None, False)
        assert (other.length, other.fork, other.label, other.current) == (4, first, "other", True)
        assert [entry.id for entry in session.entries(old)][:2] == [entry.id for entry in session.entries()][:2]
        left, right = (tuple(entry.id for entry in session.entries(branch.leaf))[2:] for branch in (one, other))
        assert session.diff(old, "other") == Difference(first, list(left), [right[0]])
        assert session.diff(old, other.leaf) == Difference(first, list(left), list(right))


async def test_an_entry_of_another_branch_can_be_gone_on_from(stores: Store) -> None:
    agent = _agent(stores, "A1.", "A2.", "B1.", "C.")
    await agent.run("Q1.")
    await agent.run("Q2.")
    there = agent.context.log.entry_id_of(3)
    await agent.branch(0)
    assert said(agent.messages) == ["user: Q1.", "assistant: B1."]
    await agent.branch(there, prompt="Q3.")
    assert said(agent.messages)[2:] == ["user: Q2.", "assistant: A2.", "user: Q3.", "assistant: C."]
    assert [branch.length for branch in _session(agent).tree()] == [2, 6]
    done(agent)


async def test_an_entry_of_another_branch_brings_the_rest_of_its_tool_group(stores: Store) -> None:
    """failures.md I1: no call is split from its results, wherever the branch begins."""
    two = answer(call("work", n=1), call("work", n=2))
    agent = _agent(stores, two, "A.", "B.", "C.")
    await agent.run("Q1.")
    calls, one_result = agent.context.log.entry_id_of(1), agent.context.log.entry_id_of(2)
    for at in (calls, one_result):
        await agent.branch(0)
        await agent.branch(at)
        assert [line.partition(":")[0] for line in said(agent.messages)] == [
            "user", "assistant", "call_1", "call_2", "assistant",
        ]  # fmt: skip
    done(agent)


async def test_an_answer_is_asked_for_again_at_any_entry(stores: Store) -> None:
    """At an answer it is that answer, at a question the answer to it, at tool results what was made of them."""
    agent = _agent(stores, answer(call("work")), "A1.", "A2.", *(f"Again {number}." for number in range(6)))
    await agent.run("Q1.")
    await agent.run("Q2.")
    ids = [agent.context.log.entry_id_of(index) for index in range(6)]
    asked: list[list[str]] = []
    for at in ids:
        await agent.rerun(at=at)
        asked.append([line.partition(":")[0] for line in said(agent.messages)])
    q1 = ["user", "assistant"]
    results = ["user", "assistant", "call_1", "assistant"]
    q2 = [*results, "user", "assistant"]
    assert asked == [q1, q1, results, results, q2, q2]
    done(agent)


async def test_without_an_entry_the_last_thing_a_user_said_is_answered_again(stores: Store) -> None:
    agent = _agent(stores, answer(call("work")), "A1.", "A2.")
    await agent.run("Q1.")
    await agent.rerun("better")
    assert said(agent.messages) == ["user: Q1.", "assistant: A2."]
    assert [branch.label for branch in _session(agent).tree()] == [None, "better"]
    done(agent)


async def test_a_rerun_of_nothing_is_refused(stores: Store) -> None:
    agent = _agent(stores)
    with pytest.raises(ValueError, match="nothing to rerun"):
        agent.rerun()
    with pytest.raises(SessionError, match="No entry 'nowhere'"):
        agent.rerun(at="nowhere")
    with pytest.raises(SessionError, match="No entry 'nowhere'"):
        agent.branch("nowhere")
    done(agent)


async def test_a_label_names_an_entry(stores: Store) -> None:
    agent = _agent(stores, "A1.", "A2.", "B.")
    await agent.run("Q1.")
    session = _session(agent)
    session.label(agent.context.log.entry_id_of(1), "before")
    await agent.run("Q2.")
    done(agent)
    agent, _ = reopened(stores, session.id, "B.", "C.")
    await agent.branch("before", prompt="Q3.")
    assert said(agent.messages)[2:] == ["user: Q3.", "assistant: B."]
    await agent.rerun(at="before")
    assert said(agent.messages) == ["user: Q1.", "assistant: C."]
    again = _session(agent)
    again.label(again.diff("before", "before").common or "", None)
    with pytest.raises(SessionError, match="No entry 'before'"):
        agent.branch("before")
    with pytest.raises(SessionError, match="No entry"):
        again.label("nowhere", "x")
    done(agent)


async def test_a_session_can_be_moved_while_its_agent_is_idle(stores: Store) -> None:
    agent = _agent(stores, "A1.", "A2.", "B2.")
    await agent.run("Q1.")
    await agent.run("Q2.")
    _session(agent).branch(1)
    assert said(agent.messages) == ["user: Q1.", "assistant: A1."]
    await agent.run("Q3.")
    session_id = _session(agent).id
    done(agent)
    with Session.open(stores, session_id) as session:
        assert said(session.messages) == ["user: Q1.", "assistant: A1.", "user: Q3.", "assistant: B2."]
        session.branch(0)
    with Session.open(stores, session_id) as session:
        assert said(session.messages) == ["user: Q1."]


async def test_nothing_is_moved_while_the_agent_runs(stores: Store) -> None:
    agent = _agent(stores, "A1.", stall())
    await agent.run("Q1.")
    stream = agent.prompt("Q2.")
    session = _session(agent)
    for act in (lambda: session.branch(0), session.compact, session.undo):
        with pytest.raises(SessionBusy, match="is running"):
            act()
    for act in (agent.compact, agent.undo, agent.rerun, lambda: agent.branch(0)):
        with pytest.raises(AgentBusy):
            act()
    agent.abort()
    await stream
    done(agent)


@pytest.mark.parametrize("through", ["agent", "session"])
async def test_a_compaction_is_made_kept_and_undone(stores: Store, through: str) -> None:
    """failures.md I6: one record, so it is there or it is not; no model is asked for it."""
    agent = _agent(stores, *(answer(call("work", n=n)) for n in range(12)), "Done.")
    await agent.run("Work twelve times.")
    before = list(agent.context.log.visible)
    who: Any = agent if through == "agent" else agent.session
    assert who.compact() is True
    shorter = list(agent.context.log.visible)
    assert len(shorter) < len(before)
    session_id = _session(agent).id
    done(agent)
    with Session.open(stores, session_id) as session:
        assert list(session.log.visible) == shorter
        session.undo()
    with Session.open(stores, session_id) as session:
        assert list(session.log.visible) == before
        with pytest.raises(ValueError, match="nothing to undo"):
            session.undo()
        assert session.compact(ContextConfig(max_context_tokens=1_000_000)) is False
    kept = records(stores, session_id)
    assert [types(kept).count(kind) for kind in ("compaction", "undo")] == [1, 1]


async def test_a_prun_is_undone(stores: Store) -> None:
    script = ScriptedModel(answer(call("work")), answer(call("prun_with_memo", tokens=1, memo="worked")), "Done.")
    agent = Agent(script.model, tools=[work, prun_with_memo], session=Session.create(stores))
    await agent.run("Work.")
    assert said(agent.context.log.visible)[1] == "user: [Memo: worked]"
    entry = next(entry for entry in agent.context.log.entries if entry.type == "prun")
    done(agent)
    agent, script = reopened(stores, _session(agent).id, "Again.")
    agent.undo(entry.id)
    await agent.run("And?")
    assert said(script.requests[0][0].messages)[1] == "assistant: [call_1]"
    assert not any("Memo" in line for line in said(script.requests[0][0].messages))
    done(agent)


async def test_other_messages_begin_another_branch(stores: Store) -> None:
    """A new log is followed: nothing that was said before is lost or mixed with it."""
    agent = _agent(stores, "A1.", "B1.")
    await agent.run("Q1.")
    agent.context.messages = ["Something else.", {"role": "assistant", "content": "Yes?"}]
    await agent.run("Go.")
    session_id = _session(agent).id
    expected = ["user: Something else.", "assistant: Yes?", "user: Go.", "assistant: B1."]
    assert said(agent.messages) == expected
    done(agent)
    with Session.open(stores, session_id) as session:
        assert said(session.messages) == expected
        assert [branch.length for branch in session.tree()] == [2, 4]
        assert [branch.fork for branch in session.tree()] == [None, None]


async def test_a_forked_log_is_followed(stores: Store) -> None:
    agent = _agent(stores, "A1.", "A2.", "B.")
    await agent.run("Q1.")
    await agent.run("Q2.")
    agent.context.log = agent.context.log.fork(1)
    agent.messages  # noqa: B018  # looking changes nothing
    agent.context.log.append(UserMessage("Added."))
    await agent.continue_()
    done(agent)
    with Session.open(stores, _session(agent).id) as session:
        assert said(session.messages) == ["user: Q1.", "assistant: A1.", "user: Added.", "assistant: B."]
        assert [branch.length for branch in session.tree()] == [4, 4]


async def test_a_log_with_the_entries_in_another_order_is_refused(stores: Store) -> None:
    from steersman.context.log import Log

    agent = _agent(stores, "A1.")
    await agent.run("Q1.")
    agent.context.log = Log.from_entries(reversed(list(agent.context.log.entries)))
    with pytest.raises(SessionError, match="in another order"):
        agent.prompt("Go.")
    assert not agent.is_running
    done(agent)


async def test_what_is_appended_between_runs_is_kept(stores: Store) -> None:
    agent = _agent(stores, "A1.")
    agent.context.messages.append("Before all.")
    await agent.run("Q1.")
    agent.context.messages.append({"role": "extension", "kind": "note", "data": {"n": 1}})
    done(agent)
    with Session.open(stores, _session(agent).id) as session:
        assert list(session.messages) == list(agent.messages)


Step = tuple[str, int]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["text", "tools", "error", "branch", "rerun", "compact", "undo", "move", "assign", "note"]),
        st.integers(0, 1_000),
    ),
    min_size=1,
    max_size=12,
)
TURNS: dict[str, list[Any]] = {
    "text": ["An answer."],
    "tools": [answer("Let me.", call("work", n=1), call("work", n=2)), "Done."],
    "error": [error("invalid_request", "Half an", after=2)],
}


class Grown:
    """An agent and its session while a tree grows."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.turns: list[Any] = []
        self.script = ScriptedModel(lambda _: self.turns.pop(0) if self.turns else "Yes.", repeat_last=True)
        self.agent = Agent(self.script.model, tools=[work], session=Session.create(self.store))
        self.session = _session(self.agent)

    @property
    def ids(self) -> list[str]:
        """Every entry of every branch."""
        found: dict[str, None] = {}
        for branch in self.session.tree():
            found.update(dict.fromkeys(entry.id for entry in self.session.entries(branch.leaf)))
        return list(found)

    async def take(self, step: Step) -> None:
        """Let the tree grow by a step."""
        kind, number = step
        ids = self.ids
        if kind in TURNS:
            self.turns = list(TURNS[kind])
            await self.agent.run(f"Question {number}.")
        elif kind == "note":
            self.agent.context.messages.append({"role": "extension", "kind": "note", "data": number})
        elif kind == "assign":
            self.agent.context.messages = ["Another beginning.", {"role": "assistant", "content": "Yes?"}]
        elif kind == "compact":
            self.agent.compact()
        elif kind == "undo":
            with suppress(ValueError):  # nothing counts here that could be undone
                self.agent.undo()
        elif ids:
            await self._elsewhere(kind, ids[number % len(ids)])

    async def _elsewhere(self, kind: str, at: str) -> None:
        if kind == "move":
            self.agent.compact()
            self.session.branch(at)
        elif kind == "branch":
            await self.agent.branch(at, prompt="Another way.")
        else:
            with suppress(ValueError):  # nothing was asked before that
                await self.agent.rerun(at=at)


@given(STEPS)
async def test_every_entry_of_any_tree_is_a_place_to_go_on_from(steps: list[Step]) -> None:
    """failures.md H11, I1, I3: branch and rerun at any entry give a transcript that servers take, reopened or not."""
    grown = Grown()
    for step in steps:
        await grown.take(step)
    for at in grown.ids:
        for log in (grown.session.find_log_with(at).fork(at), *_rewound(grown.session, at)):
            check_transcript(log.messages)
            check_sendable(log.messages)
            check_sendable(list(log.visible))
    await grown.agent.run("Last.")
    entries = list(grown.agent.context.log.entries)
    tree, ids = list(grown.session.tree()), grown.ids
    done(grown.agent)
    with Session.open(grown.store, grown.session.id) as again:
        assert again.problems == []
        assert list(again.log.entries) == entries
        assert list(again.log.visible) == list(grown.agent.context.log.visible)
        assert list(again.tree()) == tree
        assert again.recovery is None
    for at in ids[:: max(1, len(ids) // 5)]:
        agent, _ = reopened(grown.store, grown.session.id, "There.", tools=[work])
        result = await agent.branch(at, prompt="From here.")
        assert result.text == "There."
        done(agent)


def _rewound(session: Session, at: str) -> list[Any]:
    try:
        return [session.find_log_with(at).rewind(at)]
    except ValueError:
        return []


@given(STEPS, st.floats(0, 1))
async def test_every_entry_of_a_killed_tree_is_a_place_to_go_on_from(steps: list[Step], part: float) -> None:
    """failures.md H11, A3, I3, I8: the same when the program was killed after any record."""
    grown = Grown()
    for step in steps:
        await grown.take(step)
    done(grown.agent)
    length = 1 + round(part * (len(records(grown.store, grown.session.id)) - 1))
    crashed = cut(grown.store, grown.session.id, length)
    with Session.open(grown.store, crashed, write=False) as session:
        assert session.problems == []
        ids = [entry.id for branch in session.tree() for entry in session.entries(branch.leaf)]
        for at in ids:
            for log in (session.find_log_with(at).fork(at), *_rewound(session, at)):
                check_transcript(log.messages, complete=False)
                check_sendable(log.messages)
                check_sendable(list(log.visible))
    agent, _ = reopened(grown.store, crashed, "There.", "And there.", tools=[work])
    assert (await agent.run("Go on.")).text == "There."
    check_transcript(agent.messages)
    for at in ids[-1:]:
        assert (await agent.branch(at, prompt="From here.")).text == "And there."
    done(agent)
