"""Artifacts: files in versions that a conversation keeps, on every branch those of the entries which lead there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.session.kit import done, planted, records, reopened, revived, session_of

from steersman import Agent, Session, ToolContext, tool
from steersman.context.log import Log
from steersman.session.records import CONTENT
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import SessionError, SessionNotFound, Store
from steersman.testing import ScriptedModel, answer, call, replay
from steersman.types.artifacts import (
    MAX_ARTIFACT_BYTES,
    Artifact,
    ArtifactChange,
    ArtifactNotFound,
    Artifacts,
    MemoryContents,
    check_room,
)
from steersman.types.events import CustomEvent
from steersman.types.messages import AssistantMessage, UserMessage


@tool(idempotent=True)
async def keep(name: str, text: str, ctx: ToolContext) -> str:
    """Keep a text."""
    version = ctx.artifacts.save(name, text)
    return f"version {version}: {ctx.artifacts.load(name).decode()}"


def _keep(name: str, text: str) -> Any:
    return answer(call("keep", name=name, text=text))


def _agent(store: Store, *turns: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*turns).model, tools=[keep], session=Session.create(store), **options)


def _read(kept: Artifacts) -> dict[str, list[bytes]]:
    """The contents of all versions of all artifacts."""
    return {
        one.name: [kept.load(one.name, version.version) for version in kept.versions(one.name)] for one in kept.list()
    }


async def test_a_session_keeps_every_version(stores: Store) -> None:
    agent = _agent(stores, _keep("a.csv", "1,2"), _keep("a.csv", "1,3"), "Done.")
    assert agent.artifacts.save("plot.png", b"\x89PNG\x00\xff", "image/png") == 1
    await agent.run("Go.")
    assert agent.artifacts.save("a.csv", "1,2") == 3
    expected = {"plot.png": [b"\x89PNG\x00\xff"], "a.csv": [b"1,2", b"1,3", b"1,2"]}
    assert _read(agent.artifacts) == expected
    assert [message.text for message in agent.messages if message.role == "tool_result"] == [
        "version 1: 1,2",
        "version 2: 1,3",
    ]
    id = session_of(agent).id
    done(agent)
    again, _ = reopened(stores, id)
    assert _read(again.artifacts) == expected
    assert [(one.version, one.size, one.mime_type) for one in again.artifacts.versions("a.csv")] == [
        (1, 3, "text/csv"),
        (2, 3, "text/csv"),
        (3, 3, "text/csv"),
    ]
    done(again)
    # Equal contents are kept once.
    assert [record.type for record in records(stores, id)].count(CONTENT) == 3
    stores.delete(id)
    with pytest.raises(SessionNotFound):
        stores.open(id, write=False)


@pytest.mark.parametrize("in_session", [True, False])
async def test_a_branch_and_a_rerun_begin_with_the_versions_of_their_entry(in_session: bool) -> None:
    turns = (_keep("a", "1"), "A.", _keep("a", "2"), _keep("b", "2"), "B.", "C.", _keep("a", "5"), "D.")
    options: dict[str, Any] = {"session": Session.create(MemoryStore())} if in_session else {}
    agent = Agent(ScriptedModel(*turns).model, tools=[keep], **options)
    await agent.run("One.")
    agent.artifacts.save("between", "x")
    await agent.run("Two.")
    log = agent.context.log
    assert _read(agent.artifacts) == {"a": [b"1", b"2"], "between": [b"x"], "b": [b"2"]}
    await agent.rerun()
    assert agent.messages[-1].text == "C."
    assert _read(agent.artifacts) == {"a": [b"1"], "between": [b"x"]}
    agent.context.log = log
    await agent.branch(log.entry_id_of(3), prompt="Three.")
    assert _read(agent.artifacts) == {"a": [b"1", b"5"], "between": [b"x"]}
    assert _read(log.artifacts) == {"a": [b"1", b"2"], "between": [b"x"], "b": [b"2"]}
    agent.close()


async def test_a_save_on_one_branch_is_not_seen_on_the_others(stores: Store) -> None:
    agent = _agent(stores, "A.", "B.", "C.", "D.", "E.")
    await agent.run("One.")
    answered = agent.context.log.entry_id_of(1)
    await agent.run("Two.")
    session = session_of(agent)
    ways: dict[str, dict[str, list[bytes]]] = {session.tree()[0].leaf: {}}
    for number in (1, 2):
        session.branch(answered)
        agent.artifacts.save("way", str(number))
        await agent.run("Another way.")
        # What was saved after an entry, before the next one, is there when the branch begins at that entry.
        ways[agent.context.log.entries[-1].id] = {"way": [b"1", b"2"][:number]}
    session.branch(next(iter(ways)))
    session.branch(answered)
    await agent.run("A fourth way.")
    ways[agent.context.log.entries[-1].id] = {}
    id = session.id
    done(agent)
    for leaf, expected in ways.items():
        with Session.open(stores, id) as session:
            assert _read(session.branch(leaf).artifacts) == expected
        with Session.open(stores, id, write=False) as session:
            assert _read(session.artifacts) == expected


async def test_a_killed_run_goes_on_with_the_versions_it_had() -> None:
    store = MemoryStore()
    turns = [_keep("a", "1"), _keep("a", "2"), "Done."]
    agent = _agent(store, *turns)
    await agent.run("Go.")
    id = session_of(agent).id
    done(agent)
    for left, again, unfinished in revived(store, id, turns, tools=[keep]):
        saved = sum(record.type == "artifact" for record in left)
        assert _read(again.artifacts) == ({"a": [b"1", b"2"][:saved]} if saved else {})
        if unfinished:
            await again.continue_()
            # A call that was cut after its save runs again, and saves again.
            assert again.artifacts.load("a") == b"2"


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from("abc"), st.none()),
        st.tuples(st.just("say"), st.none(), st.none()),
        st.tuples(st.just("branch"), st.integers(0, 20), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    max_size=25,
)


def _change(log: Log, kind: str, name: str, value: Any) -> None:
    if kind == "save":
        log.artifacts.save(name, str(value))
    elif kind == "set":
        log.state[name] = value
    else:
        log.state.pop(name, None)


def _all(log: Log) -> tuple[dict[str, list[bytes]], dict[str, Any]]:
    return _read(log.artifacts), dict(log.state)


@given(_STEPS)
def test_a_session_has_the_artifacts_and_the_state_of_a_log_in_memory(steps: list[tuple[str, Any, Any]]) -> None:
    store = MemoryStore()
    session = Session.create(store, "s")
    ids: list[str] = []
    for kind, first, value in steps:
        log = session.log
        if kind in ("save", "set", "delete"):
            _change(log, kind, first, value)
        elif kind == "say":
            ids.append(log.append(UserMessage("x") if len(log.messages) % 2 == 0 else AssistantMessage("y")))
        elif kind == "branch" and ids:
            at = ids[int(first) % len(ids)]
            expected = _all(session.find_log_with(at).fork(at))
            assert _all(session.branch(at)) == expected
        elif kind == "reopen":
            expected = _all(log)
            session.close()
            session = Session.open(store, "s")
            assert _all(session.log) == expected
            for place in range(len(log.entries) + 1):
                assert set(session.log.artifacts.compute(place)) == set(log.artifacts.compute(place))
                assert session.log.state.compute(place) == log.state.compute(place), log.state.changes
    session.close()


async def test_a_save_is_an_event_of_the_run_and_tools_in_threads_lose_nothing() -> None:
    together = threading.Barrier(4)

    @tool
    def count(name: str, ctx: ToolContext) -> str:
        """Count."""
        together.wait()
        for number in range(20):
            ctx.artifacts.save("shared", f"{name}{number}")
        return ""

    store = MemoryStore()
    script = ScriptedModel(answer(*(call("count", name=name) for name in "abcd")), "Done.")
    agent = Agent(script.model, tools=[count], session=Session.create(store))
    told: list[Any] = []
    agent.subscribe(lambda event: told.append(event.data) if isinstance(event, CustomEvent) else None)
    await agent.run("Go.")
    expected, id = _read(agent.artifacts), session_of(agent).id
    assert sorted(expected["shared"]) == sorted(f"{name}{number}".encode() for name in "abcd" for number in range(20))
    assert sorted(event["version"] for event in told) == list(range(1, 81))
    assert set(told[0]) == {"name", "version", "size", "mime_type", "sha256"}
    done(agent)
    with Session.open(store, id, write=False) as session:
        assert _read(session.artifacts) == expected


def test_one_thread_saves_at_a_time() -> None:
    class Contents(MemoryContents):
        busy = False

        def put(self, data: bytes, /) -> tuple[str, int]:
            assert not self.busy
            self.busy = True
            for _ in range(50):
                os.sched_yield()  # so that another thread would come in here
            self.busy = False
            return super().put(data)

    kept = Artifacts(contents=Contents())
    with ThreadPoolExecutor(4) as threads:
        versions = list(threads.map(partial(kept.save, "a"), [str(number) for number in range(40)]))
    assert sorted(versions) == list(range(1, 41))


async def test_artifacts_and_state_go_with_an_export_and_come_back_with_an_import(
    stores: Store, tmp_path: Path
) -> None:
    agent = _agent(stores, _keep("a", "1"), "Done.", _keep("a", "\u2028\x852"), "Done.")
    agent.state["runs"] = 1
    await agent.run("Go.")
    agent.state.update(runs=2, last=["a", {"b": None}])
    await agent.run("Go on.")
    agent.artifacts.save("bytes", bytes(range(256)))
    expected, state = _read(agent.artifacts), dict(agent.state)
    session = session_of(agent)
    session.export(tmp_path / "s.jsonl")
    done(agent)
    with Session.import_(tmp_path / "s.jsonl", stores, "other") as other:
        assert other.problems == []
        assert (_read(other.artifacts), other.log.state) == (expected, state)
        assert _read(other.branch(3).artifacts) == {"a": [b"1"]}
        assert other.branch(1).state == {"runs": 1}
        assert other.artifacts.save("a", "3") == 2


async def test_another_session_gets_the_artifacts_with_the_log() -> None:
    store = MemoryStore()
    agent = _agent(store, _keep("a", "1"), "Done.", _keep("a", "2"), "Done.")
    await agent.run("Go.")
    await agent.run("Go on.")
    log = agent.context.log
    copy = Log.from_entries(log.entries)
    copy.copy_state_and_artifacts(log)
    with Session.create(store, "copy") as session:
        session.move_to(copy)
    done(agent)
    with Session.open(store, "copy") as session:
        assert _read(session.artifacts) == {"a": [b"1", b"2"]}
        assert _read(session.branch(log.entry_id_of(3)).artifacts) == {"a": [b"1"]}


async def test_an_agent_without_its_session_keeps_the_artifacts() -> None:
    agent = _agent(MemoryStore(), _keep("a", "1"), "Done.")
    await agent.run("Go.")
    session = session_of(agent)
    agent.configure(session=None)
    session.close()
    agent.artifacts.save("a", "2")
    assert _read(agent.artifacts) == {"a": [b"1", b"2"]}


async def test_edited_messages_keep_the_artifacts_and_a_reset_empties_them() -> None:
    store = MemoryStore()
    agent = _agent(store, _keep("a", "1"), "Done.")
    await agent.run("Go.")
    agent.messages.pop()
    assert _read(agent.artifacts) == {"a": [b"1"]}
    id = session_of(agent).id
    agent.reset()
    assert _read(agent.artifacts) == {}
    done(agent)
    assert [record.type for record in records(store, id)].count(CONTENT) == 1


def test_keys_are_not_written_with_a_content() -> None:
    store = MemoryStore()
    key = "sk-secret-1234567890"
    with Session.create(store, "s") as session:
        session.recorder.add_keys({key})
        session.artifacts.save("a.bin", b"\xff\x00" + key.encode() + b"\xfe")
        assert session.artifacts.load("a.bin") == b"\xff\x00[redacted]\xfe"
    log = Log()
    log.artifacts.save("b.bin", key)
    with Session.create(store, "t") as session:
        session.recorder.add_keys({key})
        session.move_to(log)
    with Session.open(store, "t", write=False) as session:
        assert _read(session.artifacts) == {"b.bin": [b"[redacted]"]}


_IMPORT = """
import sys
from steersman.session import MemoryStore, Session
from steersman.types import ArtifactNotFound

