"""A session: made, opened, looked at, closed, and what it says when something in it is damaged or of another time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.session.kit import done, planted, records, reopened, said, types

from steersman import Agent, ExtensionMessage, Session, tool
from steersman.session.opening import create_empty
from steersman.session.records import FORMAT, Record, encode
from steersman.session.restore import find_last_answer
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import (
    NewerFormat,
    Problem,
    SessionBusy,
    SessionError,
    SessionExists,
    SessionNotFound,
    Store,
)
from steersman.testing import ScriptedModel, answer, call
from steersman.types.messages import user_message


@tool
async def work() -> str:
    """Work."""
    return "worked " * 50


async def _talked(store: Store, *words: str) -> str:
    """A session in which these were said and each was answered."""
    with Session.create(store) as session:
        agent = Agent(ScriptedModel(*(f"Re: {text}" for text in words)).model, session=session)
        for text in words:
            await agent.run(text)
    return session.id


def _renumbered(found: Sequence[Record]) -> list[Record]:
    return [
        Record(record.id, record.parent, seq, record.type, record.time, record.payload)
        for seq, record in enumerate(found, 1)
    ]


def test_a_session_is_made_and_opened(stores: Store) -> None:
    with pytest.raises(SessionNotFound, match=r"no session in .* yet. Make one with Session.create"):
        Session.open(stores)
    with Session.create(stores, "one") as session:
        assert (session.id, list(session.messages), session.writable, session.degraded) == ("one", [], True, None)
    with pytest.raises(SessionExists):
        Session.create(stores, "one")
    with Session.open(stores, "one") as session:
        assert (session.id, session.problems, list(session.tree())) == ("one", [], [])
    with pytest.raises(SessionNotFound):
        Session.open(stores, "two")
    with pytest.raises(ValueError, match="A session's id"):
        Session.create(stores, "../two")


async def test_the_session_used_last_is_opened_without_an_id(stores: Store) -> None:
    first = await _talked(stores, "First.")
    second = await _talked(stores, "Second.")
    with Session.open(stores) as session:
        assert session.id == second
    agent, _ = reopened(stores, first, "Yes.")
    await agent.run("Again.")
    done(agent)
    with Session.at(stores) as session:
        assert session.id == first
    assert [(summary.id, summary.title) for summary in Session.list(stores)] == [(first, "First."), (second, "Second.")]


async def test_a_path_is_a_file_of_sessions(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "sessions.db"
    with Session.at(path) as session:
        assert said(session.messages) == []
    with Session.at(str(path)) as again:
        assert again.id == session.id
        again.set_title("About nothing")
    assert [summary.title for summary in Session.list(path)] == ["About nothing"]


def test_the_first_record_says_what_it_is(stores: Store) -> None:
    with Session.create(stores, "one") as session:
        session.flush()
        (first,) = records(stores, "one")
    assert (first.seq, first.parent, first.type) == (1, None, "session")
    assert first.payload == {"format": FORMAT, "session_id": "one", "created": first.payload["created"]}
    assert types(records(stores, "one")) == ["session"]


def test_a_second_writer_is_refused_and_a_reader_is_not(stores: Store) -> None:
    """failures.md H5"""
    with Session.create(stores, "one") as session:
        session.log.append(user_message("Hello."))
        with pytest.raises(SessionBusy):
            Session.open(stores, "one")
        session.flush()
        with Session.open(stores, "one", write=False) as reader:
            assert (said(reader.messages), reader.writable) == (["user: Hello."], False)
    Session.open(stores, "one").close()


def test_a_reader_changes_nothing(stores: Store) -> None:
    with Session.create(stores, "one") as session:
        entry = session.log.append(user_message("Hello."))
    with Session.open(stores, "one", write=False) as reader:
        acts: list[Callable[[], Any]] = [
            lambda: reader.label(entry, "x"),
            lambda: reader.branch(0),
            reader.compact,
            reader.undo,
            lambda: reader.set_title("x"),
            lambda: Agent("scripted:echo", session=reader),
        ]
        for act in acts:
            with pytest.raises(SessionError, match="write=False"):
                act()
        reader.log.append(user_message("Only for me."))
        assert reader.flush()
    assert types(records(stores, "one")) == ["session", "message"]


def test_a_closed_session_is_closed(stores: Store) -> None:
    session = Session.create(stores, "one")
    entry = session.log.append(user_message("Hello."))
    session.close()
    session.close()
    for act in (lambda: session.label(entry, "x"), lambda: session.branch(0), session.compact):
        with pytest.raises(SessionError, match="closed"):
            act()
    session.log.append(user_message("Not kept."))
    assert types(records(stores, "one")) == ["session", "message"]
    assert session.degraded == "The session 'one' is closed."


def test_an_error_inside_closes_it_too(stores: Store) -> None:
    def fail() -> None:
        with Session.create(stores, "one") as session:
            session.log.append(user_message("Hello."))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    with Session.open(stores, "one") as session:
        assert said(session.messages) == ["user: Hello."]


async def test_seq_has_no_gaps_and_orders_what_was_said(stores: Store) -> None:
    """failures.md I18, H12: the clock may go backwards."""
    session_id = await _talked(stores, "One.", "Two.")
    found = records(stores, session_id)
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    backwards = [
        Record(record.id, record.parent, record.seq, record.type, 1_000_000.0 - record.seq, record.payload)
        for record in found
    ]
    with Session.open(stores, planted(stores, backwards)) as session:
        assert said(session.messages) == ["user: One.", "assistant: Re: One.", "user: Two.", "assistant: Re: Two."]


async def test_what_this_version_does_not_know_is_kept(stores: Store) -> None:
    """failures.md H15"""
    found = records(stores, await _talked(stores, "One."))
    strange = Record("strange", found[2].id, 4, "hologram", 5.0, {"depth": [1, {"x": None}]})
    session_id = planted(stores, _renumbered([*found[:3], strange, *found[3:]]))
    agent, _ = reopened(stores, session_id, "Re: Two.")
    assert agent.session is not None
    assert agent.session.problems == []
    await agent.run("Two.")
    done(agent)
    assert records(stores, session_id)[3] == strange
    with Session.open(stores, session_id) as session:
        assert said(session.messages) == ["user: One.", "assistant: Re: One.", "user: Two.", "assistant: Re: Two."]


def test_a_newer_major_is_refused_with_its_version(stores: Store) -> None:
    """failures.md H15"""
    header = Record("r", None, 1, "session", 1.0, {"format": "2.3", "session_id": "x"})
    newer = planted(stores, [header])
    with pytest.raises(NewerFormat, match=r"format 2\.3.*reads 1\.0; update"):
        Session.open(stores, newer)
    stores.open(newer).close()  # it was let go of
    minor = planted(stores, [Record("r", None, 1, "session", 1.0, {"format": "1.7", "session_id": "x"})])
    with Session.open(stores, minor) as session:
        assert session.problems == []


async def test_a_missing_record_is_reported_and_what_follows_is_joined(stores: Store) -> None:
    """failures.md H3, H2: no transcript without its beginning, as long as it is known where it belongs."""
    found = records(stores, await _talked(stores, "One.", "Two.", "Three."))
    gone = [place for place, record in enumerate(found) if record.type == "message"][2]
    session_id = planted(stores, _renumbered(found[:gone] + found[gone + 1 :]))
    agent, _ = reopened(stores, session_id, "Fine.")
    assert agent.session is not None
    assert agent.session.problems == [
        Problem("", f"Record {gone + 1} follows one that is missing; it is joined to what came before.")
    ]
    expected = ["user: One.", "assistant: Re: One.", "assistant: Re: Two.", "user: Three.", "assistant: Re: Three."]
    assert said(agent.messages) == expected
    await agent.branch(4, prompt="Go on.")
    assert said(agent.messages) == [*expected, "user: Go on.", "assistant: Fine."]
    done(agent)


async def test_what_follows_a_gap_in_which_the_session_moved_is_a_branch_of_its_own(stores: Store) -> None:
    """failures.md H3: reported, and never a transcript that did not happen."""
    with Session.create(stores) as session:
        agent = Agent(ScriptedModel("A1.", "A2.", "B2.", "B3.").model, session=session)
        await agent.run("Q1.")
        await agent.run("Q2.")
        await agent.branch(1, prompt="Other Q2.")
        await agent.run("Other Q3.")
    found = records(stores, session.id)
    moved = types(found).index("leaf")
    session_id = planted(stores, _renumbered([*found[:moved], *found[moved + 3 :]]))
    with Session.open(stores, session_id) as again:
        assert said(again.messages) == ["assistant: B2.", "user: Other Q3.", "assistant: B3."]
        assert [problem.text for problem in again.problems] == [
            f"Record {moved + 1} follows one that is missing; it starts a new branch."
        ]
        assert [branch.length for branch in again.tree()] == [4, 3]


async def test_a_compaction_that_keeps_what_is_lost_does_not_count(stores: Store) -> None:
    """failures.md H3, I6: everything else is shown."""
    with Session.create(stores) as session:
        agent = Agent(ScriptedModel(*[answer(call("work"))] * 12, "Done.").model, tools=[work], session=session)
        await agent.run("Work.")
        agent.compact()
        entry = agent.context.log.entries[-1]
        assert entry.type == "compaction"
    lost = next(item for item in entry.items if isinstance(item, str))
    found = [record for record in records(stores, session.id) if record.id != lost]
    session_id = planted(stores, _renumbered(found))
    agent, _ = reopened(stores, session_id, "Still here.")
    assert agent.session is not None
    assert [problem.text for problem in agent.session.problems][-1] == (
        f"It is left out: it keeps {lost!r}, which is not there."
    )
    assert list(agent.context.log.visible) == list(agent.messages)
    await agent.run("And?")
    await agent.branch(0, prompt="And now?")
    done(agent)


@pytest.mark.parametrize(
    "payload",
    [
        {"message": {"role": "wizard", "content": []}},
        {"message": "not a message"},
        {"message": {"role": "user", "content": [{"type": "hologram"}]}},
        {},
    ],
)
async def test_a_message_that_is_none_is_left_out_and_reported(stores: Store, payload: dict[str, Any]) -> None:
    """failures.md H3, L22"""
    found = records(stores, await _talked(stores, "One."))
    last = found[3]
    bad = Record("bad", last.id, 5, "message", 9.0, payload)
    after = Record("after", "bad", 6, "message", 9.0, {"message": {"role": "user", "content": "Still there."}})
    after = Record(after.id, after.parent, 6, after.type, 9.0, found[2].payload)
    agent, _ = reopened(stores, planted(stores, [*found[:4], bad, after]), "Fine.")
    assert agent.session is not None
    assert said(agent.messages) == ["user: One.", "assistant: Re: One.", "user: One."]
    (problem,) = agent.session.problems
    assert problem.where == "record 5"
    assert problem.text.startswith("It is left out: it is no message: ")
    await agent.continue_()
    done(agent)


@pytest.mark.parametrize(
    ("type", "payload", "words"),
    [
        ("leaf", {"target": "nowhere"}, "it leads to 'nowhere', which is not there"),
        ("leaf", {}, "'target'"),
        ("label", {"target": ["x"], "text": "y"}, "unhashable"),
        ("delivered", {}, "'queue_id'"),
    ],
)
async def test_a_record_that_makes_no_sense_is_left_out_and_reported(
    stores: Store, type: str, payload: dict[str, Any], words: str
) -> None:
    """failures.md L22: whatever an imported file says, a session opens and stands where it stood."""
    found = records(stores, await _talked(stores, "One."))
    with Session.open(stores, planted(stores, [*found, Record("x", None, 6, type, 9.0, payload)])) as session:
        assert said(session.messages) == ["user: One.", "assistant: Re: One."]
        (problem,) = session.problems
        assert problem.text.startswith("Record 6 cannot be read and is left out: ")
        assert words in problem.text


async def test_an_id_that_comes_twice_makes_no_circle(stores: Store) -> None:
    """failures.md L22"""
    found = records(stores, await _talked(stores, "One."))
    twice = Record(found[2].id, found[3].id, 6, "message", 9.0, found[2].payload)
    with Session.open(stores, planted(stores, [*found, twice])) as session:
        assert said(session.messages) == ["user: One.", "assistant: Re: One."]
        assert "there is an entry" in session.problems[0].text


async def test_queued_messages_that_are_none_are_left_out(stores: Store) -> None:
    found = records(stores, await _talked(stores, "One."))
    message = found[2].payload["message"]
    hostile: list[dict[str, Any]] = [
        {"kind": "steering", "message": {"role": "?"}, "mode": None, "key": None},
        {"kind": "command", "message": message, "mode": None, "key": None},
        {"kind": "steering", "message": message, "mode": "sudo", "key": 7},
    ]
    queued = [Record(f"q{n}", None, 6 + n, "accepted", 9.0, payload) for n, payload in enumerate(hostile)]
    with Session.open(stores, planted(stores, [*found, *queued])) as session:
        assert [(item.id, item.kind, item.mode, item.key) for item in session.waiting] == [
            ("q2", "steering", None, None)
        ]


def test_an_applications_own_data_is_kept_as_well_as_it_can_be(stores: Store) -> None:
    """What JSON does not have is given in words, and the log never refuses a message because of the session."""
    data: list[Any] = [{"n": 1}, {(1, 2): "a pair"}, {"when": {1, 2}}, threading.Lock, float("nan"), "\ud800", 10**30]
    with Session.create(stores, "one") as session:
        for item in data:
            session.log.append(ExtensionMessage((), kind="own", data=item))
        assert session.flush()
        assert session.degraded is None
    with Session.open(stores, "one") as again:
        assert again.problems == []
        found = [message.data for message in again.messages if isinstance(message, ExtensionMessage)]
    assert (found[0], found[1], found[2], found[4]) == ({"n": 1}, repr(data[1]), {"when": [1, 2]}, None)
    assert len(found) == len(data)


async def test_a_branch_that_is_only_in_memory_can_be_gone_on_from() -> None:
    """failures.md H7: the disk is full, and the conversation goes on all the same, in any direction."""

    class Full(MemoryStore):
        full = False

    store = Full()
    session = Session.create(store, "one")
    handle = session._handle  # pyright: ignore[reportPrivateUsage]
    append = handle.append

    def refuse(found: Sequence[Record], /) -> None:
        if store.full:
            raise OSError(28, "No space left on device")
        append(found)

    handle.append = refuse  # type: ignore[method-assign]
    agent = Agent(ScriptedModel("A1.", "A2.", "B2.", "C.").model, session=session)
    await agent.run("Q1.")
    store.full = True
    await agent.run("Q2.")
    there = agent.context.log.entry_id_of(3)
    assert session.degraded is not None
    assert "No space left" in session.degraded
    await agent.branch(1, prompt="Other.")
    await agent.branch(there, prompt="Back.")
    assert said(agent.messages)[2:] == ["user: Q2.", "assistant: A2.", "user: Back.", "assistant: C."]
    store.full = False
    assert await session.save()
    assert session.degraded is None
    session.close()
    assert said(Session.open(store, "one").messages) == said(agent.messages)


async def test_saving_is_for_those_with_an_event_loop_and_flushing_for_those_without(stores: Store) -> None:
    with Session.create(stores, "one") as session:
        session.log.append(user_message("Hello."))
        assert await session.save()
        assert types(records(stores, "one")) == ["session", "message"]
        session.log.append(user_message("Again."))
        assert await asyncio.to_thread(session.flush)
        assert types(records(stores, "one")) == ["session", "message", "message"]


async def test_a_session_goes_through_a_file(stores: Store, tmp_path: Path) -> None:
    """failures.md L22"""
    session_id = await _talked(stores, "One.", "Two.")
    file = tmp_path / "session.jsonl"
    with Session.open(stores, session_id) as session:
        session.label(session.log.entry_id_of(1), "here")
        assert session.export(file) == len(records(stores, session_id)) == len(file.read_text().splitlines())
        expected, tree = list(session.messages), list(session.tree())
    with Session.import_(file, stores, "copy") as copy:
        assert (copy.id, list(copy.messages), list(copy.tree())) == ("copy", expected, tree)


async def test_open_calls_of_an_imported_session_are_not_run_here(stores: Store, tmp_path: Path) -> None:
    """failures.md L22: they were not asked for here, and no approval was given here."""
    ran: list[str] = []

    @tool
    async def delete() -> str:
        """Delete everything."""
        ran.append("deleted")
        return "deleted"

    with Session.create(stores) as session:
        agent = Agent(ScriptedModel(answer(call("delete")), "Done.").model, tools=[delete], session=session)
        await agent.run("Go.")
    assert ran == ["deleted"]
    found = records(stores, session.id)
    asked = [place for place, record in enumerate(found) if record.type == "message"][1]
    crashed = planted(stores, found[: asked + 1])
    file = tmp_path / "session.jsonl"
    with Session.open(stores, crashed) as session:
        session.export(file)
    imported = Session.import_(file, stores, "imported")
    script = ScriptedModel("I see.", answer(call("delete")), "Done.")
    agent = Agent(script.model, tools=[delete], session=imported)
    await agent.continue_()
    assert (ran, said(script.requests[0][0].messages)[-1]) == (
        ["deleted"],
        "call_1: Tool call interrupted: its outcome is unknown.",
    )
    await agent.run("Now you do it.")
    assert ran == ["deleted", "deleted"]
    done(agent)


def test_an_open_session_is_closed_when_it_is_forgotten(stores: Store) -> None:
    """failures.md H6: what was told is kept, and the next one has it at once."""
    session = Session.create(stores, "one")
    session.log.append(user_message("Hello."))
    del session
    gc.collect()
    log = Session.open(stores, "one").log
    gc.collect()
    log.append(user_message("Who has the log writes on."))
    with pytest.raises(SessionBusy):
        Session.open(stores, "one")
    del log
    gc.collect()
    with Session.open(stores, "one") as session:
        assert said(session.messages) == ["user: Hello.", "user: Who has the log writes on."]


def test_a_session_may_be_forgotten_under_a_lock_that_its_writer_needs() -> None:
    """failures.md H6: memory is freed in the midst of anything. Nothing hangs, and it is closed once it can be."""
    store, lock, asked = MemoryStore(), threading.Lock(), threading.Event()
    session = Session.create(store, "one")
    handle = session._handle  # pyright: ignore[reportPrivateUsage]
    append = handle.append

    def waits(found: Sequence[Record], /) -> None:
        asked.set()
        with lock:
            append(found)

    handle.append = waits  # type: ignore[method-assign]
    del handle
    with lock:
        session.log.append(user_message("Hello."))
        assert asked.wait(30)
        del session
        gc.collect()
    for thread in threading.enumerate():
        if thread.name == "steersman-close":
            thread.join(30)
    with Session.open(store, "one") as again:
        assert said(again.messages) == ["user: Hello."]


def test_who_has_it_already_in_this_process_is_told(stores: Store, tmp_path: Path) -> None:
    with Session.create(stores, "one"), Session.create(tmp_path / "s.db", "two"):
        for where, id in ((stores, "one"), (str(tmp_path / "s.db"), "two")):
            with pytest.raises(SessionBusy, match=r"this very process: close it .* agent.close\(\) or session.close"):
                Session.open(where, id)


def test_keys_of_the_environment_are_not_written_without_an_agent_either(
    stores: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "abc-0123456789")
    with Session.create(stores, "one") as session:
        entry = session.log.append(user_message("My key is abc-0123456789."))
        session.label(entry, "abc-0123456789!")
        session.set_title("About abc-0123456789")
        assert session.diff("[redacted]!", entry).common == entry
    assert "0123456789" not in str(records(stores, "one"))
    assert [summary.title for summary in Session.list(stores)] == ["About [redacted]"]


@pytest.mark.parametrize("wrong", [5, 1.5, b"x", ["x"]])
def test_names_are_strings(stores: Store, wrong: Any) -> None:
    with Session.create(stores) as session:
        entry = session.log.append(user_message("Hello."))
        acts: list[Callable[[], Any]] = [
            lambda: session.label(wrong, "x"),
            lambda: session.label(None, "x"),  # pyright: ignore[reportArgumentType]
            lambda: session.diff(entry, wrong),
            lambda: session.diff(None, entry),  # pyright: ignore[reportArgumentType]
            lambda: session.entries(wrong),
        ]
        for act in acts:
            with pytest.raises(TypeError, match="An entry is named by its id or its label"):
                act()
        with pytest.raises(TypeError, match="A label is a string, or None"):
            session.label(entry, wrong)
        with pytest.raises(TypeError, match="A title is a string"):
            session.set_title(wrong)
        session.label(entry, "first")
        session.label("first", "second")
        assert [branch.label for branch in session.tree()] == ["second"]


async def test_records_with_strange_types_are_reported_and_do_no_harm(stores: Store) -> None:
    """failures.md L22"""
    found = records(stores, await _talked(stores, "One."))
    entry, message = found[2].id, found[2].payload["message"]
    hostile: list[tuple[str, dict[str, Any]]] = [
        ("run_start", {"agent_id": {"x": 1}, "loop_id": "l"}),
        ("run_start", {"agent_id": "a", "loop_id": ["l"]}),
        ("run_start", {"agent_id": "a", "loop_id": "l", "continuation_kind": {"kind": "rerun", "tag": [1]}}),
        ("label", {"target": entry, "text": {"x": 1}}),
        ("accepted", {"kind": "follow_up", "message": message, "mode": ["skip"], "key": ["k"]}),
    ]
    planted_id = planted(
        stores, [*found, *(Record(f"x{n}", None, 6 + n, item[0], 9.0, item[1]) for n, item in enumerate(hostile))]
    )
    agent, _ = reopened(stores, planted_id, "Fine.", "Fine.")
    assert agent.session is not None
    assert len(agent.session.problems) == len(hostile)
    assert all(branch.label is None for branch in agent.session.tree())
    assert (await agent.run("Two.")).end_reason == "done"
    done(agent)


async def test_a_session_is_made_for_others_to_open(stores: Store) -> None:
    """It has its first record and the name of its agent, and no writer."""
    create_empty(stores, "made", agent_name="clerk")
    with pytest.raises(SessionExists):
        create_empty(stores, "made")
    with Session.open(stores, "made") as session:
        assert (types(session.records()), session.recorder.index.agent_name) == (["session", "served"], "clerk")
        session.recorder.add("served", {"agent": "cook"})
    with Session.open(stores, "made", write=False) as session:
        assert session.recorder.index.agent_name == "cook"


async def test_the_last_answer_is_found_in_the_last_records(stores: Store) -> None:
    """Unless it may be on another branch, or is further back."""
    with Session.create(stores, "s") as session:
        agent = Agent(ScriptedModel("one", "two").model, session=session)
        await agent.run("Go.")
        await agent.run("Go on.")
        session.flush()
        lines = [encode(record) for record in session.records()]
        assert find_last_answer(lines) == find_last_answer(lines[-8:]) == "two"
        assert find_last_answer(lines[-1:]) is None
        assert find_last_answer([*lines, b"{}"]) is None
        session.branch(1)
        session.flush()
        assert find_last_answer([encode(record) for record in session.records()]) is None
