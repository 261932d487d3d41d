"""ACP: a question that is open when the process ends is asked again when its session is opened (server.md S7, S8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.server.fronts.acp.kit import NO, YES, Editor, ScriptedFolders, open_editor

from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call

pytestmark = pytest.mark.real_time


def is_question(message: Any) -> bool:
    return message.get("method") == "session/request_permission"


async def leave_open(folders: ScriptedFolders, folder: Path, words: str = "deploy", questions: int = 1) -> str:
    """A session whose run is cut while it asks; returns its id."""
    async with open_editor(folders) as editor:
        editor.answer = None
        session = await editor.start(folder)
        editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": words}])
        await editor.wait_for(lambda _: len(editor.questions) == questions)
    return session


async def open_again(editor: Editor, method: str, session: str, folder: Path) -> None:
    await editor.call(method, sessionId=session, cwd=str(folder), mcpServers=[])


async def _wait_for_text(editor: Editor, end: str) -> None:
    await editor.wait_for(lambda _: editor.join("agent_message_chunk").endswith(end))


async def _wait_for_turn(editor: Editor, session: str) -> None:
    await editor.front.sessions[session].wait_for_turn()


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
@pytest.mark.parametrize(("decision", "status", "end"), [(YES, "completed", "Done."), (NO, "failed", "Not done.")])
async def test_an_open_question_is_asked_again_and_the_answer_counts(
    tmp_path: Path, method: str, decision: Any, status: str, end: str
) -> None:
    """S7: it is asked once, after the response; the run goes on with the answer, and the next prompt after it."""
    folders = ScriptedFolders()
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = lambda _: decision
        opened = editor.ask(method, sessionId=session, cwd=str(tmp_path), mcpServers=[])
        question = await editor.wait_for(is_question)
        told = [one.get("id") for one in editor.messages]
        assert told.index(opened) < told.index(question["id"])
        asked = question["params"]["toolCall"]
        assert (asked["name"], asked["status"]) == ("deploy", "pending")
        assert "failed" not in editor.last_statuses.values()
        await _wait_for_turn(editor, session)
        assert editor.join("agent_message_chunk").endswith(end)
        assert editor.last_statuses == {asked["toolCallId"]: status}
        assert [one["sessionUpdate"] for one in editor.updates].count("tool_call") == 1
        assert await editor.say(session, "hello") == "end_turn"
        assert editor.join("agent_message_chunk").endswith("that is prompt 2.")
        assert len(editor.questions) == 1
    async with open_editor(folders) as editor:
        await open_again(editor, method, session, tmp_path)
        assert await editor.say(session, "hello") == "end_turn"
        assert editor.questions == [], "what is answered is not asked again"


async def test_a_question_without_an_answer_stays_open_also_after_a_close(tmp_path: Path) -> None:
    """S7: no run begins without an answer; closing the session changes nothing."""
    folders = ScriptedFolders()
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = None
        for count in (1, 2, 3):
            await open_again(editor, "session/load", session, tmp_path)
            await editor.wait_for(lambda _, count=count: len(editor.questions) == count)
        await editor.call("session/close", sessionId=session)
        editor.answer = lambda _: YES
        await open_again(editor, "session/resume", session, tmp_path)
        await _wait_for_text(editor, "Done.")
        assert list(editor.last_statuses.values()) == ["completed"]


async def test_an_option_that_is_changed_meanwhile_leaves_the_question_open(tmp_path: Path) -> None:
    folders = ScriptedFolders()
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = None
        await open_again(editor, "session/load", session, tmp_path)
        question = await editor.wait_for(is_question)
        await editor.call("session/set_config_option", sessionId=session, configId="thinking", value="low")
        await editor.front.sessions[session].live.configure({"thinking_level": "low"}, [])
        editor.send({"id": question["id"], "result": YES})
        await _wait_for_text(editor, "Done.")


async def test_cancel_resolves_the_question_without_a_turn_of_the_model(tmp_path: Path) -> None:
    """Section 5: session/cancel stops what goes on; the call has not run, and is not asked about again."""
    folders = ScriptedFolders()
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = None
        await open_again(editor, "session/load", session, tmp_path)
        question = await editor.wait_for(is_question)
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        editor.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})
        await _wait_for_turn(editor, session)
        assert list(editor.last_statuses.values()) == ["failed"]
        assert editor.join("agent_message_chunk") == "Let me see. "
    async with open_editor(folders) as editor:
        await open_again(editor, "session/load", session, tmp_path)
        assert await editor.say(session, "hello") == "end_turn"
        assert editor.questions == []


async def test_a_prompt_takes_the_place_of_the_question(tmp_path: Path) -> None:
    """The call counts as interrupted, and an answer that comes later changes nothing."""
    folders = ScriptedFolders()
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = None
        await open_again(editor, "session/load", session, tmp_path)
        question = await editor.wait_for(is_question)
        assert await editor.say(session, "hello") == "end_turn"
        assert list(editor.last_statuses.values()) == ["failed"]
        editor.send({"id": question["id"], "result": YES})
        assert await editor.say(session, "hello") == "end_turn"
        assert "Done." not in editor.join("agent_message_chunk")
        assert len(editor.questions) == 1


@pytest.mark.parametrize("stop", ["session/prompt", "session/cancel"])
async def test_a_prompt_or_a_cancel_stops_the_run_that_went_on(tmp_path: Path, stop: str) -> None:
    """After the answer the run is in a turn that no prompt has asked for: it ends before the next one begins."""

    @tool(needs_approval=True)
    def risky() -> str:
        """Needs approval."""
        return "did it"

    slow = answer("One two three four five. " * 40, deltas=400, pace=0.02)
    turns = iter([answer(call("risky")), slow, answer("Something else.")])
    model = ScriptedModel(lambda _: next(turns), repeat_last=True).model
    folders = ScriptedFolders(lambda _: Agent(model, tools=[risky]))
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        await open_again(editor, "session/load", session, tmp_path)
        await editor.wait_for_update("agent_message_chunk")
        if stop == "session/cancel":
            editor.send({"method": stop, "params": {"sessionId": session}})
            await _wait_for_turn(editor, session)
        refused = editor.ask("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        if stop == "session/prompt":
            assert (await editor.wait_for_answer(refused))["error"]["code"] == -32600
        else:
            assert "result" in await editor.wait_for_answer(refused)
        assert await editor.say(session, "go") == "end_turn"
        assert editor.join("agent_message_chunk").endswith("Something else.")
        assert list(editor.last_statuses.values()) == ["completed"]


async def test_an_editor_that_cannot_ask_starts_no_run(tmp_path: Path) -> None:
    """S8 is about runs that would wait; here none does, so the question stays open for one who can answer it."""
    folders = ScriptedFolders()
    session = await leave_open(folders, tmp_path)
    async with open_editor(folders) as editor:
        editor.answer = lambda _: {"code": -32601, "message": "Method not found"}
        await open_again(editor, "session/load", session, tmp_path)
        await editor.wait_for(is_question)
        await editor.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert not editor.front.sessions[session].live.is_busy
    async with open_editor(folders) as editor:
        await open_again(editor, "session/resume", session, tmp_path)
        await _wait_for_text(editor, "Done.")


@pytest.mark.parametrize("second", [YES, {"code": -32601, "message": "Method not found"}])
async def test_several_open_questions_are_asked_at_once_and_each_once(tmp_path: Path, second: Any) -> None:
    """The first answer lets the run go on; the others are taken by it. What cannot be asked is denied by then (S8)."""

    @tool(needs_approval=True)
    def risky(target: str) -> str:
        """Needs approval."""
        return f"did {target}"

    turns = iter([answer(call("risky", target="a"), call("risky", target="b")), answer("The end.")])
    model = ScriptedModel(lambda _: next(turns), repeat_last=True).model
    folders = ScriptedFolders(lambda _: Agent(model, tools=[risky]))
    session = await leave_open(folders, tmp_path, questions=2)
    async with open_editor(folders) as editor:
        editor.answer = None
        await open_again(editor, "session/load", session, tmp_path)
        await editor.wait_for(lambda _: len(editor.questions) == 2)
        first, other = [one["id"] for one in editor.messages if is_question(one)]
        editor.send({"id": other, **({"error": second} if "code" in second else {"result": second})})
        editor.send({"id": first, "result": YES})
        await _wait_for_text(editor, "The end.")
        await _wait_for_turn(editor, session)
        assert len(editor.questions) == 2
    assert list(editor.last_statuses.values()) == ["completed", "completed" if second is YES else "failed"]


async def test_a_sub_agents_question_is_over(tmp_path: Path) -> None:
    """Its conversation is not kept, so an answer could not count: it is not asked for, and the model is told."""
    folders = ScriptedFolders()
    session = await leave_open(folders, tmp_path, "delegate")
    async with open_editor(folders) as editor:
        await open_again(editor, "session/load", session, tmp_path)
        assert list(editor.last_statuses.values()) == ["failed"]
        assert await editor.say(session, "hello") == "end_turn"
        assert editor.questions == []