with Session.import_(sys.argv[1], MemoryStore()) as session:
    print([problem.text for problem in session.problems])
    for name in ("b.txt", "a.txt"):
        try:
            print(session.artifacts.load(name))
        except ArtifactNotFound as error:
            print(error)
"""


def test_an_artifact_with_a_key_of_this_machine_is_not_imported(tmp_path: Path) -> None:
    with Session.create(MemoryStore(), "s") as session:
        session.artifacts.save("a.txt", "the key sk-ant-secret-1234567890")
        session.artifacts.save("b.txt", "plain")
        session.export(tmp_path / "s.jsonl")
    # A local server is given any word for a key.
    environment = {**os.environ, "ANTHROPIC_API_KEY": "sk-ant-secret-1234567890", "OPENAI_API_KEY": "plain"}
    arguments = [sys.executable, "-c", _IMPORT, str(tmp_path / "s.jsonl")]
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "['It is left out: it is an artifact with a known key.']",
        "b'plain'",
        "The content of this artifact is missing or damaged in session 's'.",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"saved": [1]},
        {"saved": [{"name": "../a", "version": 1, "size": 1, "mime_type": "text/plain", "sha256": "x"}]},
        {"saved": [{"name": "a\u202eb", "version": 1, "size": 1, "mime_type": "text/plain", "sha256": "x"}]},
        {"saved": [{"name": "a", "version": 0, "size": 1, "mime_type": "text/plain", "sha256": "x"}]},
        {"saved": [{"name": "a", "version": 10**30, "size": 1, "mime_type": "text/plain", "sha256": "x"}]},
        {"saved": [{"name": "a", "version": 1, "size": 1, "mime_type": "text/html\r\nX: y", "sha256": "x"}]},
    ],
)
async def test_a_damaged_save_is_left_out_and_reported(change: dict[str, Any]) -> None:
    store = MemoryStore()
    with Session.create(store, "s") as session:
        session.artifacts.save("good", "1")
        session.artifacts.save("bad", "2")
    found = records(store, "s")
    found[-1].payload.clear()
    found[-1].payload.update(change)
    with Session.open(store, planted(store, found)) as session:
        assert _read(session.artifacts) == {"good": [b"1"]}
        assert "no save of an artifact" in session.problems[0].text


def test_after_a_lost_version_the_numbers_of_the_others_stay() -> None:
    store = MemoryStore()
    with Session.create(store, "s") as session:
        for text in ("1", "2", "3"):
            session.artifacts.save("a", text)
    found = records(store, "s")
    [record for record in found if record.type == "artifact"][1].payload.clear()
    with Session.open(store, planted(store, found)) as session:
        assert [one.version for one in session.artifacts.versions("a")] == [1, 3]
        assert session.artifacts.save("a", "4") == 4


@pytest.mark.parametrize("data", ["!!!", "", 5, None, "AAAA"])
def test_a_damaged_content_is_told_when_it_is_loaded(data: Any) -> None:
    store = MemoryStore()
    with Session.create(store, "s") as session:
        session.artifacts.save("a", "1")
        session.artifacts.save("b", "2")
    found = records(store, "s")
    next(record for record in found if record.type == CONTENT).payload["data"] = data
    with Session.open(store, planted(store, found)) as session:
        with pytest.raises(ArtifactNotFound, match="missing or damaged"):
            session.artifacts.load("a")
        assert session.artifacts.load("b") == b"2"


def test_a_content_that_is_damaged_is_written_again_when_it_is_saved_again(tmp_path: Path) -> None:
    store = MemoryStore()
    with Session.create(store, "s") as session:
        session.artifacts.save("a", "1")
    found = records(store, "s")
    next(record for record in found if record.type == CONTENT).payload["data"] = "AAAA"
    with Session.open(store, planted(store, found)) as session:
        session.artifacts.save("b", "1")
        session.artifacts.save("c", "1")
        assert _read(session.artifacts) == {"a": [b"1"], "b": [b"1"], "c": [b"1"]}
        id = session.id
    assert len([record for record in records(store, id) if record.type == CONTENT]) == 2
    with Session.open(store, id) as session:
        assert session.artifacts.load("b") == b"1"
        session.export(tmp_path / "s.jsonl")
    with Session.import_(tmp_path / "s.jsonl", MemoryStore()) as session:
        assert session.problems == []
        assert session.artifacts.load("b") == b"1"


def test_a_content_of_an_earlier_program_is_not_written_again(stores: Store) -> None:
    for name in "ab":
        with Session.open(stores, "s", create=True) as session:
            session.artifacts.save(name, "1")
    assert len([record for record in records(stores, "s") if record.type == CONTENT]) == 1


@pytest.mark.parametrize(
    "name",
    [
        "", " ", ".", "..", "a/b", "..\\a", "/etc/passwd",
        "a\x00", "a\nb", "\x1b[31m", "a\u202eb", " a", "\ud800", "é" * 101, "a\u200bb", "\ufeffa",
    ],
)  # fmt: skip
def test_a_name_that_is_no_file_name_is_refused_and_keeps_nothing(name: str) -> None:
    kept = Artifacts()
    with pytest.raises(ValueError, match="is no name for an artifact"):
        kept.save(name, "x")
    assert kept.list() == []


def test_what_is_no_content_or_too_much_is_refused() -> None:
    kept = Artifacts()
    for wrong in (None, 1, ["x"]):
        with pytest.raises(TypeError, match="is bytes or text"):
            kept.save("a", wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="is a string"):
        kept.save(1, "x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="UTF-8"):
        kept.save("a", "\ud800")
    with pytest.raises(ValueError, match="16,777,216 is the most"):
        kept.save("a", bytes(MAX_ARTIFACT_BYTES + 1))
    with pytest.raises(ValueError, match="like 'text/csv'"):
        kept.save("a", "x", "text/html\r\nSet-Cookie: a=b")
    with pytest.raises(ValueError, match="Begin another session"):
        check_room(256 << 20, 1)
    assert kept.list() == []
    last = Artifact("a", 10**9, 1, "text/plain", "x")
    kept.restore([(0, ArtifactChange((last,)))])
    with pytest.raises(ValueError, match="the highest version"):
        kept.save("a", "x")
    assert kept.versions("a") == [last]


def test_the_largest_artifact_fits_and_a_full_session_takes_no_more(stores: Store) -> None:
    data = bytes(range(256)) * (MAX_ARTIFACT_BYTES // 256)
    with Session.create(stores, "s") as session:
        session.artifacts.save("big.bin", data)
        session.flush()
    with Session.open(stores, "s", write=False) as session:
        assert session.artifacts.load("big.bin") == data
        with pytest.raises(SessionError, match="write=False"):
            session.artifacts.save("a", "x")


def test_a_session_that_is_full_says_so() -> None:
    with Session.create(MemoryStore(), "s") as session:
        session.artifacts.save("a", "x")
        index = session.recorder.index
        index.contents["other"] = (1, 256 << 20)
        with pytest.raises(ValueError, match="Begin another session"):
            session.artifacts.save("a", "y")
        assert session.artifacts.save("a", "x") == 2


def test_missing_names_and_versions_are_told_with_what_there_is() -> None:
    kept = Artifacts()
    with pytest.raises(ArtifactNotFound, match=r"No artifact named 'a'. Artifacts here: none."):
        kept.load("a")
    kept.save("a.json", "{}")
    with pytest.raises(ArtifactNotFound, match=r"Artifacts here: 'a.json'."):
        kept.load("a")
    with pytest.raises(LookupError, match=r"has no version 2. Versions: 1."):
        kept.load("a.json", 2)
    crowd = Artifacts()
    for number in range(25):
        crowd.save(f"name-{number}", "x")
        crowd.save("same", "x")
    for wrong, told in (("a", "'name-24', and 6 before them."), ("same", "24, 25, and 5 before them.")):
        with pytest.raises(ArtifactNotFound, match=told) as raised:
            crowd.load(wrong, 99)
        assert str(raised.value).count(",") == 20
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert kept.find("a.json") == Artifact("a.json", 1, 2, "application/json", digest)
    copy = kept.copy_read_only("Not here.")
    assert copy.load("a.json") == b"{}"
    with pytest.raises(RuntimeError, match="Not here"):
        copy.save("a.json", "x")


async def test_a_session_with_artifacts_is_replayed() -> None:
    agent = _agent(MemoryStore(), _keep("a", "1"), "Done.")
    await agent.run("Go.")
    replayed = await replay(session_of(agent))
    assert [run.end_reason for run in replayed.runs] == ["done"]
    done(agent)
