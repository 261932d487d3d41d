"""An open question survives a killed server on every front: it is told again, and answered there or elsewhere (S7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.server.fronts.test_a2a import ask, say
from tests.server.fronts.test_agui import check_frames, read_frames, user
from tests.server.kit import Client
from tests.server.program import Program, run_program

from steersman.server.fronts.a2a import Translator

pytestmark = pytest.mark.real_time
KEY = {"Idempotency_Key": "the-same"}


async def restart(program: Program) -> None:
    """Kill the server, and start it again."""
    await program.end()
    await program.start()


async def read_result(client: Client, id: str) -> str:
    """How the one call of a session ended."""
    events = await client.collect(id)
    [result] = [event for _, event in events if event["type"] == "tool_execution_end"]
    return result["result"]["details"]["status"]


@pytest.mark.parametrize(("approved", "status"), [(True, "completed"), (False, "denied")])
async def test_ag_ui_tells_the_interrupt_again_and_takes_its_answer(
    tmp_path: Path, approved: bool, status: str
) -> None:
    body = {"runId": "run-1", "messages": [user("m1", "Deploy.")]}
    async with run_program(tmp_path, "ask") as (program, client):
        first = await read_frames(client, body)
        await restart(program)
        again = await read_frames(client, body)
        [interrupt] = again[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": approved}}
        last = await read_frames(client, {"runId": "run-2", "resume": [entry]})
        assert await read_result(client, "thread-1") == status
    for frames in (first, again, last):
        check_frames(frames)
    assert first[-1]["outcome"]["interrupts"] == [interrupt]
    assert last[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(("text", "status"), [("yes", "completed"), ("no", "denied")])
async def test_a2a_tells_the_question_again_and_takes_its_answer(tmp_path: Path, text: str, status: str) -> None:
    async with run_program(tmp_path, "ask") as (program, client):
        first = (await ask(client, "SendMessage", message=say("Deploy.", contextId="c-1")))["result"]["task"]
        await restart(program)
        found = (await ask(client, "GetTask", id=first["id"]))["result"]
        last = (await ask(client, "SendMessage", message=say(text, taskId=first["id"])))["result"]["task"]
        assert await read_result(client, "c-1") == status
    assert found["status"] == first["status"]
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_task_of_a2a_that_waits_can_be_canceled(tmp_path: Path) -> None:
    """Section 5: CancelTask is idempotent; the call does not run, and the question is over."""
    async with run_program(tmp_path, "ask") as (program, client):
        first = (await ask(client, "SendMessage", message=say("Deploy.", contextId="c-1")))["result"]["task"]
        await restart(program)
        ends = [(await ask(client, "CancelTask", id=first["id"]))["result"] for _ in range(2)]
        _, shown = await client.send("GET", "/sessions/c-1")
        events = await client.collect("c-1")
    assert [end["status"]["state"] for end in ends] == ["TASK_STATE_CANCELED"] * 2
    assert (shown["status"], shown["approvals"]) == ("idle", [])
    assert "deployed" not in str(events)


async def create_response(client: Client) -> tuple[int, Any]:
    return await client.send("POST", "/v1/responses", {"input": "Deploy.", "conversation": "c-1"}, **KEY)


async def create_completion(client: Client) -> tuple[int, Any]:
    messages = [{"role": "user", "content": "Deploy."}]
    return await client.send("POST", "/v1/chat/completions", {"model": "x", "messages": messages}, **KEY)


@pytest.mark.parametrize("create", [create_response, create_completion])
async def test_openai_says_where_to_answer_and_then_has_the_answer(tmp_path: Path, create: Any) -> None:
    """Section 5: 409 with words, also after the restart; once it is answered, the same key gives the answer."""
    async with run_program(tmp_path, "ask") as (program, client):
        first = await create(client)
        await restart(program)
        again = await create(client)
        _, listed = await client.send("GET", "/sessions")
        [session] = listed["sessions"]
        _, shown = await client.send("GET", f"/sessions/{session['id']}")
        await client.act(session["id"], "approve", {"id": shown["approvals"][0]["approval_id"]})
        status, last = await create(client)
        assert await read_result(client, session["id"]) == "completed"
    assert first == again
    assert (first[0], session["status"]) == (409, "waiting")
    assert session["id"] in first[1]["error"]["message"]
    assert status == 200
    assert "Done." in str(last)


async def test_a_response_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    async with run_program(tmp_path, "ask") as (program, client):
        body = {"input": "Deploy.", "conversation": "c-1", "background": True}
        _, first = await client.send("POST", "/v1/responses", body)
        await client.find("c-1", "approval_requested")
        await restart(program)
        path = f"/v1/responses/{first['id']}"
        before = await client.send("GET", path)
        ends = [await client.send("POST", f"{path}/cancel") for _ in range(2)]
        _, shown = await client.send("GET", "/sessions/c-1")
    assert before[1]["status"] == "in_progress"
    assert [(status, end["status"]) for status, end in ends] == [(200, "cancelled")] * 2
    assert (shown["status"], shown["approvals"]) == ("idle", [])


async def test_a_question_of_mcp_is_answered_on_the_page_or_over_http(tmp_path: Path) -> None:
    """The client's session and its call are gone with the process; the conversation and its question are not."""
    async with run_program(tmp_path, "ask") as (program, client):
        accept = {"Accept": "application/json, text/event-stream"}
        about: Any = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
        about["clientInfo"] = {"name": "x", "version": "1"}
        headers = {"Authorization": f"Bearer {client.token}", **accept}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
        async with client.http.post(f"{client.url}/mcp", json=hello, headers=headers) as response:
            headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
        params = {"name": "run", "arguments": {"prompt": "Deploy."}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        async with client.http.post(f"{client.url}/mcp", json=call, headers=headers) as response:
            async for line in response.content:
                if b"elicitation/create" in line:
                    break
        await restart(program)
        async with client.http.post(f"{client.url}/mcp", json=call, headers=headers) as response:
            assert response.status == 404
        _, listed = await client.send("GET", "/sessions")
        [session] = listed["sessions"]
        _, shown = await client.send("GET", f"/sessions/{session['id']}")
        await client.act(session["id"], "approve", {"id": shown["approvals"][0]["approval_id"]})
        assert await read_result(client, session["id"]) == "completed"


def test_the_time_of_a_question_of_a2a_is_that_of_its_record() -> None:
    """S7: the status is the same before and after a restart; the run itself has noted another moment."""
    translator = Translator("task", "context")
    question: Any = {"type": "approval_requested", "approval_id": "a", "tool_name": "x", "reason": "", "preview": ""}
    translator.translate({**question, "timestamp": 2.0})
    translator.ask([{**question, "timestamp": 1.999, "args": {}}])
    assert translator.describe()["status"]["timestamp"] == "1970-01-01T00:00:02.000Z"
