"""A server that is killed or stopped loses nothing: open questions, receipts, positions and queued messages."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import Client, Event, check_order, run_server
from tests.server.program import Program, make_agent, run_program
from tests.session.kit import cut, records, types

from steersman import Agent, Approval, tool
from steersman.session import SqliteStore
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import builtin_tools

pytestmark = pytest.mark.real_time


async def ask_and_restart(program: Program, client: Client) -> tuple[str, tuple[str, str]]:
    """A session whose question is open while its server was killed, and the position and the id of the question."""
    id = await client.create()
    await client.act(id, "prompt", {"content": "Deploy."})
    position, event = (await client.collect(id, "approval_requested"))[-1]
    await program.end(signal.SIGKILL)
    await program.start()
    return id, (position, event["approval_id"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_an_open_question_is_still_open_after_a_restart(
    tmp_path: Path, number: signal.Signals, decision: str
) -> None:
    """S7: both events are records; the answer lets the interrupted run go on."""
    async with run_program(tmp_path, "ask") as (program, client):
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        seen = await client.collect(id, "approval_requested")
        await program.end(number)
        await program.start()
        _, shown = await client.send("GET", f"/sessions/{id}")
        _, listed = await client.send("GET", "/sessions")
        question = seen[-1][1]["approval_id"]
        assert shown["status"] == listed["sessions"][0]["status"] == "waiting"
        assert [one["approval_id"] for one in shown["approvals"]] == [question]
        await client.act(id, decision, {"id": question, "reason": "no"})
        rest = await client.collect(id, after=seen[-1][0])
    check_order([*seen, *rest])
    asked = [event["approval_id"] for _, event in rest if event["type"] == "approval_requested"]
    assert asked == [question]
    results = [event["result"]["details"]["status"] for _, event in rest if event["type"] == "tool_execution_end"]
    assert results == ["completed" if decision == "approve" else "denied"]
    assert rest[-1][1]["end_reason"] == "done"


async def test_a_yes_after_a_restart_counts_for_what_was_shown_alone(tmp_path: Path) -> None:
    """docs/tools.md: what a call would do has changed while the server was away, so it is asked about anew."""
    workspace, store = tmp_path / "work", tmp_path / "s.db"
    workspace.mkdir()
    for name in ("notes.txt", "deploy.sh"):
        (workspace / name).write_text(f"{name}\n")
    link = workspace / "link"
    link.symlink_to("notes.txt")

    def make_writer(*script: Any) -> Callable[[], Agent]:
        tools = builtin_tools(workspace, sandbox="off")
        return lambda: Agent(ScriptedModel(*script).model, tools=tools, approval=Approval(workspace=workspace))

    script = (answer(call("read", path="link")), answer(call("write", path="link", content="new\n")))
    async with run_server(make_writer(*script), store=store) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Write."})
        shown = await client.find(id, "approval_requested")
    assert shown["preview"].startswith("notes.txt\n")
    link.unlink()
    link.symlink_to("deploy.sh")
    async with run_server(make_writer("Done."), store=store) as client:
        _, before = await client.send("GET", f"/sessions/{id}")
        assert [one["approval_id"] for one in before["approvals"]] == [shown["approval_id"]]
        await client.act(id, "approve", {"id": shown["approval_id"]})
        asked = await client.find(id, "approval_requested", before["position"])
        assert asked["preview"].startswith("deploy.sh\n")
        assert asked["approval_id"] != shown["approval_id"]
        again = await client.act(id, "approve", {"id": shown["approval_id"]})
        await client.act(id, "deny", {"id": asked["approval_id"]})
        rest = await client.collect(id, after=before["position"])
    assert again["status"] == "resolved"
    resolved = [(event["approval_id"], event["decision"]) for _, event in rest if event["type"] == "approval_resolved"]
    assert resolved == [(asked["approval_id"], "denied")]
    assert (workspace / "deploy.sh").read_text() == "deploy.sh\n"


async def test_abort_ends_a_question_that_a_restart_has_left_open(tmp_path: Path) -> None:
    """S7, D6: the call does not run and has its result, no answer of the model is asked for, and nothing waits."""
    async with run_program(tmp_path, "ask") as (program, client):
        id, (asked_at, question) = await ask_and_restart(program, client)
        await client.act(id, "abort")
        rest = await client.collect(id, after=asked_at)
        _, shown = await client.send("GET", f"/sessions/{id}")
        late = await client.act(id, "approve", {"id": question})
    assert rest[-1][1]["end_reason"] == "aborted"
    [result] = [event["result"] for _, event in rest if event["type"] == "tool_execution_end"]
    assert result["content"][0]["text"] == "tool call cancelled: operation aborted"
    assert result["details"]["status"] == "not_started"
    assert [event["message"]["role"] for _, event in rest if event["type"] == "message_end"] == ["tool_result"]
    assert (shown["status"], shown["approvals"]) == ("idle", [])
    assert late["status"] == "resolved"


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("action", ["continue", "prompt"])
async def test_what_was_aborted_after_a_restart_is_not_asked_again(tmp_path: Path, action: str, kill: bool) -> None:
    """loop.md, section 6: the call has one result, before anything else, also for the next process."""
    async with run_program(tmp_path, "ask") as (program, client):
        id, (asked_at, question) = await ask_and_restart(program, client)
        await client.act(id, "abort")
        aborted = await client.collect(id, after=asked_at)
        if kill:
            await program.end(signal.SIGKILL)
            await program.start()
            late = await client.act(id, "deny", {"id": question})
            assert late["status"] == "resolved"
        await client.act(id, action, {"content": "Go on."} if action == "prompt" else {})
        until = "approval_requested" if action == "prompt" else "agent_end"
        rest = await client.collect(id, until, after=aborted[-1][0])
        _, tree = await client.send("GET", f"/sessions/{id}/tree")
    asked = [event["approval_id"] for _, event in rest if event["type"] == "approval_requested"]
    assert question not in asked
    roles = ["user", "assistant", "tool_result", *(["user"] if action == "prompt" else []), "assistant"]
    assert [node["role"] for node in tree][: len(roles)] == roles


async def test_a_run_that_was_killed_in_mid_answer_can_be_continued(tmp_path: Path) -> None:
    """Positions seen before the kill are still good, and nothing comes twice."""
    async with run_program(tmp_path, "slow") as (program, client):
        id = await client.create()
        first = await client.act(id, "prompt", {"content": "Count."}, Idempotency_Key="p")
        seen: list[tuple[str, Event]] = []
        async with client.watch(id) as events:
            async for position, event in events:
                seen.append((position, event))
                if len(seen) == 40:
                    break
        await program.end(signal.SIGKILL)
        await program.start()
        again = await client.act(id, "prompt", {"content": "Count."}, Idempotency_Key="p")
        _, shown = await client.send("GET", f"/sessions/{id}")
        await client.act(id, "continue", {})
        await client.find(id, "message_update", seen[-1][0])
        await client.act(id, "abort")
        rest = await client.collect(id, after=seen[-1][0])
        _, tree = await client.send("GET", f"/sessions/{id}/tree")
    assert first == again
    assert shown["status"] == "idle"
    check_order([*seen, *rest])
    assert [node["role"] for node in tree] == ["user", "assistant"]


async def test_a_run_that_is_cut_by_a_stop_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Section 3: interrupted and resumable is what was promised, so nothing is logged about it."""
    async with run_server() as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        await client.find(id, "approval_requested")
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_run_that_is_cut_while_it_writes_is_no_error_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 3: what the run still does while its session is closed is left out, and no failure."""

    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    agent = Agent(
        ScriptedModel(answer(call("look")), repeat_last=True).model, tools=[look], repeated_calls=None, limits=None
    )
    async with run_server(lambda: agent, store=tmp_path / "sessions.db") as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Look."})
        await client.find(id, "tool_execution_end")
    assert [record.getMessage() for record in caplog.records] == []


async def test_sigterm_drains(tmp_path: Path) -> None:
    """Section 3: running ones get their grace, then are interrupted and resumable; the exit code is 0."""
    async with run_program(tmp_path, "slow") as (program, client):
        id = await client.create()
        await client.act(id, "prompt", {"content": "Count."})
        seen = await client.collect(id, "message_update")
        code = await program.end(signal.SIGTERM)
        await program.start()
        await client.act(id, "continue", {})
        rest = await client.collect(id, "message_update", after=seen[-1][0])
    assert code == 0
    check_order([*seen, *rest])


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("then", ["the same again", "continue"])
async def test_an_answer_counts_from_when_it_is_accepted(tmp_path: Path, decision: str, then: str) -> None:
    """S5, S7: the server may be killed after it took an answer and before the run had it, and asks no one again."""
    store = SqliteStore(tmp_path / "sessions.db")
    body, key = {"reason": "no"}, {"Idempotency_Key": "k"}
    async with run_server(lambda: make_agent("ask"), store=store) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        body["id"] = (await client.find(id, "approval_requested"))["approval_id"]
        first = await client.act(id, decision, body, **key)
        await client.find(id, "agent_end")
    kept = types(records(store, id)).index("order") + 1
    killed = cut(store, id, kept)
    async with run_server(lambda: make_agent("ask"), store=store) as client:
        if then == "continue":
            await client.act(killed, "continue")
        else:
            assert await client.act(killed, decision, body, **key) == first
        seen = await client.collect(killed)
    [resolved] = [event for _, event in seen if event["type"] == "approval_resolved"]
    assert (resolved["approval_id"], resolved["decision"]) == (
        body["id"],
        {"approve": "approved"}.get(decision, "denied"),
    )
    results = [event["result"]["details"]["status"] for _, event in seen if event["type"] == "tool_execution_end"]
    assert results == ["completed" if decision == "approve" else "denied"]
    assert seen[-1][1]["end_reason"] == "done"


async def test_who_denies_what_was_approved_before_a_crash_is_heard(tmp_path: Path) -> None:
    """S7: the question is shown as open, so the answer that is given now counts."""
    store = SqliteStore(tmp_path / "sessions.db")
    async with run_server(lambda: make_agent("ask"), store=store) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Deploy."})
        question = (await client.find(id, "approval_requested"))["approval_id"]
        await client.act(id, "approve", {"id": question})
        await client.find(id, "agent_end")
    killed = cut(store, id, types(records(store, id)).index("order") + 1)
    async with run_server(lambda: make_agent("ask"), store=store) as client:
        _, shown = await client.send("GET", f"/sessions/{killed}")
        await client.act(killed, "deny", {"id": question})
        seen = await client.collect(killed)
    assert shown["status"] == "waiting"
    results = [event["result"]["details"]["status"] for _, event in seen if event["type"] == "tool_execution_end"]
    assert results == ["denied"]
