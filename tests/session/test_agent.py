"""An agent that remembers: its session follows everything it does, and nothing that others do."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from tests.session.kit import done, records, reopened, said, types

from steersman import Agent, Session, SteersmanError, ToolOutput, tool
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import SessionBusy, SessionError, Store
from steersman.testing import EventCollector, ScriptedModel, answer, call, stall
from steersman.types.errors import AgentBusy
from steersman.types.events import AgentStart


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_a_conversation_goes_on_in_another_program(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with Agent(ScriptedModel(answer(call("add", a=2, b=3)), "5.").model, tools=[add], session=path) as agent:
        await agent.run("What is 2 + 3?")
    script = ScriptedModel("Yes, 5.")
    with Agent(script.model, session=str(path)) as again:
        await again.run("Sure?")
    assert said(again.messages) == [
        "user: What is 2 + 3?",
        "assistant: [call_1]",
        "call_1: 5",
        "assistant: 5.",
        "user: Sure?",
        "assistant: Yes, 5.",
    ]
    assert said(script.requests[0][0].messages) == said(again.messages)[:-1]


async def test_what_is_kept_of_a_run(stores: Store) -> None:
    """Everything in the order in which it happened, each under the entry it followed; no deltas."""
    with Session.create(stores, "one") as session:
        await Agent(ScriptedModel(answer("So.", call("add", a=2, b=3)), "5.").model, tools=[add], session=session).run(
            "?"
        )
    found = records(stores, "one")
    assert types(found) == [
        "session", "run_start", "message", "message", "intent", "result", "message", "message", "run_end",
    ]  # fmt: skip
    prompt, asked, given, last = (record for record in found if record.type == "message")
    assert [(record.type, record.parent) for record in found] == [
        ("session", None),
        ("run_start", None),
        ("message", None),
        ("message", prompt.id),
        ("intent", asked.id),
        ("result", asked.id),
        ("message", asked.id),
        ("message", given.id),
        ("run_end", last.id),
    ]
    start, intent, result, end = (found[place].payload for place in (1, 4, 5, 8))
    assert start["continuation_kind"] == {"kind": "initial"}
    assert start["config_snapshot"]["tools"] == ["add"]
    assert intent == {"tool_call_id": "call_1", "tool_name": "add", "arguments": {"a": 2, "b": 3}}
    assert result.pop("duration") >= 0
    assert result == {"tool_call_id": "call_1", "message": given.payload["message"]}
    assert (end["end_reason"], end["loop_id"]) == ("done", start["loop_id"])


async def test_a_run_goes_on_from_the_one_it_belongs_to_in_another_program(stores: Store) -> None:
    """loop.md R6, R1; api.md: the parent is the loop that the branching point belongs to, a fresh prompt has none."""
    events = EventCollector()
    with Session.create(stores) as session:
        agent = Agent(ScriptedModel("A.", "B.", "C.").model, session=session)
        agent.subscribe(events)
        await agent.run("Q.")
        place = session.entries()[-1].id
        await agent.run("R.")
        answer_of_second = session.entries()[-1].id
        await agent.branch(place, prompt="S.")
        agent.close()
    first, second, _ = [start.loop_id for start in events.of(AgentStart)]
    again, _ = reopened(stores, session.id, "D.", "E.", "F.", "G.")
    again.subscribe(events)
    await again.run("T.")
    await again.rerun()
    await again.rerun(at=0)
    await again.branch(answer_of_second, prompt="U.")
    done(again)
    starts = events.of(AgentStart)
    assert {(start.agent_id, start.session_id) for start in starts} == {(agent.context.agent_id, session.id)}
    parents = [start.parent_loop_id for start in starts]
    assert parents == [None, None, first, None, starts[3].loop_id, first, second]


def test_an_agent_without_an_event_loop_remembers(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with Agent(ScriptedModel("A1.", "A2.").model, session=path) as agent:
        agent.run_sync("Q1.")
        agent.run_sync("Q2.")
        stream = agent.prompt("Never used.")
        del stream
    with Session.open(path, write=False) as session:
        assert said(session.messages) == ["user: Q1.", "assistant: A1.", "user: Q2.", "assistant: A2."]


async def test_two_agents_do_not_share_a_session(stores: Store) -> None:
    """failures.md H5: the second is refused, whichever way it comes."""
    with Session.create(stores, "one") as session:
        first = Agent(ScriptedModel("A.").model, session=session)
        with pytest.raises(SessionBusy, match="An agent uses the session 'one' already"):
            Agent(ScriptedModel("B.").model, session=session)
        await first.run("Q.")
        first.close()
        second = Agent(ScriptedModel("B.").model, session=session)
        await second.run("R.")
        assert said(second.messages) == ["user: Q.", "assistant: A.", "user: R.", "assistant: B."]
        with pytest.raises(SteersmanError, match="is closed"):
            await first.run("S.")


def test_a_path_that_another_agent_has_is_refused(tmp_path: Path) -> None:
    with Agent("scripted:echo", session=tmp_path / "s.db"), pytest.raises(SessionBusy):
        Agent("scripted:echo", session=tmp_path / "s.db")
    Agent("scripted:echo", session=tmp_path / "s.db").close()


async def test_an_agent_that_is_forgotten_lets_its_session_go(stores: Store) -> None:
    with Session.create(stores) as session:
        agent = Agent(ScriptedModel("A.").model, session=session)
        await agent.run("Q.")
        del agent
        await asyncio.sleep(1)  # the task of the run is done with it
        gc.collect()
        again = Agent(ScriptedModel("B.").model, session=session)
        assert said(again.messages) == ["user: Q.", "assistant: A."]


async def test_after_its_session_is_closed_an_agent_says_so(stores: Store) -> None:
    session = Session.create(stores)
    agent = Agent(ScriptedModel("A.").model, session=session)
    session.close()
    acts: list[Any] = [
        lambda: agent.prompt("Q."),
        lambda: agent.steer("Q."),
        lambda: agent.follow_up("Q."),
        agent.continue_,
        agent.rerun,
        agent.compact,
    ]
    for act in acts:
        with pytest.raises(SteersmanError, match="The session of this agent is closed"):
            act()
    assert len(agent.messages) + len(agent.queued.steering) + len(agent.queued.follow_up) == 0


async def test_a_session_closed_under_a_run_does_not_break_it(stores: Store) -> None:
    """The run goes on in memory, and what was told before is kept; only a `with` that is left does that."""
    with Session.create(stores, "one") as session:
        agent = Agent(ScriptedModel(stall("Well", after=1)).model, session=session)
        stream = agent.prompt("Q.")
        async for event in stream:
            if event.type == "message_update" and not session.closed:
                with pytest.raises(SessionBusy, match="agent is running"):
                    session.close()
                with pytest.raises(AgentBusy, match="would not be saved"):
                    agent.close()
                with session:
                    pass
                agent.abort()
        assert (await stream).end_reason == "aborted"
    assert types(records(stores, "one")) == ["session", "run_start", "message"]


def test_messages_to_begin_with_are_kept_once(stores: Store) -> None:
    with Session.create(stores, "one") as session:
        Agent("scripted:echo", messages=["Hello."], session=session).close()
    with Session.open(stores, "one") as session:
        with pytest.raises(ValueError, match="The session has messages already"):
            Agent("scripted:echo", messages=["Hello."], session=session)
        assert said(Agent("scripted:echo", session=session).messages) == ["user: Hello."]


def test_a_session_is_a_session_or_a_path(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="session is a Session or the path of a file, got 7"):
        Agent("scripted:echo", session=7)  # pyright: ignore[reportArgumentType]
    path = tmp_path / "s.db"
    with Session.create(path) as session:
        Agent("scripted:echo", messages=["Hello."], session=session)
    with pytest.raises(ValueError, match="messages already"):
        Agent("scripted:echo", messages=["Hello."], session=path)
    Session.open(path).close()  # the agent that was not made has let go of it


async def test_of_a_sub_agent_the_result_is_kept_and_nothing_else(stores: Store) -> None:
    helper = Agent(ScriptedModel(answer(call("add", a=1, b=1)), "It is 2.").model, tools=[add])
    with Session.create(stores, "one") as session:
        script = ScriptedModel(answer(call("helper", prompt="1 + 1?")), "Two.")
        agent = Agent(script.model, tools=[helper.as_tool("helper", "Helps.")], session=session)
        agent.subscribe(lambda _: None)
        await agent.run("?")
    found = records(stores, "one")
    assert types(found).count("run_start") == types(found).count("run_end") == 1
    assert types(found).count("intent") == types(found).count("result") == 1
    assert said(agent.messages)[2] == "call_1: It is 2."
    assert not any("add" in str(record.payload.get("tool_name")) for record in found)


async def test_an_agent_with_a_session_is_a_tool_without_one(stores: Store) -> None:
    with Session.create(stores, "helper") as session:
        helper = Agent(ScriptedModel("It is 2.").model, session=session)
        script = ScriptedModel(answer(call("helper", prompt="1 + 1?")), "Two.")
        await Agent(script.model, tools=[helper.as_tool("helper", "Helps.")]).run("?")
    assert types(records(stores, "helper")) == ["session"]


async def test_a_run_is_kept_before_its_result_is_known(stores: Store) -> None:
    """failures.md F4"""
    with Session.create(stores, "one") as session:
        await Agent(ScriptedModel("A.").model, session=session).run("Q.")
        assert types(records(stores, "one"))[-1] == "run_end"


def _refuse(*_: object) -> bool:
    return False


async def test_a_vetoed_run_leaves_its_end(stores: Store) -> None:
    """loop.md R2"""
    with Session.create(stores, "one") as session:
        agent = Agent(ScriptedModel("A.").model, session=session, before_loop=_refuse)
        await agent.run("Q.")
    assert [(record.type, record.payload.get("end_reason")) for record in records(stores, "one")[1:]] == [
        ("run_end", "vetoed")
    ]


async def test_a_store_that_breaks_does_not_break_the_run() -> None:
    """failures.md H7, H8: it goes on in memory, says so, and catches up."""

    class Broken(MemoryStore):
        broken = True

    store = Broken()
    session = Session.create(store, "one")
    handle = session._handle  # pyright: ignore[reportPrivateUsage]
    append = handle.append

    def fail(found: Any, /) -> None:
        if store.broken:
            raise OSError(5, "Input/output error")
        append(found)

    handle.append = fail  # type: ignore[method-assign]
    agent = Agent(ScriptedModel(answer(call("add", a=1, b=1)), "2.", "3.").model, tools=[add], session=session)
    assert (await agent.run("Q.")).text == "2."
    assert session.degraded is not None
    assert "Input/output error" in session.degraded
    store.broken = False
    await agent.run("R.")
    assert session.degraded is None
    session.close()
    found = records(store, "one")
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    with Session.open(store, "one") as again:
        assert said(again.messages) == said(agent.messages)


async def test_deltas_are_heard_and_not_kept(stores: Store) -> None:
    """The cost of a delta is one look at its type."""
    with Session.create(stores, "one") as session:
        await Agent(ScriptedModel(answer("word " * 2_000, deltas=2_000)).model, session=session).run("Q.")
    assert types(records(stores, "one")) == ["session", "run_start", "message", "message", "run_end"]


async def test_labels_and_titles_are_kept_with_an_agent_at_work(stores: Store) -> None:
    with Session.create(stores, "one") as session:
        agent = Agent(ScriptedModel("A.").model, session=session)
        await agent.run("Q.")
        session.label(agent.context.log.entry_id_of(0), "start")
        session.set_title("A question")
        with pytest.raises(SessionError, match="No entry"):
            session.label("x", "y")
    assert [(summary.id, summary.title) for summary in Session.list(stores)] == [("one", "A question")]
    with Session.open(stores, "one") as session:
        assert session.diff("start", "start").common == agent.context.log.entry_id_of(0)


async def test_a_tool_with_strange_details_is_kept(stores: Store) -> None:
    @tool
    async def odd() -> ToolOutput:
        """Give odd details."""
        return ToolOutput("odd", details={"set": {1}, "object": object, "nan": float("nan")})

    with Session.create(stores, "one") as session:
        await Agent(ScriptedModel(answer(call("odd")), "Odd.").model, tools=[odd], session=session).run("Q.")
        assert session.degraded is None
    with Session.open(stores, "one") as session:
        assert (len(session.messages), session.problems) == (4, [])


async def test_closing_does_not_wait_and_loses_nothing(stores: Store, tmp_path: Path) -> None:
    """A close that was refused changes nothing, and one after the run is an ordinary one."""
    with Session.create(stores, "one") as session:
        agent = Agent(ScriptedModel(answer("word " * 20, deltas=20)).model, session=session)
        stream = agent.prompt("Q.")
        async for event in stream:
            if event.type == "message_update":
                with pytest.raises(AgentBusy):
                    agent.close()
        agent.close()
        session.close()
    assert types(records(stores, "one")) == ["session", "run_start", "message", "message", "run_end"]
    with Agent(ScriptedModel(stall("Well", after=1)).model, session=tmp_path / "s.db") as left:
        stream = left.prompt("Q.")
        await anext(aiter(stream))
    Session.open(tmp_path / "s.db").close()
    left.abort()
    assert (await stream).end_reason == "aborted"


async def test_an_agent_that_was_not_closed_leaves_its_file_to_others(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel("A.").model, session=tmp_path / "s.db")
    await agent.run("Q.")
    del agent
    await asyncio.sleep(1)  # the task of the run is done with it
    gc.collect()
    with Session.open(tmp_path / "s.db") as session:
        assert said(session.messages) == ["user: Q.", "assistant: A."]


@pytest.mark.parametrize("place", [1.5, True, b"x"])
def test_what_names_no_entry_is_refused(stores: Store, place: Any) -> None:
    with Session.create(stores) as session:
        for agent in (Agent("scripted:echo", messages=["Q."], session=session), Agent("scripted:echo")):
            with pytest.raises(TypeError, match="its id, its label or its index"):
                agent.rerun(at=place)
            with pytest.raises(TypeError, match="A tag is a string, got 2"):
                agent.rerun(2)  # pyright: ignore[reportArgumentType]
