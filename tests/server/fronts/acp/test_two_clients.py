"""An editor and a client of HTTP at one session: a question has one answer, from either of them (server.md S6, S7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.fronts.acp.kit import NO, YES, Editor, ScriptedFolders, open_editor
from tests.server.fronts.acp.test_reopen import is_question, leave_open, open_again
from tests.server.fronts.reacting import make_agent
from tests.server.kit import Client, run_server

from steersman.session import SqliteStore

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def open_both(folder: Path, *, cut: bool) -> AsyncGenerator[tuple[Editor, Client, str, Any]]:
    """An editor whose session asks, a client of a server on the same file, the session, and the question."""
    folders = ScriptedFolders(store=SqliteStore(folder / "sessions.db"))
    session = await leave_open(folders, folder) if cut else ""
    server = run_server(lambda: make_agent(folder), store=folder / "sessions.db")
    async with open_editor(folders) as editor, server as client:
        editor.answer = None
        if cut:
            await open_again(editor, "session/load", session, folder)
        else:
            session = await editor.start(folder)
            editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "deploy"}])
        yield editor, client, session, await editor.wait_for(is_question)


async def find_question(client: Client, session: str) -> str:
    """The id of the open question."""
    _, shown = await client.send("GET", f"/sessions/{session}")
    [question] = shown["approvals"]
    return question["approval_id"]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("first", ["editor", "http"])
async def test_two_answers_at_once_are_one(tmp_path: Path, first: str, cut: bool) -> None:
    """S7: one of them counts, and what the call does is what it says."""
    async with open_both(tmp_path, cut=cut) as (editor, client, session, question):
        id = await find_question(client, session)
        if first == "editor":
            editor.send({"id": question["id"], "result": NO})
        said = asyncio.ensure_future(client.act(session, "approve", {"id": id}))
        if first == "http":
            editor.send({"id": question["id"], "result": NO})
        await said
        seen = await client.collect(session)
        resolved = [event for _, event in seen if event["type"] == "approval_resolved"]
        results = [event["result"]["details"]["status"] for _, event in seen if event["type"] == "tool_execution_end"]
        late = await client.act(session, "deny", {"id": id})
    assert len(resolved) == len(results) == 1
    assert results == ["completed" if resolved[0]["decision"] == "approved" else "denied"]
    assert late["status"] == "resolved"


@pytest.mark.parametrize("cut", [False, True])
async def test_an_abort_over_http_ends_the_question_of_the_editor(tmp_path: Path, cut: bool) -> None:
    """S7, D6: the call does not run, and the editor can go on."""
    async with open_both(tmp_path, cut=cut) as (editor, client, session, question):
        await client.act(session, "abort")
        seen = await client.collect(session)
        await editor.front.sessions[session].wait_for_turn()
        editor.send({"id": question["id"], "result": YES})
        editor.answer = lambda _: NO
        assert await editor.say(session, "hello") == "end_turn"
        assert len(editor.questions) == 1
    results = [event["result"]["details"]["status"] for _, event in seen if event["type"] == "tool_execution_end"]
    assert (seen[-1][1]["end_reason"], results) == ("aborted", ["not_started"])


async def test_a_prompt_over_http_waits_for_the_question_of_the_editor(tmp_path: Path) -> None:
    """Section 6: 409 while a run goes on, wherever that is; nothing is queued."""
    async with open_both(tmp_path, cut=False) as (editor, client, session, question):
        status, _ = await client.send("POST", f"/sessions/{session}/prompt", {"content": "Me too."})
        editor.send({"id": question["id"], "result": YES})
        seen = await client.collect(session)
    assert status == 409
    assert "Me too." not in str(seen)


async def test_a_session_that_is_loaded_twice_at_once_asks_in_the_end(tmp_path: Path) -> None:
    """S7: both requests have their answer, and the question is open after the last one."""
    folders = ScriptedFolders(store=SqliteStore(tmp_path / "sessions.db"))
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = None
        params: Any = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        loads = [editor.ask("session/load", **params) for _ in range(2)]
        answers = [await editor.wait_for_answer(load) for load in loads]
        assert ["result" in answer for answer in answers] == [True, True], answers
        second = editor.messages.index(answers[1])
        question = await editor.wait_for(is_question, second)
        editor.send({"id": question["id"], "result": YES})
        await editor.wait_for(lambda _: editor.join("agent_message_chunk").endswith("Done."))
    assert list(editor.last_statuses.values()) == ["completed"]


async def test_a_cancel_right_behind_a_load_runs_nothing(tmp_path: Path) -> None:
    """S7: it never runs the call, and the session can be used."""
    folders = ScriptedFolders(store=SqliteStore(tmp_path / "sessions.db"))
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = lambda _: NO
        load = editor.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        await editor.wait_for_answer(load)
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        assert await editor.say(session, "hello") == "end_turn"
    assert "completed" not in editor.last_statuses.values()
